"""Soft checkpoints in a real store: a process that dies alone leaves nothing to execute again."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from boatlift.console.contents import show_status
from boatlift.errors import DataError, FencedError
from boatlift.runtime.host import ownership, soft_checkpoints
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.host import Host
from boatlift.runtime.host.log import StoredRuns
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.host.soft_checkpoints import FILE
from boatlift.runtime.machine.instructions import Execute
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.codec import decode_soft_file, encode_soft_frames, encode_soft_head
from boatlift.storage.records.records import Claim, RunRef
from support.crash.mortality import Fate, KilledError, MortalStore
from support.engine.hosts import check_store, open_store, run
from support.engine.memory_engine import PROGRAM, MemoryEngine, World
from support.worlds.facts import Unsynced, run_of

pytestmark = pytest.mark.adopts


def killed(root: Path, world: World, writes: int, *, after: bool = False) -> MemoryEngine | None:
    """Run until the process dies at a write of its store; None if it ends first."""
    store = MortalStore.of(root, Fate(writes, after=after))
    engine = MemoryEngine(world, every=100)
    try:
        run(engine, store)
    except KilledError:
        return engine
    return None


def recorded(root: Path) -> set[tuple[str, int]]:
    """Return the steps whose results are on record."""
    results = Log.open(open_store(root), None).history.live_records.results
    return {(unit, int(time)) for unit, times in results.items() for time in times}  # type: ignore[arg-type]


def executed(engine: MemoryEngine) -> set[tuple[str, int]]:
    return {(unit, time) for act, unit, time in engine.calls if act == "run"}


def run_again(root: Path, world: World) -> MemoryEngine:
    engine = MemoryEngine(world, every=100)
    run(engine, open_store(root))
    world.check()
    check_store(root)
    return engine


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_write_no_recorded_step_is_executed_again(tmp_path: Path, after: bool) -> None:
    deaths, adopted = 0, 0
    while True:
        root, world = tmp_path / str(deaths), World(rows=15)
        if killed(root, world, deaths + 1, after=after) is None:
            break
        deaths += 1
        before = recorded(root)
        adopted += len(before)
        assert not before & executed(run_again(root, world))
    assert adopted > 10


def test_killed_again_and_again_each_step_is_executed_once_if_it_is_recorded(tmp_path: Path) -> None:
    """The memory is handed on from process to process, also by one that dies before its first write."""
    world, lives, before = World(rows=60), 0, set[tuple[str, int]]()  # none before there is a store to read
    while (engine := killed(tmp_path, world, 2 + lives % 9, after=lives % 2 == 1)) is not None:
        assert not before & executed(engine)
        lives, before = lives + 1, recorded(tmp_path) if lives > 2 else before
    assert lives > 8
    world.check()
    check_store(tmp_path)


def lose_power(folder: Path) -> None:
    shutil.rmtree(folder)


def lose_file(folder: Path) -> None:
    (folder / FILE).unlink()


def tear_file(folder: Path) -> None:
    """Lose the end of the file, which was not written whole."""
    content = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(content[: len(content) // 2])


def lose_head(folder: Path) -> None:
    (folder / FILE).write_bytes(b"")


def with_another_head(folder: Path, **changes: Any) -> None:
    head, entries = decode_soft_file((folder / FILE).read_bytes(), FILE)
    frames = b"".join(encode_soft_frames(*each) for each in entries)
    (folder / FILE).write_bytes(encode_soft_head(msgspec.structs.replace(head, **changes)) + frames)


def another_boot(folder: Path) -> None:
    with_another_head(folder, boot="another")


def another_environment(folder: Path) -> None:
    with_another_head(folder, environment={"python": "2"})


def another_policy(folder: Path) -> None:
    with_another_head(folder, program={})


def another_version(folder: Path) -> None:
    content = bytearray((folder / FILE).read_bytes())
    content[4:6] = (999).to_bytes(2, "little")
    (folder / FILE).write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [lose_power, lose_file, tear_file, lose_head, another_boot, another_environment, another_policy, another_version],
)
def test_what_does_not_fit_is_not_adopted(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    world = World(rows=150)
    assert killed(tmp_path, world, 14) is not None
    (folder,) = open_store(tmp_path).scratches().values()
    before = recorded(tmp_path)
    damage(folder)
    assert before & executed(run_again(tmp_path, world))


@pytest.mark.parametrize("shorter", [False, True], ids=["lost", "not written whole"])
def test_a_processor_of_which_a_run_is_gone_recovers_alone(tmp_path: Path, shorter: bool) -> None:
    world = World(rows=150)
    assert killed(tmp_path, world, 14) is not None
    (folder,) = open_store(tmp_path).scratches().values()
    for file in folder.glob("*-sums-*"):
        if shorter:
            file.write_bytes(file.read_bytes()[:-1])
        else:
            file.unlink()
    before = recorded(tmp_path)
    again = executed(run_again(tmp_path, world))
    assert {unit for unit, _ in before & again} == {"sums"}


def test_nothing_is_adopted_when_the_user_decides_about_steps(tmp_path: Path) -> None:
    world = World(rows=150)
    assert killed(tmp_path, world, 14) is not None
    before, engine = recorded(tmp_path), MemoryEngine(world, every=100)
    run(engine, open_store(tmp_path), accept_released=True)
    assert before & executed(engine)
    world.check()


def test_a_clean_stop_leaves_nothing_to_adopt(tmp_path: Path) -> None:
    run_again(tmp_path, World(rows=9))
    assert not list(tmp_path.glob(f"scratch/*/{FILE}*"))


class Broken(MemoryEngine):
    """An engine whose step finds its state damaged."""

    def run(self, order: Execute) -> Any:
        if order.processor == "sums" and order.time >= 3:  # some orders take several steps
            raise DataError("CORRUPT", "a run has other bytes: restore it from a copy")
        return super().run(order)


def test_a_run_that_finds_damage_leaves_nothing_to_adopt(tmp_path: Path) -> None:
    """The damage may be in what it has in memory: the next run recovers from what is durable."""
    world = World(rows=150)
    with pytest.raises(DataError):
        run(Broken(world, every=100), open_store(tmp_path))
    assert not list(tmp_path.glob(f"scratch/*/{FILE}*"))
    run_again(tmp_path, world)


@pytest.mark.parametrize("claims", [2, 3])
def test_owners_that_only_claimed_change_nothing_unless_they_are_many(tmp_path: Path, claims: int) -> None:
    """So many deaths in a row may be caused by the memory that they adopted."""
    world = World(rows=150)
    assert killed(tmp_path, world, 14) is not None
    before = recorded(tmp_path)
    for _ in range(claims):
        Log.open(open_store(tmp_path), "flow").claim(Claim("host", 1, 1_700_000_000_000, PROGRAM, {"python": "3"}))
    assert bool(before & executed(run_again(tmp_path, world))) == (claims == soft_checkpoints.MOST_SILENT)


class Paused(LocalStore):
    """A store whose owner is paused after its claim, before it adopts, or before older scratch is gone."""

    at: str
    meanwhile: Callable[[], object]

    def scratch(self, owner: int) -> Path:
        if self.at == "scratch":
            self.meanwhile()
        return super().scratch(owner)

    def discard_scratch(self, before: int) -> None:
        if self.at == "discard_scratch":
            self.meanwhile()
        super().discard_scratch(before)


@pytest.mark.parametrize("writes", [11, 13, 15])
def test_an_owner_paused_before_it_adopts_deletes_nothing_of_a_newer_one(tmp_path: Path, writes: int) -> None:
    """The newer one has made a run of the dead one durable, and named it."""
    world = World(rows=30)
    assert killed(tmp_path, world, writes) is not None
    store = Paused(tmp_path, Unsynced())
    store.at = "scratch"
    store.meanwhile = lambda: run(MemoryEngine(world, every=100), open_store(tmp_path), take_over=True)
    with pytest.raises(FencedError):
        run(MemoryEngine(world, every=100), store)
    check_store(tmp_path)
    world.rows += 9
    run_again(tmp_path, world)


@pytest.mark.parametrize("writes", [11, 13, 15])
def test_an_older_owner_that_makes_a_run_durable_meanwhile_ends_no_newer_one(tmp_path: Path, writes: int) -> None:
    world = World(rows=30)
    assert killed(tmp_path, world, writes) is not None
    (dead,) = open_store(tmp_path).scratches().values()

    def go_on() -> None:
        older = open_store(tmp_path)
        for file in dead.glob("*-sums-*"):
            with suppress(FencedError):  # it was durable before
                older.create(f"runs/{file.name}", file)

    store = Paused(tmp_path, Unsynced())
    store.at, store.meanwhile = "discard_scratch", go_on
    run(MemoryEngine(world, every=100), store)
    world.check()
    check_store(tmp_path)


def test_an_unexpected_error_leaves_nothing_to_adopt(tmp_path: Path) -> None:
    """What was adopted may be its cause, and would be again."""

    class Failing(MemoryEngine):
        def kept(self, unit: str, runs: Any) -> None:
            raise KeyError(unit)

    world = World(rows=150)
    assert killed(tmp_path, world, 14) is not None
    with pytest.raises(KeyError):
        run(Failing(world, every=2), open_store(tmp_path))
    assert not list(tmp_path.glob(f"scratch/*/{FILE}*"))
    run_again(tmp_path, world)


class Folder:
    """The part of an engine that knows the files of runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, run: RunRef) -> Path:
        return self._folder / Path(run.name).name

    def kept(self, unit: str, runs: Iterable[RunRef]) -> None:
        pass


def test_an_adopted_run_is_proved_before_it_becomes_durable(tmp_path: Path) -> None:
    """A block that no step has read may be damaged."""
    store = open_store(tmp_path / "store")
    good, bad = (run_of(name.encode(), f"runs/{1:012}-{name}") for name in ("good", "bad"))
    runs = StoredRuns(store, Folder(tmp_path))  # type: ignore[arg-type]
    runs.begin(2, {good.name, bad.name})
    for run_, content in ((good, b"good"), (bad, b"dab")):
        (tmp_path / Path(run_.name).name).write_bytes(content)
    runs.keep("sums", [good])
    with pytest.raises(DataError, match=r"\[CORRUPT\] .*-bad, left by an earlier run, .*: run again"):
        runs.keep("sums", [bad])
    assert list(store.list("runs/")) == [good.name]


def test_memory_before_the_end_of_the_log_is_not_adopted(tmp_path: Path) -> None:
    """Another owner has written after it."""
    world, root, copy = World(rows=150), tmp_path / "store", tmp_path / "copy"
    assert killed(root, world, 10) is not None
    (folder,) = open_store(root).scratches().values()
    shutil.copytree(folder, copy)
    assert killed(root, world, 12) is not None
    shutil.rmtree(root / "scratch")
    shutil.copytree(copy, folder)
    before = recorded(root)
    assert before & executed(run_again(root, world))


def test_a_long_file_begins_again_with_its_meaning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soft_checkpoints, "LONG", 4000)
    world = World(rows=300)
    assert killed(tmp_path, world, 90) is not None
    (file,) = tmp_path.glob(f"scratch/*/{FILE}")
    _, entries = decode_soft_file(file.read_bytes(), FILE)
    assert next(entries)[0] > 1, "the file begins where the owner was when it began again"
    before = recorded(tmp_path)
    assert not before & executed(run_again(tmp_path, world))


@pytest.mark.parametrize("at", ["an append", "a new file"])
def test_a_full_disk_ends_soft_checkpoints_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, at: str
) -> None:
    """Files of this process may have 40 kB: the last write is a short one, the next one fails."""
    monkeypatch.setattr(soft_checkpoints, "LONG", 30_000 if at == "a new file" else 10**9)
    world, child = World(rows=900), os.fork()
    if not child:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
            run(MemoryEngine(world, every=1000), open_store(tmp_path))
            world.check()
            assert "soft checkpoints end, so that a restart executes steps again" in caplog.text
            assert not list(tmp_path.glob(f"scratch/*/{FILE}*"))
        except BaseException:  # noqa: BLE001 - the exit code says so
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_a_system_without_a_boot_id_has_no_soft_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soft_checkpoints, "boot_of_computer", lambda: "")
    world = World(rows=150)
    assert killed(tmp_path, world, 14) is not None
    assert not list(tmp_path.glob(f"scratch/*/{FILE}*"))
    assert recorded(tmp_path) & executed(run_again(tmp_path, world))


def test_status_says_what_the_death_of_the_driver_alone_costs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert killed(tmp_path, World(rows=150), 14) is not None
    show_status(tmp_path, as_json=False)
    assert "if the driver alone died, no recorded step would be executed again" in capsys.readouterr().out
    (folder,) = open_store(tmp_path).scratches().values()
    another_boot(folder)
    show_status(tmp_path, as_json=False)
    assert "if the driver alone died" not in capsys.readouterr().out


def test_the_boot_of_this_computer_is_known() -> None:
    assert len(ownership.boot_of_computer()) == 36


def test_what_is_adopted_is_said(tmp_path: Path) -> None:
    world, told = World(rows=150), list[Progress]()
    assert killed(tmp_path, world, 14) is not None
    Host(
        MemoryEngine(world, every=100), open_store(tmp_path), RunOptions(available_now=True, on_progress=told.append)
    ).run()
    assert [each.processor for each in told if each.what == "adopt"] == ["clean", "sums"]
    assert not [each for each in told if each.what in ("restore", "replay")]
