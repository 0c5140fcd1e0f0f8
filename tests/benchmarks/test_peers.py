"""Peers outside Spark are given the same rows, and their answers are held against those of batch queries."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.cases.nexmark_queries import QUERIES
from benchmarks.peers import dbsp_side, flink_queries, flink_side, nexmark_peers
from benchmarks.peers.peer_files import arrow_file, difference, read_changes, text_file
from benchmarks.peers.view_top_peers import top_of

MOMENT = datetime(2015, 7, 15, 0, 0, 0, 100_000, tzinfo=UTC)

ROWS = pa.table(
    {
        "name": ["a", "", "c d"],
        "price": pa.array([Decimal("0.908"), Decimal("1.000"), Decimal("6767449.304")], pa.decimal128(24, 3)),
        "at": pa.array([MOMENT] * 3, pa.timestamp("us", "UTC")),
        "mean": [1 / 3, 2.0, 1e7],
    }
)
MILLIS = int(MOMENT.timestamp() * 1000)


def changes_of(folder: Path, lines: list[str]) -> pa.Table:
    folder = folder / "changes"
    folder.mkdir(exist_ok=True)
    (folder / "1.tsv").write_text("".join(f"{line}\n" for line in lines))
    (folder / "2.tsv").write_text("")
    return read_changes(sorted(folder.glob("*.tsv")), ROWS.schema)


@pytest.fixture
def right() -> list[str]:
    return [
        f"1\ta\t0.908\t{MILLIS}\t0.3333333333333333",
        f"1\t\t1.0\t{MILLIS}\t2",
        f"1\tc d\t6767449.304\t{MILLIS}\t1.0E7",
    ]


def test_the_same_rows_are_the_answer_however_numbers_are_written(tmp_path: Path, right: list[str]) -> None:
    assert difference(changes_of(tmp_path, right), ROWS) == 0


def test_what_came_and_went_again_is_no_difference(tmp_path: Path, right: list[str]) -> None:
    passing = f"b\t1.5\t{MILLIS}\t1"
    assert difference(changes_of(tmp_path, [f"1\t{passing}", *right, f"-1\t{passing}"]), ROWS) == 0


def test_a_row_too_few_too_many_or_changed_is_a_difference(tmp_path: Path, right: list[str]) -> None:
    assert difference(changes_of(tmp_path, right[1:]), ROWS) == 1
    assert difference(changes_of(tmp_path, [*right, right[0]]), ROWS) == 1
    assert difference(changes_of(tmp_path, [right[0].replace("\ta", "\tb"), *right[1:]]), ROWS) == 2
    assert difference(changes_of(tmp_path, []), ROWS) == 3


def test_an_answer_whose_columns_share_a_name_is_refused(tmp_path: Path, right: list[str]) -> None:
    twice = pa.table([ROWS["name"], ROWS["name"]], names=["a", "a"])
    with pytest.raises(ValueError, match="one name"):
        difference(changes_of(tmp_path, right), twice)


def test_converted_files_have_the_same_rows_and_lie_outside_the_folder_that_spark_reads(tmp_path: Path) -> None:
    folder = tmp_path / "bid"
    folder.mkdir()
    pq.write_table(ROWS, folder / "000.parquet")
    arrow, text = arrow_file(folder / "000.parquet"), text_file(folder / "000.parquet")
    assert [path.name for path in folder.iterdir()] == ["000.parquet"]
    with pa.OSFile(str(arrow)) as file:
        assert pa.ipc.open_file(file).read_all()["at"].type == pa.timestamp("ms")
    header, *lines = text.read_text().splitlines()
    assert header.split("\t") == ROWS.column_names
    assert difference(changes_of(tmp_path, [f"1\t{line}" for line in lines]), ROWS) == 0


def test_the_top_of_groups_is_that_of_the_rows_that_are_left(tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    group, score = chance.integers(0, 7, 100), chance.normal(size=100)
    gone = np.arange(0, 100, 3)
    files = [tmp_path / "came.parquet", tmp_path / "went.parquet"]
    for file, rows, weight in zip(files, (np.arange(100), gone), (1, -1), strict=True):
        weights = np.full(len(rows), weight)
        pq.write_table(pa.table({"k": group[rows], "v": score[rows], "_weight": weights}), file)
    left = [(int(group[n]), float(score[n])) for n in range(100) if n not in gone]
    expected = [
        {"k": k, "v": v, "place": place}
        for k in range(7)
        for place, v in enumerate(sorted((v for g, v in left if g == k), reverse=True)[:3], 1)
    ]
    assert top_of(files).to_pylist() == expected


def test_every_query_is_one_of_flink_s_or_said_to_be_left_out() -> None:
    assert {*flink_queries.QUERIES, *flink_queries.LEFT_OUT} == set(QUERIES)


def test_a_peer_whose_tools_are_missing_is_left_out_and_says_why(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert "javac" in flink_side.why_not()
    assert "cargo" in dbsp_side.why_not()
    with nexmark_peers.peers(tmp_path, 5) as there:
        assert there == {}
    said = capfd.readouterr().err
    assert "Flink SQL is left out" in said
    assert "DBSP is left out" in said


def test_a_peer_whose_build_fails_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda tool: f"/usr/bin/{tool}")
    monkeypatch.setattr(subprocess, "run", lambda told, **_: subprocess.CompletedProcess(told, 1))
    assert "could not be fetched" in flink_side.why_not()
    assert "could not build" in dbsp_side.why_not()


def test_only_a_query_with_the_right_answer_has_a_figure(capsys: pytest.CaptureFixture[str], right: list[str]) -> None:
    def run(query: str, output: Path) -> list[float]:
        if query == "q2":
            raise dbsp_side.NoCircuitError("no circuit")
        (output / "1.tsv").write_text("".join(f"{line}\n" for line in (right if query == "q0" else right[1:])))
        return [1.0, 1.5, 2.0]

    rates = nexmark_peers.rates("peer", run, lambda _: ROWS, events=100, turns=2)
    assert rates == {"q0": [200.0, 200.0]}
    said = capsys.readouterr().err
    assert "q1, peer: no figure: 1 rows differ" in said
    assert "q2, peer: no figure: no circuit" in said
