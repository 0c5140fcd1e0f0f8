"""A process owns a dataflow from its claim on, until another process claims it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

from boatlift.errors import BoatliftError, FencedError
from boatlift.runtime.division import refuse_other_division
from boatlift.runtime.evolution import accepts_state
from boatlift.runtime.host.processes import Life, life_of, this_process
from boatlift.runtime.host.progress import Progress
from boatlift.storage.log import Log
from boatlift.storage.records.records import Claim

__all__ = ["LOOK_SECONDS", "Ownership"]

LOOK_SECONDS = 2.0
"""After so many seconds without a write of its own, an owner looks for a newer owner."""


class Ownership:
    """The claim of this process.

    Args:
        log: The log that the process claims and writes.
        clock: Milliseconds since 1970.
    """

    def __init__(self, log: Log, clock: Callable[[], int]) -> None:
        self._log, self._clock = log, clock
        self._seen = 0

    def claim(self, program: Mapping[str, Any], environment: Mapping[str, Any], bytes_in_flight: int) -> int:
        """Claim the dataflow; from now on no earlier owner can write.

        Args:
            program: The program's identity, and its units.
            environment: Versions and settings that results depend on.
            bytes_in_flight: The bound on the rows that wait in scratch, for people.

        Returns:
            The token.

        Raises:
            DataError: `[PROGRAM_CHANGED]`, `[CORRUPT]`.
            FencedError: `[FENCED]`.
        """
        mine = (socket.gethostname(), os.getpid(), self._clock(), dict(program), dict(environment), this_process())
        claim = Claim(*mine, bytes_in_flight)
        return self._log.claim(claim, partial(refuse_other_division, program=program), accepts_state)

    def taken_over(self) -> Iterator[Progress]:
        """Return from which process this one has taken over, if that one has not stopped in good order."""
        before = self._log.previous_claim()
        if before is None or self._log.history.resumed:
            return
        whom = f"process {before.pid} on {before.host}"
        since = datetime.fromtimestamp(before.at / 1000, UTC)
        match life_of(before):
            case Life.ENDED:
                how = "which has ended without a clean stop"
            case Life.RUNNING:
                how = "which still lives: if it runs the dataflow, it ends by itself within seconds, with [FENCED]"
            case Life.UNKNOWN:
                how = (
                    "which has not stopped in good order: if it still runs, it ends by itself within seconds, with "
                    "[FENCED]"
                )
        said = f"taken over from {whom}, owner since {since:%Y-%m-%d %H:%M:%S} UTC, {how}"
        yield Progress("takeover", self._log.dataflow, -1, said=said)

    def look(self) -> None:
        """Raise if another process has taken over.

        The log is not read if this process has written since the last look: a newer owner would have refused the write.

        Raises:
            FencedError: `[FENCED]`.
            DataError: `[CORRUPT]` the log goes on with an object that is damaged.
            UnavailableError: `[STORE_FAILED]` the store cannot be read.
        """
        before, self._seen = self._seen, self._log.last
        if before == self._seen and (newer := self._log.newer_owner()):
            raise newer

    def newer_after_an_error(self) -> FencedError | None:
        """Return the error that names a newer owner.

        The result is None if there is none, or the log cannot be read; the first error is then reported.
        """
        with suppress(BoatliftError):
            return self._log.newer_owner()
        return None
