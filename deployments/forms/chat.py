"""What is typed into the chat page."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from deployments.services import chat

from .fields import PanelForm, area, number

MODES = [("chat", gettext_lazy("Chat")), ("plain", gettext_lazy("Plain completion"))]


class ChatForm(PanelForm):
    """One more message of a conversation; what was said before comes along, for nothing of it is kept here."""

    said = area(gettext_lazy("Message"), required=True, rows=3)
    mode = forms.ChoiceField(
        label=gettext_lazy("Mode"),
        choices=MODES,
        widget=forms.RadioSelect,
        initial="chat",
        help_text=gettext_lazy("Plain completion goes on from your words; it needs no chat template."),
    )
    system = area(
        gettext_lazy("System message"), rows=2, help=gettext_lazy("Sent before the conversation, in chat mode.")
    )
    max_tokens = number(gettext_lazy("Tokens at most"), low=1, high=chat.MAX_TOKENS, required=True)
    temperature = forms.FloatField(
        label=gettext_lazy("Temperature"),
        min_value=0,
        max_value=chat.MAX_TEMPERATURE,
        widget=forms.NumberInput(attrs={"inputmode": "decimal", "step": "0.1"}),
        help_text=gettext_lazy("0 always takes the likeliest word."),
    )
    before = forms.CharField(required=False, widget=forms.HiddenInput, strip=False)

    aliases = {"messages": "said", "prompt": "said"}
    START = {"mode": "chat", "max_tokens": 512, "temperature": 0.7}

    def clean_before(self) -> list[dict[str, str]]:
        """Messages of role and content; the service looks at them more closely."""
        text = self.cleaned_data["before"]
        try:
            found: Any = json.loads(text) if text else []
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, list) or not all(_is_message(item) for item in found):
            raise forms.ValidationError(_("What was said before cannot be read."))
        return found

    def wish(self) -> chat.ChatInput:
        """What to ask. Only for a valid form."""
        data = self.cleaned_data
        options = {"max_tokens": data["max_tokens"], "temperature": data["temperature"]}
        if data["mode"] == "plain":
            return chat.ChatInput(prompt=data["said"], **options)
        system = [{"role": "system", "content": data["system"]}] if data["system"].strip() else []
        return chat.ChatInput([*system, *data["before"], {"role": "user", "content": data["said"]}], **options)


def _is_message(item: Any) -> bool:
    return (
        isinstance(item, dict) and set(item) == {"role", "content"} and all(isinstance(v, str) for v in item.values())
    )
