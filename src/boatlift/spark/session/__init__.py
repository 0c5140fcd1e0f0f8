"""The Spark session, its JVM and its Python workers. Read `session.py` first, then `jvm.py` and `worker_daemon.py`."""
