"""Keys, tokens and people."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as lazy

from .fields import PanelForm, area, choice, line, number

ROLES = [("viewer", lazy("viewer")), ("operator", lazy("operator")), ("admin", lazy("admin"))]
KEY_SOURCES = [
    ("existing", lazy("An existing key")),
    ("generate", lazy("Generate one")),
    ("paste", lazy("Paste one")),
    ("folder", lazy("From the key folder")),
]


class KeyForm(PanelForm):
    """A new SSH key."""

    name = line(lazy("Name"), required=True, placeholder="fleet")
    source = forms.ChoiceField(
        label=lazy("Where it comes from"), choices=KEY_SOURCES[1:], widget=forms.RadioSelect, initial="generate"
    )
    private_key = area(
        lazy("Private key"),
        rows=6,
        help=lazy("OpenSSH or PEM, without a passphrase. It is stored encrypted and never shown again."),
    )
    key_file = choice(lazy("File"), required=False)

    aliases = {"file": "key_file"}

    def __init__(self, *args: Any, files: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["key_file"].choices = [(name, name) for name in files]  # type: ignore[attr-defined]
        if not files:
            self.fields["source"].choices = KEY_SOURCES[1:3]  # type: ignore[attr-defined]


class TokenForm(PanelForm):
    """A new API token."""

    name = line(lazy("Name"), required=True, help=lazy("Who or what uses it."), placeholder="ci")
    scope = forms.ChoiceField(label=lazy("Scope"), help_text=lazy("What it may do, never more than you."))
    days = number(lazy("Lives (days)"), low=1, high=366, required=True)

    def __init__(self, *args: Any, scopes: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["scope"].choices = [item for item in ROLES if item[0] in scopes]  # type: ignore[attr-defined]


class UserForm(PanelForm):
    """A new person."""

    username = line(lazy("User name"), required=True)
    password = forms.CharField(
        label=lazy("Password"),
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=lazy("At least 12 characters."),
        strip=False,
    )
    role = forms.ChoiceField(label=lazy("Role"), choices=ROLES, initial="viewer")
