from python.support import (
    base58_bytes, checked, equal, INVALID, is_now, LONG, matches, MAX_INT64, NO_API, NO_KEY, NO_ROLE,
    NOT_FOUND, now_ms, PRECONDITION,
)


async def creating(kw, section):
    direct, shared, via_role, role = map(kw.fresh, ("direct", "shared", "via-role", "key-role"))
    await kw.call("permissions.create_permission", name=direct, slug=direct)
    await kw.call("permissions.create_role", name=role, permissions=[shared, via_role])
    # The name is 255 code points long, and the metadata holds what JSON can hold.
    fields = {
        "prefix": "acme_live", "name": "🗝" * 255, "byte_length": 32, "external_id": kw.fresh("user-1_a"),
        "meta": {"plan": "pro", "nested": {"list": [1, "two", None, True, 1.5], "empty": {}}, "big": MAX_INT64, "k é": ""},
        "roles": [role], "permissions": [direct, shared], "expires": now_ms() + 3_600_000,
        "credits": {"remaining": 100, "refill": {"interval": "monthly", "amount": 500, "refill_day": 31}},
        "ratelimits": [{"name": "auto", "limit": 10, "duration": LONG, "auto_apply": True},
                       {"name": "manual", "limit": 20, "duration": 60_000, "auto_apply": False}],
        "enabled": True, "recoverable": False,
    }
    made = await kw.create_key(**fields)
    key, key_id = made["key"], made["keyId"]
    stored = await kw.get_key(key_id)
    limits = stored["ratelimits"]
    identity = {"id": stored["identity"]["id"], "externalId": fields["external_id"]}
    permissions = sorted([direct, shared, via_role])

    async def created():
        equal(sorted(made), ["key", "keyId"])
        matches(key_id, r"key_[A-Za-z0-9]{16,}")
        matches(key, r"acme_live_[A-Za-z0-9]+")
        equal(base58_bytes(key.removeprefix("acme_live_")), 32)
    await kw.check(f"{section}: createKey answers with key id and key", created)

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
    await kw.check(f"{section}: getKey returns every field as it was set", got)

    async def same():
        equal((await kw.call("keys.whoami", key=key))["permissions"], permissions)
        equal(await kw.whoami(key), stored)
    await kw.check(f"{section}: whoami returns the same, with sorted permissions", same)

    async def verified():
        equal(await kw.verify(key), {
            "valid": True, "code": "VALID", "keyId": key_id, "enabled": True, "name": fields["name"], "meta": fields["meta"],
            "expires": fields["expires"], "permissions": permissions, "roles": [role], "credits": 99, "identity": identity,
            "ratelimits": [checked(limits[0], 9)],
        })
    await kw.check(f"{section}: verifyKey returns every field", verified)

    async def shared_identity():
        other = await kw.create_key(external_id=fields["external_id"])
        equal((await kw.verify(other["key"]))["identity"], identity)
    await kw.check(f"{section}: two keys of one externalId share the identity", shared_identity)

    async def least():
        bare = await kw.create_key()
        equal(base58_bytes(bare["key"]), 16)
        answer = await kw.call("keys.get_key", key_id=bare["keyId"])
        equal(answer, {"keyId": bare["keyId"], "start": bare["key"][:4], "enabled": True, "createdAt": answer["createdAt"]})
        equal(await kw.verify(bare["key"]), {"valid": True, "code": "VALID", "keyId": bare["keyId"], "enabled": True})
    await kw.check(f"{section}: the least key leaves out what it does not have", least)

    async def empty():
        bare = await kw.create_key(meta={}, roles=[], permissions=[], ratelimits=[])
        equal(sorted(await kw.get_key(bare["keyId"])), ["createdAt", "enabled", "keyId", "start"])
    await kw.check(f"{section}: empty meta, roles, permissions and ratelimits are left out", empty)

    async def other_credits():
        for sent, shown in (({"remaining": 0, "refill": {"interval": "daily", "amount": 10}}, {"remaining": 0, "refill": {"interval": "daily", "amount": 10}}),
                            ({"remaining": MAX_INT64}, {"remaining": MAX_INT64}), ({"remaining": None}, None)):
            other = await kw.create_key(credits=sent)
            equal({"credits": shown} if shown else {}, {field: value for field, value in (await kw.get_key(other["keyId"])).items() if field == "credits"})
    await kw.check(f"{section}: credits daily, at the largest integer, and unlimited", other_credits)

    async def disabled():
        other = await kw.create_key(enabled=False)
        equal((await kw.get_key(other["keyId"]))["enabled"], False)
        equal(await kw.code(other["key"]), "DISABLED")
    await kw.check(f"{section}: enabled false", disabled)

    await kw.check(f"{section}: an unknown API is 404", lambda: kw.raises(NO_API, "keys.create_key", api_id="api_doesnotexist0000"))

    async def missing_role():
        detail = await kw.raises(NO_ROLE, "keys.create_key", api_id=kw.api_id, roles=[role, kw.fresh("no-role-1"), kw.fresh("no-role-2")])
        assert kw.fresh("no-role-1") in detail["detail"] and kw.fresh("no-role-2") in detail["detail"], detail["detail"]
    await kw.check(f"{section}: a missing role is 404 and is named", missing_role)

    async def missing_permission():
        slugs = [kw.fresh("new-perm-1"), kw.fresh("new-perm-2")]
        other = await kw.create_key(permissions=[direct, *slugs])
        equal((await kw.get_key(other["keyId"]))["permissions"], sorted([direct, *slugs]))
    await kw.check(f"{section}: a missing permission is created", missing_permission)
    await kw.check(f"{section}: recoverable is 412", lambda: kw.raises(PRECONDITION, "keys.create_key", api_id=kw.api_id, recoverable=True))
    await kw.check(f"{section}: getKey with decrypt is 412", lambda: kw.raises(PRECONDITION, "keys.get_key", key_id=key_id, decrypt=True))

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
        await kw.check(f"{section}: refuses {title}", lambda: kw.rejects(location, "keys.create_key", api_id=kw.api_id, **more))
    for title, more in (
        ("a monthly refill without a day", {"credits": {"remaining": 1, "refill": {"interval": "monthly", "amount": 1}}}),
        ("a daily refill with a day", {"credits": {"remaining": 1, "refill": {"interval": "daily", "amount": 1, "refill_day": 1}}}),
        ("a refill of unlimited credits", {"credits": {"remaining": None, "refill": {"interval": "daily", "amount": 1}}}),
        ("an integer past 64 bits", {"credits": {"remaining": MAX_INT64 + 1}}),
    ):
        await kw.check(f"{section}: refuses {title}", lambda: kw.raises(INVALID, "keys.create_key", api_id=kw.api_id, **more))


async def reading(kw, section):
    await kw.check(f"{section}: getKey of an unknown id", lambda: kw.raises(NO_KEY, "keys.get_key", key_id="key_doesnotexist0000"))
    await kw.check(f"{section}: getKey of a short id", lambda: kw.rejects("/properties/keyId/minLength", "keys.get_key", key_id="ke"))
    await kw.check(f"{section}: whoami of an unknown key", lambda: kw.raises(NO_KEY, "keys.whoami", key="nobody_knows_this"))
    await kw.check(f"{section}: whoami of an empty key", lambda: kw.rejects("/properties/key/minLength", "keys.whoami", key=""))

    async def dead():
        made = await kw.create_key(enabled=False, expires=1, credits={"remaining": 3})
        answer = await kw.whoami(made["key"])
        equal(answer, {"keyId": made["keyId"], "start": made["key"][:4], "enabled": False, "createdAt": answer["createdAt"], "expires": 1, "credits": {"remaining": 3}})
        equal(await kw.get_key(made["keyId"]), answer)
    await kw.check(f"{section}: whoami knows a disabled, expired key and spends nothing", dead)


async def deleting(kw, section):
    for how, fields in (("soft", {}), ("permanent", {"permanent": True})):
        made = await kw.create_key(external_id=kw.fresh("gone"))
        key, key_id = made["key"], made["keyId"]

        async def gone():
            equal(await kw.call("keys.delete_key", key_id=key_id, **fields), {})
            equal(await kw.verify(key), NOT_FOUND)
        await kw.check(f"{section}: {how}: verifyKey is NOT_FOUND, with nothing else told", gone)
        await kw.check(f"{section}: {how}: getKey is 404", lambda: kw.raises(NO_KEY, "keys.get_key", key_id=key_id))
        await kw.check(f"{section}: {how}: whoami is 404", lambda: kw.raises(NO_KEY, "keys.whoami", key=key))
        await kw.check(f"{section}: {how}: updateKey is 404", lambda: kw.raises(NO_KEY, "keys.update_key", key_id=key_id, enabled=True))
        await kw.check(f"{section}: {how}: deleteKey again is 404", lambda: kw.raises(NO_KEY, "keys.delete_key", key_id=key_id))
        await kw.check(f"{section}: {how}: a permanent deleteKey afterwards is 404", lambda: kw.raises(NO_KEY, "keys.delete_key", key_id=key_id, permanent=True))
