"""Runs a dataflow of `kafka_flights` like `boatlift run`, perhaps to its death, and prints what its sinks do."""

import logging

from boatlift.testing.crash import main

logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
logging.getLogger("boatlift").setLevel(logging.INFO)
main()
