"""A dataflow with pushes of rows with a key over HTTP; integrals are frequent, and a batch reads all of it."""

from __future__ import annotations

import os

import boatlift as bl
from boatlift.storage import input_log

input_log.MEMO_AFTER = 4

flow = bl.Dataflow("upserted")
schema = "client LONG, slot LONG, id LONG NOT NULL"
rows = flow.source("rows", bl.push(schema, listen=os.environ["PUSH_AT"], upsert=["client", "slot"]))
rows.sink("out", bl.sqlite("out.db", table="held", key=["client", "slot"]))
rows.recompute("all", lambda df: df).sink("all_out", bl.parquet("all"))
