#!/bin/sh
# Makes everything that Boatlift's targets need (`make setup`): a virtual environment in .venv from nothing but
# python3 >= 3.11, with exactly the packages of requirements/*.txt, a Java >= 17, and the servers of databases and the
# browser that tests start. Quick when nothing has changed.
set -eu
cd "$(dirname "$0")/.."

oldest_java=17
stamp=.venv/setup-done

say() { echo "setup: $*"; }

stop() {
    echo "setup: $*" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

can_be_root() { [ "$(id -u)" -eq 0 ] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }; }

# --- Python ------------------------------------------------------------------------------------------------------------

find_python() {
    for name in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if command -v "$name" >/dev/null &&
            "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    have=$("${PYTHON:-python3}" --version 2>/dev/null || echo none)
    stop "Python 3.11 or newer is needed and ${PYTHON:-python3} is: $have." \
        "Install one, or name it: make setup PYTHON=/path/to/python3.11"
}

# What an installation depends on; the same text means there is nothing to do.
wanted() {
    cat requirements/build.txt requirements/lock.txt requirements/demo.txt pyproject.toml scripts/setup.sh | cksum
    pwd
}

make_environment() {
    python=$(find_python)
    # A half-made or moved environment is made again from nothing.
    if ! .venv/bin/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        "$python" -c 'import ensurepip, venv' 2>/dev/null || stop "$python cannot make virtual environments. Type:" \
            "sudo apt-get install -y $("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
        say "making .venv with $("$python" --version)"
        rm -rf .venv
        "$python" -m venv .venv
    fi
    say "installing the locked packages into .venv (PySpark is 450 MB: some minutes on a slow line)"
    install="env PIP_DISABLE_PIP_VERSION_CHECK=1 .venv/bin/python -m pip install --quiet"
    # First what builds the source packages among them, so that building fetches nothing that is not locked.
    $install --require-hashes -r requirements/build.txt
    $install --require-hashes --no-build-isolation -r requirements/lock.txt
    # The flights are data; the packages that this one asks for are years old and not needed to read them.
    $install --require-hashes --no-build-isolation --no-deps -r requirements/demo.txt
    $install --no-build-isolation --no-deps -e .
    wanted >"$stamp"
    say ".venv is ready"
}

# --- Java --------------------------------------------------------------------------------------------------------------

# Prints the major version of a Java, or nothing if it does not run.
java_version() { "$1" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1; }

good_java() {
    version=$(java_version "$1")
    [ -n "$version" ] && [ "$version" -ge "$oldest_java" ]
}

# Spark takes JAVA_HOME first, then `java` of the PATH.
find_java() {
    if [ -n "${JAVA_HOME:-}" ]; then
        good_java "$JAVA_HOME/bin/java"
    else
        command -v java >/dev/null && good_java java
    fi
}

install_java() {
    say "no Java $oldest_java or newer was found: installing the system's package with apt-get"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless ||
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends default-jre-headless
}

provide_java() {
    find_java && return
    if [ -n "${JAVA_HOME:-}" ]; then
        stop "JAVA_HOME=$JAVA_HOME holds no Java $oldest_java or newer that runs. Correct it, or type: unset JAVA_HOME"
    fi
    for home in /usr/lib/jvm/* /opt/homebrew/opt/openjdk*; do
        if [ -x "$home/bin/java" ] && good_java "$home/bin/java"; then
            stop "the java of your PATH is not $oldest_java or newer, but there is one. Type: export JAVA_HOME=$home"
        fi
    done
    if command -v apt-get >/dev/null && can_be_root; then
        install_java
        find_java || stop "the Java that was installed does not run"
        return
    fi
    if command -v apt-get >/dev/null; then
        line="sudo apt-get install -y openjdk-17-jre-headless"
    elif command -v dnf >/dev/null; then
        line="sudo dnf install -y java-17-openjdk-headless"
    elif command -v brew >/dev/null; then
        line="brew install openjdk@17"
    else
        stop "Spark needs Java $oldest_java or newer: install one and set JAVA_HOME to its folder"
    fi
    stop "Spark needs Java $oldest_java or newer and there is none. Type: $line"
}

# --- PostgreSQL with a pooler before it, and MariaDB: servers that tests start; the browser of their pages ---------------

databases="postgresql pgbouncer mariadb-server"
browser="chromium"

find_databases() (
    PATH="$PATH:/usr/sbin"
    ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 && command -v pgbouncer >/dev/null &&
        command -v mariadbd >/dev/null
)

find_browser() { command -v chromium >/dev/null || command -v chromium-browser >/dev/null; }

# Installs packages of the system if it can, and else says how: provide PACKAGES NAMES MARKERS
provide() {
    if command -v apt-get >/dev/null && can_be_root; then
        say "$2 was not found: installing the system's packages with apt-get"
        as_root apt-get update -qq
        # shellcheck disable=SC2086 # several packages
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $1
        return
    fi
    say "tests marked $3 need it. Type: sudo apt-get install -y $1"
}

if [ "$(wanted)" != "$(cat "$stamp" 2>/dev/null || true)" ]; then
    make_environment
fi
provide_java
find_databases || provide "$databases" "PostgreSQL, PgBouncer or MariaDB" "postgres or mysql"
find_browser || provide "$browser" "Chromium" "browser"
