"""Checks every durable byte of a store, without the program that wrote it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import TypeVar

import xxhash

from boatlift.errors import RESTORE, BoatliftError, DataError, Finding
from boatlift.storage.bad_rows import BAD_ROWS
from boatlift.storage.blocks import BLOCK_BYTES, BlockTable
from boatlift.storage.identities import IDENTITIES, SECRET, STOPS, last_mark, mark_of
from boatlift.storage.input_log import CLAIM, INPUT, InputLog
from boatlift.storage.input_objects import COMPACTED
from boatlift.storage.journal import damage_of_journal
from boatlift.storage.log import Log
from boatlift.storage.log_reader import FACTS, LOG, NAMES, name_of
from boatlift.storage.records.codec import (
    CompactedPart,
    PackedKeys,
    decode_bad_rows,
    decode_facts,
    decode_group,
    decode_identity,
    decode_input,
    decode_names,
)
from boatlift.storage.records.facts import payloads_of
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.payloads import input_log_of, runs_of
from boatlift.storage.records.records import RunRef
from boatlift.storage.remembered_keys import KEYS_FOLDER
from boatlift.storage.store import FETCHED, Store

READ_BYTES = 1024 * BLOCK_BYTES

_DECODERS: dict[str, Callable[[bytes, str], object]]
_DECODERS = {LOG: decode_group, FACTS: decode_facts, NAMES: decode_names, BAD_ROWS: decode_bad_rows}
_Named = TypeVar("_Named", CompactedPart, PackedKeys)


def verify(store: Store) -> Iterator[Finding]:
    """Read every object of a store, and yield each damage and each object that no record names.

    The check covers each object of the log, of facts, of names and of bad rows by itself; then the log as a whole
    (numbers, chain, owners and all their claims, names of sources); then every byte of every live run; then the input
    logs of sources.

    One loss is undetectable: that of the newest objects of a log without a clean shutdown after them, for a crash just
    before them leaves the same bytes. The sinks, which know their last step, reveal it at the next start. A clean
    shutdown leaves a mark of the log's end.

    The check may run beside the owner: a missing object is looked up in the log again before it is reported.
    """
    yield from _check_objects(store)
    yield from damage_of_journal(store)


def _check_objects(store: Store) -> Iterator[Finding]:
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
    # The last object is gone if a newer owner has continued the log and truncated it meanwhile.
    if log.history.stopped and last_mark(store) < log.last and store.size(name_of(log.last)) is not None:
        name = mark_of(log.last)
        message = f"{name} is not there: the owner died just after its clean shutdown, or the mark was lost"
        yield Finding(name, None, message)
    yield from _check_runs(store, log.history)
    newest = {
        source: max((input_log_of(fact.outcome) for fact in determinants.values()), default=0)
        for source, determinants in log.history.live_records.determinants.items()
    }
    yield from verify_input(store, log.store_id, {source: number for source, number in newest.items() if number})
    yield from _check_fetched(store, log.history)
    needed = {*IDENTITIES, SECRET, *log.history.live_runs(), *log.objects_of_facts, *of_names, *map(name_of, claims)}
    for name in store.list(""):
        kept = name.startswith((INPUT, COMPACTED, KEYS_FOLDER, STOPS, BAD_ROWS, FETCHED))
        belongs = kept or (name.startswith(LOG) and name >= name_of(log.manifest))
        if name not in needed and not belongs:
            yield _unnamed(name)


def _check_fetched(store: Store, history: LogHistory) -> Iterator[Finding]:
    """Check fetched input by the digests in the positions of recorded steps."""
    for source, determinants in history.live_records.determinants.items():
        bodies = set(store.list(f"{FETCHED}{source}/"))
        for fact in determinants.values() if bodies else ():
            for file in (fact.outcome or {}).get("position", {}).get("files", ()):
                name = f"{FETCHED}{source}/{file['path']}"
                if name not in bodies:
                    continue
                begin, digest = file.get("begin", 0), xxhash.xxh3_128()
                end = file["end"] if "end" in file else file["size"]
                try:
                    for at in range(begin, end, READ_BYTES):
                        digest.update(store.read(name, at, min(READ_BYTES, end - at)))
                except DataError:
                    continue  # its owner has deleted it since it was listed
                if digest.hexdigest() != file["digest"]:
                    yield Finding(name, "CORRUPT", f"{name} has other bytes than were fetched: {RESTORE}")


def _check_object(store: Store, name: str) -> Iterator[Finding]:
    try:
        decode = next((decode for folder, decode in _DECODERS.items() if name.startswith(folder)), decode_identity)
        decode(store.read(name), name)
    except BoatliftError as error:
        if error.condition != "MISSING_OBJECT":  # deleted since it was listed; reading the log finds a loss
            yield Finding(name, error.condition, error.message)


def _check_runs(store: Store, history: LogHistory) -> Iterator[Finding]:
    points = (point.facts for point in history.points.values())
    facts = chain(history.live_records.facts(), *points)
    payloads = chain((payload for fact in facts for payload in payloads_of(fact)), history.differences())
    named = {run.name: run for payload in payloads for run in runs_of(payload)}
    for run in named.values():
        try:
            damage = damage_of(store, run)
            found = None if damage is None else Finding(run.name, "CORRUPT", f"{run.name} {damage}: {RESTORE}")
        except BoatliftError as error:
            found = Finding(run.name, error.condition, error.message)
        if found is not None and run.name in Log.open(store, None).history.live_runs():
            yield found


def damage_of(store: Store, run: RunRef) -> str | None:
    """Read a run in the store through, and return how it differs from its record, if it does."""
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


def verify_input(store: Store, store_id: str, taken: Mapping[str, int]) -> Iterator[Finding]:
    """Read every object of all input logs of a store; yield each fault.

    Args:
        taken: Source to the number of the newest object that a recorded step reads.
    """
    names = [*store.list(INPUT)]
    damaged = False
    for name in names:
        try:
            decode_input(store.read(name), name)
        except BoatliftError as error:
            if error.condition != "MISSING_OBJECT":  # deleted since it was listed
                damaged = True
                yield Finding(name, error.condition, error.message)
    if damaged:
        return
    for source in sorted({name.split("/")[1] for name in names} | set(taken)):
        log = InputLog(store, store_id, source)
        try:
            log.load()
        except BoatliftError as error:
            yield Finding(f"{INPUT}{source}", error.condition, error.message)
            continue
        yield from _lost_claims(store, log)
        parts = [part for each in log.compacted for part in each.parts]
        yield from _named_objects(store, f"{COMPACTED}{source}/", parts, log.compacted_parts.read)
        yield from _named_objects(store, log.key_packs.prefix, log.keys.packed, log.key_packs.check)
        if log.last < taken.get(source, 0):
            name = f"{INPUT}{source}/{taken[source]:012}"
            yield Finding(name, "MISSING_OBJECT", f"{name} is not there, and a recorded step reads it: {RESTORE}")


def _lost_claims(store: Store, log: InputLog) -> Iterator[Finding]:
    """Yield each lost or changed claim of an input log: the numbers of claims must never become free."""
    for number in log.claims:
        name = f"{INPUT}{log.source}/{number:012}"
        try:
            found = decode_input(store.read(name), name)
        except BoatliftError as error:
            yield Finding(name, error.condition, error.message)
            continue
        if (found.store, found.source, found.number, found.kind) != (log.store_id, log.source, number, CLAIM):
            yield Finding(name, "CORRUPT", f"{name} is not the claim that the input log had: {RESTORE}")


def _named_objects(
    store: Store, prefix: str, named: Iterable[_Named], check: Callable[[_Named], object]
) -> Iterator[Finding]:
    """Yield each lost or damaged object that a key checkpoint names, and each other object with the prefix."""
    names = set()
    for each in named:
        names.add(each.name)
        try:
            check(each)
        except BoatliftError as error:
            yield Finding(each.name, error.condition, error.message)
    yield from (_unnamed(name) for name in store.list(prefix) if name not in names)


def _unnamed(name: str) -> Finding:
    return Finding(name, None, f"{name} is left over: no live record names it")
