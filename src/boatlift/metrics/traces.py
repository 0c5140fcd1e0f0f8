"""Traces of a run: a trace for each logical time, with a span for each step, commit and checkpoint."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from boatlift.dataflow import Plan, Timing
from boatlift.runtime.host.progress import Progress

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import SpanContext

SPANS_A_SECOND = 50
"""The most spans; beyond them whole traces are left out. The SDK sends from a queue of 2,048, and drops in bursts."""

REMEMBERED = 4_096
"""So many traces are known at once; what comes later for an older one begins another."""

LINKABLE = 16_384
"""So many spans of steps and inputs are known at once, to be linked from the steps that read them."""

SPANS = {"take", "step", "commit", "checkpoint", "failure"}
"""The reports that are spans, by their names."""


def clocks_of(plan: Plan) -> dict[str, str]:
    """Return, for each source, unit and sink, by whose steps it counts: a unit's, or empty for those of sources."""
    clocks = dict.fromkeys(plan.sources, "")
    sent = dict(clocks)  # by whose steps the readers of each count
    for name, unit in plan.units.items():
        taken = sent[unit.reads[0]]
        clocks[name] = taken if unit.timing is Timing.EPOCHS else name
        own = unit.timing in (Timing.ARRIVAL, Timing.GATHERED)
        sent[name] = name if own else taken  # a batch sends with the last epoch that it took
        clocks.update((sink.name, clocks[name]) for sink in unit.sinks)
    return clocks


class Traces:
    """Makes spans of the reports of a run; on the thread that reports.

    Laws:
        * Spans of one logical time have one trace: of epochs the same for all units, of a batch, or of a unit that
          takes its inputs as they come, one of its own.
        * A trace is sent with all its spans, or with none. On average there are `SPANS_A_SECOND` at most.
        * A step has a link to the span of each step, or input of a source, that it took, as far as that span was sent
          and is among the last `LINKABLE`.
        * A replay from its first step to its last is a span `recovery`, in a trace of its own.

    Args:
        clocks: As `clocks_of` gives them.
        clock: Nanoseconds since 1970.
    """

    def __init__(
        self, provider: TracerProvider, clocks: Mapping[str, str], clock: Callable[[], int] = time.time_ns
    ) -> None:
        self._tracer, self._clocks, self._clock = provider.get_tracer("boatlift"), clocks, clock
        self._traces: OrderedDict[tuple[str, int], Context | None] = OrderedDict()  # None: left out
        self._read: OrderedDict[tuple[str, int], SpanContext] = OrderedDict()  # by processor and step
        self._replays: dict[str, tuple[int, Progress]] = {}
        self._room, self._filled = float(SPANS_A_SECOND), clock()

    def watch(self, progress: Progress) -> None:
        """Make a span of a report, if it is to be one."""
        if progress.what == "replay":
            self._replays[progress.processor] = self._clock(), progress
        elif progress.what in SPANS and progress.processor in self._clocks:
            self._span(progress)
            if progress.what == "step":
                self._end_replay(progress)

    def _span(self, progress: Progress) -> None:
        from opentelemetry import trace

        key = self._clocks[progress.processor], progress.time
        if key not in self._traces:
            self._traces[key] = trace.set_span_in_context(trace.INVALID_SPAN) if self._has_room() else None
            if len(self._traces) > REMEMBERED:
                self._traces.popitem(last=False)
        if (context := self._traces[key]) is None:
            return
        end = self._clock()
        attributes: dict[str, Any] = {"boatlift.processor": progress.processor, "boatlift.step": progress.time}
        if progress.what == "step":
            attributes |= {"boatlift.replay": progress.replay, "boatlift.rows.in": progress.numInputRows}
        if progress.what in ("step", "commit"):
            attributes["boatlift.rows.out"] = progress.numOutputRows
        began = end - round(progress.durationMs * 1e6)
        links = [trace.Link(self._read[each]) for each in progress.reads if each in self._read]
        span = self._tracer.start_span(progress.what, context, attributes=attributes, links=links, start_time=began)
        if progress.what in ("take", "step"):
            self._read[progress.processor, progress.time] = span.get_span_context()
            self._read.move_to_end((progress.processor, progress.time))  # a replay's is the newest
            if len(self._read) > LINKABLE:
                self._read.popitem(last=False)
        if progress.what == "failure":
            span.set_status(trace.StatusCode.ERROR, progress.said)
        span.end(end)
        if not trace.get_current_span(context).get_span_context().is_valid:  # it is the first, and the others' parent
            self._traces[key] = trace.set_span_in_context(trace.NonRecordingSpan(span.get_span_context()))

    def _has_room(self) -> bool:
        """Return whether a trace may begin; it then takes room for all its spans."""
        now = self._clock()
        self._room = min(self._room + SPANS_A_SECOND * (now - self._filled) / 1e9, float(SPANS_A_SECOND))
        self._filled = now
        if self._room <= 0:
            return False
        self._room -= len(self._clocks)  # perhaps below 0: then the next traces wait for it
        return True

    def _end_replay(self, step: Progress) -> None:
        began, replay = self._replays.get(step.processor, (0, step))
        if not began or step.time < replay.time:
            return
        del self._replays[step.processor]
        attributes: dict[str, Any] = {
            "boatlift.processor": step.processor,
            "boatlift.step": replay.time,
            "boatlift.steps": replay.behind,
        }
        self._tracer.start_span("recovery", attributes=attributes, start_time=began).end(self._clock())
