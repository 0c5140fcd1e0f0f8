"""The documents about the past: the charts, and the events of runs, from the journal of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from boatlift.errors import InvalidError
from boatlift.runtime.inspect.past import PastOperations, RunOperation
from boatlift.runtime.inspect.series import events_from, journal_of, last_report, samples_from, series_of
from boatlift.runtime.inspect.status import LIVING

if TYPE_CHECKING:
    from boatlift.storage.local import LocalStore
    from boatlift.storage.log_reader import LogReader
    from boatlift.storage.object_store import ObjectStore
    from boatlift.storage.records.journal import RunEvent

LEAST_SECONDS, MOST_SECONDS = 10, 86_400
"""Of a chart; the journal of a store goes back a day."""

MARKS = {"claim", "failure", "rollback", "takeover"}
"""What is marked in charts, by its kind in `operations`."""

MOST_MARKS = 100


class JournalDocuments:
    """Follows the journal of a store, and what its log says of runs."""

    def __init__(self, store: LocalStore | ObjectStore, log: LogReader) -> None:
        self._store, self._journal, self._operations = store, journal_of(store), PastOperations(log)

    def events(self) -> list[RunEvent]:
        """Return the events that the journal and the owner's report have, oldest first."""
        self._journal.catch_up()
        return events_from(self._journal, last_report(self._store))

    def operations(self) -> list[RunOperation]:
        """Return what happened to the runs of the dataflow, newest first."""
        return self._operations.newest(self.events())

    def series(self, state: str, now: int, seconds: int) -> dict[str, Any]:
        """Return what was done in the last seconds: of a run that lives, until now; else until its last sample.

        Raises:
            InvalidError: `[BAD_OPTION]`.
        """
        if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
            raise InvalidError("BAD_OPTION", f"seconds is {seconds}: give {LEAST_SECONDS} to {MOST_SECONDS}")
        self._journal.catch_up()
        report = last_report(self._store)
        reported = 0 if report is None or report.activity is None else report.activity.at
        end = now if state in LIVING else max(self._journal.newest(now), reported if reported <= now else 0) or now
        begin = end - 1000 * seconds
        happened = self._operations.newest(events_from(self._journal, report))
        marks = [each for each in happened if each.kind in MARKS and begin <= each.at <= end]
        return {
            "series": series_of(samples_from(self._journal, report, begin, end), begin),
            "from": begin,
            "to": end,
            "marks": [{"at": each.at, "kind": each.kind, "who": each.who} for each in marks[:MOST_MARKS]],
        }
