"""What the figures of benchmarks are computed from, and that their inputs are what they are said to be."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks import __main__ as command_line
from benchmarks.__main__ import NAMES, _others, _write
from benchmarks.cases.causal_bytes import CLOCK, INPUT, KINDS, CountingTail
from benchmarks.harness import data
from benchmarks.harness.measuring import (
    Effort,
    Figure,
    Result,
    cycled,
    median_ratio,
    percentile,
    rounds,
    rows_per_second,
)
from benchmarks.harness.side import Side, SideError
from benchmarks.harness.table import markdown
from boatlift.runtime.peers.holding import Hold
from boatlift.storage.records.codec import encode_tail
from boatlift.storage.records.facts import Determinant, LoggedMessage, StepDigest
from boatlift.storage.records.payloads import SourcePayload
from boatlift.storage.records.records import SinkCommit, Stopped
from boatlift.storage.records.stream import Tail

ROOT = Path(data.__file__).parents[2]

ECHO = """
import sys
from benchmarks.harness.side import serve

def prepare(folder, **options):
    print("noise that is no answer")
    return {"folder": folder, **options}

def fail():
    raise ValueError("on purpose")

serve({"prepare": prepare, "fail": fail, "leave": lambda: sys.exit(3)})
"""


@pytest.fixture
def artifacts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("benchmarks.harness.data.ARTIFACTS", tmp_path)
    monkeypatch.setattr("benchmarks.harness.side.ARTIFACTS", tmp_path)
    return tmp_path


@pytest.fixture
def echo(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "echo_side.py").write_text(ECHO)
    return {"PYTHONPATH": f"{tmp_path / 'modules'}{os.pathsep}{Path(data.__file__).parent.parent}"}


def test_a_rate_is_taken_between_visible_outputs() -> None:
    assert rows_per_second({"visible": [10.0, 11.0, 12.0]}, 500) == 500


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = list(range(1, 101))
    assert [percentile(values, share) for share in (0.5, 0.99, 1)] == [50, 99, 100]
    assert percentile([7], 0.99) == 7


def test_ratios_are_taken_within_a_round() -> None:
    # Over all rounds the medians are equal; within each round ours is twice theirs, or half.
    assert median_ratio([2, 20, 200], [1, 10, 100]) == 2


def test_the_sides_begin_in_turn() -> None:
    order: list[str] = []
    sides = {"a": None, "b": None, "c": None}
    taken = rounds(3, sides, lambda name, _: order.append(name) or name)  # type: ignore[arg-type, func-returns-value]
    assert "".join(order) == "abcbcacab"
    assert taken == {name: [name] * 3 for name in sides}


def test_files_are_taken_again_from_the_beginning() -> None:
    files = [Path("a"), Path("b"), Path("c")]
    assert [path.name for path in cycled(files, 2, 3)] == ["c", "a", "b"]


def test_all_keys_are_there_once_and_uniform(artifacts: Path) -> None:
    files = data.all_keys(10_000, 2_500)
    assert all(path.is_relative_to(artifacts) for path in files)
    keys = np.concatenate([pq.read_table(path)["k"].to_numpy() for path in files])
    assert len(files) == 4
    assert np.array_equal(np.sort(keys), np.sort(data.keys(np.arange(10_000, dtype=np.uint64))))
    assert len(np.unique(keys)) == 10_000
    assert abs(np.mean(keys > 0) - 0.5) < 0.05
    assert abs(np.mean(keys.view(np.uint64) % 16 == 3) - 1 / 16) < 0.02


def test_drawn_keys_are_among_all_and_come_out_the_same_again(artifacts: Path) -> None:
    files = data.drawn_keys(1_000, 10_000, 2)
    tables = [pq.read_table(path) for path in files]
    known = data.keys(np.arange(10_000, dtype=np.uint64))
    assert all(np.isin(table["k"].to_numpy(), known).all() for table in tables)
    assert not tables[0].equals(tables[1])
    for path in artifacts.rglob("*.parquet"):
        path.unlink()
    assert [pq.read_table(path) for path in data.drawn_keys(1_000, 10_000, 2)] == tables


def test_a_side_answers_whatever_else_it_prints(artifacts: Path, echo: dict[str, str]) -> None:
    with Side("echo_side", echo, colour="red") as side:
        assert side.start(colour="blue") == {"folder": str(side.folder), "colour": "blue"}


def test_a_side_that_fails_or_ends_says_so(artifacts: Path, echo: dict[str, str]) -> None:
    with Side("echo_side", echo) as side:
        with pytest.raises(SideError, match="on purpose"):
            side.ask("fail")
        with pytest.raises(SideError, match="ended with 3"):
            side.ask("leave")
        folder = side.folder
    assert not folder.exists()


def test_a_side_is_stopped_while_it_is_not_asked(artifacts: Path, echo: dict[str, str]) -> None:
    with Side("echo_side", echo) as side:
        assert side._process is not None
        stat = Path(f"/proc/{side._process.pid}/stat")
        while stat.read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.01)


def test_a_side_dies_with_its_parent(artifacts: Path, echo: dict[str, str]) -> None:
    starter = (
        "import sys, time; from benchmarks.harness import side; from pathlib import Path\n"
        f"side.ARTIFACTS = Path({str(artifacts)!r})\n"
        "with side.Side('echo_side') as made: print(made._process.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", starter], env=os.environ | echo, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    stat = Path(f"/proc/{pid}/stat")
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)


def test_a_result_shows_its_first_ratio_as_the_headline() -> None:
    figures = {"boatlift": Figure.of("rows/s", [1.0, 123456.0, 3.0])}
    result = Result("some", "at least 2", True, {"first": 2.5, "second": 3.0}, figures, {"cores": 2})
    shown = result.to_json()
    assert shown["ratio"] == 2.5
    assert shown["figures"]["boatlift"] == {"unit": "rows/s", "min": 1.0, "median": 3.0, "max": 123500.0}
    assert "| some | at least 2 | **2.5** (first); **3** (second) | reached |" in markdown([result])


def test_one_result_takes_the_place_of_an_earlier_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_line, "RESULTS", tmp_path)

    def measured(name: str, ratio: float) -> Result:
        figures = {"side": Figure.of("ms", [1.0, 2.5])}
        return Result(name, "at least 2", True, {"first": ratio}, figures, {"commit": "c"})

    _write([measured("step_latency", 1.0), measured("solver", 2.0)], 1)
    for result in (measured("solver", 3.0), measured("overhead", 3.0)):
        _write([*_others(result), result], 1)
    found = _others(measured("push", 1.0))
    assert found == [measured("step_latency", 1.0), measured("overhead", 3.0), measured("solver", 3.0)]
    assert "| solver | at least 2 | **3** (first) | reached |" in (tmp_path / "latest.md").read_text()


def test_a_smaller_scale_is_no_less_than_a_thousand() -> None:
    assert [Effort(scale=scale).keys(1_000_000) for scale in (1, 10, 10**6)] == [1_000_000, 100_000, 1000]


def test_a_benchmark_prints_one_json_object_on_standard_output() -> None:
    command = [sys.executable, "-m", "benchmarks", "solver", "--json", "--rounds", "1", "--scale", "10"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)) == {"name", "ratio", "target", "met", "ratios", "figures", "machine"}


NOISY = """
import subprocess, sys, types
from benchmarks import __main__ as command
from benchmarks.harness.measuring import Result

def measure(effort):
    print("a print")
    subprocess.run(["echo", "a print of another process"], check=True)
    return Result("noisy", "none", True, {"one": 1.0}, {})

noisy = types.ModuleType("benchmarks.cases.noisy")
noisy.measure = measure
sys.modules["benchmarks.cases.noisy"] = noisy
command.NAMES = ("noisy",)
command.main()
"""


def test_what_a_benchmark_prints_goes_to_standard_error() -> None:
    command = [sys.executable, "-c", NOISY, "noisy", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["name"] == "noisy"
    assert {"a print", "a print of another process"} <= set(done.stderr.splitlines())


def test_the_page_lists_every_benchmark() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", (ROOT / "benchmarks" / "README.md").read_text(), re.MULTILINE)
    assert tuple(listed) == NAMES


def test_each_byte_that_a_standby_holds_is_of_one_kind() -> None:
    position = SourcePayload({"files": ["a"]}, 1_790_000_000_000, 7)
    records = [
        Determinant("rows", 3, None, msgspec.to_builtins(position)),
        Determinant("both", 3, "rows", None),
        LoggedMessage("both", 3, None),
        StepDigest("sums", 3, "d" * 16),
        SinkCommit("out", 3),
        Stopped(),
    ]
    entries = tuple(encode_tail(Tail("store", 1, 0, 0, ((record,),))) for record in records)
    tail = CountingTail()
    tail.hold(Hold(1, "counting", 0, entries, 0))
    assert tail.held == tail.kinds.total() == sum(map(len, entries)) < tail.sent
    assert tail.messages == 2, "that of the source, and that of the aggregate"
    assert set(tail.kinds) == set(KINDS)
    assert tail.kinds[CLOCK] < 40 < tail.kinds[INPUT]
