"""All error conditions, in one table: what each means, what the user does about it, and whether a host tries again.

`docs/errors.md` shows the same table; a test holds the two together, and holds the table against the code.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Retry(Enum):
    """What a host does about an error of a step, a probe or a sink."""

    NONE = "the error is no failure of the step: the dataflow stops"
    STOP = (
        "the step has failed, and another try would end the same: its input goes on the record, and the dataflow stops"
    )
    AGAIN = "the step has failed, and is tried again a few times"


class Condition(NamedTuple):
    """One kind of error: its class, its meaning, the user's action, and what a host does."""

    error: str
    meaning: str
    action: str
    retry: Retry = Retry.NONE


CONDITIONS: dict[str, Condition] = {
    # the program
    "DUPLICATE_NAME": Condition("InvalidError", "two processors have one name", "rename one of them"),
    "DUPLICATE_PLACE": Condition(
        "InvalidError",
        "two sinks of a dataflow write to one folder, table or topic",
        "give each a place of its own",
    ),
    "EMPTY_DATAFLOW": Condition(
        "InvalidError",
        "the dataflow has no source or no sink, or nothing reads a stream other than a source, or the bad rows of one",
        "add what is missing",
    ),
    "BAD_NAME": Condition(
        "InvalidError",
        "a name has characters other than letters, digits, - and _, or a file has a name under which it is not read",
        "rename it",
    ),
    "BAD_OPTION": Condition(
        "InvalidError", "an option is missing or not known, or has a value that makes no sense", "correct the option"
    ),
    "NOT_ON_A_STREAM": Condition(
        "InvalidError",
        "a stream is used as if it were one of Spark's DataFrames",
        "write what the message shows instead",
    ),
    "BAD_LOOKUP": Condition(
        "InvalidError", "a lookup of what cannot be looked up, or for rows it cannot be for", "change what it reads"
    ),
    "BAD_RECOMPUTATION": Condition(
        "InvalidError", "a recomputation of what cannot be read again, or something after one", "change what it reads"
    ),
    "BAD_PROCESSOR": Condition(
        "InvalidError",
        "a processor cannot take these rows, or its state or output is not a list of columns",
        "declare columns as in 'count LONG, last TIMESTAMP'; process rows that are new",
    ),
    "NO_LATENESS": Condition(
        "InvalidError",
        "a processor needs event time, and its input does not say how late rows can be",
        "put .with_watermark('NAME', 'COLUMN', '10 minutes') behind the source",
    ),
    "BAD_LATENESS": Condition(
        "InvalidError",
        "a stream of whole tables cannot have a lateness",
        "put the lateness behind a source or a transform, before the recomputation",
    ),
    "BAD_WINDOW": Condition(
        "InvalidError",
        "windows of rows that are not all new, or a grouping that windows do not go with",
        "group the rows of a source, a transform or a lateness by windows, and aggregate them with agg(…)",
    ),
    "BAD_REDUCTION": Condition(
        "InvalidError", "a reduction of rows that are not all new", "keep the aggregate as state, with agg(…)"
    ),
    "BAD_UNION": Condition(
        "InvalidError", "a union or merge of streams that do not go together", "unite what they are made from"
    ),
    "BAD_VIEW": Condition(
        "InvalidError", "a view of streams that it cannot read, or of none", "change what the query reads"
    ),
    "NOT_NEW_ROWS": Condition(
        "InvalidError", "an operator that takes new rows alone reads changes or whole tables", "let it read a source"
    ),
    "NOT_INCREMENTAL": Condition(
        "InvalidError", "a part of a query cannot be kept up to date exactly", "write what the message shows instead"
    ),
    "BAD_POLICY": Condition("InvalidError", "a processor cannot have this policy", "choose another policy"),
    "BAD_PROJECTION": Condition(
        "InvalidError", "a projection between time domains breaks one of its laws", "correct it: the message has a case"
    ),
    "CYCLE_WITHOUT_LOOP": Condition(
        "InvalidError", "a cycle has no edge on which times grow", "close it with an edge that counts its rounds"
    ),
    "FLOW_NOT_FOUND": Condition(
        "InvalidError", "module:attribute names no dataflow", "name the module and its Dataflow"
    ),
    "NOT_ROW_WISE": Condition(
        "InvalidError",
        "a transform holds something that is not row-wise, so it could not be replayed or run on changes",
        "use the operator that the message names",
    ),
    "NOT_DETERMINISTIC": Condition(
        "InvalidError",
        "a transform holds an expression whose value differs from run to run",
        "use bl.now(), bl.rand() or bl.uuid(); vouch for Python UDFs with deterministic=True; have the rows "
        "recorded with "
        "deterministic=False",
    ),
    "OUTSIDE_STEP": Condition(
        "InvalidError",
        "bl.now(), bl.rand(), bl.uuid() or bl.call() called outside a transform",
        "call it inside the function",
    ),
    "NO_ROW_POSITION": Condition(
        "InvalidError", "this source's rows have no position to draw random values from", "name the key columns"
    ),
    "UNSUPPORTED_AGGREGATE": Condition(
        "InvalidError",
        "this aggregate or its type cannot be kept as state",
        "use count, sum, avg, min, max or stddev, or write a view",
    ),
    "NOT_UNIQUE": Condition(
        "DataError",
        "two rows of a table that is looked up hold for one key",
        "look up by keys that tell its rows apart",
    ),
    "RESERVED_NAME": Condition("InvalidError", "a column has a name that Boatlift itself uses", "rename it"),
    "SCHEMA_MISMATCH": Condition("InvalidError", "columns or types are not what is declared", "correct the schema"),
    "NO_SESSION": Condition(
        "InvalidError",
        "something needs a Spark session, and there is none yet",
        "write spark = bl.session() before it",
    ),
    "NO_JAVA": Condition("InvalidError", "no Java 17 or newer was found", "install one or set JAVA_HOME"),
    "MISSING_EXTRA": Condition("InvalidError", "an optional package is not installed", "pip install the extra"),
    # the store
    "STORE_NOT_FOUND": Condition("InvalidError", "no store at this path", "give the path that run was given"),
    "STORE_IN_USE": Condition(
        "InvalidError",
        "a process of this host already runs the dataflow on this store",
        "stop that process, or take the store over with --take-over",
    ),
    "STORE_OF_ANOTHER_DATAFLOW": Condition("DataError", "the store belongs to another dataflow", "use its own store"),
    "PROGRAM_CHANGED": Condition(
        "DataError",
        "the store was written by another version of the program, or divided otherwise before a clean stop",
        "run that version (to a clean stop, if the message says so), or begin with a new store and new sinks",
    ),
    "ENVIRONMENT_CHANGED": Condition(
        "DataError",
        "steps must be replayed, but versions or settings that results depend on have changed",
        "replay under the recorded environment and stop cleanly, then upgrade",
    ),
    "OLDER_FORMAT": Condition(
        "DataError", "the store has an older format than this version", "go on with the version that wrote it"
    ),
    "NEWER_FORMAT": Condition("DataError", "the store has a newer format than this version", "upgrade Boatlift"),
    "CORRUPT": Condition("DataError", "a durable object fails its checksum", "restore it from a copy"),
    "MISSING_OBJECT": Condition("DataError", "a durable object that is named is not there", "restore it from a copy"),
    "OBJECT_EXISTS": Condition("FencedError", "another process has created this object", "stop this process"),
    "FENCED": Condition("FencedError", "a newer process owns this dataflow", "stop this process"),
    "STORE_FAILED": Condition(
        "UnavailableError",
        "the store could not write durably (disk full, I/O error)",
        "free space, then run again",
        retry=Retry.AGAIN,
    ),
    "NO_CONSISTENT_FRONTIER": Condition(
        "DataError", "nothing the store holds fits what the sinks have; it may be an old copy", "restore the newest"
    ),
    # sources
    "INPUT_CHANGED": Condition(
        "DataError", "an input that a recorded step names has other content now", "put the original back"
    ),
    "INPUT_MISSING": Condition("DataError", "an input that a recorded step names is gone", "put it back"),
    "INPUT_SHRANK": Condition(
        "DataError", "a file that is tailed has fewer bytes than were taken of it", "put its bytes back"
    ),
    "INPUT_ROTATED": Condition(
        "DataError",
        "a file that is tailed has another name, or its name another file: rows would be taken twice, or not at all",
        "undo that, and let its writer begin new files under new names",
    ),
    "INPUT_EMPTY": Condition("DataError", "an input file has no bytes", "remove it or write it whole"),
    "BAD_ROW": Condition(
        "DataError",
        "a row does not fit the schema",
        "set bad rows aside (boatlift run --set-aside SOURCE, boatlift bad-rows), or give those of a new store a "
        "stream of their own (flow.source(…, bad_rows='dead_letters')); push corrected rows again",
        retry=Retry.STOP,
    ),
    "BAD_HEADER": Condition("DataError", "a file's columns are not those of the schema", "correct the file"),
    "NO_INPUT": Condition("InvalidError", "a source's path or topic can never match anything", "correct it"),
    "NOT_ADMITTED": Condition("InvalidError", "a cluster does not let this client in", "correct the security options"),
    "NOT_PERMITTED": Condition("InvalidError", "a cluster does not allow what is asked of it", "have it allowed"),
    "KEY_REUSED": Condition(
        "InvalidError", "other rows were pushed with this key before", "give what is new a key of its own"
    ),
    "KEYS_FULL": Condition(
        "UnavailableError",
        "a source remembers as many keys of pushes as it may, and none is old enough to be forgotten",
        "push again later, with the same key; or run with a shorter remember_keys or more max_remembered_keys",
        retry=Retry.AGAIN,
    ),
    "NOT_RUNNING": Condition(
        "UnavailableError",
        "rows were pushed to a source that takes none now: its dataflow does not run here, or is stopping",
        "push again, with the same key, once it runs",
        retry=Retry.AGAIN,
    ),
    "PUSH_FULL": Condition(
        "UnavailableError",
        "more pushed rows wait than a source keeps",
        "push again later, with the same key",
        retry=Retry.AGAIN,
    ),
    "PUSH_TOO_LARGE": Condition(
        "InvalidError", "a push has more bytes than a source takes at once", "push it in parts"
    ),
    "CROSS_SITE": Condition(
        "InvalidError",
        "a request over HTTP is of a web page of another site, or is for another host than the server's",
        "push from a program, without Origin, with the address that the source listens at as Host",
    ),
    "BAD_TOKEN": Condition(
        "InvalidError",
        "a request over HTTP has no token, or a wrong one",
        "send Authorization: Bearer and the token that the source has",
    ),
    "BAD_REQUEST": Condition(
        "InvalidError", "the bytes that a client sent are no HTTP request", "send one of HTTP/1.1"
    ),
    "NOT_SERVED": Condition(
        "InvalidError",
        "a request over HTTP has an address or a method that the source does not serve",
        "send POST /SOURCE, or GET /SOURCE/keys/KEY",
    ),
    "HEADERS_TOO_LARGE": Condition(
        "InvalidError", "a request over HTTP has more headers, or longer ones, than a source takes", "send fewer"
    ),
    "TOO_SLOW": Condition(
        "UnavailableError",
        "a request over HTTP did not come whole in time",
        "push again, with the same key",
        retry=Retry.AGAIN,
    ),
    "SERVER_BUSY": Condition(
        "UnavailableError",
        "more connections or bytes of requests over HTTP are under way than a source takes",
        "push again in a moment, with the same key",
        retry=Retry.AGAIN,
    ),
    "LISTEN_FAILED": Condition(
        "UnavailableError",
        "a source cannot listen where it is to, or answer",
        "give another address, or mend what is told",
        retry=Retry.AGAIN,
    ),
    # sinks
    "SINK_OF_ANOTHER_DATAFLOW": Condition(
        "DataError",
        "a sink holds rows written by another dataflow, by hand, or with other columns or another key",
        "give it a place of its own",
    ),
    "SINK_OF_ANOTHER_STORE": Condition(
        "DataError",
        "a sink holds rows that this dataflow wrote from another store",
        "run with the store that wrote them, or give it a place of its own",
    ),
    "SINK_GAP": Condition("DataError", "a sink lacks a step before the one handed to it", "restore the sink"),
    "SINK_LOCKED": Condition(
        "UnavailableError",
        "another process holds the sink's lock",
        "end that process, then run again",
        retry=Retry.STOP,
    ),
    "SINK_FAILED": Condition(
        "UnavailableError", "the sink could not be written", "mend it, then run again", retry=Retry.AGAIN
    ),
    "SINK_REFUSED": Condition(
        "UnavailableError",
        "the receiver of a sink's rows will not take a step, however often it is delivered",
        "correct the receiver or the options, or leave the step out with boatlift run --skip SINK:STEP",
        retry=Retry.STOP,
    ),
    "SINK_DAMAGED": Condition("DataError", "a sink's own record of steps cannot be read", "restore the sink"),
    "DUPLICATE_KEY": Condition(
        "InvalidError",
        "a step holds two rows for one key of a keyed sink, or a second one of a key that is unique",
        "aggregate by that key, or add columns to it",
    ),
    "INPUT_UNAVAILABLE": Condition(
        "UnavailableError",
        "the place a source reads from cannot be reached",
        "run again when it is back",
        retry=Retry.AGAIN,
    ),
    "NO_TOPIC": Condition("InvalidError", "a sink's topic is not there", "make it, or correct its name"),
    "NULL_KEY": Condition("DataError", "a row of a keyed sink has no key", "filter it, or choose key_format='json'"),
    "MESSAGE_TOO_LARGE": Condition(
        "DataError", "a message is larger than the cluster takes", "raise message.max.bytes, or make rows smaller"
    ),
    "NAN_REFUSED": Condition("DataError", "a NaN would become NULL in this sink", "choose nan='text' or filter it"),
    "TYPE_REFUSED": Condition("InvalidError", "a column has a type that cannot be kept", "cast it in a transform"),
    # running
    "DIVERGED": Condition(
        "DivergedError",
        "a step gave another result on replay than was recorded",
        "find what is not deterministic in the processor and take it out: bl.now(), bl.rand(), bl.uuid(); or "
        "let stand what was "
        "released: --accept-released",
    ),
    "USER_CODE": Condition(
        "UserCodeError",
        "the program's module, or a function of it, raised",
        "see its own traceback, which is shown with it; boatlift look shows what the step takes, run --skip "
        "leaves it out",
        retry=Retry.AGAIN,
    ),
    "NOT_FINAL": Condition(
        "DataError",
        "a row changes, or comes, after it was final",
        "name a column after whose time no late row can change a row, such as the end of a window",
    ),
    "NEGATIVE_WEIGHT": Condition(
        "DataError",
        "a row is taken back more often than it came",
        "correct what deletes the row, or skip the step",
        retry=Retry.STOP,
    ),
    "LOOP_TOO_LONG": Condition(
        "DataError",
        "a loop still changes rows after its last iteration",
        "let it have a fixed point (a bound on what grows, DISTINCT, no cycle under UNION ALL), raise max_iterations, "
        "or skip the step",
        retry=Retry.STOP,
    ),
    "TASK_LOST": Condition(
        "UnavailableError",
        "a task that exchanges rows with other tasks has lost one of them",
        "it is tried again, with fewer tasks if executors are gone; the error of the other task stands before this one",
        retry=Retry.AGAIN,
    ),
    "OVERFLOW": Condition("DataError", "a sum does not fit its type", "cast the column to a wider type"),
    "SPARK_NOT_STARTED": Condition(
        "UnavailableError",
        "Java is there, but Spark did not start: its JVM ended, or its session could not be made",
        "see what it said, which the message shows; mend it, then run again",
        retry=Retry.AGAIN,
    ),
    "JVM_DIED": Condition(
        "UnavailableError",
        "the JVM of Spark is gone while a dataflow runs: it was killed, or memory ran out",
        "give it memory if that was it (spark.driver.memory), then run the same command again: it goes on",
        retry=Retry.STOP,
    ),
    "STEP_FAILED": Condition(
        "UnavailableError", "Spark could not run a step", "see the cause, then run again", retry=Retry.AGAIN
    ),
    "BROKER_FAILED": Condition(
        "UnavailableError",
        "a broker that tests start is not there: its jars, its process or its answer",
        "see what it printed, which the message shows",
        retry=Retry.AGAIN,
    ),
    "WORKER_DIED": Condition(
        "UnavailableError",
        "a process that runs seeds of a simulation is gone: it was killed, or memory ran out",
        "give --jobs a smaller number if memory ran out, then run again",
        retry=Retry.AGAIN,
    ),
    "PLAN_REFUSED": Condition(
        "InternalError",
        "Spark refuses a plan that Boatlift made of a query or of a step",
        "write the part of the query that the message names in another way, and report it with the query",
        retry=Retry.STOP,
    ),
    "INTERNAL": Condition("InternalError", "an invariant of Boatlift does not hold", "report it with the story"),
}
