"""What every file of checks of version 1 uses: the client, the ways to check an answer, and the driver that makes the calls."""

import asyncio
import inspect
import json
import os
import re
import secrets
import subprocess
import sys
import time
from collections import Counter
from enum import Enum

import httpx
from pydantic import ValidationError
from unkey_py import Unkey, models
from unkey_py.types import BaseModel
from unkey_py.utils import BackoffStrategy, RetryConfig


def given(name):
    return os.environ.get(name) or sys.exit(f"{name} must be set.")


URL = given("KEYWARD_URL")
ROOT_KEY = given("KEYWARD_ROOT_KEY")
BINARY = given("KEYWARD_BINARY")
# After so long a change is seen by another replica than the one that made it.
SEEN_AFTER_SECONDS = float(given("KEYWARD_SEEN_AFTER_SECONDS"))
# Retries are off, so that one 5xx answer is a failure here and not a slow success.
NO_RETRY = RetryConfig("none", BackoffStrategy(1, 1, 1, 1), False)
# A window of 30 days starts no new window while the checks run, so counts and `reset` are exact.
LONG = 2_592_000_000

count = Counter()
request_ids = []

# Each kind of failure: the class that the client raises, status and code.
BAD_REQUEST = (models.ErrBadRequest, 400, "BAD_REQUEST")
UNAUTHORIZED = (models.ErrUnauthorized, 401, "UNAUTHORIZED")
NOT_FOUND = (models.ErrNotFound, 404, "NOT_FOUND")
CONFLICT = (models.ErrConflict, 409, "CONFLICT")
PRECONDITION = (models.ErrPreconditionFailed, 412, "PRECONDITION_FAILED")
# The client knows these statuses with other codes only, and cannot read the answer: that has always been so.
FORBIDDEN = (ValidationError, 403, "INSUFFICIENT_PERMISSIONS")
PROTECTED = (ValidationError, 412, "DELETE_PROTECTED")


def keyward(*args):
    """What the operator does beside the server, on the same data."""
    return json.loads(subprocess.run([BINARY, *args, "--json"], stdout=subprocess.PIPE, check=True).stdout)


async def set_api(api_id, *options):
    keyward("api", "update", api_id, *options)
    await asyncio.sleep(1)  # Every server sees within a second what the operator has changed.


# What the server answered last, before the client read it.
answers = []


def record(response):
    response.read()
    answers.append(response)


async def record_async(response):
    await response.aread()
    answers.append(response)


def client(root_key, url=URL, retry_config=NO_RETRY):
    return Unkey(
        bearer_auth=root_key, server_url=url, retry_config=retry_config,
        client=httpx.Client(event_hooks={"response": [record]}),
        async_client=httpx.AsyncClient(event_hooks={"response": [record_async]}),
    )


def client_for(*permissions):
    return client(keyward("root-key", "create", *(f"--permission={one}" for one in permissions))["key"])


def plain(value):
    """What the server sent, as the client shows it: a field that was absent is absent here,
    while a field that was null is None, so that no null passes for an absent field."""
    if isinstance(value, BaseModel):
        fields = type(value).model_fields.items()
        return {f.alias or name: plain(getattr(value, name)) for name, f in fields if name in value.model_fields_set}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.value if isinstance(value, Enum) else value


def seen(response):
    request_id = response.headers["unkey-request-id"]
    matches(request_id, r"req_[A-Za-z0-9]{9,}")
    request_ids.append(request_id)
    return request_id


def equal(actual, expected):
    assert actual == expected and type(actual) is type(expected), f"got {actual!r}, expected {expected!r}"


def matches(text, pattern):
    assert isinstance(text, str) and re.fullmatch(pattern, text), f"{text!r} does not match {pattern}"


def is_now(ms):
    assert isinstance(ms, int) and abs(ms - now_ms()) < 300_000, f"{ms} is not a recent unix time in ms"


def now_ms():
    return int(time.time() * 1000)


def window_end(duration):
    return (now_ms() // duration + 1) * duration


def in_order(answer):
    """Sorts the lists whose order the contract leaves open."""
    for field in ("permissions", "roles"):
        if field in answer:
            answer[field] = sorted(answer[field])
    return answer


def bare(key_id):
    """What a verification tells of a key that has nothing."""
    return {"valid": True, "code": "VALID", "keyId": key_id, "enabled": True, "permissions": [], "roles": []}


NOTHING = {"valid": False, "code": "NOT_FOUND"}


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
        takes_request = "request" in inspect.signature(getattr(group, method)).parameters
        arguments = {"request": fields.pop("request", fields)} if takes_request else fields
        if self.mode == "sync":
            return getattr(group, method)(**arguments)
        return await getattr(group, f"{method}_async")(**arguments)

    async def call(self, operation, /, **fields):
        response = await self.respond(operation, **fields)
        return self.body(response)

    @staticmethod
    def body(response):
        seen(response.http_meta.response)
        [field] = [name for name in type(response).model_fields if name not in ("http_meta", "next")]
        return plain(getattr(response, field))

    async def pages(self, operation, field, /, **fields):
        """The pages one after the other, by their cursors: how many each has, and all of them."""
        sizes, items = [], []
        while True:
            page = await self.call(operation, **fields)
            sizes.append(len(page[field]))
            items += page[field]
            if "cursor" not in page:
                return sizes, items
            fields["cursor"] = page["cursor"]

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

    async def raises(self, kind, operation, /, *named, **fields):
        """The message of a refusal, which names each of `named`."""
        cls, status, code = kind
        answers.clear()
        try:
            answer = await self.call(operation, **fields)
        except Exception as thrown:
            error = thrown
        else:
            raise AssertionError(f"expected status {status}, but the call succeeded with {answer!r}")
        assert type(error) is cls, f"expected {cls.__name__}, got {type(error).__name__}: {error}"
        [response] = answers
        equal((response.status_code, response.headers["content-type"]), (status, "application/json"))
        body = response.json()
        equal(list(body), ["error"])
        detail = body["error"]
        equal(list(detail), ["code", "docs", "message", "requestId"])
        equal((detail["code"], detail["requestId"]), (code, seen(response)))
        matches(detail["docs"], r"https?://.+/errors/[a-z_]+")
        if cls is not ValidationError:
            equal(plain(error.data), body)
        for part in named:
            assert part in detail["message"], detail["message"]
        return detail["message"]

    async def rejects(self, message, operation, /, **fields):
        equal(await self.raises(BAD_REQUEST, operation, **fields), message)

    async def get_key(self, key_id, **more):
        return in_order(await self.call("keys.get", key_id=key_id, **more))

    async def verify(self, key, **more):
        answer = await self.call("keys.verify", key=key, **more)
        equal(answer.pop("requestId"), request_ids[-1])
        equal(answer["valid"], answer["code"] == "VALID")
        return in_order(answer)

    async def code(self, key, **more):
        return (await self.verify(key, **more))["code"]

    async def create_key(self, **fields):
        return await self.call("keys.create", **{"api_id": self.api_id, **fields})

    @staticmethod
    async def seen_by_all():
        await asyncio.sleep(SEEN_AFTER_SECONDS)

    async def verifies_everywhere(self, key, expected, **more):
        """What every replica says of a key once it has seen a change. None stands for a field that must be absent."""
        await self.seen_by_all()
        answer = await self.verify(key, **more)
        equal({field: answer.get(field) for field in expected}, expected)
