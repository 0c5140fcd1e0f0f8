"""How many determinants a program records, by the kinds of its operators and the arrival of its messages."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

import msgspec

from boatlift.dataflow import Plan, Timing, Unit, batch_of
from boatlift.runtime.machine.kinds.gathered import MOST_GATHERED

MESSAGES = 1000


class DeterminantRate(msgspec.Struct, frozen=True):
    """The records of determinants of a unit for each 1,000 messages that it takes.

    Attributes:
        arrival: `none`: messages are taken by the times of their senders. `gathered`: an epoch takes what has come.
            `each`: messages are taken one by one, in the order in which they come. `batch`: conditions end its epochs.
        least: Under load.
        most: If messages come one by one; for a batch, if each epoch is as short as its policy allows.
    """

    arrival: str
    least: int
    most: int


def determinant_rates(plan: Plan) -> Mapping[str, DeterminantRate]:
    """Return the rate of each unit.

    A source has a record for each of its steps, whatever reads it.
    """
    return {name: _rate_of(unit) for name, unit in plan.units.items()}


def _rate_of(unit: Unit) -> DeterminantRate:
    # What a step chooses is one record: its place in the order of arrival, answers, or rows that cannot be made again.
    chooses = unit.records_answers or not unit.deterministic
    match unit.timing:
        case Timing.ARRIVAL:
            return DeterminantRate("each", MESSAGES, MESSAGES)
        case Timing.GATHERED:
            return DeterminantRate("gathered", ceil(MESSAGES / (MOST_GATHERED * len(unit.reads))), MESSAGES)
        case Timing.BATCH:
            return _rate_of_batch(unit)
        case Timing.EPOCHS:
            steps = MESSAGES // len(unit.reads) if chooses else 0
            return DeterminantRate("none", steps, MESSAGES if chooses else 0)


def _rate_of_batch(unit: Unit) -> DeterminantRate:
    policy = next((found for each in unit.operators if (found := batch_of(each.policy)) is not None), None)
    epochs = 1 if policy is None or policy.rows is not None else policy.epochs or 1
    return DeterminantRate("batch", 1, ceil(MESSAGES / epochs))
