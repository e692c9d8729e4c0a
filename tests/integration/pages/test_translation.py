"""Everything that pages say is in the catalogue, and the catalogue is whole."""

from __future__ import annotations

import ast
import gettext
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from django.template.base import Lexer, TokenType

from deployments.templatetags.sentences import SENTENCES

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "controlplane" / "locale" / "zh_Hans" / "LC_MESSAGES"
# The API's own page is its documentation, in one language.
TEMPLATES = sorted(path for path in (ROOT / "templates").rglob("*.html") if path.name != "api_docs.html")
# Names and abbreviations that are the same in every language.
SAME = re.compile(r"Pilothouse|pid|UUID|MIG|CUDA|NUMA|CPU|Python|vLLM|TP|PP|DP|English|简体中文|[a-z]|Esc")
SHOWN = {"title", "aria-label", "placeholder", "alt", "data-label", "label"}
QUOTED = r"""(?:"([^"]*)"|'([^']*)')"""


def catalogue() -> dict[str, str]:
    """msgid -> translation, read from the .po itself."""
    found: dict[str, str] = {}
    for block in (FOLDER / "django.po").read_text(encoding="utf-8").split("\n\n"):
        parts = {
            key: ast.literal_eval("(" + lines + ")")
            for key, lines in re.findall(r'^(msgid|msgid_plural|msgstr(?:\[0\])?) ((?:".*"\n?)+)', block, re.M)
        }
        if parts.get("msgid"):
            found[parts["msgid"]] = parts.get("msgstr", parts.get("msgstr[0]", ""))
    return found


def test_no_entry_is_empty_fuzzy_or_left_over() -> None:
    text = (FOLDER / "django.po").read_text(encoding="utf-8")
    assert "fuzzy" not in text
    assert "#~" not in text
    assert [key for key, value in catalogue().items() if not value] == []


def test_placeholders_are_the_same_in_both_languages() -> None:
    holes = re.compile(r"%\(\w+\)[sd]|\{\}")
    wrong = [key for key, value in catalogue().items() if sorted(holes.findall(key)) != sorted(holes.findall(value))]
    assert wrong == []


def test_the_compiled_catalogue_is_the_written_one() -> None:
    with (FOLDER / "django.mo").open("rb") as file:
        compiled = gettext.GNUTranslations(file)
    assert {
        key
        for key, value in catalogue().items()
        if compiled.ngettext(key, key, 1) != value and compiled.gettext(key) != value
    } == set()


def test_every_text_of_templates_and_pages_is_in_the_catalogue() -> None:
    known = catalogue()
    missing = {text for template in TEMPLATES for text in _marked(template.read_text(encoding="utf-8"))} - set(known)
    sources = [
        *ROOT.glob("deployments/views/*.py"),
        *ROOT.glob("deployments/forms/*.py"),
        *ROOT.glob("deployments/templatetags/*.py"),
    ]
    missing |= {text for source in sources for text in _called(source)} - set(known)
    assert missing == set()


def _marked(source: str) -> Iterator[str]:
    for match in re.finditer(r"\{% translate " + QUOTED, source):
        yield match.group(1) or match.group(2) or ""
    for match in re.finditer(r"\{% blocktranslate.*?%\}(.*?)\{% (?:plural|endblocktranslate) %\}", source, re.S):
        yield re.sub(r"\{\{ (\w+) \}\}", r"%(\1)s", match.group(1))


def _called(source: Path) -> Iterator[str]:
    names = {"_", "gettext", "gettext_lazy", "gettext_noop", "ngettext"}
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            first = node.args[0]
            if isinstance(first, ast.Constant):
                yield str(first.value)


def test_no_template_says_anything_outside_the_catalogue() -> None:
    said = {(template.name, text) for template in TEMPLATES for text in _bare(template.read_text(encoding="utf-8"))}
    assert said == set()


class _Words(HTMLParser):
    """The words of a template that a reader would see."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside.append(tag)
        self.words += [value or "" for name, value in attrs if name in SHOWN]

    def handle_endtag(self, tag: str) -> None:
        if tag in self.inside:
            del self.inside[len(self.inside) - 1 - self.inside[::-1].index(tag) :]

    def handle_data(self, data: str) -> None:
        if not {"kbd", "script", "style"} & set(self.inside):
            self.words.append(data)


def _bare(source: str) -> list[str]:
    words = _Words()
    words.feed(_without_tags(source))
    return [text.strip() for text in words.words if re.search(r"[A-Za-z]{1,}", SAME.sub("", text))]


def _without_tags(source: str) -> str:
    """The template's own text: no tags, no variables, nothing between blocktranslate and its end."""
    kept, skipping = [], False
    for token in Lexer(source).tokenize():
        if token.token_type is TokenType.BLOCK and token.contents.startswith("blocktranslate"):
            skipping = True
        elif token.token_type is TokenType.BLOCK and token.contents == "endblocktranslate":
            skipping = False
        elif token.token_type is TokenType.TEXT and not skipping:
            kept.append(token.contents)
    return "".join(kept)


def test_every_kept_sentence_is_still_said_by_the_code_it_came_from() -> None:
    own = ROOT / "deployments" / "templatetags"
    sources = [path for path in (ROOT / "deployments").rglob("*.py") if own not in path.parents]
    said = {
        node.value
        for path in sources
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert [sentence for sentence in SENTENCES if sentence not in said] == []
