"""A table of a MariaDB or MySQL database as a sink."""
