"""Which nodes are this observer's: an equal share, held by leases that run out when nobody renews them."""

from __future__ import annotations

import os
import socket
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from deployments.domain.errors import PilothouseError
from deployments.models import Node
from deployments.remote.launcher import NodeTarget
from deployments.targets import installation_id, target_of
from monitoring.models import ObserverSeen

# A node is an observer's for so long, and an observer alive; both are renewed each round (s).
LEASE_S = 15
# Rows of observers that are no more are kept so long, for whoever looks into it (s).
KEEP_S = 3600
# All that a target is made of, but for the keys' secrets, which never change within a row.
_TARGET_COLUMNS = (
    "name", "kind", "address", "port", "user", "key_id", "host_key", "interpreter", "jump_id", "jump__address",
    "jump__port", "jump__user", "jump__key_id", "jump__host_key",
)  # fmt: skip


class Leases:
    """The nodes of one observer. Every call uses the database.

    Attributes:
        unusable: Nodes held that nobody can log in to, and why; they have no target.
    """

    def __init__(self, observer: str) -> None:
        self.unusable: dict[int, PilothouseError] = {}
        self._observer = observer
        self._known: dict[int, tuple[tuple[object, ...], NodeTarget]] = {}

    def claim(self) -> dict[int, NodeTarget]:
        """Say that this observer lives, renew what it holds, give back what exceeds its share, take what is free.

        A share is the number of nodes over that of living observers, rounded up, so that shares hold all nodes. What is
        given back stays unwatched until another's next round.
        """
        now = timezone.now()
        self._show(now)
        until = now + timedelta(seconds=LEASE_S)
        share = self._share(now)
        held = list(self._held().order_by("pk").values_list("pk", flat=True))
        self._held().filter(pk__in=held[:share]).update(observed_until=until)
        self._held().filter(pk__in=held[share:]).update(observer="", observed_until=None)
        self._take(share - len(held), now)
        return self._targets()

    def let_go(self) -> None:
        """Give everything back, and live no more."""
        Node.objects.filter(observer=self._observer).update(observer="", observed_until=None)
        ObserverSeen.objects.filter(pk=self._observer).delete()

    def _show(self, now: datetime) -> None:
        values = {"seen_at": now, "host": socket.gethostname()[:255], "pid": os.getpid()}
        ObserverSeen.objects.update_or_create(pk=self._observer, defaults=values)
        ObserverSeen.objects.filter(seen_at__lt=now - timedelta(seconds=KEEP_S)).delete()

    def _share(self, now: datetime) -> int:
        living = ObserverSeen.objects.filter(seen_at__gte=now - timedelta(seconds=LEASE_S)).count()
        return -(-_usable().count() // max(1, living))

    def _held(self) -> QuerySet[Node]:
        return _usable().filter(observer=self._observer)

    def _take(self, room: int, now: datetime) -> None:
        if room <= 0:
            return
        free = Q(observer="") | Q(observed_until=None) | Q(observed_until__lt=now)
        with transaction.atomic():
            # Rows that another observer takes at this moment are skipped instead of waited for.
            rows = _usable().filter(free).order_by("pk").select_for_update(skip_locked=True)
            taken = list(rows.values_list("pk", flat=True)[:room])
            until = now + timedelta(seconds=LEASE_S)
            Node.objects.filter(pk__in=taken).update(observer=self._observer, observed_until=until)

    def _targets(self) -> dict[int, NodeTarget]:
        """How to reach the nodes held. Keys are decrypted only for nodes that changed."""
        now = {pk: columns for pk, *columns in self._held().values_list("pk", *_TARGET_COLUMNS)}
        fresh = [pk for pk, columns in now.items() if pk not in self._known or self._known[pk][0] != tuple(columns)]
        targets = {pk: self._known[pk][1] for pk in now.keys() - set(fresh)}
        if fresh:
            targets |= self._read(fresh)
        self.unusable = {pk: error for pk, error in self.unusable.items() if pk in now and pk not in targets}
        self._known = {pk: (tuple(now[pk]), target) for pk, target in targets.items()}
        return targets

    def _read(self, nodes: list[int]) -> dict[int, NodeTarget]:
        """Targets. When a secret cannot be decrypted, each node is read alone, so that it costs only its own."""
        try:
            return _read(nodes)
        except PilothouseError:
            targets: dict[int, NodeTarget] = {}
        for pk in nodes:
            try:
                targets |= _read([pk])
            except PilothouseError as error:
                self.unusable[pk] = error
        return targets


def _read(nodes: list[int]) -> dict[int, NodeTarget]:
    installation = installation_id()
    rows = Node.objects.filter(pk__in=nodes).select_related("key", "jump__key").defer("report", "facts")
    return {node.pk: target_of(node, installation) for node in rows}


def _usable() -> QuerySet[Node]:
    """Nodes that can be reached: this machine, and those whose host key was accepted."""
    return Node.objects.filter(Q(kind=Node.Kind.LOCAL) | ~Q(host_key=""))
