"""A check of the input logs of a store, without the program that wrote them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from boatlift.errors import BoatliftError, Finding
from boatlift.storage.compacted_parts import COMPACTED
from boatlift.storage.input_log import CLAIM, INPUT, InputLog
from boatlift.storage.records.codec import decode_input
from boatlift.storage.records.damage import RESTORE
from boatlift.storage.store import Store

__all__ = ["verify_input"]


def verify_input(store: Store, store_id: str, taken: Mapping[str, int]) -> Iterator[Finding]:
    """Read every object of all input logs of a store; yield each fault.

    Args:
        store, store_id: The store.
        taken: Source to the last number that a recorded step took.
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
        yield from _compacted(store, log)
        yield from _packs(store, log)
        if log.last < taken.get(source, 0):
            name = f"{INPUT}{source}/{taken[source]:012}"
            yield Finding(name, "MISSING_OBJECT", f"{name} is not there, and a step took it: {RESTORE}")


def _lost_claims(store: Store, log: InputLog) -> Iterator[Finding]:
    """Yield each claim of an input log that is gone or was changed: the numbers of claims must never become free."""
    for number in log.claims:
        name = f"{INPUT}{log.source}/{number:012}"
        try:
            found = decode_input(store.read(name), name)
        except BoatliftError as error:
            yield Finding(name, error.condition, error.message)
            continue
        if (found.store, found.source, found.number, found.kind) != (log.store_id, log.source, number, CLAIM):
            yield Finding(name, "CORRUPT", f"{name} is not the claim that the input log had: {RESTORE}")


def _compacted(store: Store, log: InputLog) -> Iterator[Finding]:
    """Yield each part of an integral that is gone or damaged, and each that is left over."""
    parts = {part.name: part for each in log.compacted for part in each.parts}
    for part in parts.values():
        try:
            log.compacted_parts.read(part)
        except BoatliftError as error:
            yield Finding(part.name, error.condition, error.message)
    for name in store.list(f"{COMPACTED}{log.source}/"):
        if name not in parts:
            yield Finding(name, None, f"{name} is left over: no live record names it")


def _packs(store: Store, log: InputLog) -> Iterator[Finding]:
    """Yield each pack of keys that is gone or damaged, and each that is left over."""
    packs = {pack.name: pack for pack in log.keys.packed}
    for pack in packs.values():
        try:
            log.key_packs.check(pack)
        except BoatliftError as error:
            yield Finding(pack.name, error.condition, error.message)
    for name in store.list(log.key_packs.prefix):
        if name not in packs:
            yield Finding(name, None, f"{name} is left over: no live record names it")
