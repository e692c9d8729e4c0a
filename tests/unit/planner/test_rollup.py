from __future__ import annotations

import pytest

from deployments.domain.rollup import deployment_state, replica_state
from deployments.domain.states import DeploymentState, ProcessState, ReplicaState, Wish

P, R, D = ProcessState, ReplicaState, DeploymentState

REPLICAS = [
    ([P.READY], R.READY),
    ([P.READY, P.READY], R.READY),
    ([P.PENDING], R.PENDING),
    ([P.PENDING, P.PENDING], R.PENDING),
    ([P.STARTING], R.STARTING),
    ([P.STARTING, P.PENDING], R.STARTING),
    ([P.READY, P.PENDING], R.STARTING),
    ([P.READY, P.UNHEALTHY], R.DEGRADED),
    ([P.UNKNOWN], R.DEGRADED),
    ([P.STARTING, P.UNKNOWN], R.DEGRADED),
    ([P.READY, P.STOPPING], R.STOPPING),
    ([P.READY, P.FAILED], R.STOPPING),
    ([P.UNKNOWN, P.STOPPED], R.STOPPING),
]
DEPLOYMENTS = [
    # wish, (state, current) of the replicas, wished, blind, expected
    (Wish.STOPPED, [], 1, False, D.STOPPED),
    (Wish.STOPPED, [(R.STOPPING, True)], 1, False, D.STOPPING),
    (Wish.STOPPED, [(R.DEGRADED, True)], 1, True, D.STOPPING),
    (Wish.RUNNING, [], 1, False, D.PENDING),
    (Wish.RUNNING, [(R.PENDING, True)], 1, False, D.PENDING),
    (Wish.RUNNING, [(R.STARTING, True)], 1, False, D.STARTING),
    (Wish.RUNNING, [(R.BACKOFF, True)], 1, False, D.STARTING),
    (Wish.RUNNING, [(R.STOPPING, False)], 1, False, D.STARTING),
    (Wish.RUNNING, [(R.READY, True)], 1, False, D.READY),
    (Wish.PAUSED, [(R.READY, True)], 1, False, D.READY),
    (Wish.RUNNING, [(R.READY, True), (R.STOPPING, False)], 1, False, D.READY),
    (Wish.RUNNING, [(R.READY, False), (R.STARTING, True)], 1, False, D.STARTING),
    (Wish.RUNNING, [(R.READY, True), (R.STARTING, True)], 2, False, D.DEGRADED),
    (Wish.RUNNING, [(R.READY, True), (R.FAILED, True)], 2, False, D.DEGRADED),
    (Wish.RUNNING, [(R.DEGRADED, True)], 1, False, D.DEGRADED),
    (Wish.RUNNING, [(R.FAILED, True)], 1, False, D.FAILED),
    (Wish.RUNNING, [(R.FAILED, True), (R.STARTING, True)], 2, False, D.FAILED),
    (Wish.RUNNING, [(R.FAILED, False), (R.STARTING, True)], 1, False, D.STARTING),
    (Wish.RUNNING, [(R.DEGRADED, True)], 1, True, D.UNKNOWN),
]


@pytest.mark.parametrize(("states", "expected"), REPLICAS)
def test_a_replica_is_what_its_processes_are(states: list[ProcessState], expected: ReplicaState) -> None:
    assert replica_state(states) is expected


@pytest.mark.parametrize(("wish", "replicas", "wished", "blind", "expected"), DEPLOYMENTS)
def test_a_deployment_is_what_its_replicas_are(wish, replicas, wished, blind, expected) -> None:
    assert deployment_state(wish, replicas, wished, blind=blind) is expected
