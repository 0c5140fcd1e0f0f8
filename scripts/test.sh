#!/bin/sh
# Runs the tests in two phases (`make test`), each two at a time: those that start no JVM, then those on Spark or Kafka, whose
# workers each have a session and a broker; the tests of a file go to one. Three at a time are no quicker on two cores: nothing
# is idle, and steps become so slow that dataflows do other things. Both phases run even if the first fails; either failure is a
# failure.
#
# Long tests take turns (tests/support/turns.py): each commit has one of TURNS shares of them, and TURN=record runs all.
set -u
cd "$(dirname "$0")/.."
export TURN="${TURN:-$(git rev-list --count HEAD 2>/dev/null || echo 0)}"

# No test selected is no failure of a phase: `make test ARGS="-k name"` may pick from one only.
phase() {
    .venv/bin/python -m pytest --durations=30 --durations-min=5 "$@"
    status=$?
    [ "$status" -eq 5 ] && status=0
    return "$status"
}

failed=0
echo "tests without a JVM"
phase -n 2 -m "not spark and not cluster and not crash and not kafka" "$@" || failed=1
echo "tests on Spark and Kafka"
.venv/bin/python scripts/kafka_jars.py || failed=1
phase -n 2 --dist loadfile --no-loadscope-reorder -m "spark or cluster or crash or kafka" "$@" || failed=1
exit "$failed"
