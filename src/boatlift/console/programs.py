"""Finding the user's dataflow: `module:attribute`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark import cloudpickle

from boatlift.dataflow import Dataflow
from boatlift.errors import InvalidError, UserCodeError

__all__ = ["load_flow", "settings"]


def load_flow(where: str) -> Dataflow:
    """Imports a dataflow; the current folder is on the path.

    Raises:
        InvalidError: `[FLOW_NOT_FOUND]`.
        UserCodeError: the module itself raised.
    """
    module_name, _, attribute = where.partition(":")
    if not attribute:
        raise InvalidError("FLOW_NOT_FOUND", f"{where!r} names no dataflow: write module:attribute, like flights:flow")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise
        raise InvalidError(
            "FLOW_NOT_FOUND", f"there is no module {module_name} in {Path.cwd()!s} or on the Python path"
        ) from None
    except InvalidError:
        raise
    except Exception as error:
        raise UserCodeError("USER_CODE", f"importing {module_name} raised {error!r}") from error
    # Tasks get the module's functions as they are: to import it they would need a Spark session, as the driver has.
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    found = getattr(module, attribute, None)
    if not isinstance(found, Dataflow):
        flows = [name for name, value in vars(module).items() if isinstance(value, Dataflow)]
        hint = f"it has {', '.join(flows)}" if flows else "it has none"
        raise InvalidError("FLOW_NOT_FOUND", f"{module_name} has no Dataflow named {attribute}: {hint}")
    return found


def settings(pairs: Sequence[str]) -> dict[str, str]:
    """Reads Spark settings written as name=value."""
    read = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign:
            raise InvalidError("BAD_OPTION", f"--conf {pair}: write name=value")
        read[name] = value
    return read
