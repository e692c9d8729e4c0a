from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.env import Reader, WrongSettings, or_exit


def test_an_empty_value_is_no_value() -> None:
    assert Reader({"PORT": "  "}).number("PORT", 8000, 1, 65535) == 8000


@pytest.mark.parametrize(("text", "value"), [("1", True), ("Yes", True), ("off", False), ("FALSE", False)])
def test_a_flag_has_several_spellings(text: str, value: bool) -> None:
    assert Reader({"DEBUG": text}).flag("DEBUG", not value) is value


def test_words_are_separated_by_commas_and_blanks_around_them_do_not_count() -> None:
    assert Reader({"ALLOWED_HOSTS": " a.example , ,b.example"}).words("ALLOWED_HOSTS") == ["a.example", "b.example"]


def test_a_secret_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from the file\n")
    assert Reader({"SECRET_KEY_FILE": str(tmp_path / "key")}).text("SECRET_KEY") == "from the file"


def test_a_secret_given_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("b")
    reader = Reader({"SECRET_KEY": "a", "SECRET_KEY_FILE": str(tmp_path / "key")})
    reader.text("SECRET_KEY")
    assert "both SECRET_KEY and SECRET_KEY_FILE are set" in str(reader.problems[0])


def test_an_empty_secret_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").touch()
    reader = Reader({"SECRET_KEY_FILE": str(tmp_path / "key")})
    reader.text("SECRET_KEY")
    assert reader.is_refused("SECRET_KEY")


def test_what_is_wrong_is_collected_and_raised_once() -> None:
    reader = Reader({"PORT": "70000", "DEBUG": "perhaps", "VAR_DIR": "here"})
    reader.number("PORT", 8000, 1, 65535)
    reader.flag("DEBUG", False)
    reader.path("VAR_DIR", Path("/var"))
    with pytest.raises(WrongSettings) as raised:
        reader.finish()
    assert [problem.name for problem in raised.value.problems] == ["PORT", "DEBUG", "VAR_DIR"]


def test_a_refused_url_is_shown_without_its_password() -> None:
    reader = Reader({"DATABASE_URL": "mysql://user:pa@ss@host/name"})
    reader.url("DATABASE_URL", "", ("postgresql",))
    assert "pa@ss" not in str(reader.problems[0])
    assert "***@host/name" in str(reader.problems[0])


@pytest.mark.parametrize(
    "text", ["postgresql://host:port/name", "postgresql://host:99999/name", "postgresql://[::1/name"]
)
def test_a_url_that_cannot_be_taken_apart_is_refused(text: str) -> None:
    reader = Reader({"DATABASE_URL": text})
    reader.url("DATABASE_URL", "", ("postgresql",))
    assert reader.is_refused("DATABASE_URL")


def test_an_entry_point_names_what_is_wrong_and_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    reader = Reader({"PORT": "x"})
    reader.number("PORT", 1, 1, 2)
    with pytest.raises(SystemExit) as raised, or_exit():
        reader.finish()
    assert raised.value.code == 2
    assert (
        capsys.readouterr().err
        == "pilothouse: wrong setting PORT: 'x' is not usable. Use a whole number from 1 to 2.\n"
    )
