"""Every command reports records that no Boatlift wrote in one line, with the exit status for data."""

from __future__ import annotations

import copy
import random
import shutil
import sys
from pathlib import Path

import msgspec
import pytest

from boatlift.console.app import main
from boatlift.errors import BoatliftError, DataError
from boatlift.runtime.graph import recorded_program
from boatlift.storage.records.facts import Checkpoint, Determinant, StepDigest
from support.engine.hosts import open_store, run
from support.engine.memory_engine import PROGRAM, MemoryEngine, World
from support.worlds.hostile_stores import add_object, crashed_store, odd_record

COMMANDS = [
    [command, *json]
    for command in ("status", "explain", "gc", "log", "checkpoints", "verify")
    for json in ([], ["--json"])
]


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, World]:
    root = tmp_path_factory.mktemp("crashed")
    return root, crashed_store(root)


def copied(crashed: tuple[Path, World], root: Path) -> World:
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(crashed[0], root)
    world = crashed[1]
    return World(world.rows, copy.deepcopy(world.held), dict(world.owners))


def status_of(arguments: list[str], root: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["boatlift", *arguments, "--store", str(root)])
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def chosen(outcome: bytes, time: int = 7) -> bytes:
    packed = msgspec.msgpack.encode(Determinant("rows", time, None, "HERE"))
    return packed.replace(b"\xa4HERE", outcome)


@pytest.mark.parametrize(
    "record",
    [
        chosen(b"\x91" * 200_000 + b"\xc0"),
        chosen(b"\x91" * 500 + b"\xc0"),
        chosen(b"\x81\xa1a" * 200_000 + b"\xc0"),
        chosen(b"\xa2\xff\xfe"),
        chosen(b"\xd4\x05\x00"),
        chosen(b"\xd6\xff\x00\x00\x00\x01"),
        chosen(b"\x81\x92\x01\x02\x03"),
        chosen(b"\xc0", time=-5),
        chosen(b"\xc0", time=2**64 - 1),
    ],
    ids=["lists", "some lists", "maps", "no UTF-8", "ext", "timestamp", "tuples as keys", "time -5", "time 2^64-1"],
)
def test_every_command_names_the_object_that_no_boatlift_wrote(
    record: bytes,
    crashed: tuple[Path, World],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = copied(crashed, tmp_path / "store")
    name = add_object(tmp_path / "store", record)
    for command in COMMANDS:
        assert status_of(command, tmp_path / "store", monkeypatch) == 5, command
        told = "".join(capsys.readouterr())
        assert "CORRUPT" in told, command
        assert name in told, command
    with pytest.raises(DataError, match=rf"\[CORRUPT\] {name} "):
        run(MemoryEngine(world), open_store(tmp_path / "store"))


def test_a_whole_store_gets_on_with_every_command(
    crashed: tuple[Path, World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = copied(crashed, tmp_path / "store")
    for command in COMMANDS:
        assert status_of(command, tmp_path / "store", monkeypatch) == 0, command
    run(MemoryEngine(world), open_store(tmp_path / "store"))
    world.check()


@pytest.mark.parametrize("seed", range(6))
def test_records_that_fit_no_execution_are_refused_or_do_no_harm(
    seed: int, crashed: tuple[Path, World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No command ends in a traceback, or takes memory or time for the numbers that a record has."""
    draw = random.Random(seed)
    for _ in range(8):
        world = copied(crashed, tmp_path / "store")
        added = [odd_record(draw) for _ in range(draw.randint(1, 3))]
        add_object(tmp_path / "store", added)
        for command in COMMANDS:
            assert status_of(command, tmp_path / "store", monkeypatch) in (0, 5), (command, added)
        try:
            run(MemoryEngine(world), open_store(tmp_path / "store"))
        except BoatliftError as error:
            assert error.condition != "INTERNAL", (error, added)  # noqa: PT017 - or it goes on


@pytest.mark.parametrize("far", [10**12, 2**62])
def test_explain_refuses_a_step_that_no_process_can_have_reached(
    far: int, crashed: tuple[Path, World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for added in (StepDigest("sums", far, "d"), Checkpoint("sums", (far,), None)):
        copied(crashed, tmp_path / "store")
        add_object(tmp_path / "store", [added])
        assert status_of(["explain"], tmp_path / "store", monkeypatch) == 5


@pytest.mark.parametrize(
    "changed",
    [
        {"processor clean": 5},
        {"processor clean": {}},
        {"processor clean": {**PROGRAM["processor clean"], "timing": "at noon"}},
        {"processor clean": {**PROGRAM["processor clean"], "reads": "rows"}},
        {"sink more": {"reads": "clean", "key": []}},
        {"source rows": []},
        {"units": {}},
        {"units": 5},
        {"units": {**PROGRAM["units"], "more": {"operators": ["clean"]}}},
        {"units": {**PROGRAM["units"], "clean": {**PROGRAM["units"]["clean"], "inputs": {"rows->clean": "nobody"}}}},
        {"units": {**PROGRAM["units"], "clean": {**PROGRAM["units"]["clean"], "operators": ["nobody"]}}},
        {"units": {**PROGRAM["units"], "clean": {**PROGRAM["units"]["clean"], "policy": {"name": "Hasty"}}}},
        {"units": {**PROGRAM["units"], "clean": {**PROGRAM["units"]["clean"], "policy": {"name": "Eager", "by": 1}}}},
    ],
)
def test_a_claim_that_records_no_program_is_corrupt(changed: dict[str, object]) -> None:
    with pytest.raises(DataError, match=r"\[CORRUPT\] the log's newest claim"):
        recorded_program({**PROGRAM, **changed})  # type: ignore[dict-item]
