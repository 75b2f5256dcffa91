"""The table of cases: what a client sends through a gateway, and what it and the service must get."""

import hashlib
import http.client
import json
import os
import re
import time
from dataclasses import dataclass, field

PROBLEM = "application/problem+json"
SPOOFED = {"Keyward-Key-Id": "key_admin", "keyward-api-id": "api_admin", "KEYWARD-EXTERNAL-ID": "admin",
           "Keyward-Identity-Id": "id_admin", "Keyward-Permissions": "*", "Keyward-Roles": "admin",
           "Keyward-Environment": "production", "Keyward-Request-Id": "req_admin", "Keyward-Omitted": "nothing",
           "Keyward-Meta-Plan": "unlimited", "Keyward-Credits-Remaining": "1000000", "Keyward-Assertion": "e30.e30.",
           "Keyward-Gateway-Secret": "wrong", "Keyward-Status": "200",
           # To an upstream that makes variables of headers, it is the same name.
           "Keyward_Key_Id": "key_admin", "Keyward.Key.Id": "key_admin", "Keyward-Key_Id": "key_admin"}
# One that no policy lists.
UNLISTED = {"Keyward-Meta-Other": "admin"}
ORIGINAL = ("X-Original-URI", "X-Original-URL", "X-Forwarded-Uri")
METHODS = ("X-Original-Method", "X-Forwarded-Method", "X-HTTP-Method-Override")


@dataclass
class Reply:
    status: int
    headers: list
    body: bytes
    seconds: float

    def values(self, name):
        return [value for known, value in self.headers if known.lower() == name]

    def value(self, name):
        return ", ".join(self.values(name)) or None

    def seen(self):
        """What the service has received."""
        return json.loads(self.body)


@dataclass
class Case:
    """Requests that are sent one after the other. `statuses` has the expected one, or a set of them, for each. `check`
    gets the gateway and the last reply, and raises an error."""

    name: str
    statuses: list
    key: str = "valid"
    target: str = "/documents/1"
    method: str = "GET"
    headers: dict = field(default_factory=dict)
    body: bytes = b""
    source: str = "127.0.0.1"
    check: object = None

    def run(self, gateway):
        for expected in self.statuses:
            reply = send(gateway, self.key, self.target, self.method, self.headers, self.body, self.source)
            allowed = expected if isinstance(expected, set) else {expected}
            assert reply.status in allowed, f"{reply.status} instead of {expected}: {reply.headers} {reply.body[:300]}"
        if self.check:
            self.check(gateway, reply)


def send(gateway, key=None, target="/documents/1", method="GET", headers={}, body=b"", source="127.0.0.1", timeout=30):
    """Sends a request as it is. `key` is the name of a key of the gateway, or another text, which is no key."""
    host, port = gateway.address.split(":")
    client = http.client.HTTPConnection(host, int(port), timeout=timeout, source_address=(source, 0))
    began = time.monotonic()
    try:
        client.putrequest(method, target, skip_host="Host" in headers, skip_accept_encoding=True)
        if key:
            client.putheader("Authorization", f"Bearer {gateway.keys[key]['key'] if key in gateway.keys else key}")
        if body:
            client.putheader("Content-Length", str(len(body)))
        for name, value in headers.items():
            client.putheader(name, value)
        try:
            client.endheaders()
            client.send(body)
        except (BrokenPipeError, ConnectionResetError):
            pass  # A gateway may refuse a request before it has read all of it.
        try:
            reply = client.getresponse()
        except (ConnectionResetError, http.client.RemoteDisconnected):
            return Reply(CLOSED, [], b"", time.monotonic() - began)
        return Reply(reply.status, reply.getheaders(), reply.read(), time.monotonic() - began)
    finally:
        client.close()


def equal(found, expected, what):
    assert found == expected, f"{what}: {found!r} instead of {expected!r}"


def refused(error=None):
    """The client gets a problem, and the challenge if there is an error of RFC 6750."""
    def check(gateway, reply):
        equal(reply.values("content-type"), [PROBLEM], "content-type")
        equal(json.loads(reply.body)["status"], reply.status, "status of the problem")
        if gateway.passes_bodies:
            assert "code" in json.loads(reply.body), f"not the body of Keyward: {reply.body}"
        if error:
            equal(reply.values("www-authenticate"), [f'Bearer realm="edge", error="{error}"'], "www-authenticate")
    return check


def rate_limited(gateway, reply):
    refused()(gateway, reply)
    assert 1 <= int(reply.value("retry-after")) <= 3600, reply.headers
    limits_of(reply, 0)


def limits_of(reply, remaining):
    equal(reply.values("ratelimit-policy"), ['"each";q=2;w=3600'], "ratelimit-policy")
    assert re.fullmatch(f'"each";r={remaining};t=[0-9]{{1,4}}', reply.value("ratelimit") or ""), reply.headers


def limits_told(gateway, reply):
    if gateway.tells_limits:
        limits_of(reply, 1)


def older_limits_told(gateway):
    """The headers that KEYWARD_RATELIMIT_HEADERS=legacy selects, of requests that pass and of one that is refused."""
    for _ in range(3):
        reply = send(gateway, "told", "/limited")
        if reply.status == 429 or gateway.tells_limits:
            equal(reply.values("x-ratelimit-limit"), ["2"], "x-ratelimit-limit")
            allowed = {"0"} if reply.status == 429 else {"0", "1"}
            assert reply.value("x-ratelimit-remaining") in allowed, reply.headers
            assert 0 < int(reply.value("x-ratelimit-reset")) - time.time() + 1 < 3602, reply.headers
            equal(reply.values("ratelimit"), [], "ratelimit")
    equal(reply.status, 429, "status of the third request")


def without_credits(gateway, reply):
    refused()(gateway, reply)
    equal((reply.value("keyward-credits-remaining"), reply.value("retry-after")), ("0", None), "credits, retry-after")


def credits_told(gateway, reply):
    if gateway.tells_limits:
        equal(reply.values("keyward-credits-remaining"), ["0"], "keyward-credits-remaining")


def identified(gateway, reply):
    """The service sees the identity headers of Keyward and no others."""
    found = {}
    for name, value in reply.seen()["headers"]:
        if name.lower().startswith("keyward"):
            assert name.lower() not in found, f"{name} twice"
            found[name.lower()] = value
    assert found.pop("keyward-request-id", "").startswith("req_"), found
    assert not found.pop("keyward-credits-remaining", ""), found
    # An empty header and none are the same to the service.
    equal({name: value for name, value in found.items() if value},
          {name: value for name, value in gateway.identity.items() if value}, "identity headers")


def detailed(gateway, reply):
    """The service sees all permissions of a key that has many."""
    found = {name.lower(): value for name, value in reply.seen()["headers"]}
    key = gateway.keys["detailed"]
    equal((found["keyward-key-id"], found["keyward-permissions"]), (key["keyId"], key["permissions"]), "identity headers")


def together(*checks):
    def check(gateway, reply):
        for each in checks:
            each(gateway, reply)
    return check


def anonymous(gateway, reply):
    """The service sees no identity."""
    found = [name for name, value in reply.seen()["headers"] if name.lower().startswith("keyward") and value]
    equal(found, [], "identity headers")


def unchanged(target):
    def check(_, reply):
        equal((reply.seen()["method"], reply.seen()["target"]), ("GET", target), "request")
    return check


def forwarded_for(address):
    def check(_, reply):
        found = ",".join(value for name, value in reply.seen()["headers"] if name.lower() == "x-forwarded-for")
        equal(found.split(",")[-1].strip(), address, "x-forwarded-for")
    return check


def body_received(body):
    def check(_, reply):
        equal((reply.seen()["length"], reply.seen()["sha256"]), (len(body), hashlib.sha256(body).hexdigest()), "body")
    return check


def only_at(path):
    """If the service got the request, then at this path, which is allowed."""
    def check(_, reply):
        if reply.status == 200:
            equal(reply.seen()["target"], path, "path")
    return check


def large_headers_seen(_, reply):
    if reply.status == 200:
        equal(sum(name.lower().startswith("x-large-") for name, _ in reply.seen()["headers"]), 8, "large headers")


BODY = os.urandom(1 << 20)
LARGE = {f"X-Large-{n}": "a" * 8192 for n in range(8)}
# The status of a request whose connection was closed instead of a reply.
CLOSED = 0
# A gateway may refuse such a request by itself, but not fail.
TOO_LARGE = {400, 413, 414, 431}
BAD_PATH = {400, 403, 404}

# Requests without a valid key that a server may refuse to read. No gateway may take that for a failure of Keyward: one that
# fails open would let them pass.
EXCESSIVE = [
    Case("120 headers without a key", [TOO_LARGE | {401}], key=None, headers={f"X-Many-{n}": "a" for n in range(120)}),
    Case("600 KiB of headers without a key", [TOO_LARGE | {401, CLOSED}], key=None,
         headers={f"X-Large-{n}": "a" * 8192 for n in range(75)}),
    Case("path of 40 KiB without a key", [TOO_LARGE | {401}], key=None, target="/open/" + "a" * 40960),
    Case("path of 200 KiB without a key", [TOO_LARGE | {401, CLOSED}], key=None, target="/open/" + "a" * 204_800),
    Case("key of 12 KiB", [TOO_LARGE | {401}], key="a" * 12288),
    Case("key of 200 KiB", [TOO_LARGE | {401, CLOSED}], key="a" * 204_800),
    *[Case(f"key with the byte {ord(byte):02x}", [{400, 401}], key=f"a{byte}b") for byte in "\x01\t\x7f\x80\xff"],
    Case("two keys without a valid one", [{400, 401}], key="unknown", headers={"authorization": "Bearer other"}),
]

CASES = [
    Case("no key", [401], key=None, check=refused("invalid_token")),
    Case("wrong key", [401], key="unknown", check=refused("invalid_token")),
    Case("CORS preflight", [401], key=None, method="OPTIONS", check=refused("invalid_token"),
         headers={"Origin": "https://other.example", "Access-Control-Request-Method": "GET",
                  "Access-Control-Request-Headers": "authorization"}),
    Case("valid key", [200], check=identified),
    Case("valid key, query and escapes", [200], target="/documents/a%20b?c=%2Fd&e", check=unchanged("/documents/a%20b?c=%2Fd&e")),
    Case("HEAD", [200], method="HEAD"),
    Case("method without a rule", [403], method="DELETE", check=refused("insufficient_scope")),
    Case("forbidden path", [403], target="/other", check=refused("insufficient_scope")),
    Case("missing permission", [403], key="plain", check=refused("insufficient_scope")),
    Case("rate limit", [200, 200, 429], key="limited", target="/limited", check=rate_limited),
    Case("limits when a request passes", [200], key="told", target="/limited", check=limits_told),
    Case("credits left", [200], key="spent", target="/open/1", check=credits_told),
    Case("credits exhausted", [429], key="spent", target="/open/1", check=without_credits),
    Case("spoofed identity headers", [200], headers=SPOOFED, check=identified),
    Case("Connection names identity headers", [200], check=identified,
         headers={"Connection": "keep-alive, Keyward-Key-Id, keyward-permissions,Keyward-Meta-Plan , X-Other"}),
    Case("many permissions", [200], key="detailed", check=detailed),
    Case("spoofed identity headers without a key", [401], key=None, headers=SPOOFED),
    Case("spoofed address", [403], key="local", target="/open/1", headers={"X-Forwarded-For": "127.0.0.2"},
         source="127.0.0.3"),
    Case("address of the client", [200], key="local", target="/open/1", source="127.0.0.2",
         check=forwarded_for("127.0.0.2")),
    *[Case(f"spoofed {name} to an allowed path", [403], target="/other", headers={name: "/documents/1"}) for name in ORIGINAL],
    *[Case(f"spoofed {name} to a forbidden path", [200], headers={name: "/other"}) for name in ORIGINAL],
    *[Case(f"spoofed {name}", [403], method="DELETE", headers={name: "GET"}) for name in METHODS],
    *[Case(f"path {path}", [BAD_PATH], target=path) for path in (
        "/open/../other", "/open/%2e%2e/other", "/open/..%2fother", "/open%2f..%2fother", "/open/..;/other", "//other",
        "/open/%252e%252e/other", "/open/..%5cother", "/open/1#/../../other")],
    Case("absolute URL of a forbidden path", [BAD_PATH], target="http://127.0.0.1/other"),
    # The path of these is /. HTTP servers accept "127.0.0.1?x=" as the name of a host.
    *[Case(f"URL {url}", [BAD_PATH], target=url, headers={"Host": url.split("/")[2]})
      for url in ("http://127.0.0.1?x=/open/1", "http://127.0.0.1#/open/1", "http://127.0.0.1?/open/1")],
    Case("path /open/1#", [BAD_PATH | {200}], target="/open/1#", check=only_at("/open/1%23")),
    Case("path /other/../open/1", [BAD_PATH | {200}], target="/other/../open/1", check=only_at("/open/1")),
    Case("64 KiB of headers", [TOO_LARGE | {200}], headers=LARGE, check=large_headers_seen),
    Case("64 KiB of headers without a key", [TOO_LARGE | {401}], key=None, headers=LARGE),
    *EXCESSIVE,
    Case("body of 1 MiB", [200], method="POST", target="/open/1", body=BODY, check=together(body_received(BODY), identified)),
    Case("many permissions and a body of 1 MiB", [200], key="detailed", method="POST", target="/open/1", body=BODY,
         check=together(body_received(BODY), detailed)),
    Case("body of 1 MiB without a key", [401], key=None, method="POST", target="/open/1", body=BODY),
    *[Case(f"{status} of the service", [status], headers={"X-Reply-Status": str(status)}, check=unchanged("/documents/1"))
      for status in (401, 403, 404, 429, 500, 503)],
]
