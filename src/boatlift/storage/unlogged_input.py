"""Pushed rows that no log keeps: the client is answered once the results are durable, and otherwise pushes again.

Tasks read the rows from scratch, which is lost with its owner. Only keys are recorded, in the source's input log,
before a step can take their rows. So a repeated push is recognised if its results were kept. The source's cursor has
the number of the last object of keys whose results were kept; keys recorded after it are void.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from boatlift.errors import DataError, UnavailableError
from boatlift.storage.input_log import ROWS, InputLog
from boatlift.storage.input_objects import InputPart, InputParts
from boatlift.storage.records.codec import InputObject, Push, checksum_of, encode_input
from boatlift.storage.remembered_keys import RememberedKeys
from boatlift.storage.remote_files import removed, writing


class UnloggedInput(InputParts):
    """The counterpart of `InputLog` for rows that are not logged; numbers are those of objects in scratch.

    Laws:
        * Keys of pushes that a cursor has taken remain known; those after this owner's first cursor do not.
        * `parts` after a cursor returns all objects appended since, also if it returned them before.

    Attributes:
        source, last, waiting, keeps_rows: As in `InputLog`.
        begun: Whether `begin` was called, which precedes each `append` and `find`.
    """

    keeps_rows = False

    def __init__(self, log: InputLog, folder: Path) -> None:
        super().__init__()
        self._log, self.source = log, log.source
        self._prefix = folder / f"pushed-{hashlib.sha256(log.source.encode()).hexdigest()[:16]}"
        self._keys: dict[str, Push] = {}
        self._recorded: dict[int, int] = {}
        self.begun = False
        self.last = self.waiting = self._base = 0

    def load(self) -> None:
        """Do nothing: no other process writes these objects."""

    def checksum(self, number: int) -> bytes:
        """Return the checksum of an object.

        Raises:
            DataError: `[INPUT_MISSING]` the object is another owner's, or freed.
        """
        with self._changing:
            part = self._parts.get(number)
        if part is None:
            raise DataError("INPUT_MISSING", f"rows pushed to {self.source} are gone: no log keeps them")
        return part.checksum

    def path(self, number: int) -> Path:
        return Path(f"{self._prefix}-{number:012}")

    def find(self, key: str) -> Push | None:
        """Return the push with a key, with number 0 if it is freed; None if no push is known."""
        with self._changing:
            mine = self._keys.get(key)
        if mine is not None:
            return mine
        known = self._log.find(key)
        return None if known is None else msgspec.structs.replace(known, number=0)

    def check_newest(self) -> None:
        self._log.check_newest()

    def claim(self, token: int, stable: Mapping[str, int], newest: Mapping[str, int]) -> None:
        self._token = token
        self._log.claim(token, stable.get("keys", 0), newest.get("keys", 0))

    def begin(self, cursor: Mapping[str, int]) -> None:
        """Set the cursor after all pushes whose results were kept, once, before the first `append`."""
        if self.begun:
            return
        self._log.void(cursor.get("keys", 0))
        with self._changing:
            self.last = self._freed = cursor["last"]
            self._base = cursor.get("base", 0)
            self._recorded[self.last] = cursor.get("keys", 0)
        self.begun = True

    def append(self, pushes: Sequence[Push], rows: bytes) -> int:
        """Write rows for tasks, and record the keys of their pushes; return the number of their object.

        Raises:
            FencedError: `[FENCED]`.
            UnavailableError: `[STORE_FAILED]`.
        """
        number = self.last + 1
        numbered = tuple(msgspec.structs.replace(push, number=number) for push in pushes)
        made = InputObject("", self.source, number, self._token, self._base, 0, ROWS, pushes=numbered, rows=rows)
        content = encode_input(made)
        try:
            with writing(self.path(number)):
                self.path(number).write_bytes(content)
        except OSError as error:
            raise UnavailableError("STORE_FAILED", f"cannot write {self.path(number)}: {error}") from error
        keyed = [push for push in pushes if push.key]
        recorded = self._log.record_keys(keyed) if keyed else self._recorded[self.last]
        with self._changing:
            self._parts[number] = InputPart(self._base, made.count, len(content), checksum_of(content))
            self._keys.update((push.key, push) for push in numbered if push.key)
            self._recorded[number] = recorded
            self.last, self._base, self.waiting = number, self._base + made.count, self.waiting + len(content)
        return number

    @property
    def keys(self) -> RememberedKeys:
        """Include those that may become void."""
        return self._log.keys

    def remember(self, since: int, *, full: bool = False) -> None:
        """Pack keys whose rows are freed, and forget packs; see `InputLog.remember`."""
        self._log.remember(since, self.keys_up_to(self._freed), full=full)

    def free(self, number: int, remember: int) -> None:
        """Free rows up to a number."""
        with self._changing:
            gone = {each: part for each, part in self._parts.items() if each <= number}
            for each, part in gone.items():
                del self._parts[each]
                self.waiting -= part.size
            self._freed = max(self._freed, number)
            self._keys = {key: push for key, push in self._keys.items() if push.number > number}
            recorded = self._recorded[self._freed]
            self._recorded = {each: keys for each, keys in self._recorded.items() if each >= self._freed}
        removed(map(self.path, gone))
        self._log.free(recorded, remember)

    def keys_up_to(self, number: int) -> int:
        """Return the number of the newest object of keys that belongs to objects up to a number."""
        with self._changing:
            return self._recorded[number]
