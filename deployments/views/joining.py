"""Many nodes at once, and the table of fingerprints that follows."""

from __future__ import annotations

from typing import Any

from django.forms import BaseFormSet, formset_factory
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from deployments.domain.errors import InvalidInput
from deployments.forms.nodes import ManyNodesForm, ManyNodesRow
from deployments.services import joining, keys, nodes
from deployments.services.access import Actor, Role, require

from .page import done, page, show

Rows = formset_factory(ManyNodesRow, extra=0, absolute_max=joining.MAX_NODES, max_num=joining.MAX_NODES)


@page
def add_many(request: HttpRequest, actor: Actor) -> HttpResponse:
    """First the text, then the same form with a table of what was found in it, then the nodes."""
    require(actor, Role.admin, "add nodes")
    names = [key.name for key in keys.list_keys()]
    form = ManyNodesForm(request.POST or None, initial={"kind": "list", "user": "root"}, keys=names)
    rows: BaseFormSet | None = None
    notes: tuple[str, ...] = ()
    if request.method == "POST":
        if "add" in request.POST:
            rows = Rows(request.POST, prefix="row")
            added = form.attempt(lambda data: nodes.add_nodes(actor, _items(rows, data)))
            if added:
                words = ngettext("%(n)d node was added.", "%(n)d nodes were added.", len(added)) % {"n": len(added)}
                return done(request, "fingerprints", words)
        elif found := form.attempt(lambda data: joining.read_machines(actor, data["text"], data["kind"])):
            rows, notes = _rows(found, form.cleaned_data), found.notes
    context = {"form": form, "rows": rows, "notes": notes, "has_keys": bool(names), "place": "nodes"}
    status = 422 if form.errors or form.refused else 200
    return show(request, actor, "nodes/add_many.html", context, status=status)


def _rows(found: joining.Found, data: dict[str, Any]) -> BaseFormSet:
    initial = [
        {
            "include": True,
            "name": item.name,
            "address": item.address,
            "port": item.port,
            "user": item.user or data["user"],
            "jump": item.jump or data["jump"],
        }
        for item in found.candidates
    ]
    return Rows(prefix="row", initial=initial)


def _items(rows: BaseFormSet | None, data: dict[str, Any]) -> list[dict[str, Any]]:
    if rows is None or not rows.is_valid():
        raise InvalidInput(_("A port in the table is not a number."), field="text")
    chosen = [row for row in rows.cleaned_data if row.get("include")]
    if not chosen:
        raise InvalidInput(_("No machine is chosen."), remedy=_("Tick at least one row of the table."))
    return [
        {
            "name": row["name"],
            "address": row["address"],
            "port": row["port"] or 22,
            "user": row["user"] or data["user"],
            "key": data["key"],
            "jump": _jump(row["jump"], row["user"] or data["user"]),
        }
        for row in chosen
    ]


def _jump(text: str, user: str) -> dict[str, Any] | None:
    if not text:
        return None
    named, address, port = joining.split_login(text, text)
    return {"address": address, "port": port, "user": named or user}


@page
def fingerprints(request: HttpRequest, actor: Actor) -> HttpResponse:
    """What was offered, beside what was accepted. Only what a person has seen can be accepted."""
    if request.method == "POST":
        accepts = [
            {
                "node": name,
                "fingerprint": request.POST.get(f"print-{name}") or None,
                "jump_fingerprint": request.POST.get(f"jump-{name}") or None,
            }
            for name in request.POST.getlist("accept")
        ]
        accepted = nodes.accept_host_keys(actor, accepts)
        words = ngettext("%(n)d host key was accepted.", "%(n)d host keys were accepted.", len(accepted))
        return done(request, "fingerprints", words % {"n": len(accepted)})
    rows = sorted(nodes.fingerprints(), key=lambda row: (not row["changed"], not row["undecided"], row["node"]))
    context = {"rows": rows, "undecided": any(row["undecided"] for row in rows), "place": "nodes"}
    return show(request, actor, "nodes/fingerprints.html", context, parts=("live",))
