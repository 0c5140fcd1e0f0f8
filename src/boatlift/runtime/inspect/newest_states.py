"""The newest checkpoint of each unit with state, as the log knows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.payloads import RunsPayload, payload_of
from boatlift.times import last_number

__all__ = ["newest_states"]


def newest_states(history: LogHistory, units: Iterable[str]) -> Iterator[tuple[str, int, RunsPayload]]:
    """Yield each unit that has a checkpoint, with the last step of its newest one, and the state."""
    for name in units:
        states = history.live_records.states.get(name, {})
        newest = max(states, key=last_number, default=None)
        if newest is None or (content := states[newest].payload) is None:
            continue
        payload = payload_of(content)
        if isinstance(payload, RunsPayload):
            yield name, last_number(newest), payload
