# shellcheck shell=bash
# shellcheck disable=SC2034
# Private PostgreSQL, Redis and other servers, which run as long as the script that sources this file (their owner).
#
# Every server listens on a free port of 127.0.0.1 and requires a random password, because other users of the machine can
# reach the loopback too. Data, logs and process ids are in $SERVERS_DIR. Each process leads its own process group, so
# that Ctrl-C reaches only the owner, which stops the processes in order. A watchdog does so when the owner is killed.
#
# This file uses only bash 3.2, the version of macOS, and bash's own /dev/tcp, because a minimal Debian has no curl.

# shellcheck source=deploy/programs.sh
. "$(dirname "${BASH_SOURCE[0]}")/programs.sh"

# Unsets KEYWARD_ variables, so the user's environment does not affect the servers of the script.
forget_keyward_settings() {
    local name
    for name in LISTEN DATA_DIR DATABASE_URL REDIS_URL CLICKHOUSE_URL ROOT_KEY MASTER_KEY PUBLIC_URL TLS_CERT TLS_KEY; do
        unset "KEYWARD_$name" "KEYWARD_${name}_FILE"
    done
}

random_hex() { # BYTES
    od -An -v -tx1 -N"$1" /dev/urandom | tr -d ' \n'
}

# Creates $SERVERS_DIR (in PARENT if given), which is also the directory for temporary files, and ensures that it is deleted
# and every process in it is stopped when the owner exits.
open_servers_dir() { # [PARENT]
    local parent=${1:-${TMPDIR:-/tmp}}
    if [ -z "${1-}" ] && [ "$(id -u)" -eq 0 ]; then
        # PostgreSQL then runs as another user, which has no access to directories of root.
        parent=/tmp
    fi
    SERVERS_DIR=$(mktemp -d "${parent%/}/keyward.XXXXXX")
    if [ "$(id -u)" -eq 0 ]; then
        chmod 711 "$SERVERS_DIR"
    fi
    export TMPDIR=$SERVERS_DIR
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    trap close_servers_dir EXIT
    start_watchdog
}

# The owner holds the only write end of a pipe, so a read from it returns when the owner exits, even by SIGKILL.
start_watchdog() {
    mkfifo -m 600 "$SERVERS_DIR/owner"
    exec 9<>"$SERVERS_DIR/owner"
    set -m
    (
        trap '' HUP INT TERM
        trap - EXIT
        read -r <"$SERVERS_DIR/owner" || true
        remove_servers_dir
    ) 9>&- </dev/null >/dev/null 2>&1 &
    set +m
    WATCHDOG=$!
}

close_servers_dir() {
    trap '' HUP INT TERM
    remove_servers_dir
    exec 9>&-
    wait "$WATCHDOG" 2>/dev/null || true
}

# The databases are stopped last, so that the replicas can deregister.
remove_servers_dir() {
    local file name first=()
    for file in "$SERVERS_DIR"/*.pid; do
        name=$(basename "$file" .pid)
        case $name in
            '*' | postgres | redis | clickhouse) ;;
            *) first+=("$name") ;;
        esac
    done
    if [ ${#first[@]} -gt 0 ]; then
        end_processes TERM 30 "${first[@]}"
    fi
    # On SIGTERM, PostgreSQL waits until all clients have disconnected. SIGINT is its fast shutdown.
    end_processes INT 10 postgres redis clickhouse
    rm -rf "$SERVERS_DIR"
}

# Sets PORT to an unused port of the loopback, below the range of ephemeral ports.
PORT=$((20000 + RANDOM % 10000))
next_free_port() {
    PORT=$((PORT + 1))
    while (: <>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null; do
        PORT=$((PORT + 1))
    done
}

# Starts COMMAND; its output goes to $SERVERS_DIR/NAME.log.
launch() { # NAME COMMAND...
    local name=$1
    shift
    set -m
    "$@" </dev/null >>"$SERVERS_DIR/$name.log" 2>&1 9>&- &
    set +m
    echo $! >"$SERVERS_DIR/$name.pid"
    # Prevents a message of the shell when the process is killed.
    disown
}

# Runs COMMAND to its end with the owner's output. A signal to the owner takes effect at once; with a command in the
# foreground, the shell would handle it only afterwards. COMMAND_NAME distinguishes commands that run at the same time.
run_command() { # COMMAND...
    local status=0 name=${COMMAND_NAME-command}
    set -m
    "$@" </dev/null 9>&- &
    set +m
    echo $! >"$SERVERS_DIR/$name.pid"
    wait $! || status=$?
    end_processes TERM 5 "$name"
    return "$status"
}

process_id() { # NAME
    cat "$SERVERS_DIR/$1.pid" 2>/dev/null
}

# A process that has exited but was not reaped by process 1 (a zombie) is not running.
is_running() { # NAME
    local id stat
    id=$(process_id "$1") && kill -0 "$id" 2>/dev/null || return
    if [ -e "/proc/$id/stat" ]; then
        read -r stat 2>/dev/null <"/proc/$id/stat" || return
        [[ $stat != *') Z '* ]]
    fi
}

# Signals the processes (continuing those that a test has stopped), waits, and kills the process groups of those that are
# still running.
end_processes() { # SIGNAL SECONDS NAME...
    local signal=$1 tries=$(($2 * 20)) name
    shift 2
    for name in "$@"; do
        if is_running "$name"; then
            kill "-$signal" -- "-$(process_id "$name")" 2>/dev/null || true
            kill -CONT -- "-$(process_id "$name")" 2>/dev/null || true
        fi
    done
    for name in "$@"; do
        [ -e "$SERVERS_DIR/$name.pid" ] || continue
        while is_running "$name" && [ "$tries" -gt 0 ]; do
            sleep 0.05
            tries=$((tries - 1))
        done
        kill -KILL -- "-$(process_id "$name")" 2>/dev/null || true
        rm -f "$SERVERS_DIR/$name.pid"
    done
}

# Waits until COMMAND succeeds, which means that process NAME is ready; otherwise prints the end of its log.
wait_until_ready() { # NAME SECONDS COMMAND...
    local name=$1 tries=$(($2 * 20))
    shift 2
    until "$@" >/dev/null 2>&1; do
        if ! is_running "$name" || [ "$tries" -eq 0 ]; then
            tail -n 20 "$SERVERS_DIR/$name.log" >&2
            "$@" >&2 || true
            die "$name did not start: see the end of its log and the output of the last readiness check above."
        fi
        sleep 0.05
        tries=$((tries - 1))
    done
}

# Creates and starts a PostgreSQL server and sets DATABASE_URL. SETTINGs are lines of postgresql.conf.
start_postgres() { # SETTING...
    local password dir=$SERVERS_DIR/postgres
    password=$(random_hex 16)
    next_free_port
    POSTGRES_PORT=$PORT
    DATABASE_URL=postgres://keyward:$password@127.0.0.1:$PORT/keyward

    # The password is sent in clear text over the loopback and stored as one MD5 hash: SCRAM, on either side, would cost
    # 4096 hashes for each connection of a test run. initdb can store it as SCRAM only.
    (
        umask 077
        mkdir "$dir"
        printf '%s\n' "$password" >"$dir/password"
        own_for_postgres "$dir" "$dir/password"
        as_postgres_user "$POSTGRES_BIN/initdb" --pgdata="$dir/data" --username=keyward --pwfile="$dir/password" \
            --auth=password --encoding=UTF8 --no-locale --no-sync >"$SERVERS_DIR/postgres.log" 2>&1
    ) || {
        cat "$SERVERS_DIR/postgres.log" >&2
        die "PostgreSQL's initdb failed; see its output above."
    }
    printf '%s\n' "listen_addresses = '127.0.0.1'" "port = $PORT" "unix_socket_directories = ''" "$@" \
        >>"$dir/data/postgresql.conf"

    launch_postgres
    wait_until_ready postgres 30 query_postgres postgres 'SELECT 1'
    query_postgres postgres "SET password_encryption = 'md5'; ALTER ROLE keyward PASSWORD '$password'"
    query_postgres postgres 'CREATE DATABASE keyward'
}

# Without a valid locale, PostgreSQL on macOS becomes multithreaded and then refuses to start.
launch_postgres() {
    launch postgres as_postgres_user env LC_ALL=C "$POSTGRES_BIN/postgres" -D "$SERVERS_DIR/postgres/data"
}

query_postgres() { # DATABASE SQL
    # From its input, since arguments are public and the text may contain the password.
    PATH=$POSTGRES_BIN:$PATH PGPASSWORD=$(password_of "$DATABASE_URL") psql --no-psqlrc --quiet \
        --host=127.0.0.1 --port="$POSTGRES_PORT" --username=keyward --dbname="$1" --set=ON_ERROR_STOP=1 <<<"$2" >/dev/null
}

# PostgreSQL refuses to run as root. This replaces the calling shell, so that the process id is that of the server.
as_postgres_user() { # COMMAND...
    cd "$SERVERS_DIR" || exit
    if [ "$(id -u)" -ne 0 ]; then
        exec "$@"
    elif command -v setpriv >/dev/null; then
        exec setpriv --reuid="$(postgres_user)" --regid="$(id -g "$(postgres_user)")" --clear-groups -- "$@"
    fi
    echo "PostgreSQL refuses to run as root and setpriv is missing: run this command as an ordinary user."
    exit 1
}

own_for_postgres() { # PATH...
    if [ "$(id -u)" -eq 0 ]; then
        chown "$(postgres_user)" "$@"
    fi
}

postgres_user() {
    if id -u postgres >/dev/null 2>&1; then
        echo postgres
    else
        echo nobody
    fi
}

# Creates and starts a Redis server and sets REDIS_URL. SETTINGs are lines of redis.conf.
start_redis() { # NAME SETTING...
    local name=$1 password
    shift
    password=$(random_hex 16)
    next_free_port
    REDIS_PORT=$PORT
    REDIS_URL=redis://default:$password@127.0.0.1:$PORT/0

    mkdir -m 700 "$SERVERS_DIR/$name"
    (
        umask 077
        printf '%s\n' 'bind 127.0.0.1' "port $PORT" "requirepass $password" "dir $SERVERS_DIR/$name" "$@" \
            >"$SERVERS_DIR/$name/redis.conf"
    )
    launch_redis "$name"
    wait_until_ready "$name" 10 ping_redis
}

launch_redis() { # NAME
    launch "$1" "$REDIS_SERVER" "$SERVERS_DIR/$1/redis.conf"
}

ping_redis() (
    exec 3<>"/dev/tcp/127.0.0.1/$REDIS_PORT"
    printf 'AUTH %s\r\nPING\r\n' "$(password_of "$REDIS_URL")" >&3
    read -r -t 2 _ <&3
    read -r -t 2 reply <&3
    [ "$reply" = $'+PONG\r' ]
)

# Creates and starts a ClickHouse server and sets CLICKHOUSE_URL.
start_clickhouse() {
    local password dir=$SERVERS_DIR/clickhouse
    password=$(random_hex 16)
    next_free_port
    CLICKHOUSE_PORT=$PORT
    CLICKHOUSE_URL=http://default:$password@127.0.0.1:$PORT
    next_free_port
    mkdir -m 700 "$dir"
    # Old and new versions accept this root element, which is the original name.
    cat >"$dir/config.xml" <<EOF
<yandex>
    <logger><level>warning</level><console>1</console></logger>
    <listen_host>127.0.0.1</listen_host>
    <http_port>$CLICKHOUSE_PORT</http_port>
    <tcp_port>$PORT</tcp_port>
    <path>$dir/data/</path>
    <tmp_path>$dir/tmp/</tmp_path>
    <format_schema_path>$dir/schemas/</format_schema_path>
    <users_config>$dir/users.xml</users_config>
    <default_profile>default</default_profile>
    <default_database>default</default_database>
    <mark_cache_size>67108864</mark_cache_size>
    <timezone>UTC</timezone>
</yandex>
EOF
    cat >"$dir/users.xml" <<EOF
<yandex>
    <profiles><default></default></profiles>
    <quotas><default></default></quotas>
    <users><default>
        <password>$password</password>
        <networks><ip>127.0.0.1</ip></networks>
        <profile>default</profile>
        <quota>default</quota>
    </default></users>
</yandex>
EOF
    # shellcheck disable=SC2086
    launch clickhouse $CLICKHOUSE_SERVER --config-file="$dir/config.xml"
    wait_until_ready clickhouse 30 ping_clickhouse
}

ping_clickhouse() (
    exec 3<>"/dev/tcp/127.0.0.1/$CLICKHOUSE_PORT" || exit
    printf 'GET /ping HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n' >&3
    grep '^Ok' <&3
)

password_of() { # URL
    local rest=${1#*://*:}
    printf '%s' "${rest%%@*}"
}

# Starts BINARY as a server on 127.0.0.1:PORT with the VARIABLE=VALUEs.
launch_keyward() { # NAME BINARY PORT VARIABLE=VALUE...
    local name=$1 binary=$2 port=$3
    shift 3
    launch "$name" env KEYWARD_LISTEN="127.0.0.1:$port" "$@" "$binary" serve
}

wait_for_keyward() { # NAME BINARY PORT
    wait_until_ready "$1" 60 env KEYWARD_LISTEN="127.0.0.1:$3" "$2" health
    wait_until_ready "$1" 60 has_its_servers "$3"
}

# A replica is healthy before it has reached PostgreSQL and Redis; this checks that it has.
has_its_servers() ( # PORT
    exec 3<>"/dev/tcp/127.0.0.1/$1" || exit
    printf 'GET /readyz HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n' >&3
    grep '"status":"ready"' <&3
)
