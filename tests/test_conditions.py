"""The table of conditions, its page and the code agree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import boatlift
from boatlift import errors
from boatlift.conditions import CONDITIONS
from scripts.errors_table import CLASSES, PAGE, errors_page

SOURCES = Path(boatlift.__file__).parent


class Raised(NamedTuple):
    """One place in the code that makes an error of ours."""

    where: str
    error: str
    conditions: frozenset[str]
    message: str


def literals(node: ast.expr) -> Iterator[str]:
    """The strings that an argument can be: a literal, or one of several."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp(body=body, orelse=orelse):
            yield from literals(body)
            yield from literals(orelse)


def last_words(node: ast.expr) -> str:
    """How a message ends, as far as it is written down."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=[*_, ast.Constant(value=str(text))]):
            return text
        case _:
            return ""


def find_raised(source: str, where: str) -> Iterator[Raised]:
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in CLASSES:
            place = f"{where}:{node.lineno}"
            assert len(node.args) >= 2, f"{place}: {name} takes a condition and a message"
            yield Raised(place, name, frozenset(literals(node.args[0])), last_words(node.args[1]))


def all_raised() -> list[Raised]:
    return [
        raised
        for path in sorted(SOURCES.rglob("*.py"))
        for raised in find_raised(path.read_text(encoding="utf-8"), str(path.relative_to(SOURCES)))
    ]


def test_the_page_shows_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == errors_page(), "type: make docs"


def test_every_condition_has_a_class_a_meaning_and_an_action() -> None:
    for name, known in CONDITIONS.items():
        assert re.fullmatch(r"[A-Z][A-Z0-9_]*", name)
        assert known.error in CLASSES
        assert known.meaning
        assert known.action
        assert not known.meaning.endswith(".")
        assert not known.action.endswith(".")


def test_every_class_of_errors_is_on_the_page_and_has_an_exit_code_of_its_own() -> None:
    classes = {cls.__name__: cls for cls in errors.BoatliftError.__subclasses__()}
    assert set(classes) == set(CLASSES)
    assert len({cls.exit_code for cls in classes.values()}) == len(classes)


def test_every_raise_names_a_known_condition_of_its_class() -> None:
    raised = all_raised()
    assert raised
    wrong = [
        f"{one.where}: {one.error}({condition})"
        for one in raised
        for condition in one.conditions
        if condition not in CONDITIONS or CONDITIONS[condition].error != one.error
    ]
    assert wrong == []


def test_every_raise_writes_its_condition_as_a_literal() -> None:
    assert [one.where for one in all_raised() if not one.conditions] == []


def test_no_message_ends_with_a_full_stop() -> None:
    assert [one.where for one in all_raised() if one.message.endswith(".")] == []


def test_every_condition_is_raised_somewhere() -> None:
    used = {condition for one in all_raised() for condition in one.conditions}
    assert sorted(set(CONDITIONS) - used) == []


@pytest.mark.parametrize(
    ("source", "conditions"),
    [
        ('raise DataError("CORRUPT", "x")', {"CORRUPT"}),
        ('raise errors.DataError("A" if x else "B", f"{y}") from z', {"A", "B"}),
        ("return DataError(name, text)", set()),
    ],
)
def test_raises_are_found_however_they_are_written(source: str, conditions: set[str]) -> None:
    [found] = find_raised(source, "here")
    assert found.error == "DataError"
    assert found.conditions == conditions


def test_an_error_goes_through_text() -> None:
    error = errors.DataError("CORRUPT", 'log/0 fails:\n[FENCED] \ud800 "restore it"')
    again = errors.from_text(f"{errors.to_text(error)} SQLSTATE: 38000\n\tat java")
    assert type(again) is errors.DataError
    assert str(again) == str(error)
    assert errors.to_text(error).isascii()


def test_an_error_refuses_a_condition_of_another_class() -> None:
    with pytest.raises(AssertionError, match="CORRUPT"):
        errors.InvalidError("CORRUPT", "x")
