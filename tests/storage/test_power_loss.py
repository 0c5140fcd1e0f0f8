"""A local store and its log after a power loss at any moment, in every state that it could legally leave."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from boatlift.errors import BoatliftError
from boatlift.storage.filesystem import DurableFolders
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.manifest_objects import NamesObjectSize
from boatlift.storage.records.records import Cursor, SinkCommit, Stopped
from boatlift.storage.verify import verify
from support.crash.power_loss import Act, Disk, Recorder, State, lay_out, look_up, moved
from support.worlds.facts import CLAIM, Unsynced, gave, made, run_of, saved, stable

STORE = Path("parent") / "store"
NAMES = ("a", "b", "c", "d", "e")


@dataclass
class Session:
    """What a process did: its acts, and what the log meant after each of its objects.

    Attributes:
        acts: All acts; a mark holds the number of the log's newest object that is acknowledged by then, or name and
            contents of an object that is (None: that is deleted from then on).
        meanings: The number of an object to what the log means with it as the newest.
    """

    acts: list[Act] = field(default_factory=list)
    meanings: dict[int, LogHistory] = field(default_factory=lambda: {0: LogHistory("flow")})


class LostError(Exception):
    """A state from which a store does not recover as it must."""


class Marking(LocalStore):
    """Marks which objects `create` has acknowledged: law 2 of all stores, whatever the log makes of them."""

    def __init__(self, root: Path, filesystem: Recorder) -> None:
        super().__init__(root, filesystem)
        self._recorder = filesystem

    def create(self, name: str, content: bytes | Path) -> None:
        super().create(name, content)
        self._recorder.mark((name, self.read(name)))

    def delete(self, *names: str) -> None:
        for name in names:
            self._recorder.mark((name, None))
            super().delete(name)


def note(session: Session, log: Log, files: Recorder) -> None:
    session.meanings[log.last] = copy.deepcopy(log.history)
    files.mark(log.last)


def opened(store: LocalStore) -> Log:
    return Log.open(store, "flow", facts_an_object=2, names_an_object=NamesObjectSize(names=1, objects=2))


def live(base: Path) -> Session:
    """A short life with every kind of act: claim, groups, a run, manifest, truncation, another run, clean stop."""
    files, session = Recorder(), Session()
    store = Marking.open(base / STORE, create=True, filesystem=files)
    log = opened(store)
    log.claim(CLAIM)
    note(session, log, files)
    log.append([made(0), made(1)])
    note(session, log, files)
    for time in (0, 1):
        content = f"the rows of run {time}".encode()
        file = store.scratch(1) / f"{time}.arrow"
        if time == 0:
            files.acts += [Act("make_folder", base / STORE / "scratch"), Act("make_folder", base / STORE / "scratch/1")]
        files.write_unsynced(file, content)
        store.create(f"runs/{time}", file)
        cursor = Cursor("numbers", time, {}, NAMES[time : time + 1])
        log.append([gave(time), saved(time, run_of(content, f"runs/{time}")), cursor, stable({"sums": time})])
        note(session, log, files)
    log.move_out()
    log.checkpoint()
    note(session, log, files)
    log.truncate()
    store.delete("runs/0")
    files.mark(log.last)
    log.append([made(2), SinkCommit("table", 1), Cursor("numbers", 2, {}, NAMES[2:3])])
    note(session, log, files)
    log.append([Stopped()])
    note(session, log, files)
    session.acts = files.acts
    return session


class Survivors:
    """Lays states out, recovers from each, and remembers how far each got."""

    def __init__(self, folder: Path, meanings: dict[int, LogHistory]) -> None:
        self._folder = folder
        self._meanings = meanings
        self.recovered: dict[State, int] = {}

    def recover(self, state: State) -> int:
        """Recovers from a state, as a new process does, and goes on from there.

        Returns:
            The number of the newest object that survived.
        """
        if state not in self.recovered:
            lay_out(state, self._folder)
            try:
                self.recovered[state] = self._recover(self._folder / STORE)
            except (AssertionError, BoatliftError) as error:
                raise LostError(f"from the state {state}") from error
            finally:
                shutil.rmtree(self._folder)
        return self.recovered[state]

    def _recover(self, root: Path) -> int:
        store = LocalStore.open(root, create=True, filesystem=Unsynced())
        log = opened(store)
        last = log.last
        meaning = self._meanings[last]
        assert log.history == meaning, "what survived is whole and in order"
        known = sum(names.count for names in meaning.names.values())
        assert tuple(log.names_taken("numbers")) == NAMES[:known]
        assert [finding for finding in verify(store) if finding.is_error] == []
        log.claim(CLAIM)
        log.append([made(7), Cursor("numbers", 7, {}, NAMES[known:])])
        log.move_out()
        log.checkpoint()
        log.truncate()
        again = Log.open(store, "flow")
        assert again.history == log.history
        assert tuple(again.names_taken("numbers")) == NAMES
        return last


def losses(disk: Disk, acts: list[Act], survivors: Survivors, acknowledged: int = 0) -> int:
    """Loses power after each of the acts and holds every state against what was acknowledged by then.

    Returns:
        How many (moment, state) pairs there were.
    """
    count = 0
    objects: dict[str, bytes] = {}
    for act in acts:
        disk.take(act)
        match act:
            case Act("mark", _, int(number)):
                acknowledged = number
            case Act("mark", _, (name, None)):
                del objects[name]
            case Act("mark", _, (name, content)):
                objects[name] = content
        for state in disk.states():
            for name, content in objects.items():
                if look_up(state, STORE / name) != content:
                    raise LostError(f"{name} was created, and lost by a power loss after {act}")
            if survivors.recover(state) < acknowledged:
                raise LostError(f"object {acknowledged} was acknowledged, and lost by a power loss after {act}")
            count += 1
    return count


@pytest.fixture
def base(tmp_path: Path) -> Path:
    base = tmp_path / "disk"
    base.mkdir()
    return base


def test_the_model_of_the_disk_ends_like_the_real_one(base: Path) -> None:
    session = live(base)
    disk = Disk(base)
    for act in session.acts:
        disk.take(act)
    lay_out(disk.now(), base.parent / "modelled")
    real = {path.relative_to(base): path.read_bytes() for path in base.rglob("*") if path.is_file()}
    modelled = base.parent / "modelled"
    assert {p.relative_to(modelled): p.read_bytes() for p in modelled.rglob("*") if p.is_file()} == real


def test_the_model_of_the_disk_promises_no_more_than_posix(base: Path) -> None:
    disk = Disk(base)
    disk.take(Act("write", base / "a", b"ab"))
    assert set(disk.states()) == {(), (("a", b"ab"),), (("a", b""),), (("a", b"a"),), (("a", b"\0\0"),)}
    disk.take(Act("sync", base / "a"))
    assert set(disk.states()) == {(), (("a", b"ab"),)}, "a synced file may still have no name"
    disk.take(Act("link", base / "b", base / "a"))
    assert len(set(disk.states())) == 4, "two names, each on its own"
    disk.take(Act("sync_folder", base))
    assert set(disk.states()) == {(("a", b"ab"), ("b", b"ab"))}
    disk.take(Act("unlink", base / "a"))
    assert set(disk.states()) == {(("a", b"ab"), ("b", b"ab")), (("b", b"ab"),)}, "a deleted name may come back"
    disk.take(Act("make_folder", base / "f"))
    disk.take(Act("link", base / "f" / "c", base / "b"))
    disk.take(Act("sync_folder", base / "f"))
    assert (("b", b"ab"),) in set(disk.states()), "a lost folder takes synced names along"


def test_a_power_loss_at_any_moment_loses_nothing_acknowledged(base: Path, tmp_path: Path) -> None:
    session = live(base)
    survivors = Survivors(tmp_path / "after", session.meanings)
    count = losses(Disk(base), session.acts, survivors)
    assert set(survivors.recovered.values()) == set(session.meanings), "each object was the newest to survive"
    assert len(survivors.recovered) >= 50
    assert count >= 100


SYNCS = 41
"""How many syncs the life above makes, so that each is a test of its own."""


@pytest.mark.parametrize("left_out", range(SYNCS))
def test_each_sync_is_needed(base: Path, tmp_path: Path, left_out: int) -> None:
    """With any one sync left out there is a moment and a state in which something acknowledged is lost or damaged."""
    session = live(base)
    syncs = [at for at, act in enumerate(session.acts) if act.is_sync and act.path.is_relative_to(base)]
    assert len(syncs) == SYNCS
    acts = [act for at, act in enumerate(session.acts) if at != syncs[left_out]]
    survivors = Survivors(tmp_path / "after", session.meanings)
    with pytest.raises(LostError):
        losses(Disk(base), acts, survivors)


def goes_on(make: Callable[[Path, Recorder], LocalStore], base: Path, tmp_path: Path, acts: list[Act]) -> int:
    """Kills the process after these acts; another goes on from what is seen; then the power fails."""
    before = Disk(base)
    for act in acts:
        before.take(act)
    again = tmp_path / "again"
    lay_out(before.now(), again)
    files, session = Recorder(), Session()
    log = Log.open(make(again / STORE, files), "flow")
    session.meanings = {log.last: copy.deepcopy(log.history)}
    log.claim(CLAIM)
    note(session, log, files)
    log.append([made(8)])
    note(session, log, files)
    shutil.rmtree(again)
    after = before.copy()
    survivors = Survivors(tmp_path / "after", session.meanings)
    count = 0
    for act in files.acts:
        after.take(Act(act.verb, moved(act.path, again, base), moved(act.detail, again, base)))
        if act.verb == "mark" and isinstance(act.detail, int):
            for state in after.states():
                if survivors.recover(state) < act.detail:
                    raise LostError(f"object {act.detail} was acknowledged, and lost after {act}")
                count += 1
    return count


def killed_anywhere(make: Callable[[Path, Recorder], LocalStore], base: Path, tmp_path: Path) -> int:
    acts = live(base).acts
    return sum(goes_on(make, base, tmp_path, acts[:at]) for at in range(len(acts) + 1))


def test_what_rests_on_the_unsynced_acts_of_a_killed_process_survives_too(base: Path, tmp_path: Path) -> None:
    """A process dies between an act and its sync; the next one sees the act and must not take it for durable."""

    def make(root: Path, files: Recorder) -> LocalStore:
        return LocalStore.open(root, create=True, filesystem=files)

    assert killed_anywhere(make, base, tmp_path) > 100


def test_a_folder_that_exists_is_not_thereby_durable(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above finds it if the store takes a folder that another process made for granted."""

    class Trusting(DurableFolders):
        def make(self, folder: Path) -> None:
            if folder.is_dir():
                self._durable.add(folder)
            super().make(folder)

    monkeypatch.setattr("boatlift.storage.local.DurableFolders", Trusting)

    def make(root: Path, files: Recorder) -> LocalStore:
        return LocalStore.open(root, create=True, filesystem=files)

    with pytest.raises(LostError):
        killed_anywhere(make, base, tmp_path)
