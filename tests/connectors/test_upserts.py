"""Pushed rows that replace one another: which rows are taken, and compaction."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import boatlift as bl
from boatlift.connectors.push import compacted
from boatlift.connectors.push.compacted import last_rows
from boatlift.storage import input_log, remembered_keys
from boatlift.storage.input_log import InputLog
from boatlift.storage.input_objects import COMPACTED
from boatlift.storage.local import LocalStore
from boatlift.storage.records.codec import Push
from boatlift.storage.remembered_keys import KEYS_FOLDER
from boatlift.storage.verify import verify_input
from support.push.source import Source
from support.push.upsert_life import UPSERTS, Held, Life
from support.waiting import until
from support.worlds.facts import Unsynced
from support.worlds.logs import Meanwhile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def _compacts_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_log, "KEY_CHECKPOINT_AFTER", 8)
    monkeypatch.setattr(remembered_keys, "PACK_AFTER", 8)
    monkeypatch.setattr(compacted, "PART_BYTES", 200)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore.open(tmp_path / "store", create=True, filesystem=Unsynced())


@pytest.fixture
def life(store: LocalStore) -> Iterator[Life]:
    made = Life(store)
    yield made
    made.close()


def parts(store: LocalStore) -> list[str]:
    return [*store.list(COMPACTED)]


def size_of(store: LocalStore) -> int:
    return sum(store.size(name) or 0 for name in store.list(""))


# --- the compacted segment of a span ---


def batches_of(rows: list[tuple[int, int, bool]], base: int, cut: int) -> list[pa.RecordBatch]:
    columns = {
        "a": pa.array([a for a, _, _ in rows], pa.int64()),
        "b": pa.array([str(b) for _, b, _ in rows], pa.string()),
        "_deleted": pa.array([deleted for *_, deleted in rows], pa.bool_()),
        "_pushed": pa.array(range(base, base + len(rows)), pa.int64()),
    }
    return [each for each in pa.table(columns).to_batches(max_chunksize=cut) if len(each)]


def newest(batches: list[pa.RecordBatch]) -> dict[Any, Any]:
    rows = [row for batch in batches for row in batch.to_pylist()]
    found = {(row["a"], row["b"]): row for row in sorted(rows, key=lambda row: row["_pushed"])}
    return {key: row for key, row in found.items() if not row["_deleted"]}


ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.booleans()), max_size=12)


@given(before=ROWS, span=ROWS.filter(len), after=ROWS, cut=st.integers(1, 5))
def test_a_compacted_segment_replaces_its_span_whatever_comes_before_and_after(
    before: list[Any], span: list[Any], after: list[Any], cut: int
) -> None:
    """Random rows against a dictionary; a span at the beginning has no deletions left."""
    first, mine = batches_of(before, 0, cut), batches_of(span, len(before), cut)
    last = batches_of(after, len(before) + len(span), cut)
    found = [batch for table in last_rows(lambda: mine, ["a", "b"], whole=not before) for batch in table.to_batches()]
    assert newest([*first, *found, *last]) == newest([*first, *mine, *last])
    rows = [row for batch in found for row in batch.to_pylist()]
    assert [row["_pushed"] for row in rows] == sorted({row["_pushed"] for row in rows})
    assert len({(row["a"], row["b"]) for row in rows}) == len(rows)
    if not before:
        assert not any(row["_deleted"] for row in rows)


# --- the log ---


@pytest.mark.parametrize("seed", range(6))
def test_everything_is_what_a_dictionary_holds(store: LocalStore, seed: int) -> None:
    """Random pushes, steps that become free, compaction, and owners that end; a batch may read at any moment."""
    chance = random.Random(seed)
    life, owners, most = Life(store), 1, 0
    keys = 10 if seed else 400
    for turn in range(150):
        rows = [(chance.randrange(keys), f"{turn:90}") for _ in range(chance.randrange(10))]
        life.push(rows, *(chance.randrange(keys) for _ in range(0 if len(rows) > 1 else 1)))
        if chance.random() < 0.3:
            life.free()
            most = max(most, len(life.source.log.compacted))
        if chance.random() < 0.2:
            life.check()
        if chance.random() < 0.05:
            life.close()
            owners += 1
            life = Life(store, owners, life)
    life.check()
    life.close()
    assert parts(store)
    assert most >= (1 if seed else 3), "seed 0 has several segments at once"
    assert [str(found) for found in verify_input(store, "0" * 32, {"orders": life.cursor["last"]})] == []


def test_a_log_of_few_keys_stays_small(store: LocalStore) -> None:
    """Twenty times as many pushes to ten keys: the same bytes and files, up to the next key checkpoint."""
    life = Life(store)
    sizes = []
    for turn in range(2000):
        life.push([(turn % 10, f"item {turn}")])
        if turn % 8 == 7:
            life.free()
        if turn % 100 == 99:
            sizes.append((size_of(store), len([*store.list("")])))
    life.check()
    life.close()
    assert max(sizes)[0] <= 4 * sizes[0][0], sizes
    assert max(files for _, files in sizes) <= 2 * 8 + 8


def test_the_cost_of_compaction_is_in_proportion_to_the_pushes(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every push has a key of its own, the worst case: compaction frees nothing."""
    written = 0
    create = store.create

    def counted(name: str, content: bytes | Path) -> None:
        nonlocal written
        assert isinstance(content, bytes)
        written += len(content) if name.startswith(COMPACTED) else 0
        create(name, content)

    monkeypatch.setattr(store, "create", counted)
    life = Life(store)
    pushed = 0
    for turn in range(1024):
        life.push([(turn, "an item")])
        pushed += life.position["bytes"]
        if turn % 8 == 7:
            life.free()
    life.check()
    life.close()
    assert len(life.held) == 1024
    assert written < 7 * pushed  # log2(1024 / 8)
    assert len(life.source.log.compacted) <= 8


def test_a_log_that_is_never_read_whole_is_not_compacted(store: LocalStore) -> None:
    source = Source(Path(), 1, store, upserts=UPSERTS, limit=10**6)
    cursor = source.start()
    for turn in range(20):
        source.put(turn)
        position = source.next(cursor)
        assert position is not None
        cursor = source.advance(cursor, position)
    source.acknowledge(position)
    until(lambda: len([*store.list("input/")]) < 5)
    source.close()
    assert parts(store) == []


def filled(life: Life, pushes: int, *, begin: int = 0) -> None:
    for turn in range(begin, begin + pushes):
        life.push([(turn % 3, f"item {turn}")])


def test_files_that_a_batch_reads_stay_until_the_next_begins(store: LocalStore, life: Life) -> None:
    filled(life, 12)
    reading = life.source.log.files_up_to(life.cursor["last"])
    life.free()
    assert parts(store)
    filled(life, 12, begin=12)
    life.free()
    assert all(path.exists() for path, _ in reading), "a batch reads them still"
    following = life.source.log.files_up_to(life.cursor["last"])
    assert not {path for path, _ in following} & {path for path, _ in reading}
    filled(life, 12, begin=24)
    life.free()
    until(lambda: not any(path.exists() for path, _ in reading))
    life.check()


def test_a_reader_of_fewer_rows_does_not_begin_at_a_compacted_segment(store: LocalStore, life: Life) -> None:
    filled(life, 5)
    early = dict(life.cursor)
    filled(life, 8, begin=5)
    life.free()
    assert parts(store)
    with pytest.raises(bl.DataError, match=r"\[INPUT_MISSING\] the rows pushed to orders up to object 6 are part of"):
        life.source.log.files_up_to(early["last"])
    with pytest.raises(bl.DataError, match=r"\[INPUT_CHANGED\]"):
        life.source.verify_everything(early)


@pytest.mark.parametrize("nth", [0, 1])
def test_an_integral_that_was_changed_is_found(store: LocalStore, life: Life, nth: int) -> None:
    for turn in range(24):
        life.push([(turn, "x" * 60)])
    life.free()
    name = parts(store)[nth]
    path = store.local_path(name)
    assert path is not None
    content = path.read_bytes()
    life.source.verify_everything(life.cursor)
    for changed, condition in ((content[:-1] + b"x", "INPUT_CHANGED"), (None, "INPUT_MISSING")):
        path.unlink()
        if changed is not None:
            path.write_bytes(changed)
        with pytest.raises(bl.DataError, match=rf"\[{condition}\] {name}"):
            life.source.verify_everything(life.cursor)
        found = [finding for finding in verify_input(store, "0" * 32, {}) if finding.name == name]
        assert [finding.condition for finding in found] == ["CORRUPT" if changed else "MISSING_OBJECT"]
    other = store.local_path(parts(store)[0])
    assert other is not None
    path.write_bytes(other.read_bytes()[:-1] + b"y")
    with pytest.raises(bl.DataError, match=r"\[INPUT_CHANGED\]"):
        life.source.verify_everything(life.cursor)
    path.write_bytes(content)
    life.check()


def test_rows_that_were_changed_go_into_no_integral(store: LocalStore) -> None:
    life = Life(store)
    filled(life, 12)
    path = store.local_path("input/orders/000000000007")
    assert path is not None
    path.write_bytes(Path(store.local_path("input/orders/000000000008") or "").read_bytes())
    with pytest.raises(bl.DataError, match=r"\[CORRUPT\] input/orders/000000000007 is not the object"):
        life.free()
    life.close()
    assert "input/orders/000000000002" in store.list("input/"), "nothing was deleted"


def test_an_owner_that_was_fenced_while_it_compacted_is_fenced(store: LocalStore) -> None:
    """The newer owner has compacted the log and deleted objects that the older owner was about to read."""
    mine: Any = Meanwhile(store, "read", "input/", lambda: None, 0)
    older = Life(mine)
    filled(older, 12)

    lives = []

    def taken_over() -> None:
        newer = Life(store, 2, older)
        lives.append(newer)
        filled(newer, 1, begin=12)
        newer.free()
        newer.check()
        newer.close()

    mine._act, mine._times = taken_over, 1
    with pytest.raises(bl.FencedError, match=r"\[FENCED\] owner 2"):
        older.free()
    there = parts(store)
    older.close()
    assert parts(store) == there
    last = Life(store, 3, *lives)
    last.check()
    last.close()


def test_an_owner_that_sleeps_before_it_deletes_deletes_nothing_of_a_newer_one(store: LocalStore) -> None:
    """The parts left over have the name of an earlier owner, not of the newer owner's segment."""
    killed: Any = Killed(store, "create", COMPACTED, 1, after=True)
    life = Life(killed, 2)
    filled(life, 12)
    with pytest.raises(bl.BoatliftError):
        life.free()
    (left,) = parts(store)
    newest = []

    def taken_over() -> None:
        newer = Life(store, 4, life)
        until(lambda: newer.is_settled)
        newer.close()
        newest.append(newer)

    Life(Meanwhile(store, "delete", COMPACTED, taken_over), 3, life)
    assert left not in parts(store)
    assert parts(store)
    last = Life(store, 5, *newest)
    last.check()
    last.close()


class Doubtful:
    """A store that says of one object that it could not be written, though it is there."""

    def __init__(self, store: LocalStore) -> None:
        self._store, self.doubts = store, False

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._store, verb)

    def create(self, name: str, content: bytes | Path) -> None:
        self._store.create(name, content)
        if self.doubts and name.startswith("input/"):
            raise bl.UnavailableError("STORE_FAILED", "a failed sync: mend the disk")


def test_parts_that_a_key_checkpoint_may_name_stay_though_its_owner_does_not_know_it(store: LocalStore) -> None:
    doubtful = Doubtful(store)
    life = Life(doubtful)
    filled(life, 12)
    doubtful.doubts = True
    with pytest.raises(bl.UnavailableError, match=r"\[STORE_FAILED\]"):
        life.free()
    life.close()
    following = Life(store, 2, life)
    following.check()
    following.close()
    assert len(following.source.log.compacted) == 1


def test_keys_of_pushes_are_remembered_beyond_their_rows(store: LocalStore, life: Life) -> None:
    life.tried = [(1, None)], ()
    life.source.put(1, key="a")
    life.take()
    filled(life, 12)
    life.free()
    assert "input/orders/000000000002" not in [*store.list("input/")]
    assert life.source.put(1, key="a").repeated
    life.close()
    following = Life(store, 2, life)
    assert following.source.put(1, key="a").repeated
    following.close()


def test_keys_are_packed_while_an_integral_is_written(store: LocalStore) -> None:
    log = InputLog(store, "0" * 32, "orders", keeps_all=True)
    log.claim(1, 0)
    part = log.compacted_parts.write(1, 1, 0, 0, b"rows")
    log.append([Push(f"{number}", 1, b"", 0) for number in range(8)], b"")
    log.remember(0)
    assert len(log.keys.packed) == 1
    assert parts(store) == [part.name], "no key checkpoint names it yet"


# --- on Spark ---


@pytest.mark.spark
def test_a_batch_begins_at_integrals_and_takes_what_came_since(
    store: LocalStore, life: Life, spark: SparkSession
) -> None:
    chance = random.Random(1)
    early: list[tuple[Any, Held]] = []
    for turn in range(60):
        life.push([(chance.randrange(12), f"{turn}")], *([chance.randrange(12)] if turn % 3 == 0 else []))
        if turn in (20, 40):
            life.free()
        if turn in (45, 59):
            early.append((dict(life.cursor), dict(life.held)))
    assert parts(store)
    for cursor, held in early:
        life.source.verify_everything(cursor)
        found = life.source.load_everything(spark, cursor)
        assert found.drop("_position").schema == life.source.schema(spark)
        assert {row["id"]: row["item"] for row in found.collect()} == held
        assert found.count() == len(held)


# --- deaths ---


class Killed:
    """A store of a process that is killed before or after a call: no later call does anything."""

    def __init__(self, store: LocalStore, verb: str, prefix: str, nth: int, *, after: bool) -> None:
        self._store, self._verb, self._prefix, self._left, self._after = store, verb, prefix, nth, after
        self.dead = False

    def __getattr__(self, verb: str) -> Any:
        method = getattr(self._store, verb)

        def call(*arguments: Any) -> Any:
            if not self.dead and verb == self._verb and arguments[0].startswith(self._prefix):
                self._left -= 1
                self.dead = self._left == 0
                if self.dead and self._after:
                    method(*arguments)
            if self.dead:
                raise InterruptedError
            return method(*arguments)

        return call


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("verb", "prefix"), [("create", "input/"), ("create", COMPACTED), ("create", KEYS_FOLDER), ("delete", "")]
)
def test_an_owner_that_is_killed_at_any_call_leaves_all_rows_and_keys(
    store: LocalStore, verb: str, prefix: str, after: bool
) -> None:
    """Life after life, each killed one call later; the next finds what a dictionary holds."""
    life = Life(store)
    life.push([(1, "first")])
    life.close()
    deaths = 0
    for nth in range(1, 10):
        killed: Any = Killed(store, verb, prefix, nth, after=after)
        try:
            life = Life(killed, 2 * nth, life, keyed=True)
            for turn in range(80):
                key = (nth * 7 + turn) % 9
                life.push([(key, f"{nth} {turn}")], *([key - 1] if turn % 5 == 0 else []))
                life.free()
        except (bl.BoatliftError, InterruptedError):
            assert killed.dead
            deaths += 1
        assert killed.dead, nth
        life = Life(store, 2 * nth + 1, life)
        life.take()
        life.check()
        life.close()
        assert [str(found) for found in verify_input(store, "0" * 32, {})] == []
    assert deaths == 9
