#!/bin/sh
# Runs the tests in two phases (`make test`): those that start no JVM two at a time, then those on Spark in one process
# that shares its session. Both run even if the first fails; either failure is a failure.
set -u
cd "$(dirname "$0")/.."

# No test selected is no failure of a phase: `make test ARGS="-k name"` may pick from one only.
phase() {
    .venv/bin/python -m pytest "$@"
    status=$?
    [ "$status" -eq 5 ] && status=0
    return "$status"
}

failed=0
echo "tests without a JVM"
phase -n 2 -m "not spark and not cluster and not crash" "$@" || failed=1
echo "tests on Spark"
phase -m "spark or cluster or crash" "$@" || failed=1
exit "$failed"
