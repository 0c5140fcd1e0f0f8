"""The partial aggregates that keys had before a step, added up over all runs that hold them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.kernels.aggregate.codec import PartialsCodec
from boatlift.kernels.aggregate.layout import ROWS, Layout
from boatlift.kernels.aggregate.order_code import ABSENT, merge_ranked
from boatlift.kernels.aggregate.partials import PartialAggregates, StoredPartials, settle_sums
from boatlift.state.opened import OpenRun
from boatlift.state.probe import matching_rows
from boatlift.state.rows import KeyedRows

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Previous:
    """The state of some keys before a step.

    Attributes:
        found: Which keys are in a run.
        everyone: Whether all are.
        partials: Their partial aggregates, one row a key; nothing (zeros, no value) for the others.
    """

    found: Mask
    everyone: bool
    partials: PartialAggregates


def previous_of(
    layout: Layout, delta: KeyedRows[PartialAggregates], runs: Iterable[OpenRun[StoredPartials]]
) -> Previous:
    """Add up the partial aggregates that the keys of a step have in runs.

    Args:
        runs: May hold other key groups as well, or only some.
    """
    codec = PartialsCodec(layout)
    length = len(delta)
    found = np.zeros(length, np.bool_)
    everyone = False
    partials = PartialAggregates(length, {}, {})
    for run in runs:
        for segment in run.segments:
            asked, rows = matching_rows(delta, segment)
            if len(asked):
                _add(partials, asked, segment.read(codec, rows))
                if not everyone:
                    found[asked] = True
                    everyone = len(asked) == length
    if ROWS not in partials.addends:
        partials.addends[ROWS] = np.zeros(length, np.int64)
    settle_sums(layout, partials)
    return Previous(found, everyone or bool(found.all()), partials)


def _add(partials: PartialAggregates, asked: Ints, hits: PartialAggregates) -> None:
    everyone = hits.length == partials.length
    for addend, values in hits.addends.items():
        before = partials.addends.get(addend)
        if before is None and everyone:
            partials.addends[addend] = values
        elif everyone and before is not None:
            before += values
        else:
            if before is None:
                before = partials.addends[addend] = np.zeros(partials.length, np.int64)
            before[asked] += values
    for (which, argument), extreme in hits.extremes.items():
        known = partials.extremes.get((which, argument))
        if isinstance(extreme, pa.Array):
            places = np.zeros(partials.length, np.int64)
            places[asked] = np.arange(hits.length)
            missing = np.ones(partials.length, np.bool_)
            missing[asked] = False
            spread = extreme.take(pa.array(places, mask=missing))
            partials.extremes[which, argument] = spread if known is None else merge_ranked(which, known, spread)
        else:
            if known is None:
                known = partials.extremes[which, argument] = np.full(partials.length, ABSENT[which])
            known[asked] = (np.minimum if which == "min" else np.maximum)(known[asked], extreme)
