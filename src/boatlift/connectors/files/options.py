"""`bl.files`: the options of a source of files, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from boatlift.connectors.files.bucket.listing import BucketListing
from boatlift.connectors.files.bucket.source import BucketFilesSource
from boatlift.connectors.files.compression import is_compressed
from boatlift.connectors.files.follow.source import TailedFilesSource
from boatlift.connectors.files.http.listing import HttpListing
from boatlift.connectors.files.http.source import HttpSource
from boatlift.connectors.files.lines import LONGEST
from boatlift.connectors.files.listing import FilesOptions, Listing, Looks
from boatlift.connectors.files.source import FilesSource
from boatlift.connectors.kit import Columns, checked_options, columns_of, http_client, required_of
from boatlift.connectors.kit.text_forms import USUAL_TEXT, forms_of, set_options
from boatlift.dataflow.policies import seconds_in
from boatlift.errors import InvalidError
from boatlift.paths import refuse_url
from boatlift.storage.bucket_client import endpoint_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from boatlift.connectors.files.formats.base import FileFormat

_FORMATS = {"csv": "csv", "json": "json", "jsonl": "json", "ndjson": "json", "parquet": "parquet"}
_LONGEST_FILE = 128 << 20
"""The default of `max_line_bytes` for a JSON file that is one value."""
_ONE_CHARACTER = ("separator", "quote", "escape")
_OF_TEXT: dict[str, Any] = {"multi_line": False, **USUAL_TEXT, "columns": None}
_OF_CSV: dict[str, Any] = {
    "header": True,
    "null_value": "",
    "separator": ",",
    "quote": '"',
    "escape": "\\",
    "encoding": "utf-8",
    **_OF_TEXT,
}
_DEFAULTS = {"csv": _OF_CSV, "json": _OF_TEXT, "parquet": dict[str, Any]()}


@checked_options("bl.files")
def files(
    path: str | Path,
    *,
    format: Literal["csv", "json", "parquet"] | None = None,  # noqa: A002 - Spark's word
    schema: str | StructType | None = None,
    header: bool = True,
    null_value: str = "",
    separator: str = ",",
    quote: str | None = '"',
    escape: str = "\\",
    encoding: Literal["utf-8", "iso-8859-1"] = "utf-8",
    multi_line: bool = False,
    date_format: str | None = None,
    timestamp_format: str | None = None,
    decimal: str = ".",
    thousands: str | None = None,
    true_values: Sequence[str] = (),
    false_values: Sequence[str] = (),
    columns: Mapping[str, Mapping[str, Any]] | None = None,
    max_files_per_step: int = 1,
    max_bytes_per_step: int | None = None,
    max_line_bytes: int | None = None,
    tail: bool | str = False,
    endpoint: str | None = None,
    order: Literal["name"] | None = None,
    rescan: str = "1 hour",
    poll: str | None = None,
    every: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> FilesSource:
    r"""Return a source of the files in a folder, or of those that match a glob; it finds new files by itself.

    A file must appear whole: write it under a name that begins with `_` or `.`, or ends in `.tmp`, and rename it. It
    must stay unchanged until no recovery can need it again. A file of text may be compressed: `.gz`, `.bz2`, `.zst`.
    With `tail` a file may grow, as a log does: what was taken of it must stay, and the file must keep its name.

    In a bucket (`s3://bucket/events/*.json`) an object is a file, and tasks read it: nothing else must be installed.

    By HTTP (`https://host/trips.csv.gz`) the resource is a file, too. If its server has strong ETags and ranges, tasks
    read it there, and it must stay. Otherwise, or with `every` or `headers`, it is recorded in the store first.

    Args:
        path: A folder, a file, or a glob (`data/*.csv`); of a bucket, its URL as text.
        format: `csv`, `json` or `parquet`; None: by the path's suffix, as `.csv.gz`, `.jsonl` or `.parquet`.
        schema: DDL (`origin STRING, arr_delay INT`) or a StructType. CSV and JSON need one; without one, Parquet has
            the schema of the first file.
        header: Whether CSV files begin with a line of column names.
        null_value: The text of NULL in CSV; an empty field is NULL too.
        separator: The character between fields in CSV.
        quote: The character around a field in CSV that has separators in it; None: no character is a quote.
        escape: The character before a quote inside quotes in CSV: `\` as in Spark, or `"`.
        encoding: The encoding of CSV: `utf-8` or `iso-8859-1`. JSON is UTF-8.
        multi_line: JSON: a file is one array of objects, or one object; otherwise every line is an object. CSV: quoted
            fields may have line ends. One task reads all of such a file.
        date_format: Spark's pattern of dates in text, such as `dd.MM.yyyy`; None: ISO 8601.
        timestamp_format: Spark's pattern of timestamps in text, such as `dd.MM.yyyy HH:mm`; None: ISO 8601.
        decimal: The character before the fraction of a number in text.
        thousands: The character between groups of three digits of a number in text; None: no such character.
        true_values: Texts that mean true, beside `true`.
        false_values: Texts that mean false, beside `false`.
        columns: The options from `date_format` to `false_values` for single columns, by the column's name:
            `{"price": {"decimal": ","}}`.
        max_files_per_step: The most files of a step.
        max_bytes_per_step: The most bytes of a step. A larger file is taken in ranges of lines, or of row groups of
            Parquet, one a step. Text that is compressed or `multi_line`, and Parquet with nested columns, is taken
            whole, and a warning says so once.
        max_line_bytes: The bytes that a line of text may have; None: 16 MiB. A longer line is a bad row, and its dead
            letter has the first 64 KiB. For `multi_line` JSON the bytes of a file; None: 128 MiB. For `multi_line` CSV
            the characters of a field.
        tail: Whether to follow files that grow: a line is taken once it has its line feed. A period, such as
            `"1 hour"`: a file without a write for this long is done. Its last line is then taken without a line feed,
            and the file may not grow any more. True: no file is ever done.
        endpoint: In a bucket: the address of a server other than that of AWS; if not given, `AWS_ENDPOINT_URL`.
        order: In a bucket: `name`, if each new object has a greater name than all before. A poll then lists later names
            alone; the first poll of a run, and one each `rescan`, list all, and take what came late.
        rescan: The period between two listings of all names for `order="name"`.
        poll: In a bucket: the least period between two listings. It is at least one second for 1,000 names listed.
        every: By HTTP: the period between two requests. Other bytes are new input; text that has grown by lines is
            taken from where it has grown. None: the resource is taken once.
        headers: By HTTP: headers of each request, such as `Authorization`. Nothing records them.

    Raises:
        InvalidError: `[BAD_OPTION]`.

    Examples:
        >>> source = bl.files("data/*.csv", schema="origin STRING, arr_delay INT, at TIMESTAMP")
        >>> more = flow.source("more", source)
    """
    in_bucket = isinstance(path, str) and path.startswith("s3://")
    by_http = isinstance(path, str) and path.startswith(("http://", "https://"))
    if not in_bucket and not by_http:
        refuse_url(path, "a source's files", ", or an s3:// or https:// URL, as text")
    looks = _looks(order, rescan, *((every, "every") if by_http else (poll, "poll")))
    _refuse_options_of("a bucket", in_bucket, endpoint=endpoint, order=order, poll=poll)
    _refuse_options_of("HTTP", by_http, every=every, headers=headers)
    listing: Any
    if in_bucket:
        listing = BucketListing(str(path), endpoint_of(endpoint))
    elif by_http:
        listing = _resource(str(path), looks.poll if every else None, headers)
        path = http_client.shown(str(path))
    else:
        listing = Listing(path)
    plain = Path(path).with_suffix("") if is_compressed(Path(path)) else Path(path)
    suffix = plain.suffix.removeprefix(".").lower()
    name = format or _FORMATS.get(suffix)
    if name not in _DEFAULTS:
        known = "csv, json or parquet"
        if format is not None:
            raise InvalidError("BAD_OPTION", f"format is {format!r}: choose {known}")
        raise InvalidError("BAD_OPTION", f"the suffix of {path} names no format: give format={known}")
    if max_files_per_step != int(max_files_per_step) or max_files_per_step < 1:
        raise InvalidError("BAD_OPTION", f"max_files_per_step is {max_files_per_step!r}: give a whole number from 1")
    if max_bytes_per_step is not None and max_bytes_per_step < 1:
        raise InvalidError("BAD_OPTION", f"max_bytes_per_step is {max_bytes_per_step}: give bytes, or None")
    if max_line_bytes is not None and (name == "parquet" or max_line_bytes < 1):
        raise InvalidError("BAD_OPTION", f"max_line_bytes is {max_line_bytes}: give bytes, of CSV or JSON, or None")
    declared = None if schema is None else columns_of(schema)
    if declared is None and name != "parquet":
        raise InvalidError(
            "BAD_OPTION", f"the {name.upper()} files of {path} need a schema: give schema='NAME TYPE, …'"
        )
    options = {
        "header": header,
        "null_value": null_value,
        "separator": separator,
        "quote": quote,
        "escape": escape,
        "encoding": encoding,
        "multi_line": multi_line,
        "date_format": date_format,
        "timestamp_format": timestamp_format,
        "decimal": decimal,
        "thousands": thousands,
        "true_values": true_values,
        "false_values": false_values,
        "columns": columns,
    }
    idle = _idle_of(tail, name)
    longest = max_line_bytes or (_LONGEST_FILE if multi_line and name == "json" else LONGEST)
    file_format = _format(name, options, declared or (), longest, flat=listing.flat)
    file_format.check_columns(declared or ())
    described = {"kind": "files", "path": str(path), "format": name, **file_format.describe()}
    if schema is not None and file_format.sorting_in(listing.base) is not None and (required := required_of(schema)):
        described["not_null"] = required
    limits = max_files_per_step, max_bytes_per_step
    checked = FilesOptions(listing, file_format, schema, declared, described, *limits, idle, looks)
    if in_bucket or by_http:
        if tail is not False:
            raise InvalidError("BAD_OPTION", f"tail={tail!r} is an option of files in a folder: leave it out")
        if multi_line and name == "csv":
            raise InvalidError("BAD_OPTION", f"multi_line CSV is read from folders alone: copy {path} to a folder")
        return HttpSource(checked) if by_http else BucketFilesSource(checked)
    if tail is False:
        return FilesSource(checked)
    if (reason := file_format.whole_because(Path(path))) is not None:
        raise InvalidError("BAD_OPTION", f"tail={tail!r} follows files line by line, but {reason}: leave out tail")
    return TailedFilesSource(replace(checked, described={**described, "tail": True}))


def _looks(order: str | None, rescan: str, poll: str | None, option: str) -> Looks:
    if order not in {None, "name"}:
        raise InvalidError("BAD_OPTION", f"order is {order!r}: give 'name', or leave it out")
    least = 0.0 if poll is None else seconds_in(poll, option)
    return Looks(least, seconds_in(rescan, "rescan") if order else None)


def _refuse_options_of(place: str, is_there: bool, **options: object) -> None:
    for option, value in options.items():
        if value is not None and not is_there:
            raise InvalidError("BAD_OPTION", f"{option} is an option of files in {place}: leave it out")


def _resource(url: str, every: float | None, headers: Mapping[str, str] | None) -> HttpListing:
    place = urlsplit(url)
    if not place.hostname:
        raise InvalidError("BAD_OPTION", f"path {http_client.shown(url)} names no host: give https://HOST/PATH")
    if place.username is not None or place.password is not None:
        raise InvalidError("BAD_OPTION", "the URL holds a password: give it in headers, as Authorization")
    for name, value in (headers or {}).items():
        if not http_client.is_header(name, value):
            raise InvalidError("BAD_OPTION", f"header {name!r} has characters that HTTP does not carry: encode them")
    return HttpListing(url, every, headers or {})


def _idle_of(tail: bool | str, name: str) -> float | None:
    """Return the seconds without a write after which a tailed file is done; None: never."""
    if isinstance(tail, bool):
        idle = None
    elif isinstance(tail, str):
        idle = seconds_in(tail, "tail")
    else:
        raise InvalidError("BAD_OPTION", f"tail is {tail!r}: give True, False, or a period as in '1 hour'")
    if tail is not False and name == "parquet":
        raise InvalidError("BAD_OPTION", "tail follows files line by line, and Parquet has no lines: leave out tail")
    return idle


def _format(name: str, options: dict[str, Any], declared: Columns, longest: int, *, flat: bool) -> FileFormat:
    from boatlift.connectors.files.formats.csv import ENCODINGS, CsvFormat
    from boatlift.connectors.files.formats.json import JsonFileFormat

    for option, value in options.items():
        if option not in _DEFAULTS[name] and value != _OF_CSV[option]:
            known = ", ".join(_DEFAULTS[name]) or "none"
            raise InvalidError(
                "BAD_OPTION", f"{option} is no option of format {name}: leave it out (it has these: {known})"
            )
    _check_characters(options)
    for option in ("header", "multi_line"):
        if not isinstance(options[option], bool):
            raise InvalidError("BAD_OPTION", f"{option} is {options[option]!r}: give True or False")
    if not isinstance(options["null_value"], str):
        raise InvalidError("BAD_OPTION", f"null_value is {options['null_value']!r}: give text")
    if options["encoding"] not in ENCODINGS:
        raise InvalidError(
            "BAD_OPTION",
            f"encoding is {options['encoding']!r}: choose {' or '.join(ENCODINGS)}, and convert other files to UTF-8",
        )
    if name == "parquet":
        from boatlift.connectors.files.formats.parquet import ParquetFormat

        return ParquetFormat(positioned=flat)
    text = set_options(**{option: options.pop(option) for option in USUAL_TEXT})
    forms = forms_of(text, options.pop("columns"), declared)
    if name == "json":
        return JsonFileFormat(options["multi_line"], forms, longest)
    return CsvFormat(**options, forms=forms, max_line_bytes=longest)


def _check_characters(options: dict[str, Any]) -> None:
    """Raise if a separator, quote or escape is not one printable character, or two are the same."""
    for option in _ONE_CHARACTER:
        value = options[option]
        if option == "quote" and value is None:
            continue
        # A character beyond 16 bits is two of Java's.
        if not (isinstance(value, str) and len(value) == 1 and ord(value) < 2**16):
            raise InvalidError("BAD_OPTION", f"{option} is {value!r}: give one character")
        if value < " " and value != "\t":
            raise InvalidError("BAD_OPTION", f"{option} is {value!r}: give a character that is no control character")
    for option in ("quote", "escape"):
        if options[option] == options["separator"]:
            raise InvalidError("BAD_OPTION", f"{option} is {options[option]!r}, as the separator is: give another one")
