"""The input logs of sources whose rows are in the store."""

from __future__ import annotations

from boatlift.dataflow import Lazy, Plan, StoreBacked
from boatlift.errors import InvalidError
from boatlift.runtime.engine import Beginning
from boatlift.storage.input_log import InputLog
from boatlift.storage.unlogged_input import UnloggedInput

__all__ = ["InputLogs"]


class InputLogs:
    """Gives each source its input log, and has it take what is pushed from then on.

    Args:
        plan: Of which dataflow.

    Raises:
        InvalidError: `[BAD_POLICY]` somebody is to wait for what never comes.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._sources = {
            name: backed
            for name, each in plan.sources.items()
            if (backed := each.source.capabilities.store_backed) is not None
        }
        self._reserved: list[StoreBacked[InputLog | UnloggedInput]] = []
        never = [unit.name for unit in plan.units.values() if unit.policy == Lazy(every=None)]
        for name, source in self._sources.items():
            if never and source.answers_when_stable:
                raise InvalidError(
                    "BAD_POLICY",
                    f"{name} answers once its rows are stable, and {never[0]}, which never makes a checkpoint, could "
                    "need them for ever: choose "
                    f"ack='recorded', or another policy",
                )

    def reserve(self) -> None:
        """Has them listen, if they are to.

        Raises:
            InvalidError: `[BAD_OPTION]` one is in use.
            UnavailableError: `[LISTEN_FAILED]`.
        """
        for name, source in self._sources.items():
            source.reserve(name)
            self._reserved.append(source)

    def open(self, beginning: Beginning) -> None:
        """Takes the input logs over.

        Raises:
            DataError: `[MISSING_OBJECT]`, `[CORRUPT]`.
            FencedError: a newer owner has one.
        """
        for name, source in self._sources.items():
            log = InputLog(beginning.store, beginning.store_id, name, keeps_all=self._plan.read_whole(name))
            source.attach(UnloggedInput(log, beginning.scratch) if self._plan.keeps_no_rows(name) else log)
            start = self._plan.sources[name].source.start()
            source.open(beginning.token, *beginning.cursors.get(name, (start, start)))

    def listening(self) -> dict[str, str]:
        """Return the URL of each source that takes rows over HTTP now."""
        return {name: source.url for name, source in self._sources.items() if source.url is not None}

    def awaited(self) -> bool:
        """Tells whether somebody waits until rows are stable, or until there is room again."""
        return any(source.awaits_stability for source in self._sources.values())

    def close(self) -> None:
        """Takes no more."""
        for source in self._reserved:
            source.close()
