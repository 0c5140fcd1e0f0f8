"""Hidden reads of the clock and of randomness: texts that Spark completes with the current date, and its rewrites.

`DATE 'today'` becomes a literal when it is parsed, and so does a cast of the constant `'now'`. A time without a date,
such as `12:30`, becomes a timestamp of the day on which Spark reads it. Such constants are refused. In a column, such a
text is treated as malformed. The optimiser rewrites some operators with expressions that the user did not write:
`NEAREST BY` gives each row a random id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    VariantType,
    _parse_datatype_json_string,
)

from boatlift.errors import InternalError, UserCodeError
from boatlift.processes.jvm import cause_in_java
from boatlift.spark.plans.allowed import NONDETERMINISTIC
from boatlift.spark.plans.catalyst import (
    Tree,
    analysed,
    analysed_text,
    expressions_of,
    frame_of,
    jvm,
    kinds_of_optimised,
    plan_of,
    values_of,
    written,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OF_THE_DAY = re.compile(r"\s*(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
_WITHOUT_DATE = r"^[ \p{Cntrl}]*[+-]?(T|[0-9]+:)"
"""A text that begins so has no date (a pattern of Java)."""
_TIME_ALONE = re.compile(_WITHOUT_DATE.replace(r"\p{Cntrl}", r"\x00-\x1f\x7f"))

_TYPED = re.compile(r"(DATE|TIMESTAMP(?:_LTZ|_NTZ)?)\b(.*)", re.IGNORECASE | re.DOTALL)
"""A typed literal in SQL."""

_TIMES = ("date", "timestamp")
_PARSING = frozenset({"ParseToDate", "ParseToTimestamp"})
"""`to_date` and `to_timestamp`, which are casts if they have no format."""

_READING = {
    "JsonToStructs": "from_json",
    "CsvToStructs": "from_csv",
    "XmlToStructs": "from_xml",
    "VariantGet": "variant_get",
}
"""Functions that parse timestamps inside a text."""

_TO_TIMESTAMP = re.compile(r"\bas timestamp\)|\b(try_)?to_timestamp\w*\(")


def dated(frame: DataFrame) -> DataFrame:
    """Return a frame in which a text without a date is a malformed timestamp: it fails, or becomes NULL.

    Law: a second application changes nothing.
    """
    if not _TO_TIMESTAMP.search(analysed_text(frame)):
        return frame
    casts = jvm().java.util.HashMap()
    for expression in expressions_of(frame):
        cast = _cast_of(expression)
        if cast is not None and _is_of_text(cast) and not (cast.child().foldable() or _is_dated(cast.child())):
            casts[expression] = cast.withNewChildren(_seq([_with_a_date(cast)]))
    if not casts:
        return frame
    plan = plan_of(frame).transformAllExpressionsWithSubqueries(jvm().PythonUtils.toScalaMap(casts))
    return frame_of(frame.sparkSession, plan)


def unseen(frame: DataFrame, plan: Tree, name: str) -> Iterator[tuple[str, str]]:
    """Return the hidden parts of a plan that differ from run to run, each with its replacement.

    Raises:
        UserCodeError: `[USER_CODE]` a constant of the plan has no value, such as `1 / 0`.
        InternalError: `[PLAN_REFUSED]` Spark's optimiser fails otherwise.
    """
    yield from _texts_of_the_day(frame, plan)
    written = {part.kind for part in plan.parts()}
    try:
        computed = kinds_of_optimised(frame)
    except PySparkException as error:
        said = str(error).partition("\n")[0]
        raise UserCodeError("USER_CODE", f"Spark cannot compute a constant of {name}: {said}") from error
    except Py4JJavaError as error:
        raise InternalError("PLAN_REFUSED", f"Spark cannot optimise {name}: {cause_in_java(error)}") from error
    for kind in sorted(computed & NONDETERMINISTIC.keys() - written):
        yield (
            f"an operator that Spark computes with {kind.lower()}()",
            f"a query without it, or {NONDETERMINISTIC[kind]}",
        )


def _texts_of_the_day(frame: DataFrame, plan: Tree) -> Iterator[tuple[str, str]]:
    """Return the parts of a plan whose values depend on the day on which they are computed."""
    if any(part.kind == "LocalRelation" for part in plan.parts()):
        for table in values_of(frame):
            yield from _texts_of_the_day(table, analysed(table))
    if not any(map(_may_be_a_time, plan.parts())):
        return
    for expression in expressions_of(frame, replaced=True):
        cast = _cast_of(expression)
        text = _typed_text(expression) if cast is None else _constant_text(cast)
        if text is not None and (_OF_THE_DAY.match(text) or _TIME_ALONE.match(text)):
            what = str(expression.sql()) if cast is not None else written(expression)
            yield what, "bl.now(), the step's recorded clock, or a text with a date"
        if cast is not None and not _is_text(cast.child()) and _holds_text(_type(cast.child()), _type(cast)):
            given, wanted = (str(each.dataType().sql()) for each in (cast.child(), cast))
            yield f"a cast of {given} to {wanted}, by which a text without a date is of the day", "a cast of each text"
        function = _READING.get(expression.getClass().getSimpleName())
        if function is not None and "TIMESTAMP" in _named_types(expression) and not _has_format(function, expression):
            what = f"{function} of a TIMESTAMP without a format, by which a text without a date is of the day"
            yield what, "a STRING there, and cast it" if function == "variant_get" else "its option timestampFormat"


def _named_types(expression: Any) -> set[str]:
    return set(re.findall(r"\w+", str(expression.dataType().sql())))


def _has_format(function: str, expression: Any) -> bool:
    return function != "variant_get" and "timestampformat -> " in str(expression.options()).lower()


def _may_be_a_time(part: Tree) -> bool:
    return part.kind.rpartition(".")[2] in _PARSING | _READING.keys() or (
        part.kind in ("Cast", "Literal") and re.search("date|timestamp", str(part.fields.get("dataType"))) is not None
    )


def _cast_of(expression: Any) -> Any:
    kind = expression.getClass().getSimpleName()
    if kind in _PARSING:
        expression = expression.replacement()
        kind = expression.getClass().getSimpleName()
    return expression if kind == "Cast" else None


def _is_of_text(cast: Any) -> bool:
    wanted = str(cast.dataType().typeName())
    return _is_text(cast.child()) and wanted.startswith("timestamp") and not wanted.startswith("timestamp_ntz")


def _constant_text(cast: Any) -> str | None:
    """Return the constant text that a cast turns into a date or a timestamp; None for another cast."""
    child = cast.child()
    if not str(cast.dataType().typeName()).startswith(_TIMES) or not _is_text(child):
        return None
    try:
        value = child.eval(None) if child.foldable() else None
    except Py4JJavaError:  # `unseen` reports a constant without a value
        return None
    return None if value is None else str(value.toString())


def _typed_text(expression: Any) -> str | None:
    found = _TYPED.fullmatch(written(expression)) if expression.getClass().getSimpleName() == "Literal" else None
    if found is None:
        return None
    return str(_object("parser.CatalystSqlParser").parseExpression(found[2]).eval(None).toString())


def _is_text(expression: Any) -> bool:
    return str(expression.dataType().typeName()).startswith("string")


def _type(expression: Any) -> DataType:
    return _parse_datatype_json_string(expression.dataType().json())


def _holds_text(given: DataType, wanted: DataType) -> bool:
    """Return whether a cast makes timestamps from texts, or from variants, which may hold texts."""
    match given, wanted:
        case ArrayType(), ArrayType():
            return _holds_text(given.elementType, wanted.elementType)
        case MapType(), MapType():
            return _holds_text(given.keyType, wanted.keyType) or _holds_text(given.valueType, wanted.valueType)
        case StructType(), StructType():
            pairs = zip(given.fields, wanted.fields, strict=True)
            return any(_holds_text(one.dataType, other.dataType) for one, other in pairs)
        case VariantType(), _:
            return "timestamp" in wanted.simpleString()
        case _:
            return isinstance(given, StringType) and isinstance(wanted, TimestampType)


def _with_a_date(cast: Any) -> Any:
    """Return the text of a cast; words are appended to a text without a date, so that it is no timestamp."""
    expressions, text = jvm().org.apache.spark.sql.catalyst.expressions, cast.child()
    literal = _object("expressions.Literal")
    if str(text.dataType().sql()) != "STRING":  # the collation does not matter here
        plain = jvm().org.apache.spark.sql.types.DataTypes.StringType
        text = expressions.Cast(text, plain, cast.timeZoneId(), cast.evalMode())
    alone = expressions.RLike(text, literal.apply(_WITHOUT_DATE))
    malformed = expressions.Concat(_seq([text, literal.apply(" (a time without a date)")]))
    return expressions.If(alone, malformed, text)


def _is_dated(text: Any) -> bool:
    alone = text.predicate() if text.getClass().getSimpleName() == "If" else None
    return (
        alone is not None
        and alone.getClass().getSimpleName() == "RLike"
        and str(alone.right().toString()) == _WITHOUT_DATE
    )


def _object(name: str) -> Any:
    return getattr(getattr(jvm(), f"org.apache.spark.sql.catalyst.{name}$"), "MODULE$")


def _seq(some: list[Any]) -> Any:
    return jvm().PythonUtils.toSeq(some)
