"""What may be wrong with a program, its options, and its changes."""

from __future__ import annotations

from boatlift.conditions.condition import Condition

OF_PROGRAMS: dict[str, Condition] = {
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
}
