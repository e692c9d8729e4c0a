"""Adding, changing and equipping nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from .access import KEY_SOURCES
from .fields import PanelForm, area, choice, line, number, read_env


class UseForm(PanelForm):
    """How a node is used: the advanced part of adding and changing one."""

    interpreter = line(
        gettext_lazy("Python for the helper"),
        help=gettext_lazy("Python 3.8 or newer. Empty: the first one found."),
        placeholder="/usr/bin/python3",
    )
    environment = line(
        gettext_lazy("Engine environment"),
        help=gettext_lazy("Folder with bin/vllm. Empty: the first one found."),
        placeholder="/opt/vllm",
    )
    cluster_address = line(
        gettext_lazy("Cluster address"),
        help=gettext_lazy("Engines listen on it and peers reach it. Empty: the SSH address."),
    )
    interface = line(gettext_lazy("Network interface"), help=gettext_lazy("For NCCL and Gloo."), placeholder="eth0")
    port_first = number(
        gettext_lazy("First port"),
        low=1,
        high=65535,
        help=gettext_lazy("Engines get ports from this range."),
        placeholder="20000",
    )
    port_last = number(gettext_lazy("Last port"), low=1, high=65535, placeholder="20999")
    cache_dir = line(
        gettext_lazy("Cache folder"),
        help=gettext_lazy("For compiled kernels and downloads. Empty: the user's own."),
        placeholder="/var/cache/vllm",
    )
    platform = forms.ChoiceField(
        label=gettext_lazy("Platform"),
        required=False,
        choices=[("", gettext_lazy("as probed")), ("cuda", "NVIDIA GPU"), ("cpu", "CPU")],
        help_text=gettext_lazy("What its accelerators are."),
    )
    env = area(
        gettext_lazy("Environment overrides"),
        help=gettext_lazy("NAME=value, one a line, for every process on this node."),
    )

    USE = (
        "interpreter",
        "environment",
        "cluster_address",
        "interface",
        "port_first",
        "port_last",
        "cache_dir",
        "platform",
        "env",
    )

    def clean_env(self) -> dict[str, str]:
        return read_env(self.cleaned_data["env"])

    @property
    def advanced_wrong(self) -> bool:
        """Whether something in the folded part is wrong, so that it is shown open."""
        return self._is_wrong(self.USE)

    def _is_wrong(self, names: Iterable[str]) -> bool:
        return any(name in self.errors or name in self.refused for name in names)

    def use(self) -> dict[str, Any]:
        """The advanced values that were given."""
        return {name: self.cleaned_data[name] for name in self.USE if self.cleaned_data.get(name) not in (None, "")}


class ReachForm(UseForm):
    """How a node is reached."""

    address = line(
        gettext_lazy("Address"),
        required=True,
        help=gettext_lazy("Host name or IP address, as the panel reaches it."),
        placeholder="10.0.0.11",
    )
    port = number(gettext_lazy("SSH port"), low=1, high=65535, required=True)
    user = line(gettext_lazy("User"), required=True, help=gettext_lazy("Engines run as this user; root is not needed."))
    jump_address = line(gettext_lazy("Jump host"), help=gettext_lazy("Log in through this machine. Empty: directly."))
    jump_port = number(gettext_lazy("Jump host's port"), low=1, high=65535)
    jump_user = line(gettext_lazy("Jump host's user"))
    jump_key = choice(gettext_lazy("Jump host's key"), required=False)

    aliases = {
        "jump.address": "jump_address",
        "jump.port": "jump_port",
        "jump.user": "jump_user",
        "jump.key": "jump_key",
    }
    field_order = ("name", "address", "port", "user")

    def __init__(self, *args: Any, keys: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["jump_key"].choices = [("", gettext_lazy("the node's key")), *((key, key) for key in keys)]  # type: ignore[attr-defined]

    @property
    def jump_wrong(self) -> bool:
        """Whether the jump host is given or wrong, so that its part is shown open."""
        wrong = self._is_wrong(("jump_address", "jump_port", "jump_user", "jump_key"))
        return wrong or bool(self["jump_address"].value())

    def jump(self) -> dict[str, Any] | None:
        """The jump host as services take it; None when there is none."""
        data = self.cleaned_data
        if not data["jump_address"]:
            return None
        return {
            "address": data["jump_address"],
            "port": data["jump_port"] or 22,
            "user": data["jump_user"] or data.get("user") or "root",
            "key": data["jump_key"] or None,
        }


class NodeForm(ReachForm):
    """A new node."""

    name = line(
        gettext_lazy("Name"),
        required=True,
        help=gettext_lazy("Lower-case letters, digits, '.', '_' and '-'."),
        placeholder="gpu-1",
    )
    key_source = forms.ChoiceField(label=gettext_lazy("SSH key"), choices=KEY_SOURCES, widget=forms.RadioSelect)
    key = choice(gettext_lazy("Key"), required=False)
    key_name = line(gettext_lazy("Name of the new key"), placeholder="fleet")
    private_key = area(
        gettext_lazy("Private key"),
        rows=5,
        help=gettext_lazy("OpenSSH or PEM, without a passphrase. It is stored encrypted and never shown again."),
    )
    key_file = choice(gettext_lazy("File"), required=False)

    def __init__(self, *args: Any, keys: list[str], files: list[str], **kwargs: Any) -> None:
        super().__init__(*args, keys=keys, **kwargs)
        self.fields["key"].choices = [(key, key) for key in keys]  # type: ignore[attr-defined]
        self.fields["key_file"].choices = [(name, name) for name in files]  # type: ignore[attr-defined]
        for part in ("key", "key_name", "private_key", "key_file"):
            self.fields[part].needed = True  # type: ignore[attr-defined]  # shown only where it is, then never optional
        dropped = {"existing": not keys, "folder": not files}
        self.fields["key_source"].choices = [item for item in KEY_SOURCES if not dropped.get(item[0])]  # type: ignore[attr-defined]

    def item(self) -> dict[str, Any]:
        """The node as `add_nodes` takes it."""
        data = self.cleaned_data
        reach = {name: data[name] for name in ("name", "address", "port", "user")}
        return {**reach, "key": data["key"], "jump": self.jump(), **self.use()}


class ChangeNodeForm(ReachForm):
    """A node that is there already; the key can be another existing one."""

    key = choice(gettext_lazy("SSH key"))

    def __init__(self, *args: Any, keys: list[str], local: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, keys=keys, **kwargs)
        self.fields["key"].choices = [(key, key) for key in keys]  # type: ignore[attr-defined]
        if local:
            for name in ("address", "port", "user", "key", "jump_address", "jump_port", "jump_user", "jump_key"):
                del self.fields[name]

    def changes(self) -> dict[str, Any]:
        """What `change_node` is to set: emptied fields are emptied."""
        data = self.cleaned_data
        found = {
            name: data[name] for name in (*self.USE, "address", "port", "user", "key") if data.get(name) is not None
        }
        return {**found, "jump": self.jump()} if "jump_address" in self.fields else found


class ManyNodesForm(PanelForm):
    """Text that names machines, and what they have in common."""

    kind = forms.ChoiceField(
        label=gettext_lazy("The text is"),
        choices=[
            ("list", gettext_lazy("a list")),
            ("ssh_config", gettext_lazy("an ssh config")),
            ("known_hosts", gettext_lazy("a known_hosts file")),
        ],
        widget=forms.RadioSelect,
    )
    text = area(
        gettext_lazy("Machines"),
        required=True,
        rows=8,
        help=gettext_lazy("List: one machine a line, as [name] [user@]address[:port]."),
    )
    user = line(gettext_lazy("User, where the text names none"), required=True)
    key = choice(gettext_lazy("SSH key"))
    jump = line(gettext_lazy("Jump host, where the text names none"), placeholder="user@bastion:22")

    def __init__(self, *args: Any, keys: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["key"].choices = [(key, key) for key in keys]  # type: ignore[attr-defined]


class ManyNodesRow(forms.Form):
    """One machine of the preview table."""

    include = forms.BooleanField(required=False, initial=True)
    name = forms.CharField(required=False)
    address = forms.CharField(required=False)
    port = forms.IntegerField(required=False, min_value=1, max_value=65535)
    user = forms.CharField(required=False)
    jump = forms.CharField(required=False)


class EnvironmentForm(PanelForm):
    """An engine environment to install."""

    path = line(
        gettext_lazy("Folder"),
        required=True,
        help=gettext_lazy("A virtual environment is made there; one that exists is upgraded."),
        placeholder="/opt/vllm",
    )
    packages = area(
        gettext_lazy("Pinned packages"), required=True, rows=5, help=gettext_lazy("name==version, one a line.")
    )
    nodes = forms.MultipleChoiceField(
        label=gettext_lazy("Nodes"),
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("Nodes of one gang need the same pins."),
    )
    python = line(
        gettext_lazy("Python to make it with"),
        help=gettext_lazy("Empty: the one that the probe found."),
        placeholder="/usr/bin/python3.12",
    )
    find_links = line(
        gettext_lazy("Folder with wheels"),
        help=gettext_lazy("For nodes without a network: nothing is downloaded then."),
        placeholder="/srv/wheels",
    )

    def __init__(self, *args: Any, nodes: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["nodes"].choices = [(name, name) for name in nodes]  # type: ignore[attr-defined]

    def clean_packages(self) -> list[str]:
        return self.cleaned_data["packages"].replace(",", " ").split()


class UseEnvironmentForm(PanelForm):
    """An environment that is on the node already."""

    environment = line(
        gettext_lazy("Folder"), required=True, help=gettext_lazy("Folder with bin/vllm."), placeholder="/opt/vllm"
    )
