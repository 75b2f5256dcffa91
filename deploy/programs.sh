# shellcheck shell=bash
# Finds the programs that scripts need, and installs missing ones. Uses only bash 3.2, the version of macOS.

# Debian installs haproxy outside of an ordinary user's PATH; tests that start it inherit this PATH.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

say() {
    printf '%s\n' "$*" >&2
}

die() {
    say "$*"
    exit 1
}

# Installs every missing PROGRAM (compiler, postgres, redis, haproxy, faketime, clickhouse, node, python, chromium), and sets
# POSTGRES_BIN, REDIS_SERVER, FAKETIME_LIBRARY and CLICKHOUSE_SERVER.
need_programs() { # PROGRAM...
    local program missing=()
    for program in "$@"; do
        "has_$program" || missing+=("$program")
    done
    if [ ${#missing[@]} -eq 0 ]; then
        return
    fi

    say "Installing missing programs: ${missing[*]}."
    install_programs "${missing[@]}" || say "The installation failed."
    for program in "${missing[@]}"; do
        "has_$program" || die "$program is missing and could not be installed with apt-get or brew: install it, then run this command again."
    done
}

has_compiler() {
    command -v cc >/dev/null
}

# Uses the last directory found: one on the PATH takes precedence over Debian's, and there the highest version.
has_postgres() {
    local bin
    POSTGRES_BIN=
    for bin in /usr/local/opt/postgresql*/bin /opt/homebrew/opt/postgresql*/bin \
        $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -t/ -k5,5n) "$(dirname "$(command -v initdb)")"; do
        if [ -x "$bin/initdb" ] && [ -x "$bin/postgres" ]; then
            POSTGRES_BIN=$bin
        fi
    done
    [ -n "$POSTGRES_BIN" ]
}

has_redis() {
    REDIS_SERVER=$(command -v redis-server || command -v valkey-server)
}

# ClickHouse's own package is one program with several names; the brew package has one name.
has_clickhouse() {
    if CLICKHOUSE_SERVER=$(command -v clickhouse-server); then
        return
    fi
    CLICKHOUSE_SERVER=$(command -v clickhouse) && CLICKHOUSE_SERVER="$CLICKHOUSE_SERVER server"
}

has_haproxy() {
    command -v haproxy >/dev/null
}

# A library that changes the time that a process sees.
has_faketime() {
    local library
    FAKETIME_LIBRARY=
    for library in /usr/lib/*/faketime/libfaketimeMT.so.1 /usr/local/lib/faketime/libfaketimeMT.so.1 \
        /usr/local/opt/libfaketime/lib/faketime/libfaketime.1.dylib \
        /opt/homebrew/opt/libfaketime/lib/faketime/libfaketime.1.dylib; do
        if [ -e "$library" ]; then
            FAKETIME_LIBRARY=$library
        fi
    done
    [ -n "$FAKETIME_LIBRARY" ]
}

# Node 18 is the oldest version that the official client supports.
has_node() {
    node -e 'process.exit(parseInt(process.versions.node) >= 18 ? 0 : 1)' && npm --version
} >/dev/null 2>&1

# The official client requires Python 3.10.
has_python() {
    python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))'
} >/dev/null 2>&1

has_chromium() {
    [ -x "${KEYWARD_CHROMIUM:-/usr/bin/chromium}" ]
}

install_programs() { # PROGRAM...
    local program packages=()
    if command -v apt-get >/dev/null; then
        for program in "$@"; do
            case $program in
                compiler) packages+=(gcc libc6-dev) ;;
                postgres) packages+=(postgresql) ;;
                redis) packages+=(redis-server) ;;
                clickhouse) packages+=(clickhouse-server) ;;
                node) packages+=(nodejs npm) ;;
                python) packages+=(python3 python3-venv) ;;
                *) packages+=("$program") ;;
            esac
        done
        as_root bash -c "$(declare -f install_without_services); install_without_services \"\$@\"" bash "${packages[@]}"
    elif command -v brew >/dev/null; then
        for program in "$@"; do
            case $program in
                compiler) die "A C compiler is missing: run xcode-select --install, then run this command again." ;;
                postgres) packages+=(postgresql@17) ;;
                faketime) packages+=(libfaketime) ;;
                *) packages+=("$program") ;;
            esac
        done
        brew install "${packages[@]}" >&2
    else
        return 1
    fi
}

as_root() { # COMMAND...
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        say "Installing packages requires root or sudo."
        return 1
    fi
}

# Installs Debian packages without creating and starting their system services. This runs as root in its own bash, so that
# the services are allowed again however it ends.
install_without_services() { # PACKAGE...
    exec >&2 </dev/null
    local policy=/usr/sbin/policy-rc.d clusters=/etc/postgresql-common/createcluster.d service
    MADE=()
    trap 'rm -f "${MADE[@]}"' EXIT
    trap 'exit 1' HUP INT TERM
    if [ ! -e "$policy" ]; then
        MADE+=("$policy")
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
    fi
    if [[ " $* " = *" postgresql "* ]]; then
        MADE+=("$clusters/keyward-test.conf")
        mkdir -p "$clusters"
        echo 'create_main_cluster = false' >"$clusters/keyward-test.conf"
    fi

    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update || echo "apt-get update failed; installing from the existing package lists."
    apt-get -qq install --no-install-recommends -o DPkg::Lock::Timeout=300 "$@" || return

    for service in "$@"; do
        case $service in
            redis-server | haproxy | clickhouse-server) update-rc.d "$service" disable ;;
        esac
    done
}
