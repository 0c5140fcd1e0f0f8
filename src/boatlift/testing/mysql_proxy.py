"""A proxy on loopback that delays, loses and tears the statements of MariaDB and MySQL clients."""

from __future__ import annotations

import asyncio

from boatlift.testing.statement_proxy import StatementProxy

__all__ = ["MysqlProxy"]

_QUERY = 3
_OK, _END, _ERROR = 0x00, 0xFE, 0xFF
_LONGEST_END = 4 + 8


class MysqlProxy(StatementProxy):
    """Asks for each statement what becomes of it; without TLS.

        with MysqlProxy(server.port, lambda sql: ProxyFault.RESET_AFTER if sql == "COMMIT" else ProxyFault.NONE):
            …

    Args:
        fault: From the text of a statement to what becomes of it; called on the proxy's thread. The faults of HTTP,
            `REFUSED`, `REFUSED_AFTER` and `TWICE`, do not exist here.
    """

    async def _message(self, reader: asyncio.StreamReader) -> bytes:
        head = await reader.readexactly(4)  # three bytes of length, and a number that begins anew with each statement
        return head + await reader.readexactly(int.from_bytes(head[:3], "little"))

    def _statement_in(self, message: bytes) -> str | None:
        is_query = len(message) > 4 and message[3] == 0 and message[4] == _QUERY
        return message[5:].decode(errors="replace") if is_query else None

    def _ends(self, message: bytes, before: list[bytes]) -> bool:
        if not before:
            return message[4] in (_OK, _END, _ERROR)
        # The columns of a result end so, then its rows.
        ends = sum(each[4] == _END and len(each) <= _LONGEST_END for each in [*before, message] if len(each) > 4)
        return message[4:5] == bytes([_ERROR]) or ends == 2
