"""Fills the tables that the dashboard reads: keys and identities, what belongs to them, and the audit log."""

import hashlib, os, sqlite3, subprocess, time

WORKSPACE = "ws_default"
NOW_MS = int(time.time() * 1000)
# One of so many keys is disabled, has expired, has a permission.
DISABLED_EACH, EXPIRED_EACH, PERMITTED_EACH = 5_000, 1_000, 10
ROOT_KEYS, ROLES, PERMISSIONS, NAMESPACES, OVERRIDES = 1_000, 1_000, 1_000, 100, 10_000


class Database:
    """The database of the server: a directory with the files of an embedded server, or the URL of a Postgres."""

    def __init__(self, directory, url):
        self.directory, self.url = directory, url

    def path(self, file):
        return os.path.join(self.directory, file)

    def copy(self, table, columns, rows, file="keyward.db"):
        if self.url:
            copy_to_postgres(self.url, table, columns, rows)
            return
        places = ", ".join("?" * len(columns.split(",")))
        database = self.connect(file)
        database.execute("BEGIN")
        database.executemany(f"INSERT INTO {table} ({columns}) VALUES ({places})", rows)
        database.execute("COMMIT")
        database.close()

    def execute(self, statements, file="keyward.db"):
        """Runs statements one by one."""
        if self.url:
            words = [word for sql in statements for word in ("--command", sql)]
            run_psql(self.url, ["--command", "SET client_min_messages = warning; SET search_path = keyward_events, public", *words])
            return
        database = self.connect(file)
        for sql in statements:
            database.execute(sql)
        database.close()

    def connect(self, file):
        """Opens a file for fast inserts: nothing has to survive a crash of the machine."""
        database = sqlite3.connect(self.path(file), isolation_level=None)
        for sql in ["PRAGMA synchronous = OFF", "PRAGMA cache_size = -500000"]:
            database.execute(sql)
        return database


def run_psql(url, words, **options):
    command = ["psql", "--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", *words, url]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **options)


def copy_to_postgres(url, table, columns, rows):
    def text(value):
        if value is None:
            return "\\N"
        if isinstance(value, bytes):
            return "\\\\x" + value.hex()
        return str(value).replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")

    sql = f"COPY {table} ({columns}) FROM STDIN"
    command = ["psql", "--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--command", sql, url]
    copy = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
    for row in rows:
        copy.stdin.write("\t".join(map(text, row)) + "\n")
    copy.stdin.close()
    if copy.wait() != 0:
        raise SystemExit(f"psql failed to fill {table}")


def digest(kind, number):
    """An id that is as scattered as those of the server, without the letters that these do not have."""
    return hashlib.md5(f"{kind}{number}".encode()).hexdigest()[:22].replace("0", "z")


def key_name(number, keys):
    """The oldest hundredth is named otherwise."""
    return f"{'legacy' if number <= keys // 100 else 'job'} {number} of Ünïcorn"


def key_row(apis, number, keys):
    name, owner = key_name(number, keys), f"user_{number}"
    expires_at = NOW_MS - 1_000 if number % EXPIRED_EACH == 7 else None
    enabled = number % DISABLED_EACH != 11
    return (
        f"key_{digest('k', number)}", WORKSPACE, api_of_key(apis, number), f"hash {number}", f"live_{digest('s', number)[:4]}",
        16, name, f"id_{digest('i', number)}", owner, enabled, expires_at, key_time(number, keys), f"{name}\n{owner}".lower(),
    )


def key_time(number, keys):
    return NOW_MS - (keys - number) * 1_000


def api_of_key(apis, number):
    """Half of the keys are those of the first API."""
    return apis[0] if number % 2 else apis[number // 2 % len(apis)]


def identity_row(number):
    identity, external = f"id_{digest('i', number)}", f"user_{number}"
    return (identity, WORKSPACE, external, NOW_MS, f"{identity}\n{external}")


def audit_row(number, keys):
    """The entry of a key that was created. One of 100,000 keys was then disabled by somebody else."""
    is_update = number % 100_000 == 50_000
    event, actor = ("key.update", "ada@example.com") if is_update else ("key.create", "deploy")
    target = f'[{{"type":"key","id":"key_{digest("k", number)}","name":"{key_name(number, keys)}"}}]'
    time_ms, entry = key_time(number, keys), f"log_{digest('a', number)}"
    return (entry, WORKSPACE, time_ms, event, "key", f"root_{digest('u', 1)}", actor, "192.0.2.7", target, digest("c", number))


KEY_COLUMNS = "id, workspace_id, api_id, hash, start, byte_length, name, identity_id, owner_id, enabled, expires_at, created_at, search"
AUDIT_COLUMNS = "id, workspace_id, at, event, actor_type, actor_id, actor_name, remote_address, targets, correlation_id"


def fill(database, apis, keys):
    """Inserts the rows. Returns the ids of a namespace and a role."""
    numbers = range(1, keys + 1)
    tables = [
        ("identities", "id, workspace_id, external_id, created_at, search", map(identity_row, numbers)),
        ("keys", KEY_COLUMNS, (key_row(apis, number, keys) for number in numbers)),
        ("audit", AUDIT_COLUMNS, (audit_row(number, keys) for number in numbers)),
        *small_tables(keys),
    ]
    for table, columns, rows in tables:
        began = time.monotonic()
        database.copy(table, columns, rows)
        if time.monotonic() - began > 1:
            print(f"{table}: filled in {time.monotonic() - began:.1f} s", flush=True)
    return f"rlns_{digest('n', 1)}", f"role_{digest('r', 1)}"


def small_tables(keys):
    named = lambda prefix, kind, count: [(f"{prefix}_{digest(kind, n)}", n) for n in range(1, count + 1)]
    permissions = named("perm", "p", PERMISSIONS)
    namespaces = named("rlns", "n", NAMESPACES)
    searched = "id, workspace_id, name, created_at, search"
    yield "permissions", "id, workspace_id, slug, name, created_at, search", (
        (id, WORKSPACE, f"documents.{n}", f"Documents {n}", NOW_MS, f"{id}\ndocuments.{n}") for id, n in permissions
    )
    yield "roles", searched, (
        (id, WORKSPACE, f"editors {n}", NOW_MS, f"{id}\neditors {n}") for id, n in named("role", "r", ROLES)
    )
    yield "key_permissions", "key_id, permission_id", (
        (f"key_{digest('k', n)}", permissions[n // PERMITTED_EACH % PERMISSIONS][0])
        for n in range(PERMITTED_EACH, keys + 1, PERMITTED_EACH)
    )
    yield "namespaces", searched, (
        (id, WORKSPACE, f"requests {n}", NOW_MS, f"{id}\nrequests {n}") for id, n in namespaces
    )
    yield "overrides", 'id, namespace_id, identifier, "limit", duration_ms, created_at, search', (
        (id, namespaces[0][0], f"user_{n}", 100, 60_000, NOW_MS, f"{id}\nuser_{n}")
        for id, n in named("rlor", "o", OVERRIDES)
    )
    yield "root_keys", "id, workspace_id, hash, start, name, permissions, created_at, search", (
        (id, WORKSPACE, f"hash {n}", "unkey_abcd", f"service {n}", '["api.*.verify_key"]', NOW_MS - n, f"{id}\nservice {n}")
        for id, n in named("root", "u", ROOT_KEYS)
    )
