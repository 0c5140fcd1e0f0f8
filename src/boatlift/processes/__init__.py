"""The processes of Spark: the session, its JVM, its Python workers. Nothing here knows what they compute.

Read `session`, then `jvm` and `worker_daemon`. `settings` and `environment` say what results depend on.
"""
