"""Models, layouts and deployments."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from deployments.domain.options import split_args

from .fields import PanelForm, area, choice, line, number, read_env


class ModelForm(PanelForm):
    """A model to register."""

    name = line(
        gettext_lazy("Name"),
        required=True,
        help=gettext_lazy("What you call it here and, unless a deployment says else, in the API."),
        placeholder="qwen2.5-7b",
    )
    path = line(
        gettext_lazy("Folder or hub id"),
        required=True,
        help=gettext_lazy("An absolute folder, the same on all nodes, or an id such as Qwen/Qwen2.5-7B-Instruct."),
        placeholder="/models/Qwen2.5-7B-Instruct",
    )
    nodes = forms.MultipleChoiceField(
        label=gettext_lazy("Look on"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("None chosen: on all nodes."),
    )

    def __init__(self, *args: Any, nodes: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["nodes"].choices = [(name, name) for name in nodes]  # type: ignore[attr-defined]


class LayoutForm(PanelForm):
    """A layout to add."""

    name = line(gettext_lazy("Name"), required=True, placeholder="tp4")
    kind = forms.ChoiceField(label=gettext_lazy("Kind"), widget=forms.RadioSelect)
    tensor_parallel_size = number(
        gettext_lazy("Tensor parallel size"),
        low=1,
        high=1024,
        required=True,
        help=gettext_lazy("Accelerators that share every layer of one copy."),
    )
    backend = forms.ChoiceField(
        label=gettext_lazy("Backend"),
        choices=[("mp", "mp"), ("ray", "ray")],
        help_text=gettext_lazy("How ranks are started: mp inside one node, ray across nodes."),
    )

    def __init__(self, *args: Any, kinds: list[Any], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["kind"].choices = [(kind.kind, _(kind.title)) for kind in kinds]  # type: ignore[attr-defined]


class DeploymentForm(PanelForm):
    """A wish."""

    name = line(
        gettext_lazy("Name"),
        required=True,
        help=gettext_lazy("Lower-case letters, digits, '.', '_' and '-'."),
        placeholder="qwen-7b",
    )
    model = choice(gettext_lazy("Model"))
    layout = choice(gettext_lazy("Layout"))
    replicas = number(
        gettext_lazy("Replicas"), low=0, high=256, required=True, help=gettext_lazy("Copies that serve side by side.")
    )
    nodes = forms.MultipleChoiceField(
        label=gettext_lazy("Nodes to choose among"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("None chosen: any node."),
    )
    served_name = line(gettext_lazy("Served name"), help=gettext_lazy("What clients ask for. Empty: the model's name."))
    args = area(
        gettext_lazy("Engine arguments"),
        help=gettext_lazy("As on a command line; quotes are honoured, nothing is expanded."),
        placeholder="--max-model-len 8192 --gpu-memory-utilization 0.9",
    )
    env = area(gettext_lazy("Environment"), help=gettext_lazy("NAME=value, one a line."))
    start_deadline = number(
        gettext_lazy("Start deadline (s)"), low=1, high=86400, help=gettext_lazy("From start to ready. Empty: 1800 s.")
    )
    stop_grace = number(
        gettext_lazy("Stop grace (s)"), low=1, high=3600, help=gettext_lazy("Between TERM and KILL. Empty: 10 s.")
    )
    if_generation = forms.IntegerField(required=False, widget=forms.HiddenInput)

    aliases = {"If-Match": "if_generation", "kind": "layout", "tensor_parallel_size": "layout"}

    def __init__(
        self,
        *args: Any,
        models: list[str],
        layouts: list[str],
        nodes: list[str],
        fixed_name: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        for field, names in (("model", models), ("layout", layouts), ("nodes", nodes)):
            self.fields[field].choices = [(name, name) for name in names]  # type: ignore[attr-defined]
        if fixed_name:
            self.fields["name"].widget.attrs["readonly"] = True

    def clean_args(self) -> tuple[str, ...]:
        try:
            return split_args(self.cleaned_data["args"])
        except ValueError:
            raise forms.ValidationError(_("A quote is not closed.")) from None

    def clean_env(self) -> dict[str, str]:
        return read_env(self.cleaned_data["env"])


class ScaleForm(PanelForm):
    """Another number of replicas."""

    replicas = number(gettext_lazy("Replicas"), low=0, high=256, required=True)
