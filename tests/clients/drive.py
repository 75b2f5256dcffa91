"""Drives a running Keyward server through the official Python client, unmodified.

Every check runs twice, with the client's synchronous and with its asynchronous methods, and
compares answers with the v2 contract. It reads KEYWARD_URL and KEYWARD_ROOT_KEY, and it may
run any number of times against the same server: every name it makes is new.
"""

import asyncio
import json
import os
import re
import secrets
import sys
import time
from enum import Enum

from unkey.py import Unkey, errors
from unkey.py.types import BaseModel
from unkey.py.utils import BackoffStrategy, RetryConfig

URL = os.environ.get("KEYWARD_URL")
ROOT_KEY = os.environ.get("KEYWARD_ROOT_KEY")
if not URL or not ROOT_KEY:
    sys.exit("KEYWARD_URL and KEYWARD_ROOT_KEY must be set.")

# Retries are off, so that one 5xx answer is a failure here and not a slow success.
NO_RETRY = RetryConfig("none", BackoffStrategy(1, 1, 1, 1), False)


def client(root_key):
    return Unkey(root_key=root_key, server_url=URL, retry_config=NO_RETRY)


# --------------------------------------------------------------------------------- helpers

passed = 0
failed = 0
request_ids = []

# A window of 30 days starts no new window while the checks run, so counts and `reset` are exact.
LONG = 2_592_000_000
MAX_INT64 = 2**63 - 1
NOT_FOUND = {"valid": False, "code": "NOT_FOUND"}

# Each kind of failure: the class that the client raises, status, title and the error name that ends `type`.
INVALID = (errors.BadRequestErrorResponse, 400, "Bad Request", "invalid_input")
QUERY = (errors.BadRequestErrorResponse, 400, "Bad Request", "permissions_query_syntax_error")
UNAUTHORIZED = (errors.UnauthorizedErrorResponse, 401, "Unauthorized", "[a-z_]+")
NO_API = (errors.NotFoundErrorResponse, 404, "Not Found", "api_not_found")
NO_KEY = (errors.NotFoundErrorResponse, 404, "Not Found", "key_not_found")
NO_ROLE = (errors.NotFoundErrorResponse, 404, "Not Found", "role_not_found")
NO_PERMISSION = (errors.NotFoundErrorResponse, 404, "Not Found", "permission_not_found")
NO_NAMESPACE = (errors.NotFoundErrorResponse, 404, "Not Found", "ratelimit_namespace_not_found")
NO_OVERRIDE = (errors.NotFoundErrorResponse, 404, "Not Found", "ratelimit_override_not_found")
PERMISSION_EXISTS = (errors.ConflictErrorResponse, 409, "Conflicting Resource", "permission_already_exists")
ROLE_EXISTS = (errors.ConflictErrorResponse, 409, "Conflicting Resource", "role_already_exists")
# The client declares no 412 for the key operations, so its generic class is the right one.
PRECONDITION = (errors.APIError, 412, "Precondition Failed", "precondition_failed")


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

    async def call(self, operation, /, *, sdk=None, **fields):
        group, method = operation.split(".")
        group = getattr(sdk or self.unkey, group)
        if self.mode == "sync":
            response = getattr(group, method)(**fields)
        else:
            response = await getattr(group, f"{method}_async")(**fields)
        seen(response.meta.request_id)
        return plain(response.data)

    async def check(self, name, body):
        global passed, failed
        try:
            result = body()
            if asyncio.iscoroutine(result):
                await result
            passed += 1
            print(f"ok - {self.mode}: {name}", flush=True)
        except Exception as error:  # Whatever goes wrong is a failed check, and the next one still runs.
            failed += 1
            reason = re.sub(r"\s*\n\s*", " | ", f"{type(error).__name__}: {error}")
            print(f"NOT OK - {self.mode}: {name}: {reason[:1500]}", flush=True)

    async def raises(self, kind, operation, /, **fields):
        cls, status, title, name = kind
        try:
            answer = await self.call(operation, **fields)
        except Exception as thrown:
            error = thrown
        else:
            raise AssertionError(f"expected status {status}, but the call succeeded with {answer!r}")
        assert type(error) is cls, f"expected {cls.__name__}, got {type(error).__name__}: {error}"
        equal(error.status_code, status)
        matches(error.headers["content-type"], r"application/json.*")
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

    async def rejects(self, location, operation, /, **fields):
        detail = await self.raises(INVALID, operation, **fields)
        assert location in [item["location"] for item in detail["errors"]], f"expected an error at {location}, got {detail['errors']}"

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

    # ------------------------------------------------------------------------------ checks

    async def everything(self):
        self.api_id = (await self.call("apis.create_api", name=self.fresh("main")))["apiId"]
        for section in (self.authentication, self.apis, self.permissions, self.creating, self.reading, self.updating,
                        self.deleting, self.verifying, self.expressions, self.ratelimits, self.credits, self.limiter):
            try:
                await section(section.__name__)
            except Exception as error:  # A section that cannot set its scene is one failed check.
                async def broken(error=error):
                    raise error
                await self.check(f"{section.__name__}: set-up", broken)

    async def authentication(self, section):
        nobody, stranger = client(None), client("unkey_" + secrets.token_hex(12))
        # These bodies are invalid where they can be: an unauthenticated caller learns nothing about that.
        operations = {
            "apis.create_api": {"name": "x"}, "apis.get_api": {"api_id": "x"}, "apis.delete_api": {"api_id": "x"},
            "keys.create_key": {"api_id": "x"}, "keys.get_key": {"key_id": "x"}, "keys.update_key": {"key_id": "x"},
            "keys.delete_key": {"key_id": "x"}, "keys.whoami": {"key": ""}, "keys.verify_key": {"key": ""},
            "permissions.create_permission": {"name": "", "slug": ""}, "permissions.create_role": {"name": ""},
            "ratelimit.limit": {"namespace": "", "identifier": "", "limit": 0, "duration": 0}, "ratelimit.multi_limit": {"request": []},
            "ratelimit.set_override": {"namespace": "", "identifier": "", "limit": 0, "duration": 0},
            "ratelimit.get_override": {"namespace": "", "identifier": ""}, "ratelimit.list_overrides": {"namespace": ""},
            "ratelimit.delete_override": {"namespace": "", "identifier": ""},
        }
        # An unknown key, a malformed header and a missing one have one type each, the same on every operation.
        types = {}

        async def unauthorized(kind, operation, **fields):
            detail = await self.raises(UNAUTHORIZED, operation, **fields)
            equal(detail["type"], types.setdefault(kind, detail["type"]))

        basic = {"Authorization": "Basic YTpi"}
        for operation, fields in operations.items():
            await self.check(f"{section}: {operation} without a root key", lambda: unauthorized("missing", operation, sdk=nobody, **fields))
            await self.check(f"{section}: {operation} with a malformed Authorization header", lambda: unauthorized("malformed", operation, http_headers=basic, **fields))
            await self.check(f"{section}: {operation} with an unknown root key", lambda: unauthorized("unknown", operation, sdk=stranger, **fields))
        await self.check(f"{section}: missing, malformed and unknown have distinct types", lambda: equal(len(set(types.values())), 3))

        lower_case = {"Authorization": f"bearer {ROOT_KEY}"}
        await self.check(f"{section}: the scheme is case-sensitive", lambda: unauthorized("malformed", "apis.create_api", name=self.fresh("x"), http_headers=lower_case))

        async def ordinary():
            made = await self.create_key()
            await unauthorized("unknown", "apis.get_api", sdk=client(made["key"]), api_id=self.api_id)
        await self.check(f"{section}: an ordinary API key is no root key", ordinary)

    async def apis(self, section):
        name = self.fresh("api")
        made = await self.call("apis.create_api", name=name)
        api_id = made["apiId"]

        async def created():
            equal(sorted(made), ["apiId"])
            matches(api_id, r"api_[A-Za-z0-9]{16,}")
            equal(await self.call("apis.get_api", api_id=api_id), {"id": api_id, "name": name})
            other = await self.call("apis.create_api", name=name)
            assert other["apiId"] != api_id
        await self.check(f"{section}: createApi and getApi", created)

        async def code_points():
            await self.call("apis.create_api", name="🔑" * 3)
            await self.call("apis.create_api", name="🔑" * 256)
            await self.rejects("/properties/name/minLength", "apis.create_api", name="🔑" * 2)
            await self.rejects("/properties/name/maxLength", "apis.create_api", name="🔑" * 257)
        await self.check(f"{section}: name lengths count code points", code_points)
        await self.check(f"{section}: getApi of an unknown id", lambda: self.raises(NO_API, "apis.get_api", api_id="api_doesnotexist0000"))
        await self.check(f"{section}: getApi of a short id", lambda: self.rejects("/properties/apiId/minLength", "apis.get_api", api_id="api_123"))
        await self.check(f"{section}: getApi of an ill-formed id", lambda: self.rejects("/properties/apiId/pattern", "apis.get_api", api_id="api-with-dashes"))
        await self.check(f"{section}: deleteApi of an unknown id", lambda: self.raises(NO_API, "apis.delete_api", api_id="api_doesnotexist0000"))

        orphan = await self.create_key(api_id=api_id)
        key, key_id = orphan["key"], orphan["keyId"]

        async def deleted():
            equal(await self.code(key), "VALID")
            equal(await self.call("apis.delete_api", api_id=api_id), {})
            equal(await self.verify(key), NOT_FOUND)
        await self.check(f"{section}: after deleteApi its keys are NOT_FOUND", deleted)
        await self.check(f"{section}: after deleteApi getApi is 404", lambda: self.raises(NO_API, "apis.get_api", api_id=api_id))
        await self.check(f"{section}: a second deleteApi is 404", lambda: self.raises(NO_API, "apis.delete_api", api_id=api_id))
        await self.check(f"{section}: after deleteApi createKey is 404", lambda: self.raises(NO_API, "keys.create_key", api_id=api_id))
        await self.check(f"{section}: after deleteApi getKey is 404", lambda: self.raises(NO_KEY, "keys.get_key", key_id=key_id))
        await self.check(f"{section}: after deleteApi whoami is 404", lambda: self.raises(NO_KEY, "keys.whoami", key=key))

    async def permissions(self, section):
        slug, role = self.fresh("docs.read"), self.fresh("editor")

        async def permission():
            made = await self.call("permissions.create_permission", name="Read", slug=slug, description="Reads documents.")
            equal(sorted(made), ["permissionId"])
            matches(made["permissionId"], r"perm_[A-Za-z0-9]{16,}")
            await self.call("permissions.create_permission", name="Read", slug=self.fresh("docs.read2"))
        await self.check(f"{section}: createPermission", permission)
        await self.check(f"{section}: the same slug again is 409", lambda: self.raises(PERMISSION_EXISTS, "permissions.create_permission", name="Other", slug=slug))
        for title, fields, location in (
            ("an empty name", {"name": "", "slug": self.fresh("p1")}, "/properties/name/minLength"),
            ("a slug of 129", {"name": "p", "slug": "s" * 129}, "/properties/slug/maxLength"),
            ("a slug with a blank", {"name": "p", "slug": "a b"}, "/properties/slug/pattern"),
            ("a description of 513", {"name": "p", "slug": self.fresh("p1"), "description": "d" * 513}, "/properties/description/maxLength"),
        ):
            await self.check(f"{section}: createPermission refuses {title}", lambda: self.rejects(location, "permissions.create_permission", **fields))

        async def created_role():
            made = await self.call("permissions.create_role", name=role, description="Edits.", permissions=[slug, self.fresh("docs.write"), slug])
            equal(sorted(made), ["roleId"])
            matches(made["roleId"], r"role_[A-Za-z0-9]{16,}")
            await self.raises(PERMISSION_EXISTS, "permissions.create_permission", name="w", slug=self.fresh("docs.write"))
            await self.call("permissions.create_role", name=self.fresh("bare"))
        await self.check(f"{section}: createRole creates the slugs that are missing", created_role)

        async def same_role():
            await self.raises(ROLE_EXISTS, "permissions.create_role", name=role, permissions=[self.fresh("docs.never")])
            await self.call("permissions.create_permission", name="n", slug=self.fresh("docs.never"))
        await self.check(f"{section}: the same role name again is 409, and creates nothing", same_role)
        await self.check(f"{section}: createRole refuses a name of 129", lambda: self.rejects("/properties/name/maxLength", "permissions.create_role", name="r" * 129))

    async def creating(self, section):
        direct, shared, via_role, role = map(self.fresh, ("direct", "shared", "via-role", "key-role"))
        await self.call("permissions.create_permission", name=direct, slug=direct)
        await self.call("permissions.create_role", name=role, permissions=[shared, via_role])
        # The name is 255 code points long, and the metadata holds what JSON can hold.
        fields = {
            "prefix": "acme_live", "name": "🗝" * 255, "byte_length": 32, "external_id": self.fresh("user-1_a"),
            "meta": {"plan": "pro", "nested": {"list": [1, "two", None, True, 1.5], "empty": {}}, "big": MAX_INT64, "k é": ""},
            "roles": [role], "permissions": [direct, shared], "expires": now_ms() + 3_600_000,
            "credits": {"remaining": 100, "refill": {"interval": "monthly", "amount": 500, "refill_day": 31}},
            "ratelimits": [{"name": "auto", "limit": 10, "duration": LONG, "auto_apply": True},
                           {"name": "manual", "limit": 20, "duration": 60_000, "auto_apply": False}],
            "enabled": True, "recoverable": False,
        }
        made = await self.create_key(**fields)
        key, key_id = made["key"], made["keyId"]
        stored = await self.get_key(key_id)
        limits = stored["ratelimits"]
        identity = {"id": stored["identity"]["id"], "externalId": fields["external_id"]}
        permissions = sorted([direct, shared, via_role])

        async def created():
            equal(sorted(made), ["key", "keyId"])
            matches(key_id, r"key_[A-Za-z0-9]{16,}")
            matches(key, r"acme_live_[A-Za-z0-9]+")
            equal(base58_bytes(key.removeprefix("acme_live_")), 32)
        await self.check(f"{section}: createKey answers with key id and key", created)

        async def got():
            is_now(stored["createdAt"])
            matches(identity["id"], r"id_[A-Za-z0-9]{16,}")
            for limit in limits:
                matches(limit["id"], r"rl_[A-Za-z0-9]{16,}")
            equal(stored, {
                "keyId": key_id, "start": key[:14], "enabled": True, "createdAt": stored["createdAt"], "name": fields["name"], "meta": fields["meta"],
                "expires": fields["expires"], "permissions": permissions, "roles": [role], "identity": identity,
                "credits": {"remaining": 100, "refill": {"interval": "monthly", "amount": 500, "refillDay": 31}},
                "ratelimits": [{"id": limits[0]["id"], "name": "auto", "limit": 10, "duration": LONG, "autoApply": True},
                               {"id": limits[1]["id"], "name": "manual", "limit": 20, "duration": 60_000, "autoApply": False}],
            })
        await self.check(f"{section}: getKey returns every field as it was set", got)

        async def same():
            equal((await self.call("keys.whoami", key=key))["permissions"], permissions)
            equal(await self.whoami(key), stored)
        await self.check(f"{section}: whoami returns the same, with sorted permissions", same)

        async def verified():
            equal(await self.verify(key), {
                "valid": True, "code": "VALID", "keyId": key_id, "enabled": True, "name": fields["name"], "meta": fields["meta"],
                "expires": fields["expires"], "permissions": permissions, "roles": [role], "credits": 99, "identity": identity,
                "ratelimits": [checked(limits[0], 9)],
            })
        await self.check(f"{section}: verifyKey returns every field", verified)

        async def shared_identity():
            other = await self.create_key(external_id=fields["external_id"])
            equal((await self.verify(other["key"]))["identity"], identity)
        await self.check(f"{section}: two keys of one externalId share the identity", shared_identity)

        async def least():
            bare = await self.create_key()
            equal(base58_bytes(bare["key"]), 16)
            answer = await self.call("keys.get_key", key_id=bare["keyId"])
            equal(answer, {"keyId": bare["keyId"], "start": bare["key"][:4], "enabled": True, "createdAt": answer["createdAt"]})
            equal(await self.verify(bare["key"]), {"valid": True, "code": "VALID", "keyId": bare["keyId"], "enabled": True})
        await self.check(f"{section}: the least key leaves out what it does not have", least)

        async def empty():
            bare = await self.create_key(meta={}, roles=[], permissions=[], ratelimits=[])
            equal(sorted(await self.get_key(bare["keyId"])), ["createdAt", "enabled", "keyId", "start"])
        await self.check(f"{section}: empty meta, roles, permissions and ratelimits are left out", empty)

        async def other_credits():
            for sent, shown in (({"remaining": 0, "refill": {"interval": "daily", "amount": 10}}, {"remaining": 0, "refill": {"interval": "daily", "amount": 10}}),
                                ({"remaining": MAX_INT64}, {"remaining": MAX_INT64}), ({"remaining": None}, None)):
                other = await self.create_key(credits=sent)
                equal({"credits": shown} if shown else {}, {field: value for field, value in (await self.get_key(other["keyId"])).items() if field == "credits"})
        await self.check(f"{section}: credits daily, at the largest integer, and unlimited", other_credits)

        async def disabled():
            other = await self.create_key(enabled=False)
            equal((await self.get_key(other["keyId"]))["enabled"], False)
            equal(await self.code(other["key"]), "DISABLED")
        await self.check(f"{section}: enabled false", disabled)

        await self.check(f"{section}: an unknown API is 404", lambda: self.raises(NO_API, "keys.create_key", api_id="api_doesnotexist0000"))

        async def missing_role():
            detail = await self.raises(NO_ROLE, "keys.create_key", api_id=self.api_id, roles=[role, self.fresh("no-role-1"), self.fresh("no-role-2")])
            assert self.fresh("no-role-1") in detail["detail"] and self.fresh("no-role-2") in detail["detail"], detail["detail"]
        await self.check(f"{section}: a missing role is 404 and is named", missing_role)

        async def missing_permission():
            slugs = [self.fresh("no-perm-1"), self.fresh("no-perm-2")]
            detail = await self.raises(NO_PERMISSION, "keys.create_key", api_id=self.api_id, permissions=[direct, *slugs])
            for slug in slugs:
                assert slug in detail["detail"], detail["detail"]
                await self.call("permissions.create_permission", name=slug, slug=slug)
        await self.check(f"{section}: a missing permission is 404, is named, and is not created", missing_permission)
        await self.check(f"{section}: recoverable is 412", lambda: self.raises(PRECONDITION, "keys.create_key", api_id=self.api_id, recoverable=True))
        await self.check(f"{section}: getKey with decrypt is 412", lambda: self.raises(PRECONDITION, "keys.get_key", key_id=key_id, decrypt=True))

        limit = {"name": "requests", "limit": 1, "duration": 1000}
        for title, more, location in (
            ("an empty prefix", {"prefix": ""}, "/properties/prefix/minLength"),
            ("a prefix of 17", {"prefix": "p" * 17}, "/properties/prefix/maxLength"),
            ("an ill-formed prefix", {"prefix": "a-b"}, "/properties/prefix/pattern"),
            ("a name of 256", {"name": "n" * 256}, "/properties/name/maxLength"),
            ("byteLength 15", {"byte_length": 15}, "/properties/byteLength/minimum"),
            ("byteLength 256", {"byte_length": 256}, "/properties/byteLength/maximum"),
            ("an ill-formed externalId", {"external_id": "a b"}, "/properties/externalId/pattern"),
            ("an empty role", {"roles": [""]}, "/properties/roles/items/minLength"),
            ("an ill-formed permission", {"permissions": ["a b"]}, "/properties/permissions/items/pattern"),
            ("a negative expires", {"expires": -1}, "/properties/expires/minimum"),
            ("negative credits", {"credits": {"remaining": -1}}, "/properties/credits/properties/remaining/minimum"),
            ("a window under a second", {"ratelimits": [{**limit, "duration": 999}]}, "/properties/ratelimits/items/properties/duration/minimum"),
        ):
            await self.check(f"{section}: refuses {title}", lambda: self.rejects(location, "keys.create_key", api_id=self.api_id, **more))
        for title, more in (
            ("a monthly refill without a day", {"credits": {"remaining": 1, "refill": {"interval": "monthly", "amount": 1}}}),
            ("a daily refill with a day", {"credits": {"remaining": 1, "refill": {"interval": "daily", "amount": 1, "refill_day": 1}}}),
            ("a refill of unlimited credits", {"credits": {"remaining": None, "refill": {"interval": "daily", "amount": 1}}}),
            ("an integer past 64 bits", {"credits": {"remaining": MAX_INT64 + 1}}),
        ):
            await self.check(f"{section}: refuses {title}", lambda: self.raises(INVALID, "keys.create_key", api_id=self.api_id, **more))

    async def reading(self, section):
        await self.check(f"{section}: getKey of an unknown id", lambda: self.raises(NO_KEY, "keys.get_key", key_id="key_doesnotexist0000"))
        await self.check(f"{section}: getKey of a short id", lambda: self.rejects("/properties/keyId/minLength", "keys.get_key", key_id="ke"))
        await self.check(f"{section}: whoami of an unknown key", lambda: self.raises(NO_KEY, "keys.whoami", key="nobody_knows_this"))
        await self.check(f"{section}: whoami of an empty key", lambda: self.rejects("/properties/key/minLength", "keys.whoami", key=""))

        async def dead():
            made = await self.create_key(enabled=False, expires=1, credits={"remaining": 3})
            answer = await self.whoami(made["key"])
            equal(answer, {"keyId": made["keyId"], "start": made["key"][:4], "enabled": False, "createdAt": answer["createdAt"], "expires": 1, "credits": {"remaining": 3}})
            equal(await self.get_key(made["keyId"]), answer)
        await self.check(f"{section}: whoami knows a disabled, expired key and spends nothing", dead)

    async def updating(self, section):
        p1, p2, p3, r1, r2 = map(self.fresh, ("up1", "up2", "up3", "ur1", "ur2"))
        await self.call("permissions.create_permission", name=p1, slug=p1)
        await self.call("permissions.create_role", name=r1, permissions=[p2])
        await self.call("permissions.create_role", name=r2)
        expires = now_ms() + 7_200_000
        sent = {"interval": "monthly", "amount": 40, "refill_day": 15}
        refill = {"interval": "monthly", "amount": 40, "refillDay": 15}
        made = await self.create_key(
            name="before", external_id=self.fresh("owner-1"), meta={"a": 1, "b": 2}, expires=expires,
            credits={"remaining": 10, "refill": sent}, roles=[r1], permissions=[p1],
            ratelimits=[{"name": "keep", "limit": 100, "duration": LONG, "auto_apply": True},
                        {"name": "drop", "limit": 5, "duration": LONG, "auto_apply": False}])
        key, key_id = made["key"], made["keyId"]
        state = await self.get_key(key_id)
        first_identity = state["identity"]
        keep = state["ratelimits"][1]

        # Each change is applied to what is known, so a field that an update must not touch is checked every time.
        async def changes(title, fields, difference):
            async def body():
                nonlocal state
                equal(await self.call("keys.update_key", key_id=key_id, **fields), {})
                answer = await self.get_key(key_id)
                expected = {**state, **(difference(answer) if callable(difference) else difference)}
                state = answer
                if fields:
                    is_now(answer["updatedAt"])
                expected["updatedAt"] = answer.get("updatedAt")
                equal(answer, {field: value for field, value in expected.items() if value is not None})
            await self.check(f"{section}: {title}", body)

        async def verifies(title, expected, **more):
            async def body():
                nonlocal state
                answer = await self.verify(key, **more)
                state = await self.get_key(key_id)
                for field, value in expected.items():  # None stands for a field that must be absent.
                    assert field in answer if value is not None else field not in answer, f"{field} in {answer!r}"
                    equal(answer.get(field), value)
            await self.check(f"{section}: {title}", body)

        await changes("no field at all changes nothing", {}, {})
        await changes("name to null", {"name": None}, {"name": None})
        await changes("name to a value", {"name": "after"}, {"name": "after"})
        await changes("externalId to null", {"external_id": None}, {"identity": None})
        await verifies("an unlinked key verifies without identity", {"code": "VALID", "identity": None})
        await changes("externalId to a new value makes the identity", {"external_id": self.fresh("owner-2")},
                      lambda answer: {"identity": {"id": answer["identity"]["id"], "externalId": self.fresh("owner-2")}})
        await changes("externalId back finds the old identity", {"external_id": self.fresh("owner-1")}, {"identity": first_identity})
        await changes("meta to a value replaces it whole", {"meta": {"c": [None, 3]}}, {"meta": {"c": [None, 3]}})
        await changes("meta to null", {"meta": None}, {"meta": None})
        await changes("meta to a value again", {"meta": {"d": 4}}, {"meta": {"d": 4}})
        await changes("expires to null", {"expires": None}, {"expires": None})
        await changes("expires to a value", {"expires": expires + 1}, {"expires": expires + 1})
        await changes("credits.remaining to a value keeps the refill", {"credits": {"remaining": 7}}, {"credits": {"remaining": 7, "refill": refill}})
        await verifies("verifyKey counts from the new balance", {"code": "VALID", "credits": 6})
        await changes("credits.refill to null keeps the balance", {"credits": {"refill": None}}, {"credits": {"remaining": 6}})
        await changes("credits.refill to a value", {"credits": {"refill": sent}}, {"credits": {"remaining": 6, "refill": refill}})
        await changes("credits.remaining to null is unlimited, without refill", {"credits": {"remaining": None}}, {"credits": None})
        await changes("credits.remaining to a value does not bring the refill back", {"credits": {"remaining": 5}}, {"credits": {"remaining": 5}})
        await changes("credits to null", {"credits": None}, {"credits": None})
        await verifies("without credits verifyKey is unlimited", {"code": "VALID", "credits": None})
        await changes("credits of an unlimited key to 0", {"credits": {"remaining": 0}}, {"credits": {"remaining": 0}})
        await verifies("a balance of 0 is USAGE_EXCEEDED", {"valid": False, "code": "USAGE_EXCEEDED", "credits": 0})
        await changes("uses restored, with a refill", {"credits": {"remaining": 50, "refill": sent}}, {"credits": {"remaining": 50, "refill": refill}})
        await changes("enabled to false", {"enabled": False}, {"enabled": False})
        await verifies("a disabled key is DISABLED", {"valid": False, "code": "DISABLED", "credits": 50})
        await changes("enabled to true", {"enabled": True}, {"enabled": True})
        await changes("expires into the past", {"expires": 1}, {"expires": 1})
        await verifies("that key is EXPIRED", {"valid": False, "code": "EXPIRED", "credits": 50})
        await changes("expires moved back", {"expires": expires}, {"expires": expires})
        await verifies("that key is VALID again", {"valid": True, "code": "VALID", "credits": 49})
        await changes("permissions replaced, and a missing one created", {"permissions": [p3]}, {"permissions": sorted([p2, p3])})
        await changes("permissions to none leaves those of the role", {"permissions": []}, {"permissions": [p2]})
        await changes("roles replaced", {"roles": [r2]}, {"roles": [r2], "permissions": None})
        await changes("roles to none", {"roles": []}, {"roles": None})
        await changes("roles and permissions, each given twice", {"roles": [r1, r1], "permissions": [p1, p1]}, {"roles": [r1], "permissions": sorted([p1, p2])})
        await verifies("verifyKey sees them at once", {"code": "VALID", "roles": [r1], "permissions": sorted([p1, p2])}, permissions=f"{p1} AND {p2}")
        await changes("ratelimits replaced by name, the id of the kept one stays", {
            "ratelimits": [{"name": "keep", "limit": 500, "duration": LONG, "auto_apply": True}, {"name": "new", "limit": 3, "duration": 2000, "auto_apply": False}],
        }, lambda answer: {"ratelimits": [{**keep, "limit": 500},
                                          {"id": answer["ratelimits"][1]["id"], "name": "new", "limit": 3, "duration": 2000, "autoApply": False}]})
        await changes("ratelimits to none", {"ratelimits": []}, {"ratelimits": None})
        await verifies("verifyKey applies no limit any more", {"code": "VALID", "ratelimits": None})

        async def missing_role():
            await self.raises(NO_ROLE, "keys.update_key", key_id=key_id, name="half", credits=None, roles=[self.fresh("no-role-4")], permissions=[self.fresh("no-perm-4")])
            equal(await self.get_key(key_id), state)
            await self.call("permissions.create_permission", name="free", slug=self.fresh("no-perm-4"))
        await self.check(f"{section}: a missing role is 404 and changes nothing", missing_role)
        await self.check(f"{section}: an unknown key is 404", lambda: self.raises(NO_KEY, "keys.update_key", key_id="key_doesnotexist0000", name="x"))
        for title, fields, location in (
            ("an empty name", {"name": ""}, "/properties/name/minLength"),
            ("an ill-formed externalId", {"external_id": "a b"}, "/properties/externalId/pattern"),
            ("negative credits", {"credits": {"remaining": -1}}, "/properties/credits/properties/remaining/minimum"),
            ("a refill of 0", {"credits": {"refill": {"interval": "daily", "amount": 0}}}, "/properties/credits/properties/refill/properties/amount/minimum"),
            ("a limit of 0", {"ratelimits": [{"name": "bad", "limit": 0, "duration": 1000}]}, "/properties/ratelimits/items/properties/limit/minimum"),
        ):
            await self.check(f"{section}: refuses {title}", lambda: self.rejects(location, "keys.update_key", key_id=key_id, **fields))
        for title, wrong in (("a monthly refill without a day", {"interval": "monthly", "amount": 1}),
                             ("a daily refill with a day", {"interval": "daily", "amount": 1, "refill_day": 1})):
            await self.check(f"{section}: refuses {title}", lambda: self.raises(INVALID, "keys.update_key", key_id=key_id, credits={"refill": wrong}))

    async def deleting(self, section):
        for how, fields in (("soft", {}), ("permanent", {"permanent": True})):
            made = await self.create_key(external_id=self.fresh("gone"))
            key, key_id = made["key"], made["keyId"]

            async def gone():
                equal(await self.call("keys.delete_key", key_id=key_id, **fields), {})
                equal(await self.verify(key), NOT_FOUND)
            await self.check(f"{section}: {how}: verifyKey is NOT_FOUND, with nothing else told", gone)
            await self.check(f"{section}: {how}: getKey is 404", lambda: self.raises(NO_KEY, "keys.get_key", key_id=key_id))
            await self.check(f"{section}: {how}: whoami is 404", lambda: self.raises(NO_KEY, "keys.whoami", key=key))
            await self.check(f"{section}: {how}: updateKey is 404", lambda: self.raises(NO_KEY, "keys.update_key", key_id=key_id, enabled=True))
            await self.check(f"{section}: {how}: deleteKey again is 404", lambda: self.raises(NO_KEY, "keys.delete_key", key_id=key_id))
            await self.check(f"{section}: {how}: a permanent deleteKey afterwards is 404", lambda: self.raises(NO_KEY, "keys.delete_key", key_id=key_id, permanent=True))

    async def verifying(self, section):
        async def unknown():
            equal(await self.verify("nobody_knows_this"), NOT_FOUND)
            equal(await self.verify(ROOT_KEY), NOT_FOUND)
            equal(await self.verify("🔑" * 512), NOT_FOUND)
        await self.check(f"{section}: an unknown key is NOT_FOUND, with nothing else told", unknown)
        await self.check(f"{section}: an empty key is 400", lambda: self.rejects("/properties/key/minLength", "keys.verify_key", key=""))
        await self.check(f"{section}: a key of 513 is 400", lambda: self.rejects("/properties/key/maxLength", "keys.verify_key", key="k" * 513))

        async def disabled():
            made = await self.create_key(name="off", enabled=False, expires=1, meta={"a": 1}, credits={"remaining": 0})
            equal(await self.verify(made["key"]), {"valid": False, "code": "DISABLED", "keyId": made["keyId"], "enabled": False,
                                                   "name": "off", "expires": 1, "meta": {"a": 1}, "credits": 0})
        await self.check(f"{section}: DISABLED tells the key, and comes before EXPIRED", disabled)

        async def expired():
            made = await self.create_key(expires=1)
            equal(await self.verify(made["key"], permissions=self.fresh("none")),
                  {"valid": False, "code": "EXPIRED", "keyId": made["keyId"], "enabled": True, "expires": 1})
        await self.check(f"{section}: EXPIRED tells the key, and comes before the permissions", expired)

        async def tagged():
            made = await self.create_key()
            tags = [f"{i}={'é' * 512}"[:512] for i in range(20)]
            equal(await self.verify(made["key"], tags=tags), {"valid": True, "code": "VALID", "keyId": made["keyId"], "enabled": True})
            await self.rejects("/properties/tags/maxItems", "keys.verify_key", key=made["key"], tags=[*tags, "one more"])
            await self.rejects("/properties/tags/items/maxLength", "keys.verify_key", key=made["key"], tags=["t" * 513])
        await self.check(f"{section}: 20 tags of 512 do not change the outcome", tagged)

        async def migrating():
            made = await self.create_key()
            equal(await self.code(made["key"], migration_id="mig_unknown"), "VALID")
            equal(await self.verify("seam_short_long", migration_id="mig_unknown"), NOT_FOUND)
        await self.check(f"{section}: a migrationId does not matter to a key that is known", migrating)

    async def expressions(self, section):
        a, b, c, d, star, role = map(self.fresh, ("a", "b", "c", "d", "x.*", "expressions"))
        for slug in (a, b, star):
            await self.call("permissions.create_permission", name=slug, slug=slug)
        await self.call("permissions.create_role", name=role, permissions=[c])
        made = await self.create_key(permissions=[a, b, star], roles=[role], credits={"remaining": 1000})
        key = made["key"]
        spent = 0
        for query, holds in (
            (a, True), (c, True), (d, False), (f"{a} AND {b}", True), (f"{a} AND {d}", False), (f"{d} OR {a}", True),
            (f"{a} AND ({d} OR {c})", True), (f"({a} AND {d}) OR {c}", True), (f"{d} AND ({a} OR {b})", False),
            # These two tell whether AND binds tighter than OR.
            (f"{b} OR {a} AND {d}", True), (f"({b} OR {a}) AND {d}", False),
            (f"{d} and {a} or {b}", True), (a.upper(), False), (star, True), (self.fresh("x.read"), False),
        ):
            async def body():
                equal(await self.code(key, permissions=query), "VALID" if holds else "INSUFFICIENT_PERMISSIONS")
            await self.check(f"{section}: {query.replace(self.run + '.', '')!r} is {'VALID' if holds else 'INSUFFICIENT_PERMISSIONS'}", body)
            spent += holds

        async def insufficient():
            equal(await self.verify(key, permissions=d), {
                "valid": False, "code": "INSUFFICIENT_PERMISSIONS", "keyId": made["keyId"], "enabled": True,
                "permissions": sorted([a, b, c, star]), "roles": [role], "credits": 1000 - spent})
        await self.check(f"{section}: INSUFFICIENT_PERMISSIONS tells the key and spends nothing", insufficient)
        for query in (" ", f"{a} AND", f"OR {a}", f"({a}", f"{a})", "()", f"{a} {b}", f"{a} & {b}", "é"):
            async def body():
                equal((await self.raises(QUERY, "keys.verify_key", key=key, permissions=query))["errors"], [])
            await self.check(f"{section}: {query.replace(self.run + '.', '')!r} is a syntax error", body)
        await self.check(f"{section}: an expression of 1001 is 400", lambda: self.rejects("/properties/permissions/maxLength", "keys.verify_key", key=key, permissions="p" * 1001))

    async def ratelimits(self, section):
        async def make(**more):
            made = await self.create_key(ratelimits=[{"name": "auto", "limit": 5, "duration": LONG, "auto_apply": True},
                                                     {"name": "manual", "limit": 3, "duration": LONG}], **more)
            auto, manual = (await self.get_key(made["keyId"]))["ratelimits"]
            equal((auto["autoApply"], manual["autoApply"]), (True, False))
            return made["key"], made["keyId"], auto, manual

        async def limits(key, *asked):
            answer = await self.verify(key, **({"ratelimits": list(asked)} if asked else {}))
            return answer["code"], answer["ratelimits"]

        async def automatic():
            key, key_id, auto, _ = await make(credits={"remaining": 9})
            for remaining in (4, 3, 2, 1, 0):
                equal(await limits(key), ("VALID", [checked(auto, remaining)]))
            equal(await self.verify(key), {"valid": False, "code": "RATE_LIMITED", "keyId": key_id, "enabled": True, "credits": 4, "ratelimits": [checked(auto, 0, True)]})
        await self.check(f"{section}: autoApply limits count without being asked for, the others do not", automatic)

        async def requested():
            key, _, auto, manual = await make()
            equal(await limits(key, {"name": "manual", "cost": 2}), ("VALID", [checked(auto, 4), checked(manual, 1)]))
            equal(await limits(key, {"name": "manual", "cost": 2}), ("RATE_LIMITED", [checked(auto, 4), checked(manual, 0, True)]))
            equal(await limits(key, {"name": "manual"}), ("VALID", [checked(auto, 3), checked(manual, 0)]))
            equal(await limits(key, {"name": "auto", "cost": 2}), ("VALID", [checked(auto, 1)]))
        await self.check(f"{section}: requested limits count with their cost, all or nothing", requested)

        async def peek():
            key, _, auto, manual = await make()
            await limits(key, {"name": "auto", "cost": 5})
            equal(await limits(key, {"name": "auto", "cost": 0}, {"name": "manual", "cost": 0}), ("VALID", [checked(auto, 0), checked(manual, 3)]))
        await self.check(f"{section}: cost 0 only looks", peek)

        async def ad_hoc():
            key, _, auto, _ = await make()
            ask = {"name": "zz-adhoc", "limit": 2, "duration": LONG}
            equal(await limits(key, ask), ("VALID", [checked(auto, 4), adhoc("zz-adhoc", 2, 1)]))
            equal(await limits(key, {**ask, "cost": 2}), ("RATE_LIMITED", [checked(auto, 4), adhoc("zz-adhoc", 2, 0, True)]))
            equal(await limits(key, {"name": "auto", "limit": 100, "duration": LONG // 2, "cost": 7}), ("VALID", [adhoc("auto", 100, 93, duration=LONG // 2)]))
            equal(await limits(key), ("VALID", [checked(auto, 3)]))
        await self.check(f"{section}: ad-hoc limits count for the key, and replace a stored one of their name", ad_hoc)

        async def not_stored():
            key, _, auto, _ = await make()
            await self.raises(PRECONDITION, "keys.verify_key", key=key, ratelimits=[{"name": "unknown"}])
            equal(await limits(key), ("VALID", [checked(auto, 4)]))
        await self.check(f"{section}: a name that is not stored is 412, and spends nothing", not_stored)

        async def invalid():
            key = (await make())[0]
            await self.rejects("/properties/ratelimits/items/properties/name/minLength", "keys.verify_key", key=key, ratelimits=[{"name": "ab"}])
            await self.rejects("/properties/ratelimits/items/properties/cost/minimum", "keys.verify_key", key=key, ratelimits=[{"name": "manual", "cost": -1}])
        await self.check(f"{section}: invalid requests for limits are 400", invalid)

    async def credits(self, section):
        async def spend(key, **more):
            answer = await self.verify(key, **more)
            equal(answer["valid"], answer["code"] == "VALID")
            return answer["code"], answer["credits"]

        async def costs():
            made = await self.create_key(credits={"remaining": 6})
            key = made["key"]
            equal(await spend(key), ("VALID", 5))
            equal(await spend(key, credits={"cost": 3}), ("VALID", 2))
            equal(await spend(key, credits={"cost": 3}), ("USAGE_EXCEEDED", 2))
            equal(await spend(key, credits={"cost": 0}), ("VALID", 2))
            equal(await spend(key, credits={"cost": 2}), ("VALID", 0))
            equal(await spend(key), ("USAGE_EXCEEDED", 0))
            equal(await spend(key, credits={"cost": 0}), ("VALID", 0))
            equal((await self.get_key(made["keyId"]))["credits"], {"remaining": 0})
        await self.check(f"{section}: each call costs 1, or what it says", costs)

        async def large():
            made = await self.create_key(credits={"remaining": MAX_INT64})
            equal(await spend(made["key"]), ("VALID", MAX_INT64 - 1))
            equal((await self.get_key(made["keyId"]))["credits"], {"remaining": MAX_INT64 - 1})
        await self.check(f"{section}: the largest balance keeps every digit", large)

        async def unspent():
            made = await self.create_key(credits={"remaining": 1}, ratelimits=[{"name": "auto", "limit": 5, "duration": LONG, "auto_apply": True}])
            equal(await spend(made["key"], credits={"cost": 2}), ("USAGE_EXCEEDED", 1))
            equal((await self.verify(made["key"]))["ratelimits"][0]["remaining"], 4)
        await self.check(f"{section}: credits that refuse leave the limits unspent", unspent)

        async def negative():
            made = await self.create_key()
            await self.rejects("/properties/credits/properties/cost/minimum", "keys.verify_key", key=made["key"], credits={"cost": -1})
        await self.check(f"{section}: a negative cost is 400", negative)

        async def at_once():
            # The synchronous methods run on threads here, so both kinds are truly concurrent.
            made = await self.create_key(credits={"remaining": 10})
            if self.mode == "sync":
                one = lambda: asyncio.to_thread(self.unkey.keys.verify_key, key=made["key"])
            else:
                one = lambda: self.unkey.keys.verify_key_async(key=made["key"])
            answers = [plain(response.data) for response in await asyncio.gather(*(one() for _ in range(20)))]
            equal(sorted(answer["credits"] for answer in answers if answer["code"] == "VALID"), list(range(10)))
            equal(sum(answer["code"] == "USAGE_EXCEEDED" for answer in answers), 10)
        await self.check(f"{section}: 20 calls at once spend exactly the balance", at_once)

    async def limiter(self, section):
        namespace, other = self.fresh("email.send"), self.fresh("email.read")

        # A request may reach another replica than the one that made a change, which that one sees within a second.
        async def seen_by_all():
            await asyncio.sleep(1)

        def request(identifier, **more):
            return {"namespace": namespace, "identifier": identifier, "limit": 10, "duration": LONG, **more}

        async def limit(identifier, **more):
            return await self.call("ratelimit.limit", **request(identifier, **more))

        def answer(remaining, **more):
            return {"success": True, "limit": 10, "remaining": remaining, "reset": window_end(LONG), **more}

        async def set_override(identifier, maximum):
            return (await self.call("ratelimit.set_override", **request(identifier, limit=maximum)))["overrideId"]

        def override(override_id, identifier, maximum):
            return {"overrideId": override_id, "identifier": identifier, "limit": maximum, "duration": LONG}

        async def pages(**fields):
            """The pages that the client fetches one after the other: how many each has, and all of them."""
            if self.mode == "sync":
                page = self.unkey.ratelimit.list_overrides(namespace=namespace, **fields)
            else:
                page = await self.unkey.ratelimit.list_overrides_async(namespace=namespace, **fields)
            sizes, items = [], []
            while page is not None:
                seen(page.result.meta.request_id)
                sizes.append(len(page.result.data))
                items += plain(page.result.data)
                page = page.next()
                if asyncio.iscoroutine(page):
                    page = await page
            return sizes, items

        async def unmade():
            named = {"namespace": namespace, "identifier": "a"}
            await self.raises(NO_NAMESPACE, "ratelimit.set_override", **named, limit=1, duration=1000)
            await self.raises(NO_NAMESPACE, "ratelimit.get_override", **named)
            await self.raises(NO_NAMESPACE, "ratelimit.delete_override", **named)
            await self.raises(NO_NAMESPACE, "ratelimit.list_overrides", namespace=namespace)
        await self.check(f"{section}: overrides do not make a namespace", unmade)

        async def counting():
            for remaining in (9, 8, 7):
                equal(await limit("counting"), answer(remaining))
            equal(await limit("Counting"), answer(9))
        await self.check(f"{section}: limit makes the namespace and counts each identifier down", counting)

        async def costs():
            equal(await limit("costs", cost=6), answer(4))
            equal(await limit("costs", cost=5), answer(0, success=False))
            equal(await limit("costs", cost=0), answer(4))
            equal(await limit("costs", cost=4), answer(0))
        await self.check(f"{section}: a cost that does not fit is refused, takes nothing and is no error", costs)

        async def crowd():
            # The synchronous methods run on threads here, so both kinds are truly concurrent.
            if self.mode == "sync":
                one = lambda: asyncio.to_thread(self.unkey.ratelimit.limit, **request("crowd"))
            else:
                one = lambda: self.unkey.ratelimit.limit_async(**request("crowd"))
            answers = [plain(response.data) for response in await asyncio.gather(*(one() for _ in range(20)))]
            equal(sorted(told["remaining"] for told in answers if told["success"]), list(range(10)))
        await self.check(f"{section}: 20 checks at once admit exactly the limit", crowd)
        for title, fields, location in (
            ("an empty namespace", {"namespace": ""}, "/properties/namespace/minLength"),
            ("an identifier of 513", {"identifier": "é" * 513}, "/properties/identifier/maxLength"),
            ("a limit of 0", {"limit": 0}, "/properties/limit/minimum"),
            ("a window under a second", {"duration": 999}, "/properties/duration/minimum"),
            ("a window over 30 days", {"duration": LONG + 1}, "/properties/duration/maximum"),
            ("a negative cost", {"cost": -1}, "/properties/cost/minimum"),
        ):
            await self.check(f"{section}: refuses {title}", lambda: self.rejects(location, "ratelimit.limit", **{**request("a"), **fields}))

        async def multi():
            def told(where, maximum, remaining, passed):
                return {"namespace": where, "identifier": "both", "limit": maximum, "remaining": remaining,
                        "reset": window_end(LONG), "passed": passed}
            for cost, passed, left in ((4, False, 10), (3, True, 9)):
                members = [request("both"), request("both", namespace=other, limit=3, cost=cost)]
                equal(await self.call("ratelimit.multi_limit", request=members),
                      {"passed": passed, "limits": [told(namespace, 10, left, True), told(other, 3, 0, passed)]})
        await self.check(f"{section}: multi_limit takes all or nothing and tells each in order", multi)

        async def twice():
            answer = await self.call("ratelimit.multi_limit", request=[request("twice", cost=5)] * 2)
            equal((answer["passed"], [member["remaining"] for member in answer["limits"]]), (True, [5, 0]))
        await self.check(f"{section}: multi_limit adds up members of one counter", twice)
        await self.check(f"{section}: multi_limit refuses an empty list", lambda: self.rejects("/minItems", "ratelimit.multi_limit", request=[]))

        exact, pattern, never = await set_override("user_1", 2), await set_override("user_*", 5), await set_override("banned", 0)

        async def kept():
            for override_id in (exact, pattern, never):
                matches(override_id, r"rlor_[A-Za-z0-9]{16,}")
            equal(await set_override("user_1", 3), exact)
        await self.check(f"{section}: set_override answers with an id, and keeps it", kept)
        await seen_by_all()

        async def applied():
            equal(await limit("user_1"), answer(2, limit=3, overrideId=exact))
            equal(await limit("user_2"), answer(4, limit=5, overrideId=pattern))
            equal(await limit("banned"), answer(0, success=False, limit=0, overrideId=never))
            told = (await self.call("ratelimit.multi_limit", request=[request("user_2")]))["limits"][0]
            equal((told["limit"], told["remaining"], told["overrideId"]), (5, 3, pattern))
        await self.check(f"{section}: the exact override precedes a pattern, and 0 always denies", applied)

        async def found():
            equal(await self.call("ratelimit.get_override", namespace=namespace, identifier="user_1"), override(exact, "user_1", 3))
            equal(await self.call("ratelimit.get_override", namespace=namespace, identifier="user_9"), override(pattern, "user_*", 5))
            await self.raises(NO_OVERRIDE, "ratelimit.get_override", namespace=namespace, identifier="somebody")
        await self.check(f"{section}: get_override finds what a check would find", found)

        async def listed():
            overrides = [override(exact, "user_1", 3), override(pattern, "user_*", 5), override(never, "banned", 0)]
            overrides.sort(key=lambda known: known["overrideId"])
            equal(await pages(limit=2), ([2, 1], overrides))
            equal(await pages(limit=3), ([3], overrides))
            equal(await pages(), ([3], overrides))
            await self.rejects("/properties/limit/maximum", "ratelimit.list_overrides", namespace=namespace, limit=101)
        await self.check(f"{section}: list_overrides goes through the pages by id", listed)

        async def deleted():
            await self.raises(NO_OVERRIDE, "ratelimit.delete_override", namespace=namespace, identifier="user_7")
            equal(await self.call("ratelimit.delete_override", namespace=namespace, identifier="user_1"), {})
            await self.raises(NO_OVERRIDE, "ratelimit.delete_override", namespace=namespace, identifier="user_1")
            await seen_by_all()
            equal(await limit("user_1"), answer(3, limit=5, overrideId=pattern))
        await self.check(f"{section}: delete_override takes the exact identifier, once", deleted)

        async def anew():
            assert await set_override("user_1", 7) != exact
            await seen_by_all()
            equal((await limit("user_1"))["limit"], 7)
        await self.check(f"{section}: what was deleted can be set anew", anew)


async def main():
    for mode in ("sync", "async"):
        driver = Driver(mode)
        try:
            await driver.everything()
        except Exception as error:
            async def broken(error=error):
                raise error
            await driver.check("set-up", broken)
    await driver.check("every answer has its own request id", lambda: equal((len(set(request_ids)), bool(request_ids)), (len(request_ids), True)))
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


asyncio.run(main())
