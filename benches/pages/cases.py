"""The pages of the dashboard that are measured, with their usual filters."""

import datetime, random, urllib.parse

from tables import DISABLED_EACH, EXPIRED_EACH, NOW_MS, api_of_key, digest, key_name, key_time

PAGE_ROWS = 25


def at(path, **query):
    return "GET", f"{path}?{urllib.parse.urlencode(query)}", {}


def pages(state):
    """Each page: its name, a function that returns a request, and how many rows it must have (`None`: any number)."""
    return [*keys(state), *identities(state), *analytics(state), *logs(state), *audit(state), *others(state)]


def keys(state):
    keys, apis = state["keys"], state["apis"]
    any_key = lambda: random.randint(keys // 50 + 1, keys)
    cursor = lambda: f"{key_time(any_key(), keys)}.key_zzz"
    return [
        ("Keys", lambda: at("/keys"), PAGE_ROWS),
        ("Keys: any page", lambda: at("/keys", **{"from": cursor()}), None),
        ("Keys: oldest first", lambda: at("/keys", order="ascending"), PAGE_ROWS),
        ("Keys of an API", lambda: at("/keys", api=random.choice(apis)), PAGE_ROWS),
        ("Keys: exact name", lambda: at("/keys", q=key_name(any_key(), keys).upper()), 1),
        ("Keys: part of a name", lambda: at("/keys", q=f"ob {any_key()} of"), 1),
        ("Keys: external ID", lambda: at("/keys", q=f"user_{random.randint(keys // 10 + 1, keys - 1)}"), 1),
        ("Keys: ID", lambda: at("/keys", q=f"key_{digest('k', any_key())}"), 1),
        ("Keys: beginning of an ID", lambda: at("/keys", q=f"key_{digest('k', any_key())[:6]}"), None),
        ("Keys: prefix", lambda: at("/keys", q=f"live_{digest('s', any_key())[:4]}"), None),
        ("Keys: prefix of many", lambda: at("/keys", q=f"live_{digest('s', any_key())[:1]}"), PAGE_ROWS),
        ("Keys: a text of all", lambda: at("/keys", q="ünïcorn"), PAGE_ROWS),
        ("Keys: a text of the oldest 1 %", lambda: at("/keys", q="legacy"), None),
        ("Keys: a text of none", lambda: at("/keys", q=f"nothing {any_key()}"), 0),
        ("Keys: two characters of none", lambda: at("/keys", q="zq"), None),
        ("Keys: disabled", lambda: at("/keys", state="disabled"), min(PAGE_ROWS, keys // DISABLED_EACH)),
        ("Keys: expired", lambda: at("/keys", state="expired"), min(PAGE_ROWS, keys // EXPIRED_EACH)),
        ("Keys: exhausted (none)", lambda: at("/keys", state="exhausted"), None),
        ("Keys: a full key", lambda: ("POST", "/keys/search", {"q": state["secret"]}), None),
        ("A key", lambda: at(f"/keys/key_{digest('k', any_key())}"), None),
        ("A key: the busiest", lambda: at(f"/keys/key_{digest('k', keys)}"), None),
        ("A key: edit", lambda: at(f"/keys/key_{digest('k', any_key())}/edit"), None),
        ("A request", lambda: at("/keys/why", request=state["request"]), None),
        ("Search: external ID", lambda: at("/search", q=f"user_{any_key()}"), None),
        ("Search: a text of all", lambda: at("/search", q="user"), None),
    ]


def identities(state):
    keys = state["keys"]
    any_key = lambda: random.randint(1, keys)
    eleven = lambda: f"user_{random.randint(keys // 20 + 1, keys // 10 - 1)}"
    return [
        ("Identities", lambda: at("/identities"), PAGE_ROWS),
        ("Identities: any page", lambda: at("/identities", **{"from": f"id_{digest('i', any_key())}"}), None),
        ("Identities: 11 of them", lambda: at("/identities", q=eleven()), 11),
        ("Identities: a text of all", lambda: at("/identities", q="USER"), PAGE_ROWS),
        ("Identities: two characters", lambda: at("/identities", q="zq"), None),
        ("An identity", lambda: at(f"/identities/id_{digest('i', any_key())}"), None),
        ("An identity: the busiest", lambda: at(f"/identities/id_{digest('i', keys)}"), None),
    ]


def analytics(state):
    keys, apis = state["keys"], state["apis"]
    ranges = [("24 hours", "day"), ("7 days", "week"), ("30 days", "month"), ("12 months", "year"), ("this month", "this-month")]
    everything = [
        (f"Analytics: {label}", lambda name=name: at("/analytics", range=name), None) for label, name in ranges
    ]
    return [
        ("Overview", lambda: at(""), None),
        ("Overview: 12 months", lambda: at("", range="year"), None),
        *everything,
        ("Analytics: an API", lambda: at("/analytics", range="month", only=apis[0]), None),
        ("Analytics: a key", lambda: at("/analytics", range="month", key=f"key_{digest('k', keys)}"), None),
        ("Analytics: a tag", lambda: at("/analytics", range="month", tag="plan=free"), None),
        ("Analytics: a tag, 7 days", lambda: at("/analytics", range="week", tag="plan=free"), None),
        ("Analytics: by credits", lambda: at("/analytics", range="month", sort="credits"), None),
        ("Analytics: CSV of keys", lambda: at("/analytics.csv", range="month", table="keys"), None),
        ("Analytics: an identity", lambda: at("/analytics", range="month", identity=f"user_{keys}"), None),
        ("Analytics: limits, 24 hours", lambda: at("/analytics", range="day", of="limits"), None),
        ("Analytics: limits, 7 days", lambda: at("/analytics", range="week", of="limits"), None),
        ("Analytics: limits, 30 days", lambda: at("/analytics", range="month", of="limits"), None),
    ]


def logs(state):
    keys, apis = state["keys"], state["apis"]
    before = lambda: NOW_MS - random.randint(1, 29 * 86_400_000)
    return [
        ("Logs", lambda: at("/logs"), 50),
        ("Logs: 30 days", lambda: at("/logs", range="month"), 50),
        ("Logs: any page", lambda: at("/logs", range="month", before=before()), 50),
        ("Logs: an API", lambda: at("/logs", range="month", only=apis[-1]), 50),
        ("Logs: an outcome", lambda: at("/logs", range="month", outcome="RATE_LIMITED"), 50),
        ("Logs: an outcome, 1 an hour", lambda: at("/logs", range="month", outcome="EXPIRED"), None),
        ("Logs: the same, any page", lambda: at("/logs", range="month", outcome="EXPIRED", before=before()), None),
        ("Logs: an outcome of none", lambda: at("/logs", range="month", outcome="DISABLED"), 0),
        ("Logs: the busiest key", lambda: at("/logs", range="month", key=f"key_{digest('k', keys)}"), None),
        ("Logs: the busiest identity", lambda: at("/logs", range="month", identity=f"user_{keys}"), None),
        ("Logs: limit checks", lambda: at("/logs", range="month", of="limits"), 100),
        ("Logs: an identifier", lambda: at("/logs", range="month", of="limits", identifier="user_1"), None),
        ("Logs: a key without any", lambda: at("/logs", range="month", key=f"key_{digest('k', 1)}"), 0),
    ]


def audit(state):
    keys = state["keys"]
    any_key = lambda: random.randint(1, keys)
    day = lambda ms: datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc).strftime("%Y-%m-%d")
    days = lambda: {"from": day(key_time(any_key(), keys)), "until": day(NOW_MS)}
    return [
        ("Audit log", lambda: at("/audit"), PAGE_ROWS),
        ("Audit log: any page", lambda: at("/audit", **{"from-entry": f"log_{digest('a', any_key())}"}), None),
        ("Audit log: dates", lambda: at("/audit", **days()), None),
        ("Audit log: an event", lambda: at("/audit", event="key.create"), PAGE_ROWS),
        ("Audit log: a rare event", lambda: at("/audit", event="key.update"), None),
        ("Audit log: an event of none", lambda: at("/audit", event="role.delete"), 0),
        ("Audit log: an actor", lambda: at("/audit", actor="ada@example.com"), None),
        ("Audit log: a target", lambda: at("/audit", about=f"key_{digest('k', any_key())}"), None),
        ("Audit log: an entry", lambda: at(f"/audit/log_{digest('a', any_key())}"), None),
    ]


def others(state):
    api, namespace, role = state["apis"][0], state["namespace"], state["role"]
    return [
        ("Get started", lambda: at("/get-started"), None),
        ("APIs", lambda: at("/apis"), len(state["apis"])),
        ("An API", lambda: at(f"/apis/{api}"), None),
        ("Rate limits", lambda: at("/ratelimits"), PAGE_ROWS),
        ("A namespace", lambda: at(f"/ratelimits/{namespace}"), None),
        ("A namespace: search", lambda: at(f"/ratelimits/{namespace}", q="user_99"), None),
        ("Roles", lambda: at("/roles"), PAGE_ROWS),
        ("A role", lambda: at(f"/roles/{role}"), None),
        ("Permissions", lambda: at("/permissions"), PAGE_ROWS),
        ("A permission", lambda: at(f"/permissions/{state['permission']}"), None),
        ("Keys with a permission", lambda: at("/which-keys", slug="documents.2"), PAGE_ROWS),
        ("Root keys", lambda: at("/root-keys"), PAGE_ROWS),
        ("A root key", lambda: at(f"/root-keys/{state['root_key']}"), None),
        ("Create root key", lambda: at("/root-keys/new"), None),
        ("Gateways", lambda: at("/gateways"), 1),
        ("A gateway policy", lambda: at(f"/gateways/{state['policy']}"), None),
        ("Members", lambda: at("/members"), None),
        ("Imports", lambda: at("/imports"), None),
        ("Workspace", lambda: at("/workspace"), None),
    ]
