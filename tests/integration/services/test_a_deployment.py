from __future__ import annotations

import pytest

from deployments.domain.states import Wish
from deployments.services import deployments
from deployments.services.deployments import DeploymentInput

from ..panel import found_model, ready_node, settle, single_layout

pytestmark = pytest.mark.django_db


def test_a_wish_becomes_ready_and_its_stop_is_proven(stub, admin) -> None:
    node = ready_node(admin)
    found_model(admin)
    single_layout(admin)
    deployment = deployments.apply(admin, DeploymentInput(name="chat", model="qwen", layout="one"))
    assert settle(deployment).state == "READY"
    assert len([p for p in stub.node(node.pk).processes.values() if p.alive]) == 1
    deployments.set_wish(admin, "chat", Wish.STOPPED)
    assert settle(deployment).state == "STOPPED"
    (process,) = deployments.processes_of(deployment, current=False)
    assert process.stop_evidence["proven"] is True
    assert not [p for p in stub.node(node.pk).processes.values() if p.alive]
