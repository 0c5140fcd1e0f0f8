"""Pushed rows that nobody keeps: whoever pushed them hears of them once no failure can take back what came of them, and pushes them again if he does not.

They are in scratch, for the tasks that read them, and go with their owner. Only keys are recorded, in the source's input log (`input_log`), before a step can take
their rows: so a push that comes again is known, if what came of it was kept. The cursor of the source says up to which object of keys that is; what was recorded
beyond it is void.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from boatlift.errors import DataError, UnavailableError
from boatlift.storage.input_log import ROWS, InputLog, InputPart
from boatlift.storage.records.codec import InputObject, Push, checksum_of, encode_input

__all__ = ["UnloggedInput"]


class UnloggedInput:
    """What `InputLog` is to a source whose rows are kept, for one whose rows are not; the numbers are of objects in scratch.

    Laws:
        * What a cursor has taken keeps its keys; of rows behind the cursor that this owner began with nothing is known.
        * What `parts` gives after a cursor is what was appended since, also if it was given before.

    Args:
        log: Where keys are recorded.
        folder: The owner's scratch.

    Attributes:
        source, last, waiting, keeps_rows: As `InputLog` has them.
        begun: Whether it has learned where its source goes on: nothing is appended, and no key asked for, before.
    """

    keeps_rows = False

    def __init__(self, log: InputLog, folder: Path) -> None:
        self._log, self.source = log, log.source
        self._prefix = folder / f"pushed-{hashlib.sha256(log.source.encode()).hexdigest()[:16]}"
        self._changing = threading.Lock()
        self._parts: dict[int, InputPart] = {}
        self._keys: dict[str, Push] = {}
        self._recorded: dict[int, int] = {}
        self.begun = False
        self.last = self.waiting = self._base = self._freed = 0

    # -- reading ------------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Nobody else writes what it gives."""

    def parts(self, after: int) -> list[tuple[int, InputPart]]:
        """Gives the objects after a number, in order."""
        with self._changing:
            return [(number, part) for number, part in self._parts.items() if number > after]

    def numbers_within(self, first: int, last: int) -> list[int]:
        """Gives the numbers of the objects in a range, both ends included."""
        return [number for number, _ in self.parts(first - 1) if number <= last]

    def checksum(self, number: int) -> bytes:
        """Gives the checksum of an object.

        Raises:
            DataError: `[INPUT_MISSING]` it is not this owner's, or free.
        """
        with self._changing:
            part = self._parts.get(number)
        if part is None:
            raise DataError("INPUT_MISSING", f"rows that were pushed to {self.source} are gone: nobody keeps them")
        return part.checksum

    def path(self, number: int) -> Path:
        """Tells where tasks can read an object."""
        return Path(f"{self._prefix}-{number:012}")

    def find(self, key: str) -> Push | None:
        """Tells what was pushed with a key; its number is 0 if it is free."""
        with self._changing:
            mine = self._keys.get(key)
        if mine is not None:
            return mine
        known = self._log.find(key)
        return None if known is None else msgspec.structs.replace(known, number=0)

    def is_freed(self, number: int) -> bool:
        """Tells whether nobody needs the rows of an object any more."""
        with self._changing:
            return number <= self._freed

    def check_newest(self) -> None:
        """As `InputLog` has it."""
        self._log.check_newest()

    # -- writing ------------------------------------------------------------------------------------------------------

    def claim(self, token: int, stable: Mapping[str, int], newest: Mapping[str, int]) -> None:
        """Takes the source's input over; see `InputLog.claim`."""
        self._token = token
        self._log.claim(token, stable.get("keys", 0), newest.get("keys", 0))

    def begin(self, cursor: Mapping[str, int]) -> None:
        """Learns, before anything is appended, what was taken and kept: pushes beyond it never were."""
        if self.begun:
            return
        self._log.void(cursor.get("keys", 0))
        with self._changing:
            self.last = self._freed = cursor["last"]
            self._base = cursor.get("base", 0)
            self._recorded[self.last] = cursor.get("keys", 0)
        self.begun = True

    def append(self, pushes: Sequence[Push], rows: bytes) -> int:
        """Leaves rows for tasks, and records the keys of their pushes; gives the number of their object.

        Raises:
            FencedError: `[FENCED]`.
            UnavailableError: `[STORE_FAILED]`.
        """
        number = self.last + 1
        numbered = tuple(msgspec.structs.replace(push, number=number) for push in pushes)
        made = InputObject("", self.source, number, self._token, self._base, 0, ROWS, pushes=numbered, rows=rows)
        content = encode_input(made)
        try:
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

    def free(self, number: int, remember: int) -> None:
        """Learns that nobody needs rows up to a number any more."""
        with self._changing:
            gone = {each: part for each, part in self._parts.items() if each <= number}
            for each, part in gone.items():
                del self._parts[each]
                self.waiting -= part.size
            self._freed = max(self._freed, number)
            self._keys = {key: push for key, push in self._keys.items() if push.number > number}
            recorded = self._recorded[self._freed]
            self._recorded = {each: keys for each, keys in self._recorded.items() if each >= self._freed}
        for each in gone:
            self.path(each).unlink(missing_ok=True)
        self._log.free(recorded, remember)

    def keys_up_to(self, number: int) -> int:
        """Gives the number of the newest object of keys among those of objects up to a number."""
        with self._changing:
            return self._recorded[number]
