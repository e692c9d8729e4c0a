"""Talking to a deployment in the browser: streamed to scripts, and as a whole page without them."""

from __future__ import annotations

import json
from typing import Any

from asgiref.sync import async_to_sync, sync_to_async
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.utils import translation
from django.utils.translation import gettext as _

from deployments.domain.errors import InvalidInput, NotPermitted, PilothouseError
from deployments.forms.chat import ChatForm
from deployments.services import chat, deployments
from deployments.services.access import Actor, Role, actor_of_user, require
from deployments.services.chat_events import EventStream, frames

from .page import page, show, status_of


async def talk(request: HttpRequest, name: str) -> HttpResponseBase:
    """The page; a POST that accepts server-sent events gets the answer's words as they come."""
    if request.method == "POST" and "text/event-stream" in request.headers.get("Accept", ""):
        return await _stream(request, name)
    return await sync_to_async(whole)(request, name=name)


async def _stream(request: HttpRequest, name: str) -> HttpResponseBase:
    try:
        conversation = await sync_to_async(_begin)(request, name)
    except PilothouseError as error:
        return JsonResponse({"error": _worded(error)}, status=status_of(error))
    language = translation.get_language() or "en"

    def shown(error: PilothouseError) -> dict[str, Any]:
        with translation.override(language):
            return _worded(error)

    return EventStream(frames(conversation, shown))


def _begin(request: HttpRequest, name: str) -> chat.Conversation:
    actor = actor_of_user(request.user)
    if actor is None:
        raise NotPermitted("You are not signed in any more.", remedy="Sign in again.")
    form = ChatForm(request.POST)
    if not form.is_valid():
        field, errors = next(iter(form.errors.items()))
        label = form.fields[field].label or field
        raise InvalidInput(f"{label}: {errors[0]}", field=field)
    return chat.begin(actor, name, form.wish())


def _worded(error: PilothouseError) -> dict[str, Any]:
    """The part of an error that people read, in their language where its sentences are fixed."""
    return {
        "code": error.code,
        "message": _(error.message),
        "remedy": _(error.remedy) if error.remedy else "",
        "node": error.node,
    }


@page
def whole(request: HttpRequest, actor: Actor, name: str) -> HttpResponse:
    """The page with an empty conversation, or with the one that was sent and its answer."""
    require(actor, Role.operator, "talk to deployments")
    deployment = deployments.get_deployment(name)
    form = ChatForm(request.POST or None, initial=ChatForm.START)
    context: dict[str, Any] = {
        "deployment": deployment,
        "engines": len(deployments.endpoints(deployment)),
        "place": "deployments",
    }
    status = 200
    if request.method == "POST":
        turns, status = _answered(actor, name, form)
        context["turns"] = turns
        if status == 200:
            before = [{"role": turn["role"], "content": turn["content"]} for turn in turns if not turn.get("plain")]
            form = ChatForm(initial={**form.cleaned_data, "said": "", "before": json.dumps(before)})
    answer = show(request, actor, "deployments/chat.html", {**context, "form": form}, status=status)
    answer["Cache-Control"] = "no-store"
    return answer


def _answered(actor: Actor, name: str, form: ChatForm) -> tuple[list[dict[str, Any]], int]:
    """The conversation with its newest answer, or without one and the form saying why; and the page's status."""
    if not form.is_valid():
        return [], 422
    data = form.cleaned_data
    turns: list[dict[str, Any]] = list(data["before"])
    try:
        answer = async_to_sync(chat.begin(actor, name, form.wish()).whole)()
    except PilothouseError as error:
        form.refuse(error)
        came = error.detail.get("answer") or {}
        return [*turns, *([_turn("assistant", came["text"])] if came.get("text") else [])], status_of(error)
    plain = data["mode"] == "plain"
    said = _turn("user", data["said"], plain=plain)
    heard = _turn("assistant", answer.text, plain=plain, thought=answer.thought, figures=_figures(answer))
    return [*turns, said, heard], 200


def _turn(role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def _figures(answer: chat.Answer) -> dict[str, str]:
    """An answer's figures with three digits; the page's script writes them the same way."""
    return {
        "first": _three(answer.first_words_s, " s"),
        "speed": _three(answer.tokens_per_s),
        "took": _three(answer.took_s, " s"),
        "prompt": _three(answer.prompt_tokens),
        "tokens": _three(answer.completion_tokens),
        "reason": answer.finish_reason or "–",
        "node": answer.node,
    }


def _three(value: float | None, unit: str = "") -> str:
    if value is None:
        return "–"
    shown = str(value) if isinstance(value, int) else f"{float(f'{value:.3g}'):g}"
    return shown + unit
