"""The check of all that is durable: every byte of a store, and the sinks that keep checksums."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from boatlift.dataflow import Sink
from boatlift.errors import Finding
from boatlift.runtime.inspect.opening import store_at
from boatlift.storage.verify import verify

__all__ = ["Verification", "verification_of"]


class Verification(msgspec.Struct, frozen=True):
    """The outcome of a check.

    Attributes:
        ok: True if nothing is damaged.
        store: The store's folder.
        sinks: The names of the sinks that were checked.
        findings: All that the check has to say, notes included.
    """

    ok: bool
    store: str
    sinks: list[str]
    findings: list[Finding]

    @property
    def faults(self) -> list[Finding]:
        """The findings that are no mere notes."""
        return [finding for finding in self.findings if finding.is_error]


def verification_of(path: Path, sinks: Mapping[str, Sink]) -> Verification:
    """Check every durable byte of a store, and what these sinks keep checksums of.

    Raises:
        DataError: `[STORE_NOT_FOUND]` the folder holds no store.
    """
    findings = list(verify(store_at(path)))
    for sink in sinks.values():
        findings += sink.verify()
    ok = not any(finding.is_error for finding in findings)
    return Verification(ok, str(path), sorted(sinks), findings)
