"""All error conditions: the meaning of each, the user's action, and whether a host retries.

`docs/errors.md` shows the same table; a test compares both, and the table with the code.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Retry(Enum):
    """A host's reaction to an error of a step, a probe or a sink."""

    NONE = "the error is not a failure of the step: the dataflow stops"
    STOP = "the step has failed, and a retry would fail again: its input is recorded, and the dataflow stops"
    AGAIN = "the step has failed, and is retried a few times"


class Condition(NamedTuple):
    """A kind of error: its class, its meaning, the user's action, and the host's reaction."""

    error: str
    meaning: str
    action: str
    retry: Retry = Retry.NONE


CONDITIONS: dict[str, Condition] = {
    # the program
    "DUPLICATE_NAME": Condition("InvalidError", "two processors have one name", "rename one of them"),
    "DUPLICATE_PLACE": Condition(
        "InvalidError", "two sinks of a dataflow write to one folder, table or topic", "give each a place of its own"
    ),
    "EMPTY_DATAFLOW": Condition(
        "InvalidError",
        "the dataflow has no source, or neither a sink nor an aggregate; or nothing reads some rows or dead letters",
        "add what is missing",
    ),
    "BAD_NAME": Condition(
        "InvalidError",
        "a name has characters other than letters, digits, - and _, or a file has a name that readers ignore",
        "rename it",
    ),
    "BAD_OPTION": Condition(
        "InvalidError", "an option is missing or unknown, or has an impossible value", "correct the option"
    ),
    "NOT_ON_A_STREAM": Condition(
        "InvalidError", "a stream is used as if it were one of Spark's DataFrames", "use the code in the message"
    ),
    "BAD_LOOKUP": Condition(
        "InvalidError",
        "the looked-up table has no unique row per key, or the stream is not append-only",
        "look up an aggregate by all its keys, from a source or a transform",
    ),
    "BAD_RECOMPUTATION": Condition(
        "InvalidError",
        "a recomputation cannot read its input again, or an operator after one cannot read whole tables",
        "let it read a source through deterministic transforms, and put other operators before it",
    ),
    "BAD_PROCESSOR": Condition(
        "InvalidError",
        "a processor cannot read these rows, or its state or output is not a list of columns",
        "declare columns as in 'count LONG, last TIMESTAMP'; process new rows",
    ),
    "NO_LATENESS": Condition(
        "InvalidError",
        "a processor needs event time, and its input has no watermark",
        "put .with_watermark('NAME', 'COLUMN', '10 minutes') after the source",
    ),
    "BAD_LATENESS": Condition(
        "InvalidError",
        "a stream of whole tables cannot have a watermark",
        "put with_watermark(…) after a source or a transform, before the recomputation",
    ),
    "BAD_WINDOW": Condition(
        "InvalidError",
        "windows over rows that are not all new, or a grouping that cannot have windows",
        "group the rows of a source, a transform or a watermark by windows, and aggregate them with agg(…)",
    ),
    "BAD_REDUCTION": Condition(
        "InvalidError", "a reduction of rows that are not all new", "keep the aggregate as state, with agg(…)"
    ),
    "BAD_UNION": Condition(
        "InvalidError", "a union or merge of whole tables", "unite the streams that the tables are made of"
    ),
    "OTHER_TIMES": Condition(
        "InvalidError",
        "sinks that are to be shown together do not have the same steps",
        "show sinks together that are behind the same batch, lookup or merge, or behind none",
    ),
    "BAD_VIEW": Condition(
        "InvalidError", "a view reads no stream, or one that it cannot read", "change the query's inputs"
    ),
    "NOT_NEW_ROWS": Condition(
        "InvalidError", "an operator that needs new rows reads changes or whole tables", "let it read a source"
    ),
    "NOT_INCREMENTAL": Condition(
        "InvalidError", "part of a query cannot be kept up to date exactly", "use the alternative in the message"
    ),
    "BAD_POLICY": Condition("InvalidError", "a processor cannot have this policy", "choose another policy"),
    "BAD_PROJECTION": Condition(
        "InvalidError", "a projection between time domains breaks a law", "correct it: the message has an example"
    ),
    "CYCLE_WITHOUT_LOOP": Condition(
        "InvalidError", "a cycle has no edge on which times grow", "close it with an edge that counts iterations"
    ),
    "FLOW_NOT_FOUND": Condition(
        "InvalidError", "there is no dataflow at module:attribute", "give the module and its Dataflow"
    ),
    "NOT_ROW_WISE": Condition(
        "InvalidError",
        "part of a transform is not row-wise, so it could not be replayed or run on changes",
        "use the operator in the message",
    ),
    "NOT_DETERMINISTIC": Condition(
        "InvalidError",
        "a transform has an expression whose value differs from run to run",
        "use bl.now(), bl.rand() or bl.uuid(); declare Python UDFs with deterministic=True; or record the rows with "
        "deterministic=False",
    ),
    "OUTSIDE_STEP": Condition(
        "InvalidError",
        "bl.now(), bl.rand(), bl.uuid() or bl.call() is called outside a transform",
        "call it inside the function",
    ),
    "NO_ROW_POSITION": Condition(
        "InvalidError", "random values need a row's position, which this source does not have", "name the key columns"
    ),
    "UNSUPPORTED_AGGREGATE": Condition(
        "InvalidError",
        "an aggregate, or its type, cannot be kept as state",
        "use count, sum, avg, min, max or stddev, or write a view",
    ),
    "NOT_UNIQUE": Condition(
        "DataError", "a looked-up table has two current rows for one key", "look up by a unique key"
    ),
    "RESERVED_NAME": Condition("InvalidError", "a column has a name that Boatlift reserves", "rename it"),
    "SCHEMA_MISMATCH": Condition(
        "InvalidError", "columns or types differ from the declared ones", "correct the schema"
    ),
    "NO_SESSION": Condition(
        "InvalidError", "a call needs a Spark session, and there is none yet", "write spark = bl.session() before it"
    ),
    "NO_JAVA": Condition("InvalidError", "no Java 17 or newer was found", "install one or set JAVA_HOME"),
    "MISSING_EXTRA": Condition("InvalidError", "an optional package is not installed", "pip install the extra"),
    # the store
    "STORE_NOT_FOUND": Condition("InvalidError", "no store at this path", "give the path of the run"),
    "STORE_IN_USE": Condition(
        "InvalidError",
        "a run on this host already owns the store",
        "stop that run, or take the store over from it with --take-over (in Python take_over=True)",
    ),
    "STORE_OF_ANOTHER_DATAFLOW": Condition("DataError", "the store belongs to another dataflow", "use its own store"),
    "PROGRAM_CHANGED": Condition(
        "DataError",
        "another version of the program wrote the store, or divided it into other units and did not shut down cleanly",
        "look at the change with boatlift plan FLOW --store STORE, and run with the id that it shows; or run that "
        "version (to a clean shutdown, if the message says so)",
    ),
    "PLAN_CHANGED": Condition(
        "InvalidError",
        "the plan of a changed program is another one than the user has consented to",
        "look at it again with boatlift plan FLOW --store STORE, and run with the id that it shows",
    ),
    "HISTORY_GONE": Condition(
        "DataError",
        "a changed processor needs its past, and nothing has it or can give it again",
        "choose a mode for it, such as --change NAME=now, or bring the input back",
    ),
    "NO_RESTORE_POINT": Condition(
        "InvalidError",
        "a dataflow is to go back to a restore point that there is not",
        "list the points with boatlift keep --store STORE, and name one of them, or beginning",
    ),
    "REWIND_INPUT_GONE": Condition(
        "DataError",
        "a dataflow is to go back, and input after the restore point cannot be taken again",
        "go back to a later point, or bring the input back",
    ),
    "NEEDS_CLEAN_STOP": Condition(
        "DataError",
        "a change that leaves a processor or a sink as it is needs a store whose last run stopped cleanly",
        "run the old program once more, end it with Ctrl-C, then change it",
    ),
    "CANNOT_TAKE_BACK": Condition(
        "InvalidError",
        "a sink that only adds rows holds or lacks rows that no further row corrects",
        "choose --change SINK=new_rows or SINK=now, or give the sink another name and place",
    ),
    "SINK_NOT_READABLE": Condition(
        "InvalidError",
        "a sink cannot tell what it holds, so that what differs cannot be computed",
        "choose --change SINK=now, or give the sink another name and place",
    ),
    "NO_TWIN": Condition(
        "InvalidError",
        "a crash test cannot put a twin in the place of a sink, or read the input of a source again and again",
        "choose --in-parquet SINK, --input SOURCE=FOLDER or --steps, as the message says",
    ),
    "OTHER_COLUMNS": Condition(
        "InvalidError", "a sink has another key or other columns than its place", "give the sink another name and place"
    ),
    "ENVIRONMENT_CHANGED": Condition(
        "DataError",
        "steps must be replayed, but versions or settings that results depend on have changed",
        "replay under the recorded environment and stop cleanly, then upgrade",
    ),
    "OLDER_FORMAT": Condition(
        "DataError", "the store's format is too old for this version", "keep using the version that wrote it"
    ),
    "NEWER_FORMAT": Condition("DataError", "the store's format is newer than this version", "upgrade Boatlift"),
    "CORRUPT": Condition("DataError", "a durable object fails its checksum", "restore it from a copy"),
    "MISSING_OBJECT": Condition("DataError", "a durable object is missing", "restore it from a copy"),
    "OBJECT_EXISTS": Condition("FencedError", "another process has created this object", "stop this process"),
    "FENCED": Condition(
        "FencedError",
        "a newer process owns this dataflow",
        "stop this process; of a store that is an older copy: boatlift rewind --from-copy",
    ),
    "STORE_UNSUITABLE": Condition(
        "InvalidError",
        "the server of an object store cannot fence an older run",
        "use a server that keeps to If-None-Match and keeps metadata, or a path",
    ),
    "STORE_FAILED": Condition(
        "UnavailableError",
        "the store could not write durably (disk full, I/O error)",
        "free space, then run again",
        retry=Retry.AGAIN,
    ),
    "NO_CONSISTENT_FRONTIER": Condition(
        "DataError", "the store does not fit the sinks; it may be an old copy", "boatlift rewind --from-copy"
    ),
    # sources
    "INPUT_CHANGED": Condition("DataError", "an input of a recorded step has changed", "restore the original"),
    "INPUT_MISSING": Condition("DataError", "an input of a recorded step is missing", "restore it"),
    "INPUT_SHRANK": Condition("DataError", "a tailed file is shorter than the bytes already read", "restore its bytes"),
    "INPUT_ROTATED": Condition(
        "DataError",
        "a tailed file was renamed or replaced: rows would be read twice, or not at all",
        "undo that, and let its writer begin new files under new names",
    ),
    "INPUT_EMPTY": Condition("DataError", "an input file is empty", "remove it or write it whole"),
    "BAD_ROW": Condition(
        "DataError",
        "a row does not fit the schema",
        "set bad rows aside (boatlift run --set-aside SOURCE, boatlift bad-rows), or send them to a stream of their "
        "own (flow.source(…, bad_rows='dead_letters')); push corrected rows again",
        retry=Retry.STOP,
    ),
    "BAD_HEADER": Condition("DataError", "a file's columns differ from the schema", "correct the file"),
    "NO_INPUT": Condition("InvalidError", "a source's path or topic can never match any input", "correct it"),
    "NOT_ADMITTED": Condition("InvalidError", "a server refuses this client", "correct the credentials"),
    "NOT_PERMITTED": Condition("InvalidError", "a cluster does not permit an operation", "have it permitted"),
    "KEY_REUSED": Condition("InvalidError", "other rows were pushed with this key before", "give new rows a new key"),
    "KEYS_FULL": Condition(
        "UnavailableError",
        "a source remembers its maximum number of keys, and none is old enough to be forgotten",
        "push again later, with the same key; or run with a shorter remember_keys or more max_remembered_keys",
        retry=Retry.AGAIN,
    ),
    "NOT_RUNNING": Condition(
        "UnavailableError",
        "rows were pushed to a source, or a stream peeked at, whose dataflow does not run here, or is stopping",
        "push again, with the same key, once it runs; `bl.sql` asks a store without a run",
        retry=Retry.AGAIN,
    ),
    "PUSH_FULL": Condition(
        "UnavailableError",
        "a source has its maximum of waiting rows",
        "push again later, with the same key",
        retry=Retry.AGAIN,
    ),
    "PUSH_TOO_LARGE": Condition(
        "InvalidError", "a push has more bytes than a source accepts at once", "push it in parts"
    ),
    "CROSS_SITE": Condition(
        "InvalidError",
        "an HTTP request comes from a web page of another site, or is for another host than the server's",
        "push from a program, without Origin, with the source's address as Host; open the console as it is printed",
    ),
    "BAD_TOKEN": Condition(
        "InvalidError",
        "an HTTP request has no token, or a wrong one",
        "send Authorization: Bearer and the token of the source; open the console as it is printed",
    ),
    "BAD_REQUEST": Condition("InvalidError", "the bytes of a client are no HTTP request", "send HTTP/1.1"),
    "NOT_SERVED": Condition(
        "InvalidError",
        "an HTTP request has an address or a method that the server does not serve",
        "send what the message names",
    ),
    "HEADERS_TOO_LARGE": Condition(
        "InvalidError", "an HTTP request has more or longer headers than a server accepts", "send fewer"
    ),
    "TOO_SLOW": Condition(
        "UnavailableError",
        "an HTTP request was not complete in time",
        "send it again, a push with the same key",
        retry=Retry.AGAIN,
    ),
    "SERVER_BUSY": Condition(
        "UnavailableError",
        "a server has its maximum of open connections, of readers, or of bytes in open HTTP requests",
        "send it again in a moment, a push with the same key",
        retry=Retry.AGAIN,
    ),
    "LISTEN_FAILED": Condition(
        "UnavailableError",
        "a source, a run or the console cannot listen at its address, or answer",
        "give another address, or repair the cause in the message",
        retry=Retry.AGAIN,
    ),
    # standbys
    "NO_STANDBY": Condition(
        "InvalidError",
        "a dataflow is to be handed over, and no standby is ready",
        "start one with boatlift run --standby, and wait until boatlift status shows it as ready",
    ),
    "OWNER_UNREACHABLE": Condition(
        "UnavailableError",
        "the owner of a store does not answer",
        "see boatlift status, then try again",
        retry=Retry.AGAIN,
    ),
    "MEMBERS_MISSING": Condition(
        "UnavailableError",
        "too few of the standbys answer that an owner asked to hold what its log lacked: sinks may show steps that "
        "nothing else explains",
        "bring back the standbys that the message names; if they have ended, go on with --accept-lost, and see in "
        "boatlift log what that has decided",
        retry=Retry.AGAIN,
    ),
    "STANDBY_SILENT": Condition(
        "UnavailableError",
        "the owner has stopped, and the standby that it was handed to has not claimed the dataflow",
        "begin it with boatlift run",
        retry=Retry.AGAIN,
    ),
    # sinks
    "SINK_OF_ANOTHER_DATAFLOW": Condition(
        "DataError",
        "a sink has rows written by another dataflow, by hand, or with other columns or another key",
        "give it a place of its own",
    ),
    "SINK_OF_ANOTHER_STORE": Condition(
        "DataError",
        "a sink has rows that this dataflow wrote from another store",
        "run with the store that wrote them, or give it a place of its own",
    ),
    "SINK_GAP": Condition("DataError", "a sink lacks a step before the one to commit", "restore the sink"),
    "SINK_UNSUITABLE": Condition(
        "InvalidError",
        "a server, database or table cannot take the rows of a sink: it is missing, too old, read-only, or altered",
        "give another one, make it, or undo the change",
    ),
    "SINK_LOCKED": Condition(
        "UnavailableError", "another process has the sink's lock", "end that process, then run again", retry=Retry.STOP
    ),
    "SINK_FAILED": Condition(
        "UnavailableError", "the sink could not be written", "repair it, then run again", retry=Retry.AGAIN
    ),
    "SINK_REFUSED": Condition(
        "UnavailableError",
        "the receiver of a sink's rows refuses a step, and will refuse it again",
        "correct the receiver or the options, or leave the step out with boatlift run --skip SINK:STEP",
        retry=Retry.STOP,
    ),
    "SINK_DAMAGED": Condition("DataError", "a sink's own record of steps cannot be read", "restore the sink"),
    "DUPLICATE_KEY": Condition(
        "InvalidError",
        "a step has two rows for one key of a keyed sink, or a second row for a unique key",
        "aggregate by that key, or add columns to it",
    ),
    "ANSWER_CHANGED": Condition(
        "DataError", "the row that answers a push is taken back", "let a row answer only when it is final"
    ),
    "ANSWER_WITHOUT_KEY": Condition(
        "DataError", "a row of answers has no key of a push", "pass the key column on, or filter such rows out"
    ),
    "NOT_KEPT": Condition(
        "InvalidError",
        "a query reads a processor whose state has not all of its rows, or several without a checkpoint at one step",
        "keep the rows in an aggregate; or ask later, or give the aggregates one policy",
    ),
    "QUERY_TIMEOUT": Condition(
        "UnavailableError",
        "a query over what a dataflow keeps took longer than its timeout, and was ended",
        "ask for less, as for some keys, or give it a longer timeout (`bl.sql(…, timeout=)`, --timeout)",
        retry=Retry.STOP,
    ),
    "INPUT_UNAVAILABLE": Condition(
        "UnavailableError",
        "the system that a source reads cannot be reached",
        "run again when it is back",
        retry=Retry.AGAIN,
    ),
    "NO_TOPIC": Condition("InvalidError", "a sink's topic does not exist", "make it, or correct its name"),
    "NULL_KEY": Condition(
        "DataError", "a row of a keyed sink has no key", "filter it, fill it by coalesce, or choose key_format='json'"
    ),
    "MESSAGE_TOO_LARGE": Condition(
        "DataError", "a message is larger than the cluster accepts", "raise message.max.bytes, or make rows smaller"
    ),
    "NAN_REFUSED": Condition(
        "DataError", "a NaN or an infinity has no value in this sink", "filter it, or choose nan='text'"
    ),
    "VALUE_REFUSED": Condition(
        "DataError", "the place of a sink cannot hold a value", "change or filter the value before the sink"
    ),
    "TYPE_REFUSED": Condition("InvalidError", "a column has an unsupported type", "cast it in a transform"),
    # running
    "DIVERGED": Condition(
        "DivergedError",
        "a replayed step had another result than recorded",
        "make the processor deterministic (bl.now(), bl.rand(), bl.uuid()), or keep released rows: --accept-released",
    ),
    "USER_CODE": Condition(
        "UserCodeError",
        "the program's module, or a function of it, raised",
        "see the traceback shown with it; boatlift look shows the step's input, run --skip leaves the step out",
        retry=Retry.AGAIN,
    ),
    "WHEN_FAILED": Condition(
        "InvalidError",
        "the function of a `Lazy(when=…)` raised, or gave neither True nor False",
        "correct the function, and start again: it only chooses checkpoints, so no step is lost",
    ),
    "MEMORY_FULL": Condition(
        "UnavailableError",
        'a state under `Lazy(state="in memory")` does not fit the memory file system',
        'leave `state="in memory"` out, and start again; or set BOATLIFT_MEMORY to a larger one',
        retry=Retry.STOP,
    ),
    "NOT_FINAL": Condition(
        "DataError",
        "a row changes, or arrives, after it was final",
        "name a column after whose time no late row can change a row, such as the end of a window",
    ),
    "NEGATIVE_WEIGHT": Condition(
        "DataError",
        "a row is retracted more often than it was inserted",
        "correct the source of the retraction, or skip the step",
        retry=Retry.STOP,
    ),
    "LOOP_TOO_LONG": Condition(
        "DataError",
        "a loop still changes rows after its last iteration",
        "give it a fixed point (DISTINCT, limits, no cycle under UNION ALL), raise max_iterations, or skip it",
        retry=Retry.STOP,
    ),
    "TASK_LOST": Condition(
        "UnavailableError",
        "a task has lost another one with which it exchanges rows",
        "the step is retried, with fewer tasks if executors are gone; the other task's error is before this one",
        retry=Retry.AGAIN,
    ),
    "OVERFLOW": Condition("DataError", "a sum does not fit its type", "cast the column to a wider type"),
    "SPARK_NOT_STARTED": Condition(
        "UnavailableError",
        "Java exists, but Spark did not start: its JVM ended, or its session could not be made",
        "repair the cause, which the message shows, then run again",
        retry=Retry.AGAIN,
    ),
    "JVM_DIED": Condition(
        "UnavailableError",
        "the JVM of Spark ended while a dataflow ran: it was killed, or memory ran out",
        "raise spark.driver.memory if memory ran out, then run the same command again: it continues",
        retry=Retry.STOP,
    ),
    "STEP_FAILED": Condition(
        "UnavailableError", "Spark could not run a step", "see the cause, then run again", retry=Retry.AGAIN
    ),
    "STEP_TIMEOUT": Condition(
        "UnavailableError",
        "a step made no progress within its time, and was ended",
        "see the task in the message; if its function needs longer, raise step_timeout (--step-timeout)",
        retry=Retry.AGAIN,
    ),
    "BROKER_FAILED": Condition(
        "UnavailableError",
        "a test's broker is not available: its jars, its process or its answer is missing",
        "see its output, which the message shows",
        retry=Retry.AGAIN,
    ),
    "WORKER_DIED": Condition(
        "UnavailableError",
        "a worker process of a simulation ended: it was killed, or memory ran out",
        "give --jobs a smaller number if memory ran out, then run again",
        retry=Retry.AGAIN,
    ),
    "RUN_DIED": Condition(
        "UnavailableError",
        "a run of a crash test that nothing kills was killed, or did not end",
        "give the machine more memory, or --timeout more seconds; else bound the input by --steps or --input",
        retry=Retry.STOP,
    ),
    "PLAN_REFUSED": Condition(
        "InternalError",
        "Spark refuses a plan that Boatlift made of a query or of a step",
        "rewrite the part of the query in the message, and report it with the query",
        retry=Retry.STOP,
    ),
    "INTERNAL": Condition("InternalError", "an invariant of Boatlift does not hold", "report it with the context"),
}
