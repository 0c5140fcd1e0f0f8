"""The address at which a source listens."""

from __future__ import annotations

from importlib.util import find_spec

from boatlift.errors import InvalidError


def address_of(listen: str) -> tuple[str, int]:
    """Parse `host:port`.

    Raises:
        InvalidError: `[BAD_OPTION]`; `[MISSING_EXTRA]` the packages that serve HTTP are not installed.
    """
    text: object = listen
    host, _, port = listen.rpartition(":") if isinstance(text, str) else ("", "", "")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise InvalidError("BAD_OPTION", f"listen is {listen!r}: give host:port, such as '127.0.0.1:8080'")
    missing = [package for package in ("httptools", "starlette", "uvicorn") if find_spec(package) is None]
    if missing:
        raise InvalidError("MISSING_EXTRA", f"HTTP needs {' and '.join(missing)}: pip install 'boatlift[web]'")
    return host.removeprefix("[").removesuffix("]"), int(port)
