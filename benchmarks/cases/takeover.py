"""The death of an owner with a standby beside it: the silence at the sink, as its own consumer sees it."""

from __future__ import annotations

import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.harness.measuring import Effort, Figure, Result, percentile
from benchmarks.harness.steady import STEADY, KafkaSteady, Steady, longest
from boatlift.testing.kafka_broker import KafkaBroker

__all__ = ["measure"]

MOST_P50, MOST_P99, MOST_STOPPED, MOST_RATIO = 0.3, 0.8, 0.5, 0.1
"""Seconds of silence after SIGKILL, and after SIGSTOP; and the share of a restart of everything."""

MOST_P50_KAFKA, MOST_P99_KAFKA = 0.5, 1.0
"""Seconds of silence after SIGKILL, from Kafka to Kafka."""


def measure(effort: Effort) -> Result:
    """Kill the owner again and again, and stop it; each time another standby is ready. Then restart everything."""
    killed = list(_takeovers(Steady, signal.SIGKILL, 7 * effort.rounds))
    stopped = list(_takeovers(Steady, signal.SIGSTOP, 2 * effort.rounds))
    with KafkaBroker() as broker:
        kafka = list(_takeovers(partial(KafkaSteady, servers=broker.bootstrap), signal.SIGKILL, 7 * effort.rounds))
    whole = list(_restarts(effort.rounds))
    undisturbed, silences = [each[0] for each in killed], [each[1] for each in killed]
    after_stop = [each[1] for each in stopped]
    p50, p99 = percentile(silences, 0.5), percentile(silences, 0.99)
    kafka_silences = [each[1] for each in kafka]
    kafka_p50, kafka_p99 = percentile(kafka_silences, 0.5), percentile(kafka_silences, 0.99)
    ratio = p50 / statistics.median(whole)
    return Result(
        name="takeover",
        target=(
            f"silence at most {MOST_P50:g} s (p50) and {MOST_P99:g} s (p99), {MOST_STOPPED:g} s after SIGSTOP, "
            f"{MOST_RATIO:g} of a restart; from Kafka to Kafka {MOST_P50_KAFKA:g} s and {MOST_P99_KAFKA:g} s"
        ),
        met=p50 <= MOST_P50
        and p99 <= MOST_P99
        and percentile(after_stop, 0.5) <= MOST_STOPPED
        and ratio <= MOST_RATIO
        and kafka_p50 <= MOST_P50_KAFKA
        and kafka_p99 <= MOST_P99_KAFKA,
        ratios={
            "over a restart of everything": ratio,
            "p50, s": p50,
            "p99, s": p99,
            "Kafka, p50, s": kafka_p50,
            "Kafka, p99, s": kafka_p99,
        },
        figures={
            "SIGKILL": Figure.of("s", silences),
            "SIGKILL, Kafka to Kafka": Figure.of("s", kafka_silences),
            "SIGSTOP": Figure.of("s", after_stop),
            "undisturbed, longest of 100 steps": Figure.of("s", undisturbed),
            "a restart of everything": Figure.of("s", whole),
        },
    )


def _takeovers(make: Callable[[Path], Steady], number: signal.Signals, count: int) -> Iterator[tuple[float, float]]:
    """Yield the longest silence before, and after, each of so many signals to the owner."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        steady = make(Path(folder))
        owner = stack.enter_context(steady.running())
        steady.watch(steady.initial + STEADY)
        for _ in range(count):
            standby = stack.enter_context(steady.running("--standby"))
            while not steady.says(standby, "is ready"):
                steady.watch(10)
            before = steady.watch(STEADY)
            at = time.monotonic()
            owner.send_signal(number)
            yield longest(before[0], before), longest(at, steady.watch(STEADY))
            owner.kill()
            owner = standby


def _restarts(count: int) -> Iterator[float]:
    with tempfile.TemporaryDirectory() as folder:
        steady = Steady(Path(folder))
        for _ in range(count):
            with steady.running() as process:
                steady.watch(STEADY)
                killed = time.monotonic()
                process.kill()
            with steady.running():
                yield longest(killed, steady.watch(STEADY))
