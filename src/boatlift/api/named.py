"""A dataflow that is named as `module:attribute`, and the session for it."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING

from boatlift.api.dataflow import Dataflow
from boatlift.errors import BoatliftError, InvalidError, UserCodeError
from boatlift.processes.on_demand import session_on_demand
from boatlift.processes.session import require_pyspark
from boatlift.spark.plans.tracebacks import own_frames, place

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


class OneSession:
    """The session of a command; it starts at the first call of `begin`."""

    def __init__(
        self, master: str, app_name: str, conf: Mapping[str, str] | None = None, *, quiet: bool = False
    ) -> None:
        self._master, self._app_name, self._conf, self._quiet = master, app_name, conf or {}, quiet
        self._session: SparkSession | None = None

    def begin(self) -> SparkSession:
        if self._session is None:
            from boatlift.processes import session

            if "PYSPARK_GATEWAY_PORT" not in os.environ and not self._quiet:  # else it attaches to a context
                sys.stderr.write(f"boatlift: starting Spark ({self._master})\n")
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
