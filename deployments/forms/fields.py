"""What forms have in common: fields, and showing what a service refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django import forms
from django.utils.translation import gettext as _

from deployments.domain.errors import PilothouseError


class PanelForm(forms.Form):
    """A form that also shows what a service refused: beside the field that caused it, else on top."""

    aliases: Mapping[str, str] = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("label_suffix", "")
        super().__init__(*args, **kwargs)
        self.refused: dict[str, list[dict[str, Any]]] = {}
        self.use_required_attribute = True

    def refuse(self, error: PilothouseError) -> None:
        """Keep a service's error, and all problems that it lists, beside their fields."""
        problems = error.detail.get("problems") or [error.as_dict()]
        for problem in problems:
            if problem.get("severity", "error") == "error":
                self.refused.setdefault(self._place(problem.get("field")), []).append(problem)

    def _place(self, field: str | None) -> str:
        name = self.aliases.get(field or "", field or "")
        return name if name in self.fields else ""

    @property
    def refused_on_top(self) -> list[dict[str, Any]]:
        return self.refused.get("", [])

    def attempt(self, work: Callable[[dict[str, Any]], Any]) -> Any:
        """`work(cleaned_data)`, or None with the errors kept when the input or the service says no."""
        if not self.is_valid():
            return None
        try:
            return work(self.cleaned_data)
        except PilothouseError as error:
            self.refuse(error)
            return None


def line(label: Any, *, required: bool = False, help: Any = "", **attrs: Any) -> forms.CharField:
    """One line of text."""
    widget = forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "autocapitalize": "none", **attrs})
    return forms.CharField(label=label, required=required, help_text=help, widget=widget, max_length=2000)


def area(label: Any, *, required: bool = False, help: Any = "", rows: int = 3, **attrs: Any) -> forms.CharField:
    """Several lines of text."""
    widget = forms.Textarea(attrs={"rows": rows, "spellcheck": "false", "autocomplete": "off", **attrs})
    return forms.CharField(label=label, required=required, help_text=help, widget=widget, strip=False)


def number(
    label: Any, *, low: int, high: int, required: bool = False, help: Any = "", **attrs: Any
) -> forms.IntegerField:
    """A whole number."""
    widget = forms.NumberInput(attrs={"inputmode": "numeric", **attrs})
    return forms.IntegerField(
        label=label, min_value=low, max_value=high, required=required, help_text=help, widget=widget
    )


def choice(label: Any, *, required: bool = True, help: Any = "") -> forms.ChoiceField:
    """One of what the view offers."""
    return forms.ChoiceField(label=label, required=required, help_text=help)


def read_env(lines: str) -> dict[str, str]:
    """NAME=value, one a line; a line that begins with # is a remark.

    Raises:
        ValidationError: A line without '='.
    """
    values: dict[str, str] = {}
    for line in lines.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise forms.ValidationError(_("Write NAME=value, one a line: %(line)s") % {"line": line[:80]})
        values[name.strip()] = value
    return values


def write_env(values: Mapping[str, str]) -> str:
    """The lines that `read_env` reads."""
    return "\n".join(f"{name}={value}" for name, value in values.items())
