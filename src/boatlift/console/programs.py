"""The arguments of commands: a dataflow as `module:attribute`, steps, Spark settings; and the session for them."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING

from boatlift.api.dataflow import Dataflow
from boatlift.console.messages import notice
from boatlift.errors import BoatliftError, InvalidError, UserCodeError
from boatlift.spark.plans.tracebacks import own_frames, place
from boatlift.spark.session.on_demand import session_on_demand
from boatlift.spark.session.session import require_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_flow(where: str) -> None:
    """Raise the errors of a dataflow's module that can be found without importing it.

    The current folder is on the path from now on.
    """
    name, _, attribute = where.partition(":")
    if not name or not attribute:
        unnamed = f"{where!r} names no dataflow: write module:attribute, such as flights:flow"
        raise InvalidError("FLOW_NOT_FOUND", unnamed)
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    spec = _find(name)
    if spec is None:
        places = f"{Path.cwd()} or on the Python path: name the file without .py, or change to its folder"
        raise InvalidError("FLOW_NOT_FOUND", f"there is no module {name} in {places}")
    if isinstance(spec.loader, InspectLoader):
        try:
            spec.loader.get_code(spec.name)
        except SyntaxError as error:
            raise UserCodeError("USER_CODE", f"{name} is no valid Python: {error}") from error


def step_named(step: str) -> tuple[str, int]:
    """Return the processor and the number of a step that is written as on the command line: `clean:7`."""
    processor, _, time = step.rpartition(":")
    if not processor or not time.isdecimal():
        raise InvalidError("BAD_OPTION", f"{step!r} is no step: write processor:number, such as clean:7")
    return processor, int(time)


def skips_named(skips: Iterable[str]) -> tuple[tuple[str, int | str], ...]:
    """Return the values of `--skip`: steps as `clean:7`, and rows as `orders:orders.csv:7`, with a second colon."""
    named: list[tuple[str, int | str]] = []
    for skip in skips:
        source, _, place = skip.partition(":")
        if ":" not in place:
            named.append(step_named(skip))
        elif source and place.rpartition(":")[2].isdecimal():
            named.append((source, place))
        else:
            forms = "source:file:line or source:topic/partition:offset, such as orders:orders.csv:7"
            raise InvalidError("BAD_OPTION", f"{skip!r} is no row: write {forms}")
    return tuple(named)


def modes_named(changes: Iterable[str]) -> dict[str, str]:
    """Return the values of `--change`: processors and modes as `delays=carry`, several with commas between."""
    named = {}
    for change in (part.strip() for each in changes for part in each.split(",")):
        name, sign, mode = change.partition("=")
        if not (name and sign and mode):
            raise InvalidError("BAD_OPTION", f"--change {change} names no mode: write name=mode, such as delays=carry")
        named[name] = mode
    return named


class OneSession:
    """The session of a command; it starts at the first call of `begin`."""

    def __init__(
        self, master: str, app_name: str, conf: Mapping[str, str] | None = None, *, quiet: bool = False
    ) -> None:
        self._master, self._app_name, self._conf, self._quiet = master, app_name, conf or {}, quiet
        self._session: SparkSession | None = None

    def begin(self) -> SparkSession:
        if self._session is None:
            from boatlift.spark.session import session

            if "PYSPARK_GATEWAY_PORT" not in os.environ:  # else it attaches to a context that is there
                notice(f"starting Spark ({self._master})", quiet=self._quiet)
            self._session = session.session(self._master, app_name=self._app_name, **self._conf)
        return self._session


def load_flow(where: str, session: OneSession) -> Dataflow:
    """Import a dataflow; the current folder is on the path.

    Args:
        session: It starts when the module asks Spark for one.
    """
    check_flow(where)
    require_pyspark()
    name, _, attribute = where.partition(":")
    try:
        with session_on_demand(session.begin):
            module = importlib.import_module(name)
    except BoatliftError:
        raise
    except Exception as error:
        line = place(own_frames(error.__traceback__))
        raise UserCodeError("USER_CODE", f"importing {name} raised {error!r}{line}") from error
    found = getattr(module, attribute, None)
    if not isinstance(found, Dataflow):
        flows = [name for name, value in vars(module).items() if isinstance(value, Dataflow)]
        hint = f"it has {', '.join(flows)}" if flows else "it has no Dataflow at all"
        raise InvalidError("FLOW_NOT_FOUND", f"{name} has no Dataflow named {attribute}: {hint}")
    return found


def _find(name: str) -> ModuleSpec | None:
    """Find a module; unlike `importlib.util.find_spec`, import none of the packages that it is in."""
    parts = name.split(".")
    path = spec = None
    for last in range(1, len(parts) + 1):
        full = ".".join(parts[:last])
        found = (finder.find_spec(full, path) for finder in sys.meta_path)
        spec = next((each for each in found if each is not None), None)
        if spec is None or (last < len(parts) and spec.submodule_search_locations is None):
            return None
        path = spec.submodule_search_locations
    return spec


def settings(pairs: Sequence[str]) -> dict[str, str]:
    """Return Spark settings that are written as name=value."""
    read = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign:
            raise InvalidError("BAD_OPTION", f"--conf {pair} is no setting: write name=value")
        read[name] = value
    return read
