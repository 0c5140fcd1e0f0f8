"""The input logs of sources whose rows are in the store."""

from __future__ import annotations

from boatlift.dataflow import KeptInStore, Plan
from boatlift.runtime.engine import Beginning
from boatlift.storage.input_log import InputLog

__all__ = ["InputLogs"]


class InputLogs:
    """Gives each source its input log, and has it take what is pushed from then on.

    Args:
        plan: Of which dataflow.
    """

    def __init__(self, plan: Plan) -> None:
        self._sources = {
            name: each.source for name, each in plan.sources.items() if isinstance(each.source, KeptInStore)
        }

    def open(self, beginning: Beginning) -> None:
        """Takes the input logs over.

        Raises:
            FencedError: a newer owner has one.
            UnavailableError: `[LISTEN_FAILED]`.
        """
        for name, source in self._sources.items():
            source.attach(InputLog(beginning.store, beginning.store_id, name))
            source.open(beginning.token, source.freed_by(beginning.stable.get(name, source.start())))

    def close(self) -> None:
        """Takes no more."""
        for source in self._sources.values():
            source.close()
