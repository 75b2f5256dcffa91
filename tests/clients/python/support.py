"""What every file of checks uses: the clients, the ways to check an answer, and the driver that makes the calls."""

import asyncio
import json
import os
import re
import secrets
import subprocess
import sys
import time
from collections import Counter
from enum import Enum

from unkey.py import Unkey, errors
from unkey.py.types import BaseModel
from unkey.py.utils import BackoffStrategy, RetryConfig


def given(name):
    return os.environ.get(name) or sys.exit(f"{name} must be set.")


URL = given("KEYWARD_URL")
ROOT_KEY = given("KEYWARD_ROOT_KEY")

# Retries are off, so that one 5xx answer is a failure here and not a slow success.
NO_RETRY = RetryConfig("none", BackoffStrategy(1, 1, 1, 1), False)


def client(root_key):
    return Unkey(root_key=root_key, server_url=URL, retry_config=NO_RETRY)


BINARY = given("KEYWARD_BINARY")


def keyward(*args):
    """What the operator does beside the server, on the same data."""
    return json.loads(subprocess.run([BINARY, *args, "--json"], stdout=subprocess.PIPE, check=True).stdout)


async def set_api(api_id, *options):
    keyward("api", "update", api_id, *options)
    await asyncio.sleep(1)  # Every server sees within a second what the operator has changed.


def client_for(*permissions):
    return client(keyward("root-key", "create", *(f"--permission={one}" for one in permissions))["key"])


# A root key that may make APIs and do nothing else, and one that may attach permissions and roles but not make them.
WEAK = client_for("api.*.create_api")
ATTACHER = client_for("api.*.update_key", "rbac.*.add_permission_to_key", "rbac.*.remove_permission_from_key",
                      "rbac.*.add_permission_to_role", "rbac.*.remove_permission_from_role", "rbac.*.add_role_to_key")
# After so long a change is seen by another replica than the one that made it.
SEEN_AFTER_SECONDS = float(given("KEYWARD_SEEN_AFTER_SECONDS"))

count = Counter()
request_ids = []

# A window of 30 days starts no new window while the checks run, so counts and `reset` are exact.
LONG = 2_592_000_000
MAX_INT64 = 2**63 - 1
NOT_FOUND = {"valid": False, "code": "NOT_FOUND"}

# Each kind of failure: the class that the client raises, status, title and the error name that ends `type`. The media
# type is JSON, but for the errors of one operation.
INVALID = (errors.BadRequestErrorResponse, 400, "Bad Request", "invalid_input")
QUERY = (errors.BadRequestErrorResponse, 400, "Bad Request", "permissions_query_syntax_error")
BAD_REQUEST = (errors.BadRequestErrorResponse, 400, "Bad Request", "[a-z_]+")
UNAUTHORIZED = (errors.UnauthorizedErrorResponse, 401, "Unauthorized", "[a-z_]+")
FORBIDDEN = (errors.ForbiddenErrorResponse, 403, "Forbidden", "insufficient_permissions")
NO_API = (errors.NotFoundErrorResponse, 404, "Not Found", "api_not_found")
NO_KEY = (errors.NotFoundErrorResponse, 404, "Not Found", "key_not_found")
NO_ROLE = (errors.NotFoundErrorResponse, 404, "Not Found", "role_not_found")
NO_PERMISSION = (errors.NotFoundErrorResponse, 404, "Not Found", "permission_not_found")
NO_IDENTITY = (errors.NotFoundErrorResponse, 404, "Not Found", "identity_not_found")
NO_NAMESPACE = (errors.NotFoundErrorResponse, 404, "Not Found", "ratelimit_namespace_not_found")
NO_MIGRATION = (errors.NotFoundErrorResponse, 404, "Not Found", "migration_not_found")
NO_OVERRIDE = (errors.NotFoundErrorResponse, 404, "Not Found", "ratelimit_override_not_found")
PERMISSION_EXISTS = (errors.ConflictErrorResponse, 409, "Conflicting Resource", "permission_already_exists")
ROLE_EXISTS = (errors.ConflictErrorResponse, 409, "Conflicting Resource", "role_already_exists")
IDENTITY_EXISTS = (errors.ConflictErrorResponse, 409, "Conflicting Resource", "identity_already_exists")
# The client declares no 404 for deleteRole, so its generic class is the right one.
NO_ROLE_TO_DELETE = (errors.APIError, 404, "Not Found", "role_not_found")
# The client declares no 412 for the key operations, so its generic class is the right one.
PRECONDITION = (errors.APIError, 412, "Precondition Failed", "precondition_failed")


def problem(kind):
    return (*kind, "application/problem+json")


def plain(value):
    """What the server sent, as the client shows it: a field that was absent is absent here,
    while a field that was null is None, so that no null passes for an absent field."""
    if isinstance(value, BaseModel):
        fields = type(value).model_fields.items()
        return {f.alias or name: plain(getattr(value, name)) for name, f in fields if name in value.model_fields_set}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.value if isinstance(value, Enum) else value


def seen(request_id):
    matches(request_id, r"req_[A-Za-z0-9]{16,}")
    request_ids.append(request_id)


def equal(actual, expected):
    assert actual == expected and type(actual) is type(expected), f"got {actual!r}, expected {expected!r}"


def matches(text, pattern):
    assert isinstance(text, str) and re.fullmatch(pattern, text), f"{text!r} does not match {pattern}"


def is_now(ms):
    assert isinstance(ms, int) and abs(ms - time.time() * 1000) < 300_000, f"{ms} is not a recent unix time in ms"


def window_end(duration):
    return (int(time.time() * 1000) // duration + 1) * duration


def checked(stored, remaining, exceeded=False):
    return {**stored, "reset": window_end(stored["duration"]), "remaining": remaining, "exceeded": exceeded}


def adhoc(name, limit, remaining, exceeded=False, duration=LONG):
    return {"id": "", "name": name, "limit": limit, "duration": duration, "autoApply": False,
            "reset": window_end(duration), "remaining": remaining, "exceeded": exceeded}


def in_order(answer):
    """Sorts the lists whose order the contract leaves open."""
    for field in ("permissions", "roles"):
        if field in answer:
            answer[field] = sorted(answer[field])
    if "ratelimits" in answer:
        answer["ratelimits"] = sorted(answer["ratelimits"], key=lambda limit: limit["name"])
    return answer


def base58_bytes(text):
    alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
    number = 0
    for letter in text:
        number = number * 58 + alphabet.index(letter)
    zeros = len(text) - len(text.lstrip("1"))
    return zeros + (number.bit_length() + 7) // 8


def now_ms():
    return int(time.time() * 1000)


class Driver:
    """Calls the same operation by its synchronous or by its asynchronous method."""

    def __init__(self, mode):
        self.mode = mode
        self.run = secrets.token_hex(6)
        self.unkey = client(ROOT_KEY)

    def fresh(self, name):
        return f"{self.run}.{name}"

    async def respond(self, operation, /, *, sdk=None, **fields):
        group, method = operation.split(".")
        group = getattr(sdk or self.unkey, group)
        if self.mode == "sync":
            return getattr(group, method)(**fields)
        return await getattr(group, f"{method}_async")(**fields)

    async def call(self, operation, /, **fields):
        response = await self.respond(operation, **fields)
        seen(response.meta.request_id)
        return plain(response.data)

    async def pages(self, operation, /, **fields):
        """The pages that the client fetches one after the other: how many each has, and all of them."""
        page = await self.respond(operation, **fields)
        sizes, items = [], []
        while page is not None:
            seen(page.result.meta.request_id)
            equal(page.result.pagination.has_more, "cursor" in page.result.pagination.model_fields_set)
            sizes.append(len(page.result.data))
            items += plain(page.result.data)
            page = page.next()
            if asyncio.iscoroutine(page):
                page = await page
        return sizes, items

    async def check(self, name, body):
        try:
            result = body()
            if asyncio.iscoroutine(result):
                await result
            count["passed"] += 1
            print(f"ok - {self.mode}: {name}", flush=True)
        except Exception as error:  # Whatever goes wrong is a failed check, and the next one still runs.
            count["failed"] += 1
            reason = re.sub(r"\s*\n\s*", " | ", f"{type(error).__name__}: {error}")
            print(f"NOT OK - {self.mode}: {name}: {reason[:1500]}", flush=True)

    async def raises(self, kind, operation, /, **fields):
        cls, status, title, name, media = (*kind, "application/json")[:5]
        try:
            answer = await self.call(operation, **fields)
        except Exception as thrown:
            error = thrown
        else:
            raise AssertionError(f"expected status {status}, but the call succeeded with {answer!r}")
        assert type(error) is cls, f"expected {cls.__name__}, got {type(error).__name__}: {error}"
        equal(error.status_code, status)
        equal(error.headers["content-type"].split(";")[0], media)
        body = json.loads(error.body)
        if cls is not errors.APIError:
            equal(plain(error.data), body)
        equal(sorted(body), ["error", "meta"])
        seen(body["meta"]["requestId"])
        detail = body["error"]
        equal((detail["status"], detail["title"]), (status, title))
        assert isinstance(detail["detail"], str)
        matches(detail["type"], f"https?://.+/errors/{name}")
        equal("errors" in detail, status == 400)
        return detail

    async def rejects(self, location, operation, /, *, kind=INVALID, **fields):
        detail = await self.raises(kind, operation, **fields)
        assert location in [item["location"] for item in detail["errors"]], f"expected an error at {location}, got {detail['errors']}"

    async def lacks(self, operation, /, *permissions, kind=FORBIDDEN, **fields):
        """Refused by an error that names each permission."""
        detail = (await self.raises(kind, operation, **fields))["detail"]
        for permission in permissions:
            assert permission in detail, detail

    async def get_key(self, key_id):
        return self.settled(await self.call("keys.get_key", key_id=key_id))

    async def whoami(self, key):
        return self.settled(await self.call("keys.whoami", key=key))

    @staticmethod
    def settled(answer):
        # `lastUsedAt` may lag behind by minutes, so it is judged by itself and then left out.
        if "lastUsedAt" in answer:
            is_now(answer.pop("lastUsedAt"))
        return in_order(answer)

    async def verify(self, key, **more):
        answer = await self.call("keys.verify_key", key=key, **more)
        # This client knows a field that the contract does not list; it may be absent.
        matches(answer.pop("keyspaceId", "ks_0"), r"ks_[A-Za-z0-9]+")
        return in_order(answer)

    async def create_key(self, **fields):
        return await self.call("keys.create_key", **{"api_id": self.api_id, **fields})

    async def code(self, key, **more):
        answer = await self.verify(key, **more)
        equal(answer["valid"], answer["code"] == "VALID")
        return answer["code"]

    @staticmethod
    async def seen_by_all():
        await asyncio.sleep(SEEN_AFTER_SECONDS)

    @staticmethod
    async def avoid_minute_end():
        """Waits for the next minute if this one ends within 15 seconds, and what ends with it could be gone too soon."""
        left = 60 - time.time() % 60
        if left < 15:
            await asyncio.sleep(left)

    async def verifies_everywhere(self, key, expected, **more):
        """What every replica says of a key once it has seen a change. None stands for a field that must be absent."""
        await self.seen_by_all()
        answer = await self.verify(key, **more)
        equal({field: answer.get(field) for field in expected}, expected)

    async def check_list(self, section, operation, search, everything):
        """A list of things that a search finds, told by the client's own pages: there are five of them."""
        everything = sorted(everything, key=lambda thing: thing["id"])
        for title, fields, sizes in (
            ("pages of 2", {"search": search, "limit": 2}, [2, 2, 1]),
            ("a page of 5", {"search": search, "limit": 5}, [5]),
            ("a page of 100, where no size is asked for", {"search": search}, [5]),
            ("a search in capitals and between blanks", {"search": f" {search.upper()}\t"}, [5]),
            ("pages from a cursor on", {"search": search, "limit": 2, "cursor": everything[2]["id"]}, [2, 1]),
            ("what nothing holds", {"search": f"{search}?"}, [0]),
        ):
            async def listed():
                last = everything[5 - sum(sizes):]
                equal(await self.pages(operation, **fields), (sizes, last))
            await self.check(f"{section}: {operation}: {title}", listed)
        for title, fields, location in (
            ("a page of 0", {"limit": 0}, "/properties/limit/minimum"),
            ("a page of 101", {"limit": 101}, "/properties/limit/maximum"),
            ("a search of 257", {"search": "s" * 257}, "/properties/search/maxLength"),
            ("a cursor of 1025", {"cursor": "c" * 1025}, "/properties/cursor/maxLength"),
        ):
            await self.check(f"{section}: {operation} refuses {title}", lambda: self.rejects(location, operation, **fields))
