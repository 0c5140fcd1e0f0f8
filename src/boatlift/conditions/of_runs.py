"""What may be wrong with a store, with standbys, and while a dataflow runs."""

from __future__ import annotations

from boatlift.conditions.condition import Condition, Retry

OF_RUNS: dict[str, Condition] = {
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
