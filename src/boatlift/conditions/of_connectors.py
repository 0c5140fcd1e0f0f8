"""What may be wrong with sources, sinks, and the rows between them."""

from __future__ import annotations

from boatlift.conditions.condition import Condition, Retry

OF_CONNECTORS: dict[str, Condition] = {
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
}
