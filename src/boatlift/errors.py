"""The exception tree: few classes, by what the user should do.

BoatliftError
├── InvalidError      fix the program or its options
├── UnavailableError  something outside is not there: retry
├── FencedError       a newer owner has taken over: stop
├── DataError         what was stored or read is not what was recorded: restore or upgrade
├── DivergedError     a processor gave other results on replay: it is not deterministic
├── UserCodeError     the user's function raised
└── InternalError     a fault of Boatlift itself

Every error carries a stable condition in capitals, which stands in brackets in its text, so that it survives being
carried as text (out of a Spark task, through a log file). `CONDITIONS` lists all of them; `docs/errors.md` shows them.
"""

from __future__ import annotations

import re
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
]

FLOW_AND_STORE = "FLOW --store STORE"
"""Arguments of a command line, in the remedy of an error."""


class BoatliftError(Exception):
    """Something Boatlift refuses or cannot do.

    Args:
        condition: A name from `CONDITIONS`.
        message: One lowercase sentence with the values that matter, saying what to do.
        lasting: Whether another try of this step would end the same, though that does not follow from the condition.

    Attributes:
        lasting: Whether another try would end the same.
        retry: What a host does about the error.
    """

    exit_code = 1

    def __init__(self, condition: str, message: str, *, lasting: bool = False) -> None:
        known = CONDITIONS.get(condition)
        # A subclass has the conditions of its base: an error that Python is to know as its own too, as an AttributeError, is one.
        if known is None or known.error not in {cls.__name__ for cls in type(self).__mro__}:
            raise AssertionError(f"[{condition}] is not a condition of {type(self).__name__}")
        super().__init__(f"[{condition}] {message}")
        self.condition = condition
        self.message = message
        self.retry = Retry.STOP if lasting else known.retry
        self.lasting = self.retry is Retry.STOP

    def __reduce__(self) -> tuple[type[BoatliftError], tuple[str, str]]:
        return type(self), (self.condition, self.message)


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
    """What was stored or read is not what was recorded: restore it, or upgrade."""

    exit_code = 5


class DivergedError(BoatliftError):
    """A processor gave another result on replay: it is not deterministic."""

    exit_code = 6


class UserCodeError(BoatliftError):
    """The user's function raised.

    Attributes:
        remedy: What to type or to change, to stand behind the message; `FLOW_AND_STORE` stands for a command's own arguments.
    """

    exit_code = 7
    remedy = ""

    def __str__(self) -> str:
        return "; ".join(filter(None, (super().__str__(), self.remedy)))


class InternalError(BoatliftError):
    """A fault of Boatlift itself."""

    exit_code = 70


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a check of what is durable has to say; unlike an error it does not end the check.

    Attributes:
        name: Of what: an object of a store, a sink's file or table.
        condition: What is wrong with it, from `CONDITIONS`; None for a mere note.
        message: One sentence.
    """

    name: str
    condition: str | None
    message: str

    @property
    def is_error(self) -> bool:
        """Whether something is damaged, rather than untidy."""
        return self.condition is not None

    def __str__(self) -> str:
        said = self.message.removeprefix(f"{self.name} ")
        return f"{self.name}: {said}" if self.condition is None else f"{self.name}: [{self.condition}] {said}"


_BY_NAME = {
    cls.__name__: cls
    for cls in (InvalidError, UnavailableError, FencedError, DataError, DivergedError, UserCodeError, InternalError)
}
_PATTERN = re.compile(r"\bboatlift\.errors\.(\w+): \[([A-Z][A-Z0-9_]+)\] ([^\n]*)")


def from_text(text: str) -> BoatliftError | None:
    """Finds the error of ours that a text carries, as Spark hands on what a task raised.

    Returns:
        The first error of ours whose traceback stands in the text, or None: a condition in a text of the user's own is none.
    """
    for name, condition, message in _PATTERN.findall(text):
        known = CONDITIONS.get(condition)
        if known is not None and known.error == name:
            return _BY_NAME[name](condition, message)
    return None
