"""Keys, tokens and people."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from .fields import PanelForm, area, choice, line, number

ROLES = [("viewer", gettext_lazy("viewer")), ("operator", gettext_lazy("operator")), ("admin", gettext_lazy("admin"))]
KEY_SOURCES = [
    ("existing", gettext_lazy("An existing key")),
    ("generate", gettext_lazy("Generate one")),
    ("paste", gettext_lazy("Paste one")),
    ("folder", gettext_lazy("From the key folder")),
]


class KeyForm(PanelForm):
    """A new SSH key."""

    name = line(gettext_lazy("Name"), required=True, placeholder="fleet")
    source = forms.ChoiceField(
        label=gettext_lazy("Where it comes from"), choices=KEY_SOURCES[1:], widget=forms.RadioSelect, initial="generate"
    )
    private_key = area(
        gettext_lazy("Private key"),
        rows=6,
        help=gettext_lazy("OpenSSH or PEM, without a passphrase. It is stored encrypted and never shown again."),
    )
    key_file = choice(gettext_lazy("File"), required=False)

    aliases = {"file": "key_file"}

    def __init__(self, *args: Any, files: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["key_file"].choices = [(name, name) for name in files]  # type: ignore[attr-defined]
        for part in ("private_key", "key_file"):
            self.fields[part].needed = True  # type: ignore[attr-defined]  # shown only where it is, then never optional
        if not files:
            self.fields["source"].choices = KEY_SOURCES[1:3]  # type: ignore[attr-defined]


class TokenForm(PanelForm):
    """A new API token."""

    name = line(gettext_lazy("Name"), required=True, help=gettext_lazy("Who or what uses it."), placeholder="ci")
    scope = forms.ChoiceField(
        label=gettext_lazy("Scope"), help_text=gettext_lazy("What it may do, never more than you.")
    )
    days = number(gettext_lazy("Lives (days)"), low=1, high=366, required=True)

    def __init__(self, *args: Any, scopes: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["scope"].choices = [item for item in ROLES if item[0] in scopes]  # type: ignore[attr-defined]


class UserForm(PanelForm):
    """A new person."""

    username = line(gettext_lazy("User name"), required=True)
    password = forms.CharField(
        label=gettext_lazy("Password"),
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=gettext_lazy("At least 12 characters."),
        strip=False,
    )
    role = forms.ChoiceField(label=gettext_lazy("Role"), choices=ROLES, initial="viewer")
