"""When an owner is taken for dead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boatlift.runtime.peers.detector import (
    BEAT_SECONDS,
    GAPS,
    HUNG_SECONDS,
    SILENT_HERE_SECONDS,
    SILENT_SECONDS,
    STOPPED_HERE_SECONDS,
    UNREACHED_SECONDS,
    Detector,
    ProcessState,
)

LOOK = 0.02
HERE = (ProcessState.RUNNING, ProcessState.UNKNOWN)


def looks(detector: Detector, begin: float, seconds: float, state: ProcessState) -> float | None:
    """Look again and again; return how long after the beginning the owner was suspected, None if it was not."""
    for at in range(1, round(seconds / LOOK) + 1):
        if detector.suspicion(begin + at * LOOK, state):
            return at * LOOK
    return None


def beaten(count: int, gap: float = BEAT_SECONDS, state: ProcessState = ProcessState.UNKNOWN) -> tuple[Detector, float]:
    """Return a detector that was told so many beats, and the moment of the last one."""
    detector, now = Detector(0.0), 0.0
    for _ in range(count):
        assert looks(detector, now, gap - LOOK / 2, state) is None
        now += gap
        detector.heard_beat(now)
    return detector, now


@pytest.mark.parametrize(
    ("state", "limit"), [(ProcessState.UNKNOWN, SILENT_SECONDS), (ProcessState.RUNNING, SILENT_HERE_SECONDS)]
)
def test_silence_is_suspected_at_its_limit_and_not_before(state: ProcessState, limit: float) -> None:
    detector, now = beaten(5)
    at = looks(detector, now, 5, state)
    assert at is not None
    assert limit - LOOK < at <= max(limit, GAPS * BEAT_SECONDS) + 2 * LOOK


@pytest.mark.parametrize("state", HERE)
def test_an_event_loop_that_hangs_is_suspected_though_beats_come(state: ProcessState) -> None:
    detector, now = beaten(5, state=state)
    for still in (HUNG_SECONDS - 0.1, HUNG_SECONDS):
        now += BEAT_SECONDS
        detector.heard_beat(now, still)
        assert bool(detector.suspicion(now, state)) == (still >= HUNG_SECONDS)
    detector.heard_beat(now + BEAT_SECONDS, 0.0)
    assert not detector.suspicion(now + BEAT_SECONDS, state)


@given(st.lists(st.floats(0.01, 1.0), min_size=10, max_size=60))
def test_the_limit_follows_the_gaps_that_were_seen(gaps: list[float]) -> None:
    detector, now = Detector(0.0), 0.0
    for gap in gaps:
        now += gap
        detector.heard_beat(now)
    longest = sorted(gaps[1:])[len(gaps[1:]) * 99 // 100]
    assert detector.limit(ProcessState.UNKNOWN) == pytest.approx(max(SILENT_SECONDS, GAPS * longest))


@pytest.mark.parametrize("beats", [0, 3])
def test_a_process_that_has_ended_is_suspected_at_once(beats: int) -> None:
    detector, now = beaten(beats)
    assert detector.suspicion(now + LOOK, ProcessState.ENDED) == "its process has ended"


def test_a_stopped_process_is_suspected_if_it_stays_so() -> None:
    detector, now = beaten(3, state=ProcessState.RUNNING)
    assert looks(detector, now, STOPPED_HERE_SECONDS - LOOK, ProcessState.STOPPED) is None
    assert looks(detector, now + STOPPED_HERE_SECONDS - LOOK, LOOK, ProcessState.RUNNING) is None
    at = looks(detector, now + STOPPED_HERE_SECONDS, 1, ProcessState.STOPPED)
    assert at is not None
    assert STOPPED_HERE_SECONDS <= at <= STOPPED_HERE_SECONDS + 2.5 * LOOK


def test_an_owner_whose_log_grows_is_not_suspected() -> None:
    """The link is cut in one direction, or its beats are late."""
    detector, now = beaten(3)
    for _ in range(20):
        assert looks(detector, now, SILENT_SECONDS - 2 * LOOK, ProcessState.UNKNOWN) is None
        now += SILENT_SECONDS - 2 * LOOK
        detector.grew(now)


@pytest.mark.parametrize("state", HERE)
def test_an_owner_that_was_never_heard_is_not_suspected_for_its_silence(state: ProcessState) -> None:
    assert looks(Detector(0.0), 0.0, 20, state) is None


@pytest.mark.parametrize("state", HERE)
def test_an_owner_that_was_heard_and_refuses_connections_has_ended(state: ProcessState) -> None:
    detector, now = beaten(3)
    detector.unreached(refused=False)
    assert detector.suspicion(now + LOOK, state) == ""
    detector.unreached(refused=True)
    assert detector.suspicion(now + LOOK, state) == "nobody listens at its address any more"
    detector.heard_beat(now + 2 * LOOK)
    assert detector.suspicion(now + 3 * LOOK, state) == ""


@pytest.mark.parametrize("refused", [False, True])
def test_an_owner_that_was_never_heard_and_cannot_be_reached_is_suspected_if_its_log_rests(refused: bool) -> None:
    detector = Detector(0.0)
    detector.unreached(refused=refused)
    assert looks(detector, 0.0, UNREACHED_SECONDS - LOOK, ProcessState.UNKNOWN) is None
    detector.grew(UNREACHED_SECONDS - LOOK)
    at = looks(detector, UNREACHED_SECONDS - LOOK, 2 * UNREACHED_SECONDS, ProcessState.UNKNOWN)
    assert at == pytest.approx(UNREACHED_SECONDS, abs=2 * LOOK)


@given(st.floats(0.2, 10_000), st.sampled_from(HERE))
def test_the_time_in_which_the_observer_slept_counts_for_nothing(slept: float, state: ProcessState) -> None:
    detector, now = beaten(3)
    assert detector.suspicion(now + slept, state) == ""
    detector.heard_beat(now + slept + LOOK)
    assert detector.suspicion(now + slept + 2 * LOOK, state) == ""


def test_other_work_of_the_observer_does_not_hide_the_silence() -> None:
    """Such as reading a store that is slow."""
    detector, now = beaten(3)
    at = now + 2 * SILENT_SECONDS
    detector.looked(at)
    assert detector.suspicion(at + LOOK, ProcessState.UNKNOWN).startswith("it has been silent for")
