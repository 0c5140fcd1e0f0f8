"""The Spark session, its JVM and its Python workers. Read `session.py`, then `jvm.py` and `worker_daemon.py`."""
