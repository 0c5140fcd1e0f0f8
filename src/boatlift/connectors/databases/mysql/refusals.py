"""What a server's refusals mean: its numbers of errors, and those of the client, as Boatlift's errors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from boatlift.connectors.databases.mysql.address import MysqlAddress
from boatlift.errors import BoatliftError, DataError, InvalidError, UnavailableError

if TYPE_CHECKING:
    import pymysql

DUPLICATE, NO_SUCH_TABLE, COLUMN_IS_THERE = 1062, 1146, 1060

_PASSING = {
    0, 2002, 2003, 2006, 2013, 2014, 2055, 4031,  # no connection, or one that was lost
    1213, 1317, 1927,  # a deadlock; a statement or a session that somebody has ended
    1021, 1037, 1038, 1040, 1041, 1114, 1203, 1226,  # disk, memory, connections
    1053, 1077, 1080, 1152, 1158, 1159, 1160, 1161, 1180, 1184,  # the server ends; the network
}  # fmt: skip
_LOCKED = {1205, 3572}
_TOO_SLOW = {1969, 3024}
_NOT_ADMITTED = {1045, 1130, 1251, 1275, 1524, 1698, 1820, 1862, 2026, 2059, 3118, 3159, 4151}
_NOT_PERMITTED = {1044, 1142, 1143, 1227, 1370, 1410, 1419}
_TAKES_NO_WRITES = {1290, 1792, 1836, 3100}
_BAD_COLUMNS = {1060, 1069, 1070, 1071, 1089, 1102, 1113, 1117, 1118, 1166, 1170, 4155}
_BAD_DECIMAL = {1425, 1426, 1427}
_BAD_VALUE = {1153, 1264, 1265, 1292, 1300, 1301, 1366, 1367, 1406, 3854}
_VIOLATION = {1048, DUPLICATE, 1216, 1217, 1364, 1451, 1452, 1644, 3819, 4025}
_ALTERED = {1054, 1136, NO_SUCH_TABLE, 1347, 1471, 3105}

_CERTIFICATE = re.compile(r"certificate|hostname mismatch|SSL|TLS", re.IGNORECASE)


def number_of(error: pymysql.MySQLError) -> int:
    """Return the number of an error; 0 if the client found that an answer is none."""
    first = error.args[0] if error.args else 0
    return first if isinstance(first, int) else 0


def is_passing(error: pymysql.MySQLError) -> bool:
    """Return whether the same transaction may succeed later."""
    number = number_of(error)
    return number in _PASSING and not (number == 2003 and _CERTIFICATE.search(str(error)))


def error_of(error: pymysql.MySQLError, place: str, address: MysqlAddress) -> BoatliftError:
    """Return Boatlift's error for one that does not pass."""
    number = number_of(error)
    text = " ".join(str(error.args[-1] if error.args else error).split())[:400]
    if number == 1049:
        create = f"CREATE DATABASE `{address.database}`"
        return InvalidError("SINK_UNSUITABLE", f"there is no database {address}: make it ({create}), or correct it")
    if number in _NOT_ADMITTED or number == 2003:
        return InvalidError(
            "NOT_ADMITTED",
            f"{address} refuses this client ({text}): give user and password in the URL, in MYSQL_PWD or in "
            "~/.my.cnf, and the certificates that the server asks for",
        )
    if number in _TAKES_NO_WRITES:
        return InvalidError("SINK_UNSUITABLE", f"{address} takes no writes ({text}): give the primary's address")
    if number in _LOCKED:
        return UnavailableError("SINK_LOCKED", f"{place}: {text}")
    if number in _NOT_PERMITTED:
        return InvalidError(
            "NOT_PERMITTED",
            f"{address} does not permit it ({text}): have granted to the user: SELECT, INSERT, UPDATE, DELETE, "
            f"CREATE, ALTER, CREATE TEMPORARY TABLES ON `{address.database}`.*",
        )
    if number in _TOO_SLOW:
        return UnavailableError("SINK_FAILED", f"{place}: {text}: choose a longer statement_timeout, then run again")
    if number in _BAD_COLUMNS:
        return InvalidError("SCHEMA_MISMATCH", f"{place} cannot have these columns ({text}): rename or drop one")
    if number in _BAD_DECIMAL:
        return InvalidError("TYPE_REFUSED", f"{place} cannot have a decimal ({text}): cast it in a transform")
    if number in _BAD_VALUE:
        return DataError("VALUE_REFUSED", f"{place} cannot hold a value ({text}): change or filter it before the sink")
    if number in _VIOLATION:
        return DataError(
            "VALUE_REFUSED",
            f"a row violates a constraint of {place} ({text}): drop the constraint, or filter the row before the sink",
        )
    if number in _ALTERED:
        return DataError("SINK_DAMAGED", f"{place} was altered ({text}): restore it")
    return UnavailableError("SINK_FAILED", f"{place}: {text}; mend that, then run again")
