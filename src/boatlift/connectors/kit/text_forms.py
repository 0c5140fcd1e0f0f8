"""The forms of values in text: the options of every source of text, for all columns and for single columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from boatlift.connectors.kit.declared_columns import Columns
from boatlift.dataflow.contracts import Json
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_FORMATS: Json = {"date_format": None, "timestamp_format": None}
"""The entries for formats in the identity of a source of files without options; kept for old stores."""

_EXAMPLES = {
    "date_format": "a pattern of Spark's such as 'dd.MM.yyyy'",
    "timestamp_format": "a pattern of Spark's such as 'dd.MM.yyyy HH:mm'",
    "decimal": "one character that is no digit, sign or letter, such as ','",
    "thousands": "one character that is no digit, sign or letter, such as '.'",
    "true_values": "a list of texts such as ['yes']",
    "false_values": "a list of texts such as ['no']",
}


@dataclass(frozen=True, slots=True)
class TextForm:
    """The form of a column's values in text; `bl.files` describes the options."""

    date_format: str | None = None
    timestamp_format: str | None = None
    decimal: str = "."
    thousands: str | None = None
    true_values: tuple[str, ...] = ()
    false_values: tuple[str, ...] = ()

    def of(self, kind: str) -> str:
        pattern = {"date": self.date_format, "timestamp": self.timestamp_format, "timestamp_ntz": self.timestamp_format}
        if (found := pattern.get(kind)) is not None:
            return f" of the form {found}"
        if kind.startswith(("float", "double", "decimal")) and self.decimal != ".":
            return f" with {self.decimal!r} before its fraction"
        return ""

    def set_options(self) -> Json:
        named = set_options(**{each.name: getattr(self, each.name) for each in fields(self)})
        return {name: list(value) if isinstance(value, tuple) else value for name, value in named.items()}


USUAL_TEXT: dict[str, Any] = {each.name: each.default for each in fields(TextForm)}
"""The options of text with their defaults."""


def set_options(**options: Any) -> dict[str, Any]:
    """Return the options of text that differ from their defaults."""
    return {name: value for name, value in options.items() if value != USUAL_TEXT[name]}


@dataclass(frozen=True, slots=True)
class TextForms:
    """The forms of all columns."""

    usual: TextForm = field(default_factory=TextForm)
    own: Mapping[str, TextForm] = field(default_factory=dict)

    def of(self, column: str) -> TextForm:
        return self.own.get(column, self.usual)

    def describe(self) -> Json:
        """Return the options that differ from their defaults, for the program's identity."""
        columns = {name: form.set_options() for name, form in sorted(self.own.items()) if form != self.usual}
        return {**self.usual.set_options(), **({"columns": columns} if columns else {})}

    def check(self, spark: SparkSession) -> None:
        """Raise if Spark does not know a pattern. Spark evaluates the query as a constant, without a job."""
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as F

        for form in (self.usual, *self.own.values()):
            for name in ("date_format", "timestamp_format"):
                if (pattern := getattr(form, name)) is None:
                    continue
                try:
                    spark.sql("SELECT 1").select(F.try_to_timestamp(F.lit("x"), F.lit(pattern))).collect()
                except PySparkException as error:
                    message = f"{name} is {pattern!r}, which is no pattern of Spark's: write one such as 'dd.MM.yyyy'"
                    raise InvalidError("BAD_OPTION", message) from error


def forms_of(options: Mapping[str, Any], of_columns: object, declared: Columns) -> TextForms:
    """Return the forms from options.

    Args:
        of_columns: Options for single columns, by the column's name, or None.
    """
    usual = _form(TextForm(), options, "")
    if of_columns is None:
        return TextForms(usual)
    example = "give the options of columns by their names, such as {'price': {'decimal': ','}}"
    if not isinstance(of_columns, Mapping):
        raise InvalidError("BAD_OPTION", f"columns is {of_columns!r}: {example}")
    names, own = [name for name, _ in declared], {}
    for name, given in of_columns.items():
        if name not in names:
            raise InvalidError("BAD_OPTION", f"columns names {name!r}, and the schema has {names}: correct the name")
        if not isinstance(given, Mapping):
            raise InvalidError("BAD_OPTION", f"columns has {given!r} for {name}: {example}")
        own[name] = _form(usual, given, f" of column {name}")
    return TextForms(usual, own)


def _form(usual: TextForm, given: Mapping[str, Any], of: str) -> TextForm:
    unknown = [option for option in given if option not in _EXAMPLES]
    if unknown:
        raise InvalidError("BAD_OPTION", f"{unknown[0]!r}{of} is no option: choose from {', '.join(_EXAMPLES)}")
    for option, value in given.items():
        if not _fits(option, value):
            raise InvalidError("BAD_OPTION", f"{option}{of} is {value!r}: give {_EXAMPLES[option]}")
    lists = {option: tuple(value) for option, value in given.items() if option.endswith("_values")}
    form = replace(usual, **{**given, **lists})
    if form.decimal == form.thousands:
        raise InvalidError("BAD_OPTION", f"decimal{of} and thousands are both {form.decimal!r}: give two characters")
    true = {"true", *form.true_values}
    if both := {text for text in ("false", *form.false_values) if text in true}:
        raise InvalidError("BAD_OPTION", f"{min(both)!r}{of} is true and false: leave it out of one of the two lists")
    return form


def _fits(option: str, value: object) -> bool:
    if option.endswith("_values"):
        return (
            isinstance(value, Sequence)
            and not isinstance(value, str)
            and all(isinstance(each, str) and each for each in value)
        )
    if option.endswith("_format"):
        return value is None or (isinstance(value, str) and bool(value))
    if value is None:
        return option == "thousands"
    return isinstance(value, str) and len(value) == 1 and not value.isalnum() and value not in '+-"\\\r\n'
