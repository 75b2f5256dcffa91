# shellcheck shell=bash
# shellcheck disable=SC2034
# Finds the programs that scripts need, and offers to install missing ones with apt-get or brew. Uses only bash 3.2, the
# version of macOS.

# Debian installs haproxy outside of an ordinary user's PATH; tests that start it inherit this PATH.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

say() {
    printf '%s\n' "$*" >&2
}

die() {
    say "$*"
    exit 1
}

# Ensures that every PROGRAM is installed, and sets CLICKHOUSE_SERVER, FAKETIME_LIBRARY, POSTGRES_BIN and REDIS_SERVER for
# those. Installs missing programs only if that is allowed.
need_programs() { # PROGRAM...
    find_missing "$@"
    [ ${#MISSING[@]} -gt 0 ] || return 0

    say "Missing programs: ${MISSING[*]}."
    choose_packages
    [ -n "$INSTALL" ] || die "Install them, then run this command again."
    say "The command that installs them: $INSTALL ${PACKAGES[*]}"
    may_install || die "Nothing was installed. Install them, or run this command again with --yes."
    install_packages || say "The installation failed."
    find_missing "${MISSING[@]}"
    [ ${#MISSING[@]} -eq 0 ] || die "Still missing: ${MISSING[*]}. Install them, then run this command again."
}

# Sets MISSING.
find_missing() { # PROGRAM...
    local program
    MISSING=()
    for program in "$@"; do
        has_program "$program" || MISSING+=("$program")
    done
}

# Most are commands with this name.
has_program() { # PROGRAM
    if declare -F "has_$1" >/dev/null; then
        "has_$1"
    else
        command -v "$1" >/dev/null
    fi
}

# Sets ARGUMENTS to those that are not --yes, and MAY_INSTALL.
MAY_INSTALL=no
read_yes() { # ARGUMENT...
    local argument
    ARGUMENTS=()
    for argument in "$@"; do
        if [ "$argument" = --yes ]; then
            MAY_INSTALL=yes
        else
            ARGUMENTS+=("$argument")
        fi
    done
}

# Asks if there is a terminal. Continuous integration and root in a container are not asked: the system is there for this
# run.
may_install() {
    local answer
    if [ "$MAY_INSTALL" = yes ] || [ -n "${CI-}" ] || { [ "$(id -u)" -eq 0 ] && is_container; } || ! has_terminal; then
        return
    fi
    printf 'Install them now? [Y/n] ' >&2
    if ! read -r answer; then
        say
        return 1
    fi
    [[ $answer =~ ^([Yy]([Ee][Ss])?)?$ ]]
}

has_terminal() {
    [ -t 0 ] && [ -t 2 ]
}

is_container() {
    [ -e /.dockerenv ] || [ -e /run/.containerenv ] || [ -n "${container-}${KUBERNETES_SERVICE_HOST-}" ] ||
        systemd-detect-virt --quiet --container
} 2>/dev/null

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

# FastMCP requires Python 3.11.
has_python() {
    python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'
} >/dev/null 2>&1

# Of the commands in this package, tests use pgrep and kill, which most other systems always have.
has_procps() {
    command -v pgrep && type -P kill
} >/dev/null

# Only Debian has a package of mod_auth_openidc.
has_apache() {
    [ -x /usr/sbin/apache2 ] && [ -e /usr/lib/apache2/modules/mod_auth_openidc.so ]
}

has_chromium() {
    [ -x "${KEYWARD_CHROMIUM:-/usr/bin/chromium}" ]
}

# Sets PACKAGES, those of the MISSING programs, and INSTALL, the command that installs them, which is empty if there is
# neither apt-get nor brew.
choose_packages() {
    local program
    PACKAGES=()
    INSTALL=
    if command -v apt-get >/dev/null; then
        INSTALL='apt-get install --no-install-recommends'
        [ "$(id -u)" -eq 0 ] || INSTALL="sudo $INSTALL"
        for program in "${MISSING[@]}"; do
            case $program in
                apache) PACKAGES+=(apache2-bin libapache2-mod-auth-openidc) ;;
                # The monospaced typeface in the pictures of the style guide.
                chromium) PACKAGES+=(chromium fonts-dejavu-core) ;;
                clickhouse) PACKAGES+=(clickhouse-server) ;;
                compiler) PACKAGES+=(gcc libc6-dev) ;;
                node) PACKAGES+=(nodejs npm) ;;
                postgres) PACKAGES+=(postgresql) ;;
                promtool) PACKAGES+=(prometheus) ;;
                python) PACKAGES+=(python3 python3-venv) ;;
                redis) PACKAGES+=(redis-server) ;;
                *) PACKAGES+=("$program") ;;
            esac
        done
    elif command -v brew >/dev/null; then
        INSTALL='brew install'
        for program in "${MISSING[@]}"; do
            case $program in
                apache) die "Run this command on Debian, which has Apache with mod_auth_openidc." ;;
                compiler) die "Install a C compiler with xcode-select --install, then run this command again." ;;
                faketime) PACKAGES+=(libfaketime) ;;
                postgres) PACKAGES+=(postgresql@17) ;;
                promtool) PACKAGES+=(prometheus) ;;
                *) PACKAGES+=("$program") ;;
            esac
        done
    fi
}

# With apt-get, no service of the packages starts, now or at the next boot: dpkg finds stand-ins for the commands that
# would start it. So nothing must be undone afterwards, however this ends.
install_packages() {
    if [[ $INSTALL = brew* ]]; then
        brew install "${PACKAGES[@]}" >&2
        return
    fi
    local stand_ins
    stand_ins=$(cd "$(dirname "${BASH_SOURCE[0]}")/without-services" && pwd)
    as_root apt-get -qq update || say "apt-get update failed; installing from the existing package lists."
    # Where there is needrestart, it would restart other services.
    as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
        apt-get -qq --yes install --no-install-recommends -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 \
        -o "DPkg::Path=$stand_ins:/usr/sbin:/usr/bin:/sbin:/bin" "${PACKAGES[@]}"
} </dev/null >&2

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
