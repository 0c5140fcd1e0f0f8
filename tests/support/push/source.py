"""A source that rows are pushed to, without a dataflow around it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import types as T

from boatlift.connectors.push.source import PushSource
from boatlift.dataflow import Receipt
from boatlift.storage.input_log import InputLog
from boatlift.storage.local import LocalStore
from boatlift.storage.unlogged_input import UnloggedInput

__all__ = ["SCHEMA", "Source"]

SCHEMA = T.StructType([T.StructField("id", T.LongType(), nullable=False), T.StructField("item", T.StringType())])


class Source(PushSource):
    """A source whose store, and whose clock, the test has."""

    def __init__(
        self,
        folder: Path,
        token: int = 1,
        store: Any = None,
        *,
        forgets: bool = False,
        keeps_all: bool = False,
        cursor: Any = None,
        stable: Any = None,
        **options: Any,
    ) -> None:
        made = {
            "address": None,
            "until_stable": forgets,
            "remember": timedelta(days=1),
            "limit": 100,
            "most_waiting": 10**6,
        }
        super().__init__(SCHEMA, **{**made, **options}, clock=lambda: self.now)
        self.now = 0
        self.reserve("orders")
        log = InputLog(store or LocalStore.open(folder, create=True), "0" * 32, "orders", keeps_all=keeps_all)
        self.log = log
        self.attach(UnloggedInput(log, folder) if forgets else log)
        self.open(token, stable or self.start(), cursor or stable or self.start())

    def put(self, *ids: int, key: str | None = None) -> Receipt:
        return self.push([{"id": each} for each in ids], key, 0)
