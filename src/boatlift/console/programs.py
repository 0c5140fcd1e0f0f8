"""Finding the user's dataflow: `module:attribute`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING

from boatlift.console.telling import tell
from boatlift.dataflow import Dataflow, plan
from boatlift.errors import BoatliftError, InvalidError, UserCodeError
from boatlift.runtime.host.overrides import refuse_skip
from boatlift.spark.plans.tracebacks import own_frames, place
from boatlift.spark.session.on_demand import session_on_demand
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["OneSession", "check_flow", "check_store", "load_flow", "settings", "steps_named"]


def check_flow(where: str) -> None:
    """Finds out what can be told of a dataflow's module without importing it, and so without a Spark session.

    The current folder is on the path from now on.

    Raises:
        InvalidError: `[FLOW_NOT_FOUND]` there is no such module.
        UserCodeError: it is no Python that can be compiled; the cause says where.
    """
    name, _, attribute = where.partition(":")
    if not name or not attribute:
        raise InvalidError("FLOW_NOT_FOUND", f"{where!r} names no dataflow: write module:attribute, like flights:flow")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    spec = _find(name)
    if spec is None:
        raise InvalidError(
            "FLOW_NOT_FOUND",
            f"there is no module {name} in {Path.cwd()} or on the Python path: name the file without .py, or change to "
            "its folder",
        )
    if isinstance(spec.loader, InspectLoader):
        try:
            spec.loader.get_code(spec.name)
        except SyntaxError as error:
            raise UserCodeError("USER_CODE", f"{name} is no valid Python: {error}") from error


def steps_named(steps: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Reads steps as they are written on the command line: `clean:7`.

    Raises:
        InvalidError: `[BAD_OPTION]`.
    """
    named = []
    for step in steps:
        processor, _, time = step.rpartition(":")
        if not processor or not time.isdecimal():
            raise InvalidError("BAD_OPTION", f"{step!r} is no step: write processor:time, as clean:7")
        named.append((processor, int(time)))
    return tuple(named)


class OneSession:
    """The session of a command, which begins when it is first asked for.

    Args:
        master: Spark's master URL.
        app_name: The name that Spark shows.
        conf: Spark settings.
        quiet: Do not tell that it begins.
    """

    def __init__(
        self, master: str, app_name: str, conf: Mapping[str, str] | None = None, *, quiet: bool = False
    ) -> None:
        self._master, self._app_name, self._conf, self._quiet = master, app_name, conf or {}, quiet
        self._session: SparkSession | None = None

    def begin(self) -> SparkSession:
        """Return the session, and start it the first time."""
        if self._session is None:
            from boatlift.spark.session import session

            tell(f"starting Spark ({self._master})", quiet=self._quiet)
            self._session = session.session(self._master, app_name=self._app_name, **self._conf)
        return self._session


def check_store(flow: Dataflow, store: Path, skip: Collection[tuple[str, int]]) -> None:
    """Refuse what a run would refuse, as far as program and store tell it without a session.

    Raises:
        InvalidError: the dataflow cannot be run, or a step not be skipped.
        DataError: the log cannot be read, or is another dataflow's.
    """
    planned = plan(flow)
    # A folder that holds nothing is what a first run leaves that was refused before it recorded anything.
    history = Log.open(LocalStore.open(store, create=True), flow.name).history if store.exists() else None
    for unit, time in set(skip) - (set() if history is None else history.decided("skipped")):
        refuse_skip(planned, unit, time, -1 if history is None else history.last_executed(unit))


def load_flow(where: str, session: OneSession) -> Dataflow:
    """Imports a dataflow; the current folder is on the path.

    Args:
        where: module:attribute.
        session: Begins when the module asks Spark for one.

    Raises:
        InvalidError: `[FLOW_NOT_FOUND]`, or what the module's own calls of Boatlift raise.
        UserCodeError: as `check_flow`, or the module itself raised; the cause is what it raised.
    """
    from pyspark import cloudpickle

    check_flow(where)
    name, _, attribute = where.partition(":")
    try:
        with session_on_demand(session.begin):
            module = importlib.import_module(name)
    except BoatliftError:
        raise
    except Exception as error:
        line = place(own_frames(error.__traceback__))
        raise UserCodeError("USER_CODE", f"importing {name} raised {error!r}{line}") from error
    # Tasks get the module's functions as they are: to import it they would need a Spark session, as the driver has.
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    found = getattr(module, attribute, None)
    if not isinstance(found, Dataflow):
        flows = [name for name, value in vars(module).items() if isinstance(value, Dataflow)]
        hint = f"it has {', '.join(flows)}" if flows else "it has none"
        raise InvalidError("FLOW_NOT_FOUND", f"{name} has no Dataflow named {attribute}: {hint}")
    return found


def _find(name: str) -> ModuleSpec | None:
    """Finds a module without importing the packages that it is in, as `importlib.util.find_spec` would."""
    parts = name.split(".")
    path = None
    spec = None
    for last in range(1, len(parts) + 1):
        full = ".".join(parts[:last])
        found = (finder.find_spec(full, path) for finder in sys.meta_path)
        spec = next((each for each in found if each is not None), None)
        if spec is None or (last < len(parts) and spec.submodule_search_locations is None):
            return None
        path = spec.submodule_search_locations
    return spec


def settings(pairs: Sequence[str]) -> dict[str, str]:
    """Reads Spark settings written as name=value."""
    read = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign:
            raise InvalidError("BAD_OPTION", f"--conf {pair}: write name=value")
        read[name] = value
    return read
