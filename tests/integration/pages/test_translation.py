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
from deployments.templatetags.words import REASONS

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "controlplane" / "locale" / "zh_Hans" / "LC_MESSAGES"
# The API's own page is its documentation, in one language.
TEMPLATES = sorted(path for path in (ROOT / "templates").rglob("*.html") if path.name != "api_docs.html")
# Names and abbreviations that are the same in every language.
SAME = re.compile(
    r"Pilothouse|pid|UUID|MIG|CUDA|NUMA|[CG]PU|RAM|P50|P99|Python|vLLM|TP|PP|DP|English|简体中文|[a-z]|Esc"
)
# All code that may speak to people.
SOURCES = sorted(
    path
    for app in ("controlplane", "deployments", "monitoring")
    for path in (ROOT / app).rglob("*.py")
    if "migrations" not in path.parts
)
SHOWN = {"title", "aria-label", "placeholder", "alt", "data-label", "label"}
QUOTED = r"""(?:"([^"]*)"|'([^']*)')"""
# Between the context of a text and the text itself, as in the compiled catalogue.
OF = "\x04"


def catalogue() -> dict[str, str]:
    """msgid, or its context and it -> translation, read from the .po itself."""
    found: dict[str, str] = {}
    for block in (FOLDER / "django.po").read_text(encoding="utf-8").split("\n\n"):
        parts = {
            key: ast.literal_eval("(" + lines + ")")
            for key, lines in re.findall(r'^(msgctxt|msgid|msgid_plural|msgstr(?:\[0\])?) ((?:".*"\n?)+)', block, re.M)
        }
        if parts.get("msgid"):
            key = OF.join(parts[name] for name in ("msgctxt", "msgid") if name in parts)
            found[key] = parts.get("msgstr", parts.get("msgstr[0]", ""))
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


def test_every_text_of_templates_and_code_is_in_the_catalogue_and_nothing_else() -> None:
    said = {text for template in TEMPLATES for text in _marked(template.read_text(encoding="utf-8"))}
    said |= {text for source in SOURCES for text in _called(source)}
    known = set(catalogue())
    assert said - known == set()
    assert known - said == set()


def _marked(source: str) -> Iterator[str]:
    for match in re.finditer(r"\{% translate " + QUOTED + "(?: context " + QUOTED + ")?", source):
        first, second, *context = match.groups()
        yield OF.join([*filter(None, context), first or second or ""])
    for match in re.finditer(r"\{% blocktranslate.*?%\}(.*?)\{% (?:plural|endblocktranslate) %\}", source, re.S):
        yield re.sub(r"\{\{ (\w+) \}\}", r"%(\1)s", match.group(1))


def _called(source: Path) -> Iterator[str]:
    for call in _calls(ast.parse(source.read_text(encoding="utf-8"))):
        texts = [text for text in call.args if isinstance(text, ast.Constant)]
        if texts:
            yield str(texts[0].value)


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    names = {"_", "gettext", "gettext_lazy", "gettext_noop", "ngettext"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            yield node


def test_no_text_hides_where_the_extraction_does_not_look() -> None:
    hidden = [
        f"{source.name}:{call.lineno}"
        for source in SOURCES
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
        if isinstance(node, ast.JoinedStr)
        for call in _calls(node)
    ]
    assert hidden == []


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


# Said to programs alone, by the API's own layer.
UNSEEN = {"api", "management", "migrations", "templatetags"}
UNSEEN_FILES = {"idempotency.py", "paging.py", "stub_node.py", "stub_chat.py"}
# Said between programs: people are never shown them.
UNSPOKEN = {
    "ERROR",
    "ENGINE_ANSWERED",
    "NO_ENGINE",
    "NOT_RUNNING",
    "TOO_LARGE",
    "UNKNOWN_VERB",
    "INVALID_ID",
    "SCHEMA_MISMATCH",
}


def test_every_fixed_remedy_is_kept_for_translation() -> None:
    said = {text for tree in _speaking() for node in ast.walk(tree) for text in _remedies(node)}
    assert said - set(SENTENCES) == set()


def _remedies(node: ast.AST) -> Iterator[str]:
    """What is assigned to a remedy, given as one, or the third argument of an error of the helper."""
    found: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        found = [node.value for target in node.targets if _name(target) in ("remedy", "default_remedy")]
    elif isinstance(node, ast.Call):
        found = [word.value for word in node.keywords if word.arg == "remedy"]
        if _name(node.func) == "HelperError":
            found += node.args[2:3]
    yield from (text for value in found if (text := _constant(value)))


def test_every_code_of_an_error_has_words() -> None:
    said = {code for tree in _speaking() for node in ast.walk(tree) for code in _codes(node)}
    assert said - set(REASONS) - UNSPOKEN == set()


def _codes(node: ast.AST) -> Iterator[str]:
    found: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        found = [node.value for target in node.targets if _name(target) == "code"]
    elif isinstance(node, ast.Call):
        found = [word.value for word in node.keywords if word.arg == "code"]
        if _name(node.func) == "HelperError":
            found += node.args[:1]
    yield from (text for value in found if (text := _constant(value)) and text.isupper())


def _speaking() -> Iterator[ast.Module]:
    for path in (ROOT / "deployments").rglob("*.py"):
        if not UNSEEN & set(path.parts) and path.name not in UNSEEN_FILES:
            yield ast.parse(path.read_text(encoding="utf-8"))


def _name(node: ast.AST) -> str:
    return getattr(node, "id", "") or getattr(node, "attr", "")


def _constant(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
