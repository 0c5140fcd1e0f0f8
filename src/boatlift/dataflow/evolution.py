"""What becomes of each processor of a recorded program under a new version of it: pure, over two identities.

| change | of a processor |
|---|---|
| unchanged | means what it meant, and no input of it changes |
| changed | the user changed it |
| downstream | an input of it changes its past rows |
| other layout | means what it meant, and its state is kept in another form, as after an upgrade |
| added, removed | only one of the two programs has it |

Laws:
    * An operator is unchanged only if each of its inputs is: a change is passed on to all that reads it.
    * `KEPT_MODES` end a change: an operator that is kept as it is has the past rows that it had, and its readers are
      unchanged.
    * The id of a comparison depends on both programs and the modes alone: what was shown is carried out, or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

import msgspec
import xxhash

from boatlift.errors import InvalidError

ALL = "all"  # the name of every processor, in `--change all=fill`


class ProgramChange(Enum):
    """What happened to a processor; the value is the word for it."""

    UNCHANGED = "unchanged"
    CHANGED = "changed"
    DOWNSTREAM = "downstream of a change"
    OTHER_LAYOUT = "unchanged, with a state of another form"
    ADDED = "added"
    REMOVED = "removed"


class Mode(Enum):
    """How a processor that is not unchanged gets its state, or a sink its rows."""

    FILL = "fill"
    """Computed from the whole past by the new program; a sink gets the difference to what it holds."""
    REPLAY = "replay"
    """Computed from the whole past, step by step, in the order in which it was taken."""
    CARRY = "carry"
    """The state and the past rows as they are, the new code from now on."""
    RELAYOUT = "relayout"
    """The same state in its new form, computed from the whole past; what reads it, sinks too, is not concerned."""
    SAME = "same"
    """The user vouches that the new code gives the rows of the old one."""
    NOW = "now"
    """From now on: an operator begins without a state; a sink gets nothing of the past."""
    NEW_ROWS = "new_rows"
    """Of a sink: rows that come, and never a row that goes."""


KEPT_MODES = frozenset((Mode.CARRY, Mode.SAME, Mode.NOW))
FROM_PAST = frozenset((Mode.FILL, Mode.REPLAY))
NEED_PAST = FROM_PAST | {Mode.RELAYOUT}
OF_OPERATORS = (Mode.FILL, Mode.REPLAY, Mode.CARRY, Mode.SAME, Mode.NOW)
OF_SINKS = (Mode.FILL, Mode.NEW_ROWS, Mode.NOW)


class Compared(msgspec.Struct, frozen=True):
    """A processor of the two programs.

    Attributes:
        kind: `source` and `sink`; of an operator its own, such as `aggregate`.
        differences: What differs, in words; of an unchanged sink the sinks that it is shown together with.
        mode: How it is brought about; None if nothing is to be done, and of sources and removed processors.
        moves: Whether its past rows change.
        was: Its former name, if the user has renamed it; else empty.
    """

    name: str
    kind: str
    change: ProgramChange
    differences: tuple[str, ...] = ()
    mode: Mode | None = None
    moves: bool = False
    was: str = ""


class Comparison(msgspec.Struct, frozen=True):
    """Two programs, compared.

    Attributes:
        processors: Those of the new program, senders first, then those that are removed.
        id: Stands for both programs and all modes; 8 hexadecimal digits.
        sources: Source to the name that it had, of those with another name.
    """

    processors: dict[str, Compared]
    id: str
    sources: dict[str, str] = {}

    @property
    def is_changed(self) -> bool:
        compared = self.processors.values()
        return any(each.change is not ProgramChange.UNCHANGED or each.was or each.differences for each in compared)

    def named(self, *changes: ProgramChange) -> list[str]:
        return [name for name, each in self.processors.items() if each.change in changes]


def renamed_since(old: Mapping[str, Any], new: Mapping[str, Any], was: Mapping[str, str]) -> dict[str, str]:
    """Return the processors that the user has renamed since a recorded program: new name to former name.

    A former name counts only while the recorded program has it, and has not the new one: so it may stay in the program.

    Args:
        old, new: The identities.
        was: Name in the new program to a former name.
    """
    recorded, named = (
        {entry.partition(" ")[2]: entry.partition(" ")[0] for entry in identity} for identity in (old, new)
    )
    return {
        name: former
        for name, former in was.items()
        if name not in recorded and named.get(name) == recorded.get(former) is not None
    }


def compare(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    modes: Mapping[str, str],
    *,
    goes_back: bool = False,
    was: Mapping[str, str] | None = None,
    stopped: bool = True,
) -> Comparison:
    """Compare a recorded program with a new version of it.

    Args:
        old, new: The identities: `kind name` to what the processor is, senders first; names of the new program.
        modes: Processor to the mode that the user has chosen; `all` names every processor that can have it.
        goes_back: On a way back unchanged sinks have a mode, too.
        was: The processors that the user has renamed, with their former names.
        stopped: Whether the last run stopped cleanly. Else another layout is a change, whose difference is empty.

    Raises:
        InvalidError: `[BAD_OPTION]` there is no such processor or mode, or the processor cannot have it.
    """
    chosen = {name: _mode(name, mode) for name, mode in modes.items()}
    recorded, sources = old, dict[str, str]()
    old = _with_dead_letters(old, new, sources)
    processors: dict[str, Compared] = {}
    for entry in new:
        kind, _, name = entry.partition(" ")
        asked = chosen.get(name) or (chosen.get(ALL) if kind != "source" else None)
        if name not in chosen and entry not in old and asked in (Mode.CARRY, Mode.SAME):
            asked = None  # nothing is there to be kept
        allowed = {"source": (), "sink": OF_SINKS}.get(kind, OF_OPERATORS)
        if name in chosen and asked not in allowed:
            raise _unfit(name, kind, chosen[name])
        compared = _compared(name, kind, old.get(entry), new[entry], processors, asked, stopped=stopped)
        if chosen.get(name) is Mode.CARRY and compared.mode not in (Mode.CARRY, None):
            raise InvalidError(
                "BAD_OPTION",
                f"change={{{name!r}: 'carry'}}, and the state of {name} has another form now: leave it out",
            )
        if goes_back and kind == "sink" and compared.mode is None:
            compared = msgspec.structs.replace(compared, mode=asked if asked in OF_SINKS else Mode.FILL)
        if kind == "sink" and entry in old and (moved := _other_group(name, old[entry], new[entry])):
            compared = msgspec.structs.replace(compared, differences=(*compared.differences, moved))
        if was and name in was:
            compared = msgspec.structs.replace(compared, was=was[name])
        processors[name] = compared
    removed = [entry for entry in old if entry not in new]
    for entry in removed:
        kind, _, name = entry.partition(" ")
        if name not in processors:
            processors[name] = Compared(name, _kind(kind, old[entry]), ProgramChange.REMOVED)
    unknown = [name for name in chosen if name != ALL and name not in processors]
    if unknown:
        raise InvalidError(
            "BAD_OPTION", f"change names {unknown[0]}, which is no processor: there are {', '.join(processors)}"
        )
    modes_now = {name: each.mode.value for name, each in processors.items() if each.mode is not None}
    packed = msgspec.msgpack.encode([recorded, new, modes_now, *([was] if was else [])], order="deterministic")
    return Comparison(processors, xxhash.xxh3_64_hexdigest(packed)[:8], sources)


_SORTS = frozenset(("bad_rows", "max_line_bytes"))  # options by which a source gives bad rows too, and no other row


def _with_dead_letters(old: Mapping[str, Any], new: Mapping[str, Any], sources: dict[str, str]) -> dict[str, Any]:
    """Return the old program with each source that sorts out bad rows from now on as the new program has it.

    Such a source has another name, and its rows that fit have the name that it had (`SortsOutBadRows`): they are the
    rows that it gave before, or a step would have failed.
    """
    named = dict(old)
    for entry, about in new.items():
        name = entry.removeprefix("processor ")
        before = named.get(f"source {name}")
        if name == entry or before is None or about.get("kind") != "bad_rows":
            continue
        (source,) = about["reads"]
        now = new[f"source {source}"]
        plain = [{key: value for key, value in each.items() if key not in _SORTS} for each in (before, now)]
        if f"source {source}" not in named and _encoded(plain[0]) == _encoded(plain[1]):
            named = {key: value for key, value in named.items() if key != f"source {name}"}
            named = {f"source {source}": now, entry: about, **named}
            sources[source] = name
    return named


def _compared(
    name: str, kind: str, before: Any, now: Any, above: Mapping[str, Compared], asked: Mode | None, *, stopped: bool
) -> Compared:
    reads = _reads(now)
    moved = [read for read in reads if above[read].moves]
    differences = tuple(_differences(before, now)) if before is not None else ()
    if before is None:
        change = ProgramChange.ADDED
    elif differences:
        change = ProgramChange.CHANGED
    elif moved:
        change = ProgramChange.DOWNSTREAM
        differences = (", ".join(moved),)
    else:
        change = ProgramChange.UNCHANGED
        if kind != "source" and asked in (Mode.FILL, *(() if kind == "sink" else (Mode.REPLAY,))):
            change, differences = ProgramChange.CHANGED, ("by request",)
    if kind == "source":
        return Compared(name, kind, change, differences, None, moves=change is ProgramChange.CHANGED)
    reformed = before is not None and _has_other_layout(before, now)
    if reformed and (change is ProgramChange.UNCHANGED or asked is Mode.SAME):
        change = change if differences else ProgramChange.OTHER_LAYOUT
        mode = Mode.NOW if asked is Mode.NOW else Mode.RELAYOUT if stopped else Mode.FILL
        return Compared(name, _kind(kind, now), change, differences, mode, moves=mode in FROM_PAST)
    if change is ProgramChange.UNCHANGED:
        return Compared(name, _kind(kind, now), change)
    if kind == "sink":
        allowed = asked if asked in OF_SINKS else Mode.FILL
        return Compared(name, kind, change, differences, allowed)
    mode = Mode.FILL if asked is None or asked not in OF_OPERATORS else asked
    if change is ProgramChange.ADDED and mode in (Mode.CARRY, Mode.SAME):
        raise InvalidError("BAD_OPTION", f"change={{{name!r}: {mode.value!r}}}, and {name} is added: it has no past")
    return Compared(name, _kind(kind, now), change, differences, mode, moves=mode in FROM_PAST)


def _has_other_layout(before: Any, now: Any) -> bool:
    return bool(before.get("layout") and now.get("layout") and before["layout"] != now["layout"])


def _differences(before: Any, now: Any) -> Iterator[str]:
    """Yield in words what differs in the entry of a processor."""
    if _encoded(before) == _encoded(now):
        return
    old, new = _flat(before), _flat(now)
    for key in [*old, *(each for each in new if each not in old)]:
        if _encoded(old.get(key)) == _encoded(new.get(key)):
            continue
        match key:
            case "plan":
                yield "its expressions"
            case "code":
                yield "its code"
            case "schema":
                yield _columns(str(old.get(key, "")), str(new.get(key, "")))
            case "state":
                yield "the columns of its state"
            case _:
                yield f"{key}: {_shown(old.get(key))} → {_shown(new.get(key))}"


def _flat(entry: Any) -> dict[str, Any]:
    """Return the fields of an entry, with the options among them."""
    fields = {name: each for name, each in entry.items() if name not in ("layout", "written", "together")}
    options = fields.pop("options", {})
    return {**fields, **options}


def _other_group(name: str, before: Any, now: Any) -> str:
    """Return in words that a sink is shown together with others than before, which changes no row; empty if not."""
    if before.get("together") == now.get("together"):
        return ""
    others = [each for each in now.get("together", ()) if each != name]
    return f"shown together with {', '.join(others)}" if others else "shown by itself"


def _columns(before: str, now: str) -> str:
    old, new = map(columns_of, (before, now))
    gone = [name for name in old if name not in new]
    came = [name for name in new if name not in old]
    other = [f"{name} {old[name]} → {new[name]}" for name in old if name in new and old[name] != new[name]]
    words = [*(f"+{name} {new[name]}" for name in came), *(f"−{name}" for name in gone), *other]
    return f"columns: {', '.join(words) or 'another order'}"


def columns_of(schema: str) -> dict[str, str]:
    """Return name and type of each column of a schema that Spark writes as `struct<a:bigint,b:array<int>>`."""
    columns, depth, part = dict[str, str](), 0, ""
    for letter in [*schema.removeprefix("struct<").removesuffix(">"), ","]:
        if letter == "," and depth == 0:
            name, _, kind = part.partition(":")
            if name:
                columns[name] = kind
            part = ""
            continue
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(letter, 0)
        part += letter
    return columns


def _reads(entry: Any) -> tuple[str, ...]:
    reads = entry.get("reads", ())
    return (reads,) if isinstance(reads, str) else tuple(reads)


def _kind(kind: str, entry: Any) -> str:
    return str(entry["kind"]) if kind == "processor" else kind


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _encoded(value: Any) -> bytes:
    return msgspec.msgpack.encode(value, order="deterministic")  # a tuple is a list


def _mode(name: str, mode: str) -> Mode:
    try:
        return Mode(mode)
    except ValueError:
        known = ", ".join(each.value for each in Mode)
        raise InvalidError("BAD_OPTION", f"change={{{name!r}: {mode!r}}}: choose one of {known}") from None


def _unfit(name: str, kind: str, mode: Mode) -> InvalidError:
    if kind == "source":
        return InvalidError("BAD_OPTION", f"change names the source {name}: a mode is of an operator or a sink")
    can = ", ".join(each.value for each in (OF_SINKS if kind == "sink" else OF_OPERATORS))
    noun = "a sink" if kind == "sink" else "an operator"
    return InvalidError("BAD_OPTION", f"change={{{name!r}: {mode.value!r}}}, and {name} is {noun}: choose of {can}")


def connected_parts(edges: Iterator[tuple[str, str]]) -> list[set[str]]:
    """Return the connected parts of a graph."""
    parts: list[set[str]] = []
    for one, other in edges:
        met = [part for part in parts if one in part or other in part]
        parts = [part for part in parts if part not in met]
        parts.append({one, other}.union(*met))
    return parts


def sort_of(kind: str) -> str:
    """Return `source`, `sink` or `processor` for the kind of a processor."""
    return kind if kind in ("source", "sink") else "processor"


def another_sink(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Return why the place of a sink of one program cannot take what another program gives it; empty if it can.

    Args:
        old, new: The identities of both programs, with the sink.
    """
    before, now = (
        columns_of(about["schema"]) if (about := each.get(f"processor {each[f'sink {name}']['reads']}")) else {}
        for each in (old, new)
    )
    gone = [f"{column} {kind}" for column, kind in before.items() if now.get(column) != kind]
    if gone and before and now:
        return f"{name} would lose or change the columns {', '.join(gone)}: give it another name and place"
    was, becomes = old[f"sink {name}"], new[f"sink {name}"]
    free = {"reads", "together", "identified_by", "requests"}  # rows from now on may have other identities
    differing = [key for key in {*was, *becomes} - free if was.get(key) != becomes.get(key)]
    return f"{name} has another {', '.join(sorted(differing))}: give it another name and place" if differing else ""
