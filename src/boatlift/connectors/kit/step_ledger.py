"""The decisions of a sink about a step, from its ledger of steps, with the texts of errors.

An exactly-once sink keeps a ledger: each step's number, rows and digest, written in the same atomic act as the step's
rows. Each sink has its own form of ledger (footers of files, a table, a compacted topic); the decisions are the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from boatlift.dataflow.contracts import Committed, Outcome, SinkContext
from boatlift.errors import DataError, DivergedError, FencedError, UnavailableError

logger = logging.getLogger(__name__)


class Decision(Enum):
    """Whether a sink appends a step or compares it."""

    APPEND = "append"
    COMPARE = "compare"


@dataclass(frozen=True, slots=True)
class StepLedger:
    """The decisions of one owner of a sink.

    A commit makes these calls in order: `failed_before` if an earlier commit failed; `refuse_newer_owner`, with the
    token in the place; `decide`; then `compare`, or the sink's own atomic act.

    Attributes:
        place: The sink's place, as errors name it: `table delays of answers.db`.
        noun: The kind of place: `table`, `folder`, `topic`.
        repair: The advice for a place that lacks steps: `restore the database`.
    """

    context: SinkContext
    place: str
    noun: str
    repair: str

    def decide(self, step: int, newest: int) -> Decision:
        """Decide whether a step is new to a place or has to be compared.

        Args:
            newest: The number of the newest step that the place holds as a whole; −1: none.

        Raises:
            DataError: `[SINK_GAP]` steps between the two are missing.
        """
        if step > newest + 1:
            raise DataError(
                "SINK_GAP", f"{self.place} holds steps up to {newest}, but was handed step {step}: {self.repair}"
            )
        return Decision.APPEND if step == newest + 1 else Decision.COMPARE

    def compare(self, now: Committed, held: Committed, difference: Callable[[], str]) -> Outcome:
        """Compare a step with the ledger's record of it.

        Args:
            difference: Finds the first row that differs, in words; called only if the step differs. Empty: unknown.
        """
        if held == now:
            return Outcome.DROPPED
        try:
            found = difference()
        except Exception as error:  # noqa: BLE001 - the error to report is that the steps differ
            found = f"which row differs cannot be told ({error})"
        raise DivergedError(
            "DIVERGED",
            f"{self.place} holds step {now.step} with {held.rows} rows and digest {held.digest}, but now it has "
            f"{now.rows} rows and digest {now.digest}: {found + '; ' if found else ''}something before this sink is "
            "not deterministic",
        )

    def too_old(self, step: int) -> Outcome:
        """Return the outcome for a step that the ledger has forgotten: it is not compared."""
        logger.warning("step %s is too old to be compared with what %s holds", step, self.place)
        return Outcome.DROPPED

    def lacks(self, step: int) -> DataError:
        """Return the error for a ledger that has no record of a step before its newest."""
        return DataError("SINK_GAP", f"{self.place} lacks step {step} in its ledger: {self.repair}")

    def failed_before(self, why: str = "") -> UnavailableError:
        """Return the error for a commit after a failed commit: only `open` can find out which steps the place holds."""
        reason = f" ({why})" if why else ""
        return UnavailableError("SINK_FAILED", f"{self.place} failed before{reason}: mend it, then run again")

    def refuse_newer_owner(self, token: int) -> None:
        """Raise if the place holds the token of a newer owner."""
        if token > self.context.token:
            raise fenced(self.place, token, self.context.token)

    def refuse_other_store(self, store: str) -> None:
        """Raise if the place holds rows of another store. Tokens are numbers of one store: compare the store first."""
        if store != self.context.store:
            raise of_another_store(self.place, self.noun, self.context.dataflow, store)

    def foreign(self, why: str) -> DataError:
        """Return the error for a place that is not this sink's.

        Args:
            why: The predicate of the message: `belongs to sink 'x' of dataflow 'y'`.
        """
        return DataError("SINK_OF_ANOTHER_DATAFLOW", f"{self.place} {why}: give the sink a {self.noun} of its own")


def fenced(place: str, newest: int, token: int) -> FencedError:
    """Return the error of an owner that a newer owner has fenced."""
    error = FencedError("FENCED", f"owner {newest} has taken over {place}, and this is owner {token}: stop it")
    error.newest = newest
    return error


def of_another_store(place: str, noun: str, dataflow: str, store: str) -> DataError:
    """Return the error for a place that holds rows of another store of the same dataflow."""
    return DataError(
        "SINK_OF_ANOTHER_STORE",
        f"{place} was written by another store of dataflow {dataflow}, with id {store} as `boatlift status` shows it: "
        f"run with that store, or give the sink a {noun} of its own",
    )
