"""The page about a store: by `boatlift console`, without the program and without a JVM, and beside `boatlift run`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from boatlift.console.messages import StorePath, notice

if TYPE_CHECKING:
    from boatlift.runtime.host.progress import Progress

AT = "127.0.0.1:8642"

NEWS = {"step", "commit", "checkpoint", "failure", "over"}
"""The reports after which readers look at the store again."""


def console(
    *,
    store: StorePath,
    listen: str = AT,
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative=())] = False,
) -> None:
    """Show a store in a browser: the dataflow with its frontiers, its steps, and what a failure would cost.

    The store's dataflow may run, have stopped, or have crashed. Nothing can be changed from the page. Ctrl-C ends it.

    Args:
        listen: Where the page is served. If the port is taken, the next free one of ten is. An address that other
            hosts see needs a token of your own, in BOATLIFT_CONSOLE_TOKEN.
        quiet: Print the address alone.
    """
    from boatlift.runtime.inspect.contents import store_at

    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    store_at(store)  # a folder that is no store is refused
    with served_beside(store, listen, quiet=quiet, said=lambda url: print(url, flush=True)):
        notice("the console is served until Ctrl-C", quiet=quiet)
        ended.wait()


@contextmanager
def served_beside(
    store: str, listen: str, *, quiet: bool, said: Callable[[str], None]
) -> Iterator[Callable[[Progress], None]]:
    """Serve the page about a store, which may be made later; yield a function that is told the progress of a run.

    Args:
        listen: As `host:port`; empty: nothing is served.
        said: Is told the address.

    Raises:
        InvalidError: `[BAD_OPTION]`, `[MISSING_EXTRA]`.
        UnavailableError: `[LISTEN_FAILED]`.
    """
    if not listen:
        yield lambda _: None
        return
    from boatlift.http.admission import address_of

    address = address_of(listen)
    from boatlift.operators import operators_with_status
    from boatlift.web.documents import Documents
    from boatlift.web.server import Console, listener_at, refuse_open_console

    refuse_open_console(address)
    listener = listener_at(address, lambda told: notice(told, quiet=quiet))
    served = Console(Documents(store, operators_with_status()), listener)

    def hint(progress: Progress) -> None:
        if progress.what in NEWS:
            served.hint()

    try:
        served.serve()
        said(served.url)
        yield hint
    finally:
        served.close()
