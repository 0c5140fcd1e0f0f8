"""A store meets the same program under other versions, in which the hashes of its plans are others."""

from __future__ import annotations

from typing import Any

import pytest

from boatlift.runtime.evolution import accepted
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import Claim

OLD = {"spark": "4.3.0", "python": "3.11.2", "spark.sql.ansi.enabled": "true", "library numpy": "2.0"}
NEW = {**OLD, "spark": "4.4.0", "spark.sql.of.the.new.version": "1"}


def sums(**fields: Any) -> dict[str, Any]:
    about = {"kind": "aggregate", "reads": ["rows"], "timing": "epochs", "keeps_state": True, "deterministic": True}
    return {**about, "options": {}, "schema": "struct<>", "plan": "p", "written": "text", "layout": "l", **fields}


def takes(before: dict[str, Any], now: dict[str, Any], environment: dict[str, str]) -> dict[str, Any]:
    """Return what a store knows of a processor, if it is opened with another version of it."""
    history = LogHistory("flow", {"processor sums": before}, OLD)
    recorded, refused = accepted(history, {"processor sums": now}, environment)
    assert refused is None
    found: dict[str, Any] = recorded["processor sums"]
    return found


def test_after_an_upgrade_the_text_says_that_nothing_was_changed() -> None:
    now = sums(plan="q", code="c")
    assert takes(sums(code="b"), now, NEW) == now


@pytest.mark.parametrize(
    "environment",
    [OLD, {**OLD, "library numpy": "2.1"}, {**NEW, "spark.sql.ansi.enabled": "false"}],
    ids=["no upgrade", "another library", "another setting"],
)
def test_elsewhere_another_plan_is_another_program(environment: dict[str, str]) -> None:
    assert takes(sums(), sums(plan="q"), environment) == sums()


@pytest.mark.parametrize("written", ["", "other"])
def test_another_text_is_another_program(written: str) -> None:
    assert takes(sums(written=written), sums(plan="q", written=written and "text"), NEW) == sums(written=written)


def test_another_text_of_the_same_plan_is_the_same_program() -> None:
    now = sums(written="with a comment")
    assert takes(sums(), now, OLD) == now


def test_another_layout_stays_to_be_seen() -> None:
    assert takes(sums(), sums(plan="q", layout="m"), NEW) == sums(plan="q")


def test_other_columns_are_another_program_in_any_version() -> None:
    found = takes(sums(), sums(plan="q", schema="struct<a:int>"), NEW)
    assert found["schema"] == "struct<>"


def test_a_refused_owner_of_another_version_leaves_the_old_one_its_store() -> None:
    """It claims before its environment is refused, and the log then has its hashes."""
    history = LogHistory("flow", {"processor sums": sums()}, OLD)
    history.apply(Claim("host", 1, 0, {"processor sums": sums(plan="q")}, NEW))
    recorded, _ = accepted(history, {"processor sums": sums()}, OLD)
    assert recorded["processor sums"] == sums()


def test_a_state_of_which_nothing_is_known_any_more() -> None:
    now = {key: each for key, each in sums().items() if key != "layout"}
    assert takes(sums(), now, OLD) == now
