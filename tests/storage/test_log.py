"""The log: one numbering, which is the fence; what is read back, and what is refused."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boatlift.errors import BoatliftError, DataError, FencedError, InternalError, UnavailableError
from boatlift.storage.codec import Header, decode_group, encode_group
from boatlift.storage.filesystem import RealFileSystem
from boatlift.storage.history import History
from boatlift.storage.local import LocalStore
from boatlift.storage.log import BEGUN, CLAIM_ATTEMPTS, IDENTITIES, IDENTITY, Log, name_of
from boatlift.storage.records import Claim, Committed, Record, Stable, Stopped
from boatlift.storage.store import Store
from support.facts import CLAIM, Unsynced, advance, gave, made, sequences, small_store


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore.open(tmp_path / "store", create=True)


def claimed(store: Store, claim: Claim = CLAIM) -> Log:
    log = Log.open(store, "flow")
    log.claim(claim)
    return log


# --- writing and reading back ---


def test_a_new_store_has_an_empty_log(store: LocalStore) -> None:
    log = Log.open(store, "flow")
    assert (log.last, log.manifest, log.owner) == (0, 0, 0)
    assert log.history == History("flow")
    assert list(store.list("")) == [], "reading writes nothing"


def test_the_number_of_a_claim_is_its_token(store: LocalStore) -> None:
    first = Log.open(store, "flow")
    assert first.claim(CLAIM) == 1
    assert first.append([made(0)]) == 2
    second = Log.open(store, "flow")
    assert second.claim(CLAIM) == 3
    assert second.append([made(1)]) == 4
    assert list(store.list("")) == [BEGUN, IDENTITY, *(name_of(n) for n in (1, 2, 3, 4))]
    assert [group.header.token for group in Log.open(store, "flow").groups()] == [1, 1, 3, 3]


def test_what_was_appended_is_read_back_in_order(store: LocalStore) -> None:
    log = claimed(store)
    groups: list[list[Record]] = [[made(0), made(1)], [gave(0)], [Stable({"numbers": 0}), Committed("table", 0)]]
    for records in groups:
        log.append(records)
    again = Log.open(store, "flow")
    assert again.history == log.history == History.of([CLAIM, *itertools.chain(*groups)], "flow")
    assert [list(group.records) for group in again.groups()] == [[CLAIM], *groups]


@settings(deadline=None, max_examples=50)
@given(sequences(), st.data())
def test_any_log_is_read_back_whole(
    tmp_path_factory: pytest.TempPathFactory, records: list[Record], data: st.DataObject
) -> None:
    """However the records are grouped, wherever manifests come, whether truncated or not."""
    store = LocalStore.open(tmp_path_factory.mktemp("store"), create=True, filesystem=Unsynced())
    log = claimed(store)
    model = History.of([CLAIM], "flow")
    rest = [record for record in records[1:] if not isinstance(record, Claim)]
    while rest:
        count = data.draw(st.integers(1, len(rest)))
        log.append(rest[:count])
        for record in rest[:count]:
            model.apply(record)
        rest = rest[count:]
        if data.draw(st.booleans()):
            snapshot = log.history.snapshot(advance)
            log.checkpoint(snapshot)
            model.apply(snapshot)
            if data.draw(st.booleans()):
                log.truncate()
        if data.draw(st.booleans()):
            log = claimed(store)
            model.apply(CLAIM)
        assert log.history == model
        assert Log.open(store, None).history == model
    shutil.rmtree(store.root)


def test_a_manifest_makes_what_was_before_it_garbage(store: LocalStore) -> None:
    log = claimed(store)
    for time in range(5):
        log.append([made(time), Stable({"numbers": time - 1})])
    assert log.checkpoint(log.history.snapshot(advance)) == 7
    log.append([made(5)])
    before = Log.open(store, "flow")
    assert sorted(before.history.inputs["numbers"]) == [4, 5], "read from the manifest, though the rest is still there"
    assert before.manifest == 7
    log.truncate()
    assert list(store.list("log/")) == [name_of(1), name_of(7), name_of(8)], "claims stay"
    after = Log.open(store, "flow")
    assert after.history == before.history == log.history
    after.claim(CLAIM)
    after.append([made(6)])
    assert after.checkpoint(after.history.snapshot(advance)) == 11
    after.truncate()
    assert list(store.list("log/")) == [name_of(1), name_of(9), name_of(11)]
    after.truncate()
    assert list(after.claims()) == [9, 1]
    assert Log.open(store, "flow").history == after.history


def test_what_an_interrupted_truncation_left_is_not_read_and_goes_with_the_next(store: LocalStore) -> None:
    log = claimed(store)
    for time in range(4):
        log.append([made(time)])
    log.checkpoint(log.history.snapshot(advance))
    expected = log.history
    contents = {number: store.read(name_of(number)) for number in (3, 5)}
    log.truncate()
    for number, content in contents.items():  # a power loss can bring back any of them
        store.create(name_of(number), content)
    again = Log.open(store, "flow")
    assert again.history == expected
    again.claim(CLAIM)
    again.truncate()
    assert list(store.list("log/")) == [name_of(1), name_of(6), name_of(7)]


def test_a_clean_stop_is_sealed(store: LocalStore) -> None:
    log = claimed(store)
    log.append([made(0)])
    assert log.append([Committed("table", 0), Stopped()]) == 3
    assert log.last == 4
    again = Log.open(store, "flow")
    assert (again.history.stopped, again.sealed) == (True, True)
    again.claim(CLAIM)
    assert (again.history.stopped, again.sealed) == (False, False)


# --- the fence ---


def test_an_older_owner_is_fenced_by_a_claim_and_stays_so(store: LocalStore) -> None:
    old = claimed(store)
    old.append([made(0)])
    new = Log.open(store, "flow")
    assert new.claim(Claim("other-host", 4711, 0, {"graph": "g"}, {})) == 3
    writes: tuple[Callable[[], object], ...] = (
        lambda: old.append([made(1)]),
        lambda: old.checkpoint(old.history.snapshot(advance)),
        lambda: old.append([]),
    )
    for write in writes:
        with pytest.raises(FencedError, match=r"\[FENCED\] process 4711 on other-host has taken flow over"):
            write()
    assert new.append([made(1)]) == 4
    assert Log.open(store, "flow").history == new.history


def test_an_older_owner_is_fenced_also_when_the_newer_one_has_truncated(store: LocalStore) -> None:
    old = claimed(store)
    new = claimed(store)
    new.append([made(0)])
    new.checkpoint(new.history.snapshot(advance))
    new.truncate()
    with pytest.raises(FencedError, match=r"\[FENCED\] process 1 on host"):
        old.append([made(0)])
    assert Log.open(store, "flow").history == new.history


def test_older_owners_are_fenced_however_many_came_and_truncated_after_them(store: LocalStore) -> None:
    owners = []
    for time in range(4):
        owners.append(claimed(store))
        owners[-1].append([made(time)])
        owners[-1].checkpoint(owners[-1].history.snapshot(advance))
        owners[-1].truncate()
    for old in owners[:-1]:
        with pytest.raises(FencedError, match=r"\[FENCED\] process 1 on host"):
            old.append([made(9)])
    assert list(owners[-1].claims()) == [10, 7, 4, 1]
    assert Log.open(store, "flow").history == owners[-1].history


@pytest.mark.parametrize("length", range(6))
def test_whoever_was_paused_before_its_claim_is_not_taken_in_by_a_free_number(store: LocalStore, length: int) -> None:
    """Its next number was used and truncated meanwhile: it may create it, and must see that the log is beyond it."""
    log = claimed(store)
    for time in range(length):
        log.append([made(time)])
    slow = Log.open(store, "flow")
    for time in range(length, 4):
        log.append([made(time)])
    log.checkpoint(log.history.snapshot(advance))
    log.truncate()
    assert slow.claim(CLAIM) == log.last + 1
    assert slow.history.last_input("numbers") == max(3, length - 1)
    with pytest.raises(FencedError):
        log.append([made(4)])
    slow.append([made(4)])
    slow.checkpoint(slow.history.snapshot(advance))
    slow.truncate()
    assert Log.open(store, "flow").history == slow.history
    assert list(store.list("log/")) == [name_of(number) for number in (1, slow.last - 2, slow.last)]


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_of_any_owners_paused_anywhere_only_the_newest_writes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Processes take turns in any way, each seeing only what it read last; a model knows who owns the log."""
    store = LocalStore.open(tmp_path_factory.mktemp("store"), create=True, filesystem=Unsynced())
    processes: list[Log] = []
    tokens: dict[int, int] = {}
    owner, durable = -1, 0
    for _ in range(data.draw(st.integers(1, 25))):
        act = data.draw(st.sampled_from(["open", "claim", "append", "append", "manifest", "truncate"]))
        if act == "open" or not processes:
            processes.append(Log.open(store, "flow"))
            continue
        who = data.draw(st.integers(0, len(processes) - 1))
        log = processes[who]
        if act == "claim" and who not in tokens:
            tokens[who] = log.claim(CLAIM)
            assert tokens[who] == max(tokens.values())
            assert log.history.last_input("numbers") == durable - 1, "the new owner knows all that was acknowledged"
            owner = who
        elif act in {"append", "manifest"} and who in tokens:
            records = [made(durable)] if act == "append" else [log.history.snapshot(advance)]
            if who == owner:
                log.append(records)
                durable += act == "append"
            else:
                with pytest.raises(FencedError, match=r"\[FENCED\]"):
                    log.append(records)
        elif act == "truncate" and who in tokens:
            log.truncate()
        assert Log.open(store, "flow").history.last_input("numbers") == durable - 1
    shutil.rmtree(store.root)


def test_an_older_owner_may_truncate_what_it_made_garbage(store: LocalStore) -> None:
    """A pause between manifest and truncation takes nothing from the newer owner."""
    old = claimed(store)
    old.append([made(0)])
    old.checkpoint(old.history.snapshot(advance))
    new = claimed(store)
    new.append([made(1)])
    old.truncate()
    assert Log.open(store, "flow").history == new.history


class Meanwhile:
    """A store that lets someone else act once, just before a call."""

    def __init__(self, store: LocalStore, verb: str, prefix: str, act: Callable[[], object], times: int = 1) -> None:
        self._store, self._verb, self._prefix, self._act, self._times = store, verb, prefix, act, times

    def __getattr__(self, verb: str) -> object:
        method = getattr(self._store, verb)

        def call(name: str, *arguments: object) -> object:
            if verb == self._verb and name.startswith(self._prefix) and self._times:
                self._times -= 1
                self._act()
            return method(name, *arguments)

        return call


def test_a_claim_that_loses_its_number_reads_on_and_takes_the_next(store: LocalStore) -> None:
    fast: list[Log] = []

    def overtake() -> None:
        fast.append(claimed(store))
        fast[-1].append([made(len(fast) - 1)])

    slow = Log.open(Meanwhile(store, "create", "log/", overtake, times=3), "flow")  # type: ignore[arg-type]
    assert slow.claim(CLAIM) == 7
    assert sorted(slow.history.inputs["numbers"]) == [0, 1, 2]
    with pytest.raises(FencedError):
        fast[-1].append([made(3)])
    slow.append([made(3)])
    assert Log.open(store, "flow").history == slow.history


def test_a_claim_gives_up_in_the_end(store: LocalStore) -> None:
    endless = Meanwhile(store, "create", "log/", lambda: claimed(store), times=1000)
    with pytest.raises(FencedError, match=r"\[FENCED\] other processes keep claiming flow"):
        Log.open(endless, "flow").claim(CLAIM)  # type: ignore[arg-type]
    assert Log.open(store, "flow").last == CLAIM_ATTEMPTS


def test_a_claim_of_another_program_is_refused_also_if_it_was_overtaken(store: LocalStore) -> None:
    other = Claim("host", 2, 0, {"graph": "another"}, {})
    overtaken = Log.open(Meanwhile(store, "create", "log/", lambda: claimed(store)), "flow")  # type: ignore[arg-type]
    for log in (overtaken, Log.open(store, "flow")):
        with pytest.raises(DataError, match=r"\[PROGRAM_CHANGED\].*graph changed"):
            log.claim(other)
    assert Log.open(store, "flow").last == 1


def test_a_program_is_compared_as_it_is_written(store: LocalStore) -> None:
    """A tuple is a list once it was written, and the order of keys means nothing."""
    claimed(store, Claim("host", 1, 0, {"keys": ("a", "b"), "plan": {"x": 1, "y": 2}}, {}))
    claimed(store, Claim("host", 1, 0, {"plan": {"y": 2, "x": 1}, "keys": ["a", "b"]}, {}))


def test_only_who_has_claimed_may_write_and_only_once_claimed(store: LocalStore) -> None:
    log = Log.open(store, "flow")
    with pytest.raises(InternalError, match="must be claimed"):
        log.append([made(0)])
    log.claim(CLAIM)
    with pytest.raises(InternalError, match="claimed already"):
        log.claim(CLAIM)


def test_after_a_failed_write_the_log_refuses_all_others(tmp_path: Path) -> None:
    class Fails(RealFileSystem):
        failing = False

        def sync_folder(self, path: Path) -> None:
            if self.failing:
                raise OSError(5, "Input/output error")
            super().sync_folder(path)

    files = Fails()
    log = claimed(LocalStore.open(tmp_path, create=True, filesystem=files))
    log.append([made(0)])
    applied = list(log.history.inputs["numbers"])
    files.failing = True
    for _ in range(2):
        with pytest.raises(UnavailableError, match=r"\[STORE_FAILED\].*Input/output error"):
            log.append([made(1)])
    assert list(log.history.inputs["numbers"]) == applied, "what may not be durable is not applied"
    again = Log.open(LocalStore.open(tmp_path, create=False), "flow")
    assert sorted(again.history.inputs["numbers"]) in ([0], [0, 1])


def test_after_a_write_of_unknown_outcome_the_log_refuses_though_the_store_would_not(store: LocalStore) -> None:
    """Whether the object is there is not known before the store is opened again; a second try could write it twice."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    log = Log.open(Meanwhile(store, "create", name_of(3), interrupt), "flow")  # type: ignore[arg-type]
    log.claim(CLAIM)
    log.append([made(0)])
    writes: tuple[Callable[[], object], ...] = (
        lambda: log.append([made(1)]),
        lambda: log.append([made(1)]),
        lambda: log.checkpoint(log.history.snapshot(advance)),
    )
    for write in writes:
        with pytest.raises(KeyboardInterrupt):
            write()
    assert Log.open(store, "flow").last == 2


# --- reading beside a writer ---


def test_a_reader_is_not_disturbed_by_a_truncation(store: LocalStore) -> None:
    log = claimed(store)
    for time in range(3):
        log.append([made(time)])

    def truncate() -> None:
        log.checkpoint(log.history.snapshot(advance))
        log.truncate()

    for prefix in (name_of(log.last), name_of(2)):
        reader = Log.open(Meanwhile(store, "read", prefix, truncate), "flow")  # type: ignore[arg-type]
        assert reader.history == log.history


def test_a_reader_is_not_disturbed_by_the_first_claim(store: LocalStore) -> None:
    def begin() -> None:
        log = claimed(store)
        log.append([made(0)])

    for verb, prefix in (("list", ""), ("size", IDENTITY)):
        for name in list(store.list("")):
            store.delete(name)
        reader = Log.open(_AfterList(store, begin, verb, prefix), "flow")  # type: ignore[arg-type]
        assert reader.last in (0, 2)


class _AfterList(Meanwhile):
    """Acts between the first look at the log's numbers and the look at everything."""

    def __init__(self, store: LocalStore, act: Callable[[], object], verb: str, prefix: str) -> None:
        super().__init__(store, verb, prefix, act)
        self._looked = False

    def __getattr__(self, verb: str) -> object:
        call = super().__getattr__(verb)

        def first_look(name: str, *arguments: object) -> object:
            if name == "log/" and not self._looked:
                self._looked = True
                return self._store.list(name)
            return call(name, *arguments)  # type: ignore[operator]

        return first_look


# --- what is refused ---


def test_a_store_of_another_dataflow_is_refused(store: LocalStore) -> None:
    claimed(store)
    with pytest.raises(DataError, match=r"\[STORE_OF_ANOTHER_DATAFLOW\].*belongs to dataflow flow, not other"):
        Log.open(store, "other")
    assert Log.open(store, None).dataflow == "flow"


def test_a_store_whose_first_claim_was_interrupted_is_new_but_named(store: LocalStore) -> None:
    claimed(store)
    for name in list(store.list("")):
        if name != IDENTITY:
            store.delete(name)
    with pytest.raises(DataError, match=r"\[STORE_OF_ANOTHER_DATAFLOW\]"):
        Log.open(store, "other")
    log = Log.open(store, "flow")
    assert log.claim(CLAIM) == 1


def test_a_claim_interrupted_before_anything_rests_on_it_is_no_loss(store: LocalStore) -> None:
    claimed(store)
    store.delete(BEGUN)
    log = Log.open(store, "flow")
    assert log.claim(CLAIM) == 2
    assert store.size(BEGUN) is not None


@pytest.mark.parametrize("left", [{IDENTITY, BEGUN}, {IDENTITY, "runs/1"}, {BEGUN}, {"runs/1"}, {"notes.txt"}])
def test_a_store_that_lost_its_whole_log_is_never_new(store: LocalStore, left: set[str]) -> None:
    log = claimed(store)
    store.create("runs/1", b"rows")
    store.create("notes.txt", b"")
    log.append([made(0)])
    for name in list(store.list("")):
        if name not in left:
            store.delete(name)
    with pytest.raises(DataError, match=r"\[MISSING_OBJECT\].*but no log"):
        Log.open(store, "flow")


def test_a_truncated_log_that_lost_its_only_manifest_is_not_a_young_one(store: LocalStore) -> None:
    """All that is left is the first claim: just what a process that died at once would leave."""
    log = claimed(store)
    log.append([made(0)])
    log.checkpoint(log.history.snapshot(advance))
    log.truncate()
    store.delete(name_of(log.last))
    assert list(store.list("log/")) == [name_of(1)]
    with pytest.raises(DataError, match=r"\[MISSING_OBJECT\] the log's newest manifest is not there"):
        Log.open(store, "flow")


@pytest.mark.parametrize("gone", IDENTITIES)
def test_a_store_that_lost_its_identity_is_refused(store: LocalStore, gone: str) -> None:
    log = claimed(store)
    log.append([made(0)])
    log.checkpoint(log.history.snapshot(advance))
    log.truncate()
    store.delete(gone)
    with pytest.raises(DataError, match=rf"\[MISSING_OBJECT\] {gone} is not there"):
        Log.open(store, "flow")


def test_a_gap_is_refused(store: LocalStore) -> None:
    log = claimed(store)
    for time in range(3):
        log.append([made(time)])
    for gone in (1, 2, 3):
        content = store.read(name_of(gone))
        store.delete(name_of(gone))
        with pytest.raises(DataError, match=rf"\[MISSING_OBJECT\] {name_of(gone)} is not there"):
            Log.open(store, "flow")
        store.create(name_of(gone), content)
    assert Log.open(store, "flow").last == 4


def test_a_lost_manifest_is_refused_though_the_groups_before_it_are_there(store: LocalStore) -> None:
    log = claimed(store)
    log.append([made(0)])
    log.checkpoint(log.history.snapshot(advance))
    log.append([made(1)])
    store.delete(name_of(3))
    with pytest.raises(DataError, match=rf"\[MISSING_OBJECT\] {name_of(3)}"):
        Log.open(store, "flow")


def test_a_file_that_is_no_object_is_refused_by_name(store: LocalStore) -> None:
    claimed(store)
    store.create("log/000000000002.bak", b"")
    with pytest.raises(DataError, match=r"\[CORRUPT\] log/000000000002.bak"):
        Log.open(store, "flow")


def test_a_whole_object_in_a_wrong_place_is_refused(store: LocalStore, tmp_path: Path) -> None:
    """Each with a checksum that holds: put there by a careless copy, not by a broken disk."""
    log = claimed(store)
    for time in range(3):
        log.append([made(time)])
    header, records = decode_group(store.read(name_of(4)), "")
    strange = [
        ("dataflow", Header("other", 4, 1, 0, header.previous, 0), records),
        ("number", Header("flow", 3, 1, 0, header.previous, 0), records),
        ("token", Header("flow", 4, 2, 0, header.previous, 0), records),
        ("predecessor", Header("flow", 4, 1, 1, header.previous, 0), records),
        ("chain", Header("flow", 4, 1, 0, b"\0" * 16, 0), records),
        ("no chain", Header("flow", 4, 1, 0, b"", 0), records),
        ("manifest that is none", Header("flow", 4, 1, 0, header.previous, 4), records),
        ("manifest to come", Header("flow", 4, 1, 0, header.previous, 9), records),
        ("manifest before", Header("flow", 4, 1, 0, header.previous, 2), records),
        ("unnamed manifest", Header("flow", 4, 1, 0, header.previous, 0), (log.history.snapshot(advance),)),
        ("claim of another number", Header("flow", 4, 1, 0, header.previous, 0), (CLAIM,)),
        ("claim among others", Header("flow", 4, 4, 0, header.previous, 0), (CLAIM, made(3))),
    ]
    for what, wrong, wrong_records in strange:
        store.delete(name_of(4))
        store.create(name_of(4), encode_group(wrong, wrong_records))
        with pytest.raises(DataError, match=r"\[CORRUPT\] log/0000"):
            pytest.fail(f"{what}: {Log.open(store, 'flow').history}")
    store.delete(name_of(4))
    store.create(name_of(4), encode_group(header, records))
    assert Log.open(store, "flow").last == 4


def test_identity_objects_are_not_taken_for_each_other(store: LocalStore) -> None:
    claimed(store).append([made(0)])
    content = store.read(BEGUN)
    store.delete(IDENTITY)
    store.create(IDENTITY, content)
    with pytest.raises(DataError, match=r"\[CORRUPT\] dataflow is a copy of begun"):
        Log.open(store, "flow")


# --- every byte of it ---


def test_with_any_byte_flipped_the_log_gives_an_error_or_the_right_result(tmp_path: Path) -> None:
    store, records = small_store(tmp_path / "store", stopped=True)
    right = History.of(records, "small")
    assert Log.open(store, "small").history == right
    for name in store.list(""):
        path = tmp_path / "store" / name
        content = path.read_bytes()
        for at in range(len(content)):
            path.write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
            match opened(store):
                case DataError(condition="CORRUPT", message=message):
                    assert name in message
                case history:
                    assert history == right
                    assert name in ("runs/1", name_of(1)), "not read by who opens the log; `verify` does"
        path.write_bytes(content)


def test_with_any_object_gone_the_log_gives_an_error_or_what_a_crash_before_it_gives(tmp_path: Path) -> None:
    store, records = small_store(tmp_path / "store", stopped=False)
    numbers = list(store.list("log/"))
    for name in list(store.list("")):
        content = store.read(name)
        store.delete(name)
        match opened(store):
            case DataError(condition="MISSING_OBJECT", message=message):
                assert name in message
            case history:
                assert name in (numbers[0], numbers[-1], "runs/1"), "`verify` finds the first claim and the run missing"
                assert history == History.of(records[:-2] if name == numbers[-1] else records, "small")
        store.create(name, content)


def opened(store: Store) -> History | BoatliftError:
    try:
        return Log.open(store, "small").history
    except BoatliftError as error:
        return error
