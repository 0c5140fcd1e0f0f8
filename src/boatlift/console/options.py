"""The options that commands share."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from boatlift.errors import FLOW_AND_STORE, BoatliftError

NewStore = Annotated[Path, Parameter(name=["--store", "-s"], env_var="BOATLIFT_STORE")]
StorePath = Annotated[NewStore, Parameter(help="The folder of the dataflow's durable state.")]
Master = Annotated[str, Parameter(env_var="BOATLIFT_MASTER")]
JsonLines = Annotated[bool, Parameter(name="--json", negative=())]
Json = Annotated[JsonLines, Parameter(help="Print JSON.")]
Repeated = Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)]
ProcessorNames = Annotated[str, Parameter(show_default=False)]


@contextmanager
def arguments_named(flow: str, store: Path) -> Iterator[None]:
    """Put the command's own arguments into the commands that an error advises."""
    try:
        yield
    except BoatliftError as error:
        error.remedy = error.remedy.replace(FLOW_AND_STORE, shlex.join((flow, "--store", str(store))))
        raise
