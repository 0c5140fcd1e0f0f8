"""A check of every durable byte of a store, without the program that wrote it."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

import xxhash

from boatlift.errors import BoatliftError, Finding
from boatlift.storage.bad_rows import BAD_ROWS
from boatlift.storage.blocks import BLOCK_BYTES, BlockTable
from boatlift.storage.clean_shutdown import STOPS, last_mark, mark_of
from boatlift.storage.compacted_parts import COMPACTED
from boatlift.storage.identities import IDENTITIES
from boatlift.storage.input_log import INPUT
from boatlift.storage.key_packs import KEYS_FOLDER
from boatlift.storage.log import Log
from boatlift.storage.log_reader import FACTS, LOG, name_of
from boatlift.storage.names import NAMES
from boatlift.storage.records.codec import decode_bad_rows, decode_facts, decode_group, decode_identity, decode_names
from boatlift.storage.records.damage import RESTORE
from boatlift.storage.records.facts import payloads_of
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.live import LiveRecords
from boatlift.storage.records.payloads import input_log_of, runs_of
from boatlift.storage.records.records import RunRef
from boatlift.storage.store import Store
from boatlift.storage.verify_input import verify_input

__all__ = ["verify"]

READ_BYTES = 1024 * BLOCK_BYTES


def verify(store: Store) -> Iterator[Finding]:
    """Read every object of a store, and yield each damage and each object that no record names.

    The check covers each object of the log, of facts, of names and of bad rows by itself, then the log as a whole
    (numbers, chain, owners and all their claims, names of sources), then every byte of every run that a live checkpoint
    names, then the input logs of sources.

    One loss cannot be seen: that of the newest objects of a log whose owner did not stop in good order, for a crash
    just before them leaves the same bytes. The sinks, which know their last step, reveal it at the next start. An owner
    that stopped in good order has left a mark of the log's end.

    The check may run beside the owner: an object that is missing is looked up in the log again before it is reported.
    """
    damaged = set()
    for name in store.list(""):
        if name in IDENTITIES or name.startswith((LOG, FACTS, NAMES, STOPS, BAD_ROWS)):
            for finding in _check_object(store, name):
                damaged.add(finding.name)
                yield finding
    try:
        log = Log.open(store, None)
        claims = [*log.claims()]
        log.check_mark()
        for source in log.history.names:
            log.names_taken(source)
        of_names = log.objects_of_names()
    except BoatliftError as error:
        if not any(name in error.message for name in damaged):
            yield Finding("log", error.condition, error.message)
        return
    yield from _check_end(store, log)
    yield from _check_runs(store, log.history)
    yield from verify_input(store, log.store_id, _newest_inputs(log.history.live_records))
    yield from _left_over(store, log, {*of_names, *(name_of(token) for token in claims)})


def _newest_inputs(live: LiveRecords) -> dict[str, int]:
    """Return, by source, the number of the newest object of its input log that a recorded step rests on, if known."""
    newest = {
        source: max((input_log_of(fact.outcome) for fact in determinants.values()), default=0)
        for source, determinants in live.determinants.items()
    }
    return {source: number for source, number in newest.items() if number}


def _check_object(store: Store, name: str) -> Iterator[Finding]:
    try:
        content = store.read(name)
        if name.startswith(LOG):
            decode_group(content, name)
        elif name.startswith(FACTS):
            decode_facts(content, name)
        elif name.startswith(NAMES):
            decode_names(content, name)
        elif name.startswith(BAD_ROWS):
            decode_bad_rows(content, name)
        else:
            decode_identity(content, name)
    except BoatliftError as error:
        if error.condition != "MISSING_OBJECT":  # deleted since it was listed; a loss is found with the log
            yield Finding(name, error.condition, error.message)


def _check_end(store: Store, log: Log) -> Iterator[Finding]:
    if log.history.stopped and last_mark(store) < log.last and _is_there(store, log.last):
        name = mark_of(log.last)
        yield Finding(
            name,
            None,
            f"{name} is not there: the owner died just after its stop in good order, or the mark was lost",
        )


def _is_there(store: Store, last: int) -> bool:
    """Return whether the last object of a log is still there: a newer owner may have gone on, and truncated it."""
    return store.size(name_of(last)) is not None


def _check_runs(store: Store, history: LogHistory) -> Iterator[Finding]:
    named = {run.name: run for run in _live_runs(history)}
    for run in named.values():
        damage = _check_run(store, run)
        if damage is not None and run.name in Log.open(store, None).history.live_runs():
            yield damage


def _left_over(store: Store, log: Log, others: AbstractSet[str]) -> Iterator[Finding]:
    needed = {*IDENTITIES, *log.history.live_runs(), *log.objects_of_facts, *others}
    begin = name_of(log.manifest)
    for name in store.list(""):
        kept = name.startswith((INPUT, COMPACTED, KEYS_FOLDER, STOPS, BAD_ROWS))
        belongs = kept or (name.startswith(LOG) and name >= begin)
        if name not in needed and not belongs:
            yield Finding(name, None, f"{name} is left over: no live record names it")


def _live_runs(history: LogHistory) -> Iterator[RunRef]:
    for fact in history.live_records.facts():
        for payload in payloads_of(fact):
            yield from runs_of(payload)


def _check_run(store: Store, run: RunRef) -> Finding | None:
    try:
        damage = _damage(store, run)
    except BoatliftError as error:
        return Finding(run.name, error.condition, error.message)
    return None if damage is None else Finding(run.name, "CORRUPT", f"{run.name} {damage}: {RESTORE}")


def _damage(store: Store, run: RunRef) -> str | None:
    """Return what is wrong with a run's bytes."""
    digest = xxhash.xxh3_128()
    covered = 0 if run.tail is None else run.size - run.tail
    tail = bytearray()
    place = covered
    while part := store.read(run.name, place, READ_BYTES):
        digest.update(part)
        place += len(part)
        if run.tail is not None:
            tail += part
    if (place, digest.hexdigest()) != (run.size, run.digest):
        of = "with digest" if run.tail is None else f"the last {run.tail} with digest"
        return f"has {place} bytes, {of} {digest.hexdigest()}, but {run.size} with {run.digest} are recorded"
    if run.tail is None:
        return None
    table = BlockTable.of_tail(memoryview(tail))
    for place in range(0, covered, READ_BYTES):
        part = store.read(run.name, place, min(READ_BYTES, covered - place))
        damaged = next(table.damaged(place // BLOCK_BYTES, part), None)
        if damaged is not None:
            return f"has another checksum than recorded from byte {damaged * BLOCK_BYTES} on"
    return None
