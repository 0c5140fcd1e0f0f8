"""The page about a store and its metrics: by `boatlift console`, without the program and without a JVM."""

from __future__ import annotations

import signal
import threading
from functools import partial
from typing import Annotated, Literal

from cyclopts import Parameter

from boatlift.console.messages import StorePath, notice

AT = "127.0.0.1:8642"


def console(
    *,
    store: StorePath,
    listen: str = AT,
    rows: Literal["here", "all", "none"] = "here",
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative=())] = False,
) -> None:
    """Show a store in a browser: the dataflow with its frontiers, its steps, and what a failure would cost.

    The store's dataflow may run, have stopped, or have crashed. Nothing can be changed from the page. Ctrl-C ends it.
    Prometheus gets the metrics of the dataflow at /metrics.

    Args:
        listen: Where the page is served. If the port is taken, the next free one of ten is. An address that other
            hosts see needs a token of your own, in BOATLIFT_CONSOLE_TOKEN.
        rows: Where rows of the sinks are shown: here, if the page is served to this computer alone; to all readers;
            or to none.
        quiet: Print the address alone.
    """
    from boatlift.api.served import beside_run
    from boatlift.runtime.inspect.contents import store_at

    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    store_at(store)  # a folder that is no store is refused
    told = partial(notice, quiet=quiet)
    with beside_run(
        store,
        console=listen,
        rows={"here": None, "all": True, "none": False}[rows],
        said=lambda url: print(url, flush=True),
        noticed=told,
    ):
        notice("the console is served until Ctrl-C", quiet=quiet)
        ended.wait()
