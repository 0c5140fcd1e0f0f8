"""Pushes of rows with a key over HTTP, which a batch reads as a whole; so rows are free after each of its epochs."""

from __future__ import annotations

import os

import boatlift as bl
from boatlift.storage import input_log

input_log.KEY_CHECKPOINT_BYTES, input_log.KEY_BYTES = 1000, 0  # keys of pushes wait for no bytes

flow = bl.Dataflow("upserted")
schema = "client LONG, slot LONG, id LONG NOT NULL"
rows = flow.source("rows", bl.push(schema, listen=os.environ["PUSH_AT"], upsert=["client", "slot"]))
rows.recompute("all", lambda df: df).sink("all_out", bl.parquet("all"))
