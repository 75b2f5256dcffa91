#!/usr/bin/env python3
"""Measures the lists and searches of the dashboard among many keys and identities.

    benches/search.py --binary target/release/keyward [--keys 1000000] [--requests 40]

Without more, the server is embedded. With --database-url and --redis-url, of an empty database, it is a replica; psql must be
on the PATH. The data is in a temporary directory of TMPDIR, which is deleted. Prints the median, the 95th percentile and the
maximum of each page, in milliseconds, as a browser on the same machine sees them.
"""

import argparse, hashlib, http.client, json, os, random, re, signal, sqlite3, subprocess, sys, tempfile, time, urllib.parse

NOW_MS = int(time.time() * 1000)
WORKSPACE = "ws_default"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--port", type=int, default=3999)
    parser.add_argument("--database-url")
    parser.add_argument("--redis-url")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="keyward-search-") as directory:
        measure(arguments, directory)


class Server:
    """The server, with its data in a directory."""

    def __init__(self, arguments, directory):
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("KEYWARD_")},
            "KEYWARD_LISTEN": f"127.0.0.1:{arguments.port}",
            "KEYWARD_DATA_DIR": directory,
            "KEYWARD_PUBLIC_URL": f"http://127.0.0.1:{arguments.port}",
            "KEYWARD_DRAIN_SECONDS": "0",
            "KEYWARD_LOG": "warn",
        }
        if arguments.database_url:
            environment["KEYWARD_DATABASE_URL"] = arguments.database_url
            environment["KEYWARD_REDIS_URL"] = arguments.redis_url
        self.port, self.environment, self.binary = arguments.port, environment, arguments.binary

    def __enter__(self):
        self.process = subprocess.Popen(
            [self.binary, "serve"], env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline:
            try:
                if self.request("GET", "/readyz")[0] == 200:
                    return self
            except OSError:
                pass
            if self.process.poll() is not None:
                sys.exit("the server ended")
            time.sleep(0.1)
        sys.exit("the server is not ready")

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)

    def command(self, *words):
        done = subprocess.run([self.binary, *words], env=self.environment, check=True, capture_output=True, text=True)
        return done.stdout

    def request(self, method, path, headers=None, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, body, headers or {})
        reply = connection.getresponse()
        return reply.status, dict(reply.getheaders()), reply.read().decode()


class Browser:
    """A browser of a signed-in owner."""

    def __init__(self, server):
        self.server, self.cookies, self.csrf = server, {}, ""
        link = re.search(r"/dashboard/join/\S+", server.command("dashboard", "setup-link")).group()
        self.get(link)
        self.post(link, {"email": "ada@example.com", "password": "correct horse battery"})
        self.get(f"/dashboard/{WORKSPACE}")

    def headers(self):
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return {"cookie": cookies, "sec-fetch-site": "same-origin"}

    def send(self, method, path, headers, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        connection.request(method, path, body, headers)
        reply = connection.getresponse()
        text = reply.read().decode()
        for cookie in reply.headers.get_all("set-cookie") or []:
            name, value = cookie.split(";")[0].split("=", 1)
            self.cookies[name] = value
        found = re.search(r'name="csrf" value="([^"]*)"', text)
        self.csrf = found.group(1) if found else self.csrf
        return reply.status, text

    def get(self, path):
        return self.send("GET", path, self.headers())

    def post(self, path, fields):
        form = {**self.headers(), "content-type": "application/x-www-form-urlencoded"}
        return self.send("POST", path, form, urllib.parse.urlencode({**fields, "csrf": self.csrf}))


def digest(kind, number):
    return hashlib.md5(f"{kind}{number}".encode()).hexdigest()[:22]


def key_row(api, number, keys):
    """The oldest hundredth is named otherwise; one of 5,000 is disabled, and one of 1,000 has expired."""
    kind = "legacy" if number <= keys // 100 else "job"
    name, owner = f"{kind} {number} of Ünïcorn", f"user_{number}"
    expires = NOW_MS - 1_000 if number % 1_000 == 7 else None
    created = NOW_MS - (keys - number) * 1_000
    return (
        f"key_{digest('k', number)}", WORKSPACE, api, f"hash {number}", f"live_{digest('s', number)[:4]}", 16, name,
        f"id_{digest('i', number)}", owner, number % 5_000 != 11, expires, created, f"{name}\n{owner}".lower(),
    )


def identity_row(number):
    identity, external = f"id_{digest('i', number)}", f"user_{number}"
    return (identity, WORKSPACE, external, NOW_MS, f"{identity}\n{external}")


KEY_COLUMNS = "id, workspace_id, api_id, hash, start, byte_length, name, identity_id, owner_id, enabled, expires_at, created_at, search"
IDENTITY_COLUMNS = "id, workspace_id, external_id, created_at, search"


def fill(arguments, directory, api):
    numbers = range(1, arguments.keys + 1)
    tables = [
        ("identities", IDENTITY_COLUMNS, map(identity_row, numbers)),
        ("keys", KEY_COLUMNS, (key_row(api, number, arguments.keys) for number in numbers)),
    ]
    for table, columns, rows in tables:
        began = time.monotonic()
        if arguments.database_url:
            fill_postgres(arguments, table, columns, rows)
        else:
            places = ", ".join("?" * len(columns.split(",")))
            with sqlite3.connect(os.path.join(directory, "keyward.db")) as database:
                database.executemany(f"INSERT INTO {table} ({columns}) VALUES ({places})", rows)
            database.close()
        print(f"{arguments.keys} {table} were inserted in {time.monotonic() - began:.1f} s", flush=True)
    if arguments.database_url:
        psql(arguments, "VACUUM ANALYZE")


def fill_postgres(arguments, table, columns, rows):
    text = lambda value: "\\N" if value is None else str(value).replace("\\", "\\\\").replace("\n", "\\n")
    command = ["psql", "--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--command", f"COPY {table} ({columns}) FROM STDIN"]
    copy = subprocess.Popen([*command, arguments.database_url], stdin=subprocess.PIPE, text=True)
    for row in rows:
        copy.stdin.write("\t".join(map(text, row)) + "\n")
    copy.stdin.close()
    if copy.wait() != 0:
        sys.exit("psql failed")


def psql(arguments, sql):
    subprocess.run(["psql", "--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--command", sql, arguments.database_url], check=True)


def pages(keys, secret):
    """Each page, and how many rows it must have: a number, or None for any."""
    any_key = lambda: random.randint(keys // 50, keys)
    at = lambda path, **query: ("GET", f"{path}?{urllib.parse.urlencode(query)}", {})
    cursor = lambda: f"{NOW_MS - random.randint(1, keys) * 1_000}.key_zzz"
    return [
        ("keys: first page", lambda: at("/keys"), 25),
        ("keys: any page", lambda: at("/keys", **{"from": cursor()}), None),
        ("keys: exact name", lambda: at("/keys", q=f"JOB {any_key()} of ünïcorn"), 1),
        ("keys: part of a name", lambda: at("/keys", q=f"ob {any_key()} of"), 1),
        ("keys: external id", lambda: at("/keys", q=f"user_{random.randint(keys // 10 + 1, keys - 1)}"), 1),
        ("keys: id", lambda: at("/keys", q=f"key_{digest('k', any_key())}"), 1),
        ("keys: beginning of the id", lambda: at("/keys", q=f"key_{digest('k', any_key())[:6]}"), None),
        ("keys: start", lambda: at("/keys", q=f"live_{digest('s', any_key())[:4]}"), None),
        ("keys: beginning of the start", lambda: at("/keys", q=f"live_{digest('s', any_key())[:2]}"), 25),
        ("keys: a text of all", lambda: at("/keys", q="ünïcorn"), 25),
        ("keys: a text of the oldest 1 %", lambda: at("/keys", q="legacy"), None),
        ("keys: a text of none", lambda: at("/keys", q=f"nothing {any_key()}"), 0),
        ("keys: two characters of none", lambda: at("/keys", q="zq"), None),
        ("keys: disabled", lambda: at("/keys", state="disabled"), min(25, keys // 5_000)),
        ("keys: expired", lambda: at("/keys", state="expired"), min(25, keys // 1_000)),
        ("keys: exhausted (none)", lambda: at("/keys", state="exhausted"), None),
        ("keys: a full key, by POST", lambda: ("POST", "/keys/search", {"q": secret}), None),
        ("keys: one key", lambda: at(f"/keys/key_{digest('k', any_key())}"), None),
        ("search: external id", lambda: at("/search", q=f"user_{any_key()}"), None),
        ("search: a text of all", lambda: at("/search", q="user"), None),
        ("identities: first page", lambda: at("/identities"), 25),
        ("identities: any page", lambda: at("/identities", **{"from": f"id_{digest('i', any_key())}"}), None),
        ("identities: 11 of them", lambda: at("/identities", q=f"user_{random.randint(keys // 20 + 1, keys // 10 - 1)}"), 11),
        ("identities: a text of all", lambda: at("/identities", q="USER"), 25),
        ("identities: two characters", lambda: at("/identities", q="zq"), None),
        ("identities: one identity", lambda: at(f"/identities/id_{digest('i', any_key())}"), None),
        ("APIs", lambda: at("/apis"), 1),
        ("analytics", lambda: at("/analytics", range="day"), None),
        ("overview", lambda: at(""), None),
    ]


def measure(arguments, directory):
    with Server(arguments, directory) as server:
        root = json.loads(server.command("root-key", "create", "--permission", "api.*.create_api", "--permission", "api.*.create_key", "--json"))["key"]
        bearer = {"authorization": f"Bearer {root}", "content-type": "application/json"}
        post = lambda operation, body: json.loads(server.request("POST", f"/v2/{operation}", bearer, json.dumps(body))[2])["data"]
        api = post("apis.createApi", {"name": "payments"})["apiId"]
        secret = post("keys.createKey", {"apiId": api})["key"]
    fill(arguments, directory, api)
    with Server(arguments, directory) as server:
        browser = Browser(server)
        print(f"\n{arguments.keys} keys and identities, {arguments.requests} requests of each page\n")
        print(f"{'page':<34}{'median':>9}{'p95':>9}{'max':>9}  ms")
        for name, request, rows in pages(arguments.keys, secret):
            took = []
            for _ in range(arguments.requests):
                method, path, fields = request()
                began = time.perf_counter()
                path = f"/dashboard/{WORKSPACE}{path}"
                status, text = browser.get(path) if method == "GET" else browser.post(path, fields)
                took.append((time.perf_counter() - began) * 1e3)
                found = text.count('<th scope="row">')
                if status not in (200, 303) or (rows is not None and found != rows):
                    sys.exit(f"{name}: {path}: status {status}, {found} rows")
            took.sort()
            p95 = took[min(len(took) - 1, int(len(took) * 0.95))]
            print(f"{name:<34}{took[len(took) // 2]:>9.1f}{p95:>9.1f}{took[-1]:>9.1f}", flush=True)


if __name__ == "__main__":
    main()
