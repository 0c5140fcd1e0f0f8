"""What commands share: their options, and lines on standard error (notices, warnings, refused arguments)."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Annotated

from cyclopts import (
    CycloptsError,
    MissingArgumentError,
    Parameter,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from boatlift.errors import FLOW_AND_STORE, BoatliftError, InvalidError

NewStore = Annotated[str, Parameter(name=["--store", "-s"], env_var="BOATLIFT_STORE")]
StorePath = Annotated[NewStore, Parameter(help="The folder, or the s3:// URL, of the dataflow's durable state.")]
Master = Annotated[str, Parameter(env_var="BOATLIFT_MASTER")]
JsonLines = Annotated[bool, Parameter(name="--json", negative=())]
Json = Annotated[JsonLines, Parameter(help="Print JSON.")]
Repeated = Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)]
ProcessorNames = Annotated[str, Parameter(show_default=False)]


def notice(text: str, *, quiet: bool = False) -> None:
    """Write a line about the present action, unless `quiet` is set."""
    if not quiet:
        print(f"boatlift: {text}", file=sys.stderr, flush=True)


def print_warnings() -> None:
    """Write warnings as lines of the command line, unless logging is set up already."""
    root = logging.getLogger()
    if not root.handlers:
        handler = _Lines()
        handler.setFormatter(logging.Formatter("boatlift: %(message)s"))
        root.addHandler(handler)


class _Lines(logging.Handler):
    """A handler that looks up standard error at each warning, because a live table may replace it."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr, flush=True)


_RENAMED = {"--not-resident": "--short-jobs"}
_OTHER_COMMANDS = {
    "start": "write run",
    "restart": "write run",
    "stop": "press Ctrl-C where it runs, or send SIGTERM to its process, which boatlift status names",
}


@contextmanager
def refused_arguments(commands: Iterable[str]) -> Iterator[None]:
    """Raise an error with a condition for arguments that the parser refuses."""
    try:
        yield
    except CycloptsError as error:
        command = shlex.join(("boatlift", *(error.command_chain or ())))
        flaw = _flaw(error, command, commands)
        raise InvalidError("BAD_OPTION", f"{flaw}; {command} --help shows what there is") from None


def _flaw(error: CycloptsError, command: str, commands: Iterable[str]) -> str:
    match error:
        case MissingArgumentError(argument=argument) if argument is not None:
            by_place = argument.field_info.is_positional
            name = argument.name.lstrip("-").upper() if by_place else (error.keyword or argument.name)
            others = [each for each in error.unused_tokens or () if each.startswith("--") and each != argument.name]
            if error.keyword is None and (misspelt := get_close_matches(argument.name, others, 1)):
                return f"{command} has no option {misspelt[0]}: write {argument.name}"
            return f"{command} needs a value for {name}"
        case UnknownOptionError(token=token):
            given = token.keyword or token.value
            if given in _RENAMED:
                return f"{command} has no option {given}: write {_RENAMED[given]}"
            known = [name for each in error.argument_collection for name in each.names]
            return f"{command} has no option {given}{_near(given, known)}"
        case UnknownCommandError(unused_tokens=[given, *_]):
            advice = _OTHER_COMMANDS.get(given)
            return f"there is no command {given}{_near(given, commands) if advice is None else f': {advice}'}"
        case UnusedCliTokensError(unused_tokens=[*more]):
            return f"{command} has no place for {shlex.join(more)}: leave it out"
        case _:
            text = " ".join(str(error).split()).removesuffix(".")
            return f"{text[:1].lower()}{text[1:]}"


def _near(given: str, known: Iterable[str]) -> str:
    names = {name.lstrip("-"): name for name in known}
    near = get_close_matches(given.lstrip("-"), names, 1)
    return f": write {names[near[0]]}" if near else ""


@contextmanager
def arguments_named(flow: str, store: str) -> Iterator[None]:
    """Put the command's own arguments into the commands that an error advises."""
    try:
        yield
    except BoatliftError as error:
        error.remedy = error.remedy.replace(FLOW_AND_STORE, shlex.join((flow, "--store", store)))
        raise
