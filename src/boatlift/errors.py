"""The exception tree: few classes, by the remedy of the user.

BoatliftError
├── InvalidError      fix the program or its options
├── UnavailableError  an external system cannot be reached: retry
├── FencedError       a newer owner has taken over: stop
├── DataError         stored or read data differ from what was recorded: restore or upgrade
├── DivergedError     a processor gave other results on replay: it is not deterministic
├── UserCodeError     the user's function raised
└── InternalError     a fault of Boatlift itself

Every error carries a stable condition in capitals, in brackets at the start of its text. `CONDITIONS` lists all
conditions; `docs/errors.md` shows them. A text that contains a condition is not evidence of an error: data may contain
the same words.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from boatlift.conditions import CONDITIONS, Retry

FLOW_AND_STORE = "FLOW --store STORE"
"""Placeholder in a remedy for the command line's own arguments."""

RESTORE = "restore it from a copy"
"""The remedy for a damaged store, which no command can repair."""


class BoatliftError(Exception):
    """A refusal or failure of Boatlift.

    Args:
        condition: A name from `CONDITIONS`.
        message: One lowercase sentence with the relevant values and the remedy.
        lasting: True if a retry would fail again, although the condition does not imply it.

    Attributes:
        lasting: True if a retry would fail again.
        retry: The reaction of a host to the error.
        remedy: A command or a change, shown after the message; may contain `FLOW_AND_STORE`.
    """

    exit_code = 1
    remedy = ""

    def __init__(self, condition: str, message: str, *, lasting: bool = False) -> None:
        known = CONDITIONS.get(condition)
        # A subclass has the conditions of its base: some are also errors of Python, such as AttributeError.
        if known is None or known.error not in {cls.__name__ for cls in type(self).__mro__}:
            raise AssertionError(f"[{condition}] is not a condition of {type(self).__name__}")
        super().__init__(f"[{condition}] {message}")
        self.condition = condition
        self.message = message
        self.retry = Retry.STOP if lasting else known.retry
        self.lasting = self.retry is Retry.STOP

    def __reduce__(self) -> tuple[type[BoatliftError], tuple[str, str]]:
        return type(self), (self.condition, self.message)

    def __str__(self) -> str:
        return "; ".join(filter(None, (super().__str__(), self.remedy)))


class InvalidError(BoatliftError):
    """The program or its options are wrong: fix them."""

    exit_code = 2


class UnavailableError(BoatliftError):
    """An external system is absent, full, or locked: retry when it is back."""

    exit_code = 3


class FencedError(BoatliftError):
    """A newer owner has taken the store over: this process stops.

    Attributes:
        newest: The token of that owner, as a sink knows it; 0: unknown.
    """

    exit_code = 4
    newest = 0


class DataError(BoatliftError):
    """Stored or read data differ from what was recorded: restore them, or upgrade."""

    exit_code = 5


class DivergedError(BoatliftError):
    """A processor gave another result on replay: it is not deterministic."""

    exit_code = 6


class UserCodeError(BoatliftError):
    """The user's function raised."""

    exit_code = 7


class InternalError(BoatliftError):
    """A fault of Boatlift itself."""

    exit_code = 70


@dataclass(frozen=True, slots=True)
class Finding:
    """A result of a check of durable objects, which continues after it.

    Attributes:
        name: The name of a store's object, or of a sink's file or table.
        condition: The damage, from `CONDITIONS`; None for a note.
        message: One sentence.
    """

    name: str
    condition: str | None
    message: str

    @property
    def is_error(self) -> bool:
        return self.condition is not None

    def __str__(self) -> str:
        message = self.message.removeprefix(f"{self.name} ")
        return f"{self.name}: {message}" if self.condition is None else f"{self.name}: [{self.condition}] {message}"


_BY_NAME = {
    cls.__name__: cls
    for cls in (InvalidError, UnavailableError, FencedError, DataError, DivergedError, UserCodeError, InternalError)
}


def to_text(error: BoatliftError) -> str:
    """Encode an error in one line."""
    return json.dumps([error.condition, error.message])


def from_text(text: str) -> BoatliftError:
    """Decode an error from `to_text`; any text after it is ignored."""
    (condition, message), _ = json.JSONDecoder().raw_decode(text)
    return _BY_NAME[CONDITIONS[condition].error](condition, message)


def contradictory(processor: str, what: str) -> DataError:
    """Return the error for intact records of a processor that contradict each other."""
    return DataError("CORRUPT", f"no execution writes what the log says of {processor}: {what}: {RESTORE}")
