"""The table of metrics: one row each, from which everything else about them is made.

Names follow Prometheus (base units, `_total`) and never change with a restart: labels name parts of the program, not
processes, steps or jobs. OpenTelemetry has the same words with dots, without unit and `_total`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MetricKind(StrEnum):
    """What the values of a metric are."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric.

    Attributes:
        labels: Besides `dataflow`, which each metric has; the first one says what the metric is of.
        otel, unit: Its name and its unit in OpenTelemetry, the name without the prefix `boatlift.`.
        running: The value is known while the dataflow runs, and not of a store that rests.
    """

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    otel: str
    unit: str
    help: str
    running: bool = True

    @property
    def level(self) -> str:
        """What the metric is of: `processor`, `sink`, `source` or `dataflow`."""
        return self.labels[0] if self.labels and self.labels[0] in ("processor", "sink", "source") else "dataflow"


_C, _G, _H = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM
_P, _SINK, _SOURCE = ("processor",), ("sink",), ("source",)
_STORED = False  # for `running`

TABLE = (
    # Of the dataflow. What is first here is dropped last.
    Metric("boatlift_state", _G, ("state",), "state", "1",
           "1 for the state of the dataflow: new, alive, stuck, stopped, crashed, or running or crashed", _STORED),
    Metric("boatlift_owner_info", _G, ("host",), "owner.info", "1",
           "1, with the host of the process that claimed the store last", _STORED),
    Metric("boatlift_claim_timestamp_seconds", _G, (), "claim.timestamp", "s",
           "When it claimed the store, in seconds since 1970: each start and each takeover changes it", _STORED),
    Metric("boatlift_build_info", _G, ("version", "spark", "java", "python"), "build.info", "1",
           "1, with the versions that the last run used", _STORED),
    Metric("boatlift_last_record_timestamp_seconds", _G, (), "last_record.timestamp", "s",
           "When the log was written last, in seconds since 1970", _STORED),
    Metric("boatlift_in_flight_bytes", _G, (), "in_flight.size", "By",
           "The rows between units that are under way, or wait, on disk", _STORED),
    Metric("boatlift_in_flight_limit_bytes", _G, (), "in_flight.limit", "By",
           "The size of in_flight from which on sources take nothing more", _STORED),
    Metric("boatlift_recovery_cost_steps", _G, (), "recovery.cost.steps", "{step}",
           "The steps that would be executed again if everything failed now", _STORED),
    Metric("boatlift_recovery_cost_seconds", _G, (), "recovery.cost.time", "s",
           "The time that these steps took, by the log", _STORED),
    Metric("boatlift_recoveries_total", _C, ("cause",), "recoveries", "{recovery}",
           "Recoveries of the run: its start, a takeover from a dead owner, or failures of units that are retried"),
    Metric("boatlift_recovery_seconds", _H, ("cause",), "recovery.duration", "s",
           "Recoveries that are over, until all steps that were executed before are executed again; of failures those "
           "that led to a replay"),
    Metric("boatlift_log_objects_total", _C, (), "log.objects", "{object}", "Objects that the run wrote into its log"),
    Metric("boatlift_log_bytes_total", _C, (), "log.io", "By", "Their bytes"),
    Metric("boatlift_log_write_seconds", _H, (), "log.write.duration", "s",
           "From the first record of an object of the log to its durability"),
    Metric("boatlift_store_bytes", _G, ("what",), "store.size", "By",
           "What the store keeps, by kind: state, messages, inputs, pushes, fetched, point, log and others; once a "
           "minute", _STORED),
    Metric("boatlift_standby_behind_objects", _G, ("host", "pid"), "standby.behind", "{object}",
           "The objects of the log that a standby had not read at its last message"),
    Metric("boatlift_standby_lag_seconds", _G, ("host", "pid"), "standby.lag", "s",
           "For how long it has not been at the end of the log; 0 if it was at its last message"),
    Metric("boatlift_standby_warm", _G, ("host", "pid"), "standby.warm", "1", "1 if the standby can take over at once"),
    Metric("boatlift_process_resident_bytes", _G, ("process",), "process.memory", "By",
           "The memory of the driver without its JVM, of the jvm, and of all Python workers on its computer"),
    Metric("boatlift_state_memory_bytes", _G, (), "state.memory", "By",
           "States that are in a memory file system: of Lazy(…, state=\"in memory\")"),
    Metric("boatlift_process_cpu_seconds_total", _C, ("process",), "process.cpu.time", "s",
           "The processor time of the driver, without its JVM"),
    # Of sinks.
    Metric("boatlift_sink_visible_step", _G, _SINK, "sink.visible.step", "{step}",
           "The last step that is visible; -1 for none", _STORED),
    Metric("boatlift_visible_seconds", _H, _SINK, "visible.latency", "s",
           "From the moment at which a source took the input of a step to the step's visibility"),
    Metric("boatlift_sink_commit_seconds", _H, _SINK, "sink.commit.duration", "s", "Commits that succeeded"),
    Metric("boatlift_sink_rows_total", _C, _SINK, "sink.rows", "{row}", "Rows that became visible"),
    Metric("boatlift_sink_steps_total", _C, ("sink", "outcome"), "sink.steps", "{step}",
           "Steps of the sink: written, dropped (a replay's, held already), or left_out (by a decision of the user)"),
    # Of sources.
    Metric("boatlift_source_closed_step", _G, _SOURCE, "source.closed.step", "{step}",
           "The last step whose input is recorded; -1 for none", _STORED),
    Metric("boatlift_source_steps_total", _C, _SOURCE, "source.steps", "{step}", "Steps with input"),
    Metric("boatlift_source_rows_total", _C, _SOURCE, "source.rows", "{row}", "Rows, each once"),
    Metric("boatlift_source_waiting", _G, ("source", "unit"), "source.waiting", "1",
           "Input that no step has taken: files, rows, messages, as the source counts it"),
    Metric("boatlift_source_waiting_bytes", _G, _SOURCE, "source.waiting.size", "By", "Its bytes, if known"),
    Metric("boatlift_source_oldest_seconds", _G, _SOURCE, "source.oldest.age", "s",
           "The age of the oldest of it, if known; 0 if nothing waits"),
    Metric("boatlift_source_held_seconds_total", _C, ("source", "reason"), "source.held.time", "s",
           "The time for which the source was asked for nothing, since too many steps or bytes waited behind it; by a "
           "look every two seconds"),
    Metric("boatlift_push_seconds", _H, ("source", "status"), "push.duration", "s",
           "From the head of a push by HTTP to its answer, by the status of the answer"),
    Metric("boatlift_source_unreachable", _G, _SOURCE, "source.unreachable", "1", "1 while no poll succeeds"),
    # Of processors: units, and, of failures, sinks too.
    Metric("boatlift_steps_total", _C, ("processor", "kind"), "steps", "{step}", "Executed steps: new or replay"),
    Metric("boatlift_step_failures_total", _C, ("processor", "condition"), "step.failures", "{failure}",
           "Failures of a unit or a sink that are retried, by the condition of the error"),
    Metric("boatlift_busy_seconds_total", _C, _P, "busy.time", "s", "The time for which steps were executed"),
    Metric("boatlift_input_rows_total", _C, _P, "input.rows", "{row}", "Rows that steps have read"),
    Metric("boatlift_output_rows_total", _C, _P, "output.rows", "{row}", "Rows that steps have emitted"),
    Metric("boatlift_tasks", _G, _P, "tasks", "{task}", "The Spark tasks of its last step that had some"),
    Metric("boatlift_waiting_steps", _G, _P, "waiting.steps", "{step}", "Steps that wait at the fullest input"),
    Metric("boatlift_waiting_bytes", _G, _P, "waiting.size", "By", "The rows that wait at all inputs"),
    Metric("boatlift_batch_epoch_steps", _G, _P, "batch.epoch.steps", "{step}",
           "Of a batch: the steps that wait for the end of its epoch"),
    Metric("boatlift_frontier_step", _G, ("processor", "frontier"), "frontier.step", "{step}",
           "The last step that is executed, durable (in a checkpoint), or stable (no failure undoes it); -1 for none",
           _STORED),
    Metric("boatlift_state_rows", _G, _P, "state.rows", "{row}",
           "Rows in the files of the newest checkpoint; a key in several files counts in each", _STORED),
    Metric("boatlift_state_bytes", _G, _P, "state.size", "By", "Bytes of these files", _STORED),
    Metric("boatlift_state_files", _G, _P, "state.files", "{file}", "Their number", _STORED),
    Metric("boatlift_checkpoints_total", _C, _P, "checkpoints", "{checkpoint}", "Checkpoints that became durable"),
    Metric("boatlift_checkpoint_bytes_total", _C, _P, "checkpoint.io", "By", "Bytes that were written for them"),
    Metric("boatlift_checkpoint_seconds_total", _C, _P, "checkpoint.time", "s", "The time for which they were written"),
    Metric("boatlift_checkpoint_timestamp_seconds", _G, _P, "checkpoint.timestamp", "s",
           "When the run's last checkpoint became durable, in seconds since 1970"),
    Metric("boatlift_watermark_timestamp_seconds", _G, _P, "watermark.timestamp", "s",
           "The watermark at the newest checkpoint, in seconds since 1970", _STORED),
    Metric("boatlift_late_rows_total", _C, _P, "late.rows", "{row}",
           "Late rows since the program began, at the newest checkpoint", _STORED),
    Metric("boatlift_bad_rows_total", _C, _P, "bad.rows", "{row}",
           "Bad rows since the program began, at the newest checkpoint", _STORED),
    Metric("boatlift_step_seconds", _H, _P, "step.duration", "s",
           "Steps; of more than 200 processors one histogram for the dataflow"),
)  # fmt: skip
"""The metrics, by level: in this order they are dropped, the last first, if a program would have too many series."""

DROPPED = Metric(
    "boatlift_metrics_dropped",
    _G,
    (),
    "metrics.dropped",
    "{series}",
    "Series that are left out because there are too many",
    _STORED,
)  # fmt: skip
"""This one is never dropped."""

NAMED = {each.name: each for each in (*TABLE, DROPPED)}
