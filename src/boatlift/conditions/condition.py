"""The kind of an error: its meaning, the user's action, and the reaction of a host."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Retry(Enum):
    """A host's reaction to an error of a step, a probe or a sink."""

    NONE = "the error is not a failure of the step: the dataflow stops"
    STOP = "the step has failed, and a retry would fail again: its input is recorded, and the dataflow stops"
    AGAIN = "the step has failed, and is retried a few times"


class Condition(NamedTuple):
    """A kind of error: its class, its meaning, the user's action, and the host's reaction."""

    error: str
    meaning: str
    action: str
    retry: Retry = Retry.NONE
