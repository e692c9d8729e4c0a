"""Reading pages as people do: words without tags, links, forms, and what a browser would refuse."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

SILENT = {"script", "style", "svg"}


@dataclass
class Page(HTMLParser):
    """A parsed page: `text`, `links` and `actions` (targets of links and forms), `attributes` of all elements."""

    source: str
    text: str = ""
    links: set[str] = field(default_factory=set)
    actions: set[str] = field(default_factory=set)
    attributes: list[tuple[str, str, str]] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._inside: list[str] = []
        self.feed(self.source)
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside.append(tag)
        for name, value in attrs:
            self.attributes.append((tag, name, value or ""))
        values = dict(attrs)
        if tag == "a":
            self.links.add(values.get("href") or "")
        if tag == "form":
            self.actions.add(values.get("action") or "")

    def handle_endtag(self, tag: str) -> None:
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if "script" in self._inside or "style" in self._inside:
            self.scripts.append(data.strip())
        elif not SILENT & set(self._inside):
            self.text += f" {data}"


def read(answer: Any) -> Page:
    """The page that Django's client got."""
    return Page(answer.content.decode())
