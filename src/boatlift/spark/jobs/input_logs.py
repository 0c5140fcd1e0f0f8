"""The input logs of sources that keep their rows in the store."""

from __future__ import annotations

from collections.abc import Mapping

from boatlift.dataflow import Lazy, Plan, StoreBacked
from boatlift.errors import InvalidError
from boatlift.runtime.engine import Beginning
from boatlift.storage.input_log import InputLog
from boatlift.storage.unlogged_input import UnloggedInput


class InputLogs:
    """The input logs of a dataflow's sources, each attached to its source.

    Raises:
        InvalidError: `[BAD_POLICY]` the clients of a source would wait for ever.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._sources = {
            name: backed
            for name, each in plan.sources.items()
            if (backed := each.source.capabilities.store_backed) is not None
        }
        self._reserved = dict[str, StoreBacked[InputLog | UnloggedInput]]()
        policies = {name: unit.policy for name, unit in plan.units.items()}
        never = [name for name, policy in policies.items() if isinstance(policy, Lazy) and not policy.has_checkpoints]
        for name, source in self._sources.items():
            if never and source.answers_when_stable:
                raise InvalidError(
                    "BAD_POLICY",
                    f"{name} answers once its rows are stable, and {never[0]}, which never makes a checkpoint, could "
                    "need them for ever: choose ack='recorded', or another policy",
                )

    def reserve(self) -> None:
        """Let the sources begin to listen.

        Raises:
            InvalidError: `[BAD_OPTION]` a source is in use.
            UnavailableError: `[LISTEN_FAILED]`.
        """
        for name, source in self._sources.items():
            source.reserve(name)
            self._reserved[name] = source

    def redirect(self, owner: Mapping[str, str] | None) -> None:
        """Let the sources answer in the place of an owner; as `Engine.redirect`."""
        for name, source in self._sources.items():
            if owner is not None:
                self._reserved[name] = source
            source.redirect(name, None if owner is None else owner.get(name) if owner else "")

    def advertised(self) -> dict[str, str]:
        """Return the URL of each source at which clients of other hosts reach this process."""
        return {name: source.advertised for name, source in self._sources.items() if source.advertised}

    def open(self, beginning: Beginning) -> None:
        """Take the input logs over: from now on the sources accept pushed rows.

        Raises:
            DataError: `[MISSING_OBJECT]`, `[CORRUPT]`.
            FencedError: a newer owner has an input log.
        """
        for name, source in self._sources.items():
            log = InputLog(
                beginning.store, beginning.store_id, name, keeps_all=self._plan.read_whole(name) or source.retains
            )
            source.attach(UnloggedInput(log, beginning.scratch) if self._plan.keeps_no_rows(name) else log)
            start = self._plan.sources[name].source.start()
            source.open(beginning.token, *beginning.cursors.get(name, (start, start)))

    def listening(self) -> dict[str, str]:
        """Return the URL of each source that accepts rows over HTTP now."""
        return {name: source.url for name, source in self._sources.items() if source.url is not None}

    def awaited(self) -> bool:
        """Return whether a client waits until its rows are stable, or until there is room again."""
        return any(source.awaits_stability for source in self._sources.values())

    def close(self) -> None:
        """Accept no more rows."""
        for source in self._reserved.values():
            source.close()
