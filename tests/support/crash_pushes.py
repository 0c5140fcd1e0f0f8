"""A dataflow that is pushed to over HTTP, at the port that the environment says; little waits for a memo."""

from __future__ import annotations

import os

import boatlift as bl
from boatlift.storage import input_log

input_log.MEMO_AFTER = 4

flow = bl.Dataflow("pushed")
rows = flow.source("rows", bl.push("id LONG NOT NULL, client LONG NOT NULL", listen=os.environ["PUSH_AT"]))
rows.transform("kept", lambda df: df.where("id >= 0")).sink("out", bl.parquet("out"))
