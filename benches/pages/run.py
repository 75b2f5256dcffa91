#!/usr/bin/env python3
"""Measures every page of the dashboard among many keys, identities, audit entries and events.

    benches/pages/run.py --binary target/release/keyward [--keys N] [--events N] [--active-keys N] [--requests N] [--only TEXT]
        [--keep DIRECTORY] [--database-url URL --redis-url URL]

./test bench --pages builds the server and runs this for both deployments. Without more, the server is embedded; with
--database-url and --redis-url, of an empty database, it is a replica (psql must be on the PATH). The data is in a temporary
directory of TMPDIR, which is deleted, or with --keep in a directory that another run uses again. Prints the median, the 95th
percentile and the maximum of each page, in milliseconds, as a browser on the same machine sees them. If the 95th percentile of a
page is above the bound, the exit code is 1.
"""

import argparse, json, math, os, sys, tempfile, time

sys.dont_write_bytecode = True

import cases, events, tables
from server import Browser, Server, Traffic

P95_MAX_MS = 100
APIS = 20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--keys", type=number(1_000), default=1_000_000)
    parser.add_argument("--events", type=number(10_000), default=10_000_000)
    parser.add_argument("--active-keys", type=number(10), default=1_000, help="the keys that the events are of")
    parser.add_argument("--requests", type=number(20), default=20)
    parser.add_argument("--only", default="", help="measures the pages whose name contains this text")
    parser.add_argument("--keep", help="a directory for the data")
    parser.add_argument("--port", type=int, default=3999)
    parser.add_argument("--database-url")
    parser.add_argument("--redis-url")
    arguments = parser.parse_args()
    if arguments.active_keys > arguments.keys:
        parser.error("--active-keys is at most --keys")
    with tempfile.TemporaryDirectory(prefix="keyward-pages-") as temporary:
        directory = arguments.keep or temporary
        os.makedirs(directory, exist_ok=True)
        state = load_or_fill(arguments, directory)
        with Server(arguments, directory) as server:
            slow = measure(arguments, server, state)
    if slow:
        sys.exit(f"p95 above {P95_MAX_MS} ms: {', '.join(slow)}")


def number(least):
    def parse(text):
        value = int(text.replace("_", ""))
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}")
        return value
    return parse


def load_or_fill(arguments, directory):
    """Returns what the pages are about, of the data in a directory, which is filled if it is empty."""
    path = os.path.join(directory, "pages.json")
    if os.path.exists(path):
        with open(path) as file:
            return json.load(file)
    state = fill(arguments, directory)
    with open(path, "w") as file:
        json.dump(state, file)
    return state


def fill(arguments, directory):
    """Creates what is few by requests, and inserts what is many."""
    with Server(arguments, directory) as server:
        create = lambda operation, fields: server.call(operation, fields)["data"]
        apis = [create("apis.createApi", {"name": f"payments {number}"})["apiId"] for number in range(APIS)]
        secret = create("keys.createKey", {"apiId": apis[0], "name": "the first one"})["key"]
        policy = create("gateways.createPolicy", {"name": "public-api", "apiIds": apis[:1]})["policyId"]
        # The tables of events are created a moment after the start.
        server.call("keys.verifyKey", {"key": secret})
        time.sleep(3)
    database = tables.Database(directory, arguments.database_url)
    namespace, role = tables.fill(database, apis, arguments.keys)
    events.fill(database, apis, namespace, arguments.keys, arguments.active_keys, arguments.events)
    return {
        "keys": arguments.keys, "events": arguments.events, "active_keys": arguments.active_keys, "apis": apis, "secret": secret,
        "policy": policy, "namespace": namespace, "role": role, "permission": f"perm_{tables.digest('p', 2)}",
        "root_key": f"root_{tables.digest('u', 1)}",
    }


def measure(arguments, server, state):
    """Prints the times of the pages. Returns the names of those that are too slow."""
    browser, slow = Browser(server), []
    verified = server.call("keys.verifyKey", {"key": state["secret"]})
    # Events are written once a second.
    time.sleep(3)
    state = {**state, "request": verified["meta"]["requestId"]}
    kind = "replica, Postgres and Redis" if arguments.database_url else "embedded"
    print(f"\n{kind}: {state['keys']:,} keys, identities and audit entries; {state['events']:,} events of {state['active_keys']:,} keys")
    print(f"{arguments.requests} requests of each page\n\n{'page':<32}{'median':>9}{'p95':>9}{'max':>9}  ms")
    with Traffic(server, state["secret"]):
        for name, request, rows in cases.pages(state):
            if arguments.only.lower() not in name.lower():
                continue
            took = sorted(measure_once(browser, name, request, rows) for _ in range(arguments.requests))
            p95 = took[math.ceil(len(took) * 0.95) - 1]
            mark = "  SLOW" if p95 > P95_MAX_MS else ""
            print(f"{name:<32}{took[len(took) // 2]:>9.1f}{p95:>9.1f}{took[-1]:>9.1f}{mark}", flush=True)
            if mark:
                slow.append(name)
    return slow


def measure_once(browser, name, request, rows):
    method, path, fields = request()
    path = f"/dashboard/{tables.WORKSPACE}{path}"
    began = time.perf_counter()
    status, text = browser.get(path) if method == "GET" else browser.post(path, fields)
    took = (time.perf_counter() - began) * 1e3
    found = text.count('<th scope="row">')
    # A full key is answered with a redirect to its page.
    expected = 200 if method == "GET" else 303
    if status != expected or (rows is not None and found != rows):
        sys.exit(f"{name}: {path}: status {status}, {found} rows instead of {rows}")
    return took


if __name__ == "__main__":
    main()
