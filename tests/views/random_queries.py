"""Random queries over random tables: by a grammar, from one seed.

Every query is valid SQL of Spark's, deterministic, and has one right answer as a bag of rows. Sums are of integers and
decimals, or of doubles that are multiples of a quarter, so that their order does not matter.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

__all__ = ["Generated", "Table", "random_case"]

TYPES: dict[str, pa.DataType] = {
    "BIGINT": pa.int64(),
    "INT": pa.int32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BOOLEAN": pa.bool_(),
    "DECIMAL(9,2)": pa.decimal128(9, 2),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "ARRAY<INT>": pa.list_(pa.int32()),
}

NUMBERS = ("BIGINT", "INT", "DOUBLE", "DECIMAL(9,2)")


@dataclass(frozen=True)
class Table:
    """A table: its columns, and the rows of each step; a row that goes has `_weight` −1."""

    name: str
    columns: dict[str, str]
    steps: list[list[dict[str, Any]]]

    @property
    def loses_rows(self) -> bool:
        """Whether rows go."""
        return any("_weight" in row for rows in self.steps for row in rows)

    def changes(self) -> list[list[dict[str, Any]]]:
        """Return the rows of each step with `_weight`; a row goes only if it is there."""
        held: list[dict[str, Any]] = []
        found = []
        for rows in self.steps:
            step = []
            for row in rows:
                bare = {name: row[name] for name in self.columns}
                if "_weight" not in row:
                    held.append(bare)
                elif (at := _place(bare, held)) is not None:
                    del held[at]
                else:
                    continue
                step.append({**bare, "_weight": row.get("_weight", 1)})
            found.append(step)
        return found

    def held(self, step: int) -> list[dict[str, Any]]:
        """Return the rows that are there after a step."""
        held: list[dict[str, Any]] = []
        for rows in self.changes()[: step + 1]:
            for row in rows:
                bare = {name: row[name] for name in self.columns}
                if row["_weight"] > 0:
                    held.append(bare)
                else:
                    del held[_place(bare, held) or 0]
        return held

    def until(self, step: int) -> Table:
        """Return the table with the steps up to one of them."""
        return replace(self, steps=self.steps[: step + 1])

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, TYPES[kind]) for name, kind in self.columns.items()])

    @property
    def ddl(self) -> str:
        return ", ".join(f"{name} {kind}" for name, kind in self.columns.items())


def _place(row: dict[str, Any], rows: list[dict[str, Any]]) -> int | None:
    """Return the place of a row among others; NaN equals NaN."""
    wanted = repr(row)
    return next((at for at, each in enumerate(rows) if repr(each) == wanted), None)


@dataclass(frozen=True)
class Generated:
    """Tables, and queries over them."""

    tables: list[Table]
    queries: list[str]

    def without(self, table: int, step: int, begin: int, end: int) -> Generated:
        """Return the case without some rows of a step of a table."""
        steps = [list(rows) for rows in self.tables[table].steps]
        del steps[step][begin:end]
        tables = list(self.tables)
        tables[table] = replace(tables[table], steps=steps)
        return replace(self, tables=tables)


@dataclass
class _Relation:
    """A part of a query that gives rows, with the type of each column as the rest of the query names it."""

    text: str
    columns: dict[str, str] = field(default_factory=dict)

    def of(self, kinds: Sequence[str]) -> list[str]:
        return [name for name, kind in self.columns.items() if kind in kinds]


def random_case(seed: int, *, queries: int, steps: int, rows: int) -> Generated:
    """Return tables and queries."""
    chance = random.Random(f"views {seed}")
    tables = [_table(chance, f"t{n}", steps, rows) for n in range(chance.choice((2, 3)))]
    return Generated(tables, [_Grammar(chance, tables).query() for _ in range(queries)])


def _table(chance: random.Random, name: str, steps: int, rows: int) -> Table:
    kinds = ["BIGINT", *chance.choices([*NUMBERS, "STRING", "BOOLEAN", "ARRAY<INT>"], k=chance.choice((2, 3)))]
    columns = {f"{name[1]}{letter}": kind for letter, kind in zip("klmn", kinds, strict=False)}
    columns = {f"c{column}": kind for column, kind in columns.items()}
    made: list[dict[str, Any]] = []
    held: list[dict[str, Any]] = []
    divided = []
    loses = chance.random() < 0.5
    for _ in range(steps):
        count = chance.choice((0, 1, rows, rows, 2 * rows))
        step = []
        while loses and held and chance.random() < 0.5:
            step.append({**held.pop(chance.randrange(len(held))), "_weight": -1})
        for _ in range(count):
            again = made and chance.random() < 0.15
            row = dict(chance.choice(made)) if again else {c: _value(chance, kind) for c, kind in columns.items()}
            step.append(row)
            made.append(row)
            held.append(row)
        divided.append(step)
    return Table(name, columns, divided)


def _value(chance: random.Random, kind: str) -> Any:
    if chance.random() < 0.12:
        return None
    small = chance.choice((0, 1, 1, 2, 2, 3, 4, 7, -1))
    match kind:
        case "DOUBLE":
            return chance.choice((small / 4, small * 1.0, float("nan"))) if chance.random() < 0.3 else small / 4
        case "STRING":
            return chance.choice(("a", "b", "bb", "", "ä"))
        case "BOOLEAN":
            return chance.random() < 0.5
        case "DECIMAL(9,2)":
            return Decimal(small * 25) / 100
        case "ARRAY<INT>":
            return [small, None][: chance.randrange(3)]
        case _:
            return small


class _Grammar:
    def __init__(self, chance: random.Random, tables: Sequence[Table]) -> None:
        self.chance, self.tables = chance, tables
        self._names = 0

    def query(self) -> str:
        """Return a query whose columns have names of their own."""
        return self._select(self.chance.choice((1, 2, 2, 3))).text

    def _name(self, what: str) -> str:
        self._names += 1
        return f"{what}{self._names}"

    def _select(self, depth: int) -> _Relation:
        kinds: list[Callable[[int], _Relation]] = [self._plain, self._aggregate, self._joined]
        if depth > 0:
            kinds += [self._windowed, self._set, self._distinct, self._filtered_by, self._top, self._aggregate]
            kinds += [self._filtered_by, self._lateral]
        return self.chance.choice(kinds)(depth)

    def _from(self, depth: int) -> _Relation:
        """Return what can stand behind FROM, with names for its columns that no other part has."""
        if depth <= 0 or self.chance.random() < 0.4:
            table = self.chance.choice(self.tables)
            alias = self._name("s")
            return _Relation(f"{table.name} {alias}", {f"{alias}.{name}": kind for name, kind in table.columns.items()})
        inner, alias = self._select(depth - 1), self._name("s")
        return _Relation(f"({inner.text}) {alias}", {f"{alias}.{name}": kind for name, kind in inner.columns.items()})

    def _plain(self, depth: int) -> _Relation:
        source = self._from(depth - 1)
        columns, kinds = self._columns(source)
        return _Relation(f"SELECT {columns} FROM {source.text}{self._where(source)}", kinds)

    def _columns(self, source: _Relation) -> tuple[str, dict[str, str]]:
        chosen = self.chance.sample(list(source.columns), k=self.chance.randint(1, min(3, len(source.columns))))
        named = {self._name("x"): column for column in chosen}
        parts, kinds = [], {}
        for name, column in named.items():
            kind = source.columns[column]
            text = column
            if kind in NUMBERS and self.chance.random() < 0.3:
                text = f"{column} + 1" if kind != "DECIMAL(9,2)" else f"cast({column} + 1 AS DECIMAL(9,2))"
            elif kind == "STRING" and self.chance.random() < 0.3:
                text = f"coalesce({column}, 'none')"
            elif kind in TYPES and self.chance.random() < 0.1:
                text = self.chance.choice((f"map('of', {column})['of']", f"array({column}, {column})[1]"))
            parts.append(f"{text} AS {name}")
            kinds[name] = kind
        return ", ".join(parts), kinds

    def _where(self, source: _Relation) -> str:
        return f" WHERE {self._condition(source)}" if self.chance.random() < 0.5 else ""

    def _condition(self, source: _Relation) -> str:
        column = self.chance.choice(list(source.columns))
        match source.columns[column]:
            case "STRING":
                return self.chance.choice((f"{column} > 'a'", f"{column} IS NOT NULL", f"length({column}) = 1"))
            case "BOOLEAN":
                return self.chance.choice((column, f"NOT {column}", f"{column} IS NULL"))
            case "ARRAY<INT>":
                return self.chance.choice((f"array_contains({column}, 1)", f"size({column}) > 0", f"{column} IS NULL"))
            case _:
                return self.chance.choice((f"{column} > 1", f"{column} <= 2", f"{column} IS NULL", f"{column} <> 1"))

    def _aggregate(self, depth: int) -> _Relation:
        source = self._from(depth - 1)
        keys = self.chance.sample(list(source.columns), k=self.chance.choice((0, 1, 1, min(2, len(source.columns)))))
        kinds, parts = {}, []
        for key in keys:
            name = self._name("k")
            kinds[name] = source.columns[key]
            parts.append(f"{key} AS {name}")
        for _ in range(self.chance.randint(1, 3)):
            text, kind = self._function(source)
            name = self._name("f")
            kinds[name] = kind
            parts.append(f"{text} AS {name}")
        having = " HAVING count(*) > 1" if keys and self.chance.random() < 0.25 else ""
        by = f" GROUP BY {', '.join(keys)}" if keys else ""
        return _Relation(f"SELECT {', '.join(parts)} FROM {source.text}{self._where(source)}{by}{having}", kinds)

    def _function(self, source: _Relation) -> tuple[str, str]:
        column = self.chance.choice(list(source.columns))
        kind = source.columns[column]
        choices = [("count(*)", "BIGINT"), (f"count({column})", "BIGINT"), (f"count(DISTINCT {column})", "BIGINT")]
        choices += [(f"min({column})", kind), (f"max({column})", kind)]
        if kind in ("BIGINT", "INT"):
            choices += [(f"sum({column})", "BIGINT"), (f"sum(DISTINCT {column})", "BIGINT")]
        if kind in NUMBERS:  # the last digits are not Spark's
            choices += [(f"round({name}({column}), 6)", "DOUBLE") for name in ("var_pop", "stddev_samp")]
        if kind == "BOOLEAN":
            choices += [(f"bool_or({column})", "BOOLEAN"), (f"count_if({column})", "BIGINT")]
        text, result = self.chance.choice(choices)
        if "round" not in text and self.chance.random() < 0.15:
            text += f" FILTER (WHERE {self._condition(source)})"
        return text, result

    def _joined(self, depth: int) -> _Relation:
        left, right = self._from(depth - 1), self._from(depth - 1)
        how = self.chance.choice(
            ("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")
        )
        on = self._equal(left, right)
        if self.chance.random() < 0.25 and how in ("JOIN", "LEFT JOIN"):
            on += f" AND {self._condition(left)}"
        elif self.chance.random() < 0.25 and "JOIN" in how.replace("LEFT SEMI JOIN", "").replace("LEFT ANTI JOIN", ""):
            on += f" AND {self._above_least(self.chance.choice((left, right)))}"
        elif self.chance.random() < 0.3 and how in ("LEFT SEMI JOIN", "LEFT ANTI JOIN"):
            on = self.chance.choice(("true", self._condition(left), self._condition(right)))
        sides = _Relation(f"{left.text} {how} {right.text} ON {on}", dict(left.columns))
        if "SEMI" not in how and "ANTI" not in how:
            sides.columns |= right.columns
        columns, kinds = self._columns(sides)
        return _Relation(f"SELECT {columns} FROM {sides.text}", kinds)

    def _above_least(self, source: _Relation) -> str:
        """Return a condition that compares a column with a scalar subquery."""
        other, own = self._from(0), source.of(("BIGINT", "INT"))
        numbers = other.of(("BIGINT", "INT"))
        return f"{own[0]} > (SELECT min({numbers[0]}) FROM {other.text})" if own else "true"

    def _equal(self, left: _Relation, right: _Relation) -> str:
        pairs = [(a, b) for a, kind in left.columns.items() for b, other in right.columns.items() if kind == other]
        if not pairs:
            a, b = self.chance.choice(list(left.columns)), self.chance.choice(list(right.columns))
            return f"cast({a} AS STRING) = cast({b} AS STRING)"
        a, b = self.chance.choice(pairs)
        return f"{a} {self.chance.choice(('=', '=', '=', '<=>'))} {b}"

    def _windowed(self, depth: int) -> _Relation:
        source = self._from(depth - 1)
        columns = list(source.columns)
        by = self.chance.choice(columns)
        order = ", ".join([f"{column} {self.chance.choice(('', 'DESC'))}" for column in columns])
        name, value = self._name("w"), self.chance.choice(columns)
        text, kind = self.chance.choice((
            (f"row_number() OVER (PARTITION BY {by} ORDER BY {order})", "INT"),
            (f"rank() OVER (PARTITION BY {by} ORDER BY {value} NULLS LAST)", "INT"),
            (f"dense_rank() OVER (PARTITION BY {by} ORDER BY {value} DESC NULLS FIRST)", "INT"),
            (f"count({value}) OVER (PARTITION BY {by})", "BIGINT"),
            (f"lag({value}) OVER (PARTITION BY {by} ORDER BY {order})", source.columns[value]),
            (f"max({value}) OVER (PARTITION BY {by} ORDER BY {value})", source.columns[value]),
        ))  # fmt: skip
        parts, kinds = self._columns(source)
        whole = f"SELECT {parts}, {text} AS {name} FROM {source.text}"
        kinds = {**kinds, name: kind}
        if kind == "INT" and "lag" not in text and "max" not in text and self.chance.random() < 0.6:
            return _Relation(f"SELECT * FROM ({whole}) WHERE {name} <= 2", kinds)
        return _Relation(whole, kinds)

    def _set(self, depth: int) -> _Relation:
        left = self._plain(depth - 1)
        kinds = list(left.columns.values())
        for _ in range(8):
            right = self._plain(depth - 1)
            if list(right.columns.values()) == kinds:
                break
        else:
            right = _Relation(left.text, left.columns)
        how = self.chance.choice(("UNION ALL", "UNION", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"))
        names = dict(left.columns)
        return _Relation(f"SELECT * FROM ({left.text} {how} {right.text})", names)

    def _distinct(self, depth: int) -> _Relation:
        source = self._from(depth - 1)
        columns, kinds = self._columns(source)
        return _Relation(f"SELECT DISTINCT {columns} FROM {source.text}", kinds)

    def _filtered_by(self, depth: int) -> _Relation:
        source, other = self._from(depth - 1), self._from(0)
        columns, kinds = self._columns(source)
        pairs = [(a, b) for a, kind in source.columns.items() for b, each in other.columns.items() if kind == each]
        number = other.of(("BIGINT", "INT"))[0]
        conditions = [self._above_least(source), f"{self.chance.randint(0, 3)} IN (SELECT {number} FROM {other.text})"]
        conditions += [f"2 NOT IN (SELECT {number} FROM {other.text} WHERE {self._condition(other)})"]
        if pairs:
            a, b = self.chance.choice(pairs)
            inner = f"FROM {other.text} WHERE {a} = {b}"
            conditions += [
                f"{a} IN (SELECT {b} FROM {other.text})",
                f"{a} NOT IN (SELECT {b} FROM {other.text} WHERE {self._condition(other)})",
                f"EXISTS (SELECT 1 {inner})",
                f"EXISTS (SELECT 1 {inner} LIMIT 1)",
                f"NOT EXISTS (SELECT {number} {inner} ORDER BY {number} LIMIT 2)",
                f"1 < (SELECT {number} {inner} ORDER BY {number} DESC LIMIT 1)",
                f"2 > (SELECT max(r) FROM (SELECT rank() OVER (ORDER BY {number}) AS r {inner}))",
            ]
        return _Relation(f"SELECT {columns} FROM {source.text} WHERE {self.chance.choice(conditions)}", kinds)

    def _lateral(self, depth: int) -> _Relation:
        """Return the rows of one relation with those that a subquery has for each of them."""
        source, other, alias, name = self._from(depth - 1), self._from(0), self._name("s"), self._name("w")
        columns, kinds = self._columns(source)
        number = other.of(("BIGINT", "INT"))[0]
        value, rest = self.chance.choice((
            (f"rank() OVER (ORDER BY {number})", ""),
            (f"count({number}) OVER ()", ""),
            (number, f" ORDER BY {number} LIMIT 2"),
            (f"max({number})", ""),
        ))  # fmt: skip
        inner = f"SELECT {value} AS {name} FROM {other.text} WHERE {self._equal(source, other)}{rest}"
        how = self.chance.choice(("JOIN", "LEFT JOIN"))
        text = f"SELECT {columns}, {alias}.{name} FROM {source.text} {how} LATERAL ({inner}) {alias} ON true"
        return _Relation(text, {**kinds, name: "BIGINT"})

    def _top(self, depth: int) -> _Relation:
        source = self._from(depth - 1)
        columns, kinds = self._columns(source)
        order = ", ".join(f"{name} {self.chance.choice(('', 'DESC'))}" for name in kinds)
        whole = _Relation("", kinds)
        numbers = whole.of(("BIGINT", "INT"))
        if numbers and self.chance.random() < 0.3:
            other = self._from(0)
            least = f"(SELECT min({other.of(('BIGINT', 'INT'))[0]}) FROM {other.text})"
            order = f"abs({numbers[0]} - {least}), {order}"
        return _Relation(
            f"SELECT * FROM (SELECT {columns} FROM {source.text}) ORDER BY {order} LIMIT {self.chance.randint(1, 4)}",
            kinds,
        )
