"""The documents of the console: the same as the commands print, of the same store."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import boatlift as bl
from boatlift.console import contents
from boatlift.operators import operators_with_status
from boatlift.storage.records.records import SinkCommit
from boatlift.web import documents as made_documents
from boatlift.web.documents import FRESH_SECONDS, Documents
from support.engine.hosts import crashed, open_store, run
from support.engine.memory_engine import MemoryEngine, World
from support.worlds.logs import manifest_of


class Steady:
    """A steady clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Steady:
    return Steady()


def of(store: Path, clock: Callable[[], float]) -> Documents:
    return Documents(str(store), operators_with_status(), lambda: 1_700_000_060_000, clock)


def given(documents: Documents, name: str, **arguments: str) -> Any:
    return json.loads(documents.get(name, arguments).content)


def without(document: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in ("version", "now", *names)}


SAME = {
    "status": contents.show_status,
    "checkpoints": contents.show_checkpoints,
    "kept": contents.show_kept,
    "points": contents.show_points,
}


@pytest.mark.parametrize("name", SAME)
def test_a_document_is_what_the_command_prints_as_json(
    name: str, tmp_path: Path, clock: Steady, capsys: pytest.CaptureFixture[str]
) -> None:
    crashed(tmp_path)
    SAME[name](str(tmp_path), as_json=True)
    assert without(given(of(tmp_path, clock), name)) == without(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize("failed", ["", "sums", "clean", "clean,sums"])
def test_explain_is_what_the_command_prints(
    failed: str, tmp_path: Path, clock: Steady, capsys: pytest.CaptureFixture[str]
) -> None:
    crashed(tmp_path)
    contents.show_explanation(str(tmp_path), filter(None, failed.split(",")), as_json=True)
    shown = without(json.loads(capsys.readouterr().out))
    assert without(given(of(tmp_path, clock), "explain", fail=failed)) == shown


def test_the_log_is_what_the_command_prints_newest_first_and_goes_on(
    tmp_path: Path, clock: Steady, capsys: pytest.CaptureFixture[str]
) -> None:
    crashed(tmp_path)
    contents.show_log(str(tmp_path), as_json=True)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()][::-1]
    documents, read, before = of(tmp_path, clock), [], ""
    while found := given(documents, "log", limit="2", before=before)["records"]:
        read += found
        before = str(found[-1]["object"])
    assert read == lines
    named = given(documents, "log", processor="totals")["records"]
    assert [(line["record"], line["sink"]) for line in named if line["record"] == "committed"] == [
        ("committed", "totals")
    ]


def test_the_snapshot_has_what_the_first_view_needs(tmp_path: Path, clock: Steady) -> None:
    crashed(tmp_path)
    documents = of(tmp_path, clock)
    snapshot = given(documents, "snapshot")
    assert without(snapshot["status"]) == without(given(documents, "status"))
    assert snapshot["explain"] == without(given(documents, "explain"))
    assert snapshot["picture"] == given(documents, "picture")["picture"]
    assert snapshot["place"] == str(tmp_path)
    assert (snapshot["version"], snapshot["now"]) == (1, 1_700_000_060_000)


def test_alone_is_the_sum_of_what_each_failure_costs(tmp_path: Path, clock: Steady) -> None:
    crashed(tmp_path)
    documents = of(tmp_path, clock)
    alone = given(documents, "alone")["alone"]
    for name in ("clean", "sums"):
        costs = given(documents, "explain", fail=name)["processors"].values()
        assert alone[name]["steps"] == sum(cost["steps"] for cost in costs)
        assert alone[name]["seconds"] == pytest.approx(sum(cost["seconds"] for cost in costs))


def test_a_document_is_made_once_a_second_and_then_follows_the_log(tmp_path: Path, clock: Steady) -> None:
    log = crashed(tmp_path)
    documents = of(tmp_path, clock)
    first = documents.get("status", {})
    log.append([SinkCommit("totals", 6)])
    assert documents.get("status", {}) is first
    clock.now += FRESH_SECONDS
    second = given(documents, "status")
    assert (json.loads(first.content)["sinks"]["totals"], second["sinks"]["totals"]) == (5, 6)


def noting(real: Callable[..., Any], called: list[str]) -> Callable[..., Any]:
    def call(*given: Any, **more: Any) -> Any:
        called.append(real.__name__)
        return real(*given, **more)

    return call


def test_documents_of_one_reading_share_what_they_show(
    tmp_path: Path, clock: Steady, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed(tmp_path)
    documents, found = of(tmp_path, clock), list[str]()
    for name in ("total_failure", "reported_status"):
        monkeypatch.setattr(made_documents, name, noting(getattr(made_documents, name), found))
    for _ in range(2):
        for name in ("snapshot", "status", "series", "operations", "explain"):
            given(documents, name)
        documents.metrics()
    assert sorted(found) == ["reported_status", "total_failure"]
    clock.now += FRESH_SECONDS
    documents.metrics()
    assert sorted(found) == ["reported_status", "reported_status", "total_failure", "total_failure"]


def test_a_log_that_is_truncated_after_it_was_read_is_read_again(tmp_path: Path, clock: Steady) -> None:
    log = crashed(tmp_path)
    documents = of(tmp_path, clock)
    given(documents, "status")
    manifest_of(log)
    log.truncate()
    assert [each["kind"] for each in given(documents, "operations")["operations"]] == ["claim"]
    assert given(documents, "steps")["checkpoints"] == []


def test_equal_contents_have_an_equal_tag(tmp_path: Path, clock: Steady) -> None:
    crashed(tmp_path)
    documents = of(tmp_path, clock)
    first = documents.get("steps", {})
    clock.now += 5
    second = documents.get("steps", {})
    assert second is not first
    assert second.tag == first.tag


def test_a_store_that_has_stopped_has_all_documents(tmp_path: Path, clock: Steady) -> None:
    run(MemoryEngine(World()), open_store(tmp_path))
    documents = of(tmp_path, clock)
    for name in documents._makers:
        given(documents, name)
    assert given(documents, "status")["state"] == "stopped"


@pytest.mark.parametrize(
    ("name", "arguments", "condition"),
    [
        ("nothing", {}, "NOT_SERVED"),
        ("status", {"fail": "sums"}, "BAD_OPTION"),
        ("explain", {"fail": "nobody"}, "BAD_OPTION"),
        ("picture", {"around": "<img src=x>"}, "BAD_OPTION"),
        ("log", {"limit": "0"}, "BAD_OPTION"),
        ("log", {"limit": "1001"}, "BAD_OPTION"),
        ("log", {"limit": "-1"}, "BAD_OPTION"),
        ("log", {"before": "now"}, "BAD_OPTION"),
    ],
)
def test_what_is_not_there_is_refused(
    name: str, arguments: dict[str, str], condition: str, tmp_path: Path, clock: Steady
) -> None:
    crashed(tmp_path)
    with pytest.raises(bl.InvalidError, match=rf"\[{condition}\]"):
        of(tmp_path, clock).get(name, arguments)


def test_a_folder_that_is_no_store_is_refused(tmp_path: Path, clock: Steady) -> None:
    with pytest.raises(bl.InvalidError, match=r"\[STORE_NOT_FOUND\]"):
        of(tmp_path / "nothing", clock).get("status", {})


def test_a_damaged_store_is_refused_until_it_is_whole_again(tmp_path: Path, clock: Steady) -> None:
    crashed(tmp_path)
    documents = of(tmp_path, clock)
    given(documents, "status")
    newest = max((tmp_path / "log").iterdir())
    whole = newest.read_bytes()
    clock.now += 5
    newest.chmod(0o644)
    newest.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    other = of(tmp_path, clock)
    with pytest.raises(bl.DataError, match=r"\[CORRUPT\]"):
        other.get("status", {})
    newest.write_bytes(whole)
    assert given(other, "status")["sinks"]["totals"] == 5
