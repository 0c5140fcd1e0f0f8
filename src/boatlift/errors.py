"""The exception tree: few classes, by the remedy of the user.

BoatliftError
├── InvalidError      fix the program or its options
├── UnavailableError  something outside is not there: retry
├── FencedError       a newer owner has taken over: stop
├── DataError         stored or read data differ from what was recorded: restore or upgrade
├── DivergedError     a processor gave other results on replay: it is not deterministic
├── UserCodeError     the user's function raised
└── InternalError     a fault of Boatlift itself

Every error carries a stable condition in capitals, which stands in brackets in the error's text. `CONDITIONS` lists all
conditions; `docs/errors.md` shows them. Text in which an error stands is none: data can say the same words.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from boatlift.conditions import CONDITIONS, Retry

__all__ = [
    "CONDITIONS",
    "FLOW_AND_STORE",
    "BoatliftError",
    "DataError",
    "DivergedError",
    "FencedError",
    "Finding",
    "InternalError",
    "InvalidError",
    "UnavailableError",
    "UserCodeError",
    "from_text",
    "to_text",
]

FLOW_AND_STORE = "FLOW --store STORE"
"""Placeholder in a remedy for the command line's own arguments."""


class BoatliftError(Exception):
    """A refusal or failure of Boatlift.

    Args:
        condition: A name from `CONDITIONS`.
        message: One lowercase sentence with the values that matter and the remedy.
        lasting: True if another try of the step would end the same, though that does not follow from the condition.

    Attributes:
        lasting: True if another try would end the same.
        retry: The reaction of a host to the error.
        remedy: A command to type or a change to make, shown behind the message; may contain `FLOW_AND_STORE`.
    """

    exit_code = 1
    remedy = ""

    def __init__(self, condition: str, message: str, *, lasting: bool = False) -> None:
        known = CONDITIONS.get(condition)
        # A subclass has the conditions of its base: some errors are Python's own besides, as an AttributeError.
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
    """Something outside is not there, full, or locked: retry when it is back."""

    exit_code = 3


class FencedError(BoatliftError):
    """A newer owner has taken the store over: this process stops."""

    exit_code = 4


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
    """A result of a check of durable objects; unlike an error it does not end the check.

    Attributes:
        name: The name of the object of a store, or of a sink's file or table.
        condition: The damage, from `CONDITIONS`; None for a mere note.
        message: One sentence.
    """

    name: str
    condition: str | None
    message: str

    @property
    def is_error(self) -> bool:
        """Return whether the finding is damage, and no mere note."""
        return self.condition is not None

    def __str__(self) -> str:
        message = self.message.removeprefix(f"{self.name} ")
        return f"{self.name}: {message}" if self.condition is None else f"{self.name}: [{self.condition}] {message}"


_BY_NAME = {
    cls.__name__: cls
    for cls in (InvalidError, UnavailableError, FencedError, DataError, DivergedError, UserCodeError, InternalError)
}


def to_text(error: BoatliftError) -> str:
    """Return an error as text in one line, for `from_text`."""
    return json.dumps([error.condition, error.message])


def from_text(text: str) -> BoatliftError:
    """Return the error that a text of `to_text` is; what stands behind it is ignored."""
    (condition, message), _ = json.JSONDecoder().raw_decode(text)
    return _BY_NAME[CONDITIONS[condition].error](condition, message)
