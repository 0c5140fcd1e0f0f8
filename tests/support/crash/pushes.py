"""A dataflow with pushes over HTTP; the environment names port and kind of answers; memos and packs are frequent.

Its steps share a job that lives as soon as they can.
"""

from __future__ import annotations

import os
from typing import Any

import boatlift as bl
from boatlift.spark.jobs import long_running
from boatlift.storage import input_log, remembered_keys

input_log.KEY_CHECKPOINT_AFTER = remembered_keys.PACK_AFTER = 4
long_running.STEPS_BEFORE = 1

flow = bl.Dataflow("pushed")
ack: Any = os.environ["PUSH_ACK"]
rows = flow.source("rows", bl.push("id LONG NOT NULL, client LONG NOT NULL", listen=os.environ["PUSH_AT"], ack=ack))
rows.transform("kept", lambda df: df.where("id >= 0")).sink("out", bl.parquet("out"))
