"""HTTP servers: a thread each, the requests that they admit, and what a client may take of them.

`server` serves an application of ASGI until it is closed. `admission` refuses requests of foreign web pages, for other
hosts, and without the token. `connections` bounds the time and the memory that clients take. Sources of pushed rows and
the console stand on these.
"""
