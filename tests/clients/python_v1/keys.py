from python_v1.support import bare, BAD_REQUEST, equal, is_now, LONG, matches, NOT_FOUND, NOTHING, now_ms, set_api, window_end


async def creating(kw, section):
    made = await kw.create_key()
    key_id, key = made["keyId"], made["key"]

    async def least():
        equal(list(made), ["keyId", "key"])
        matches(key_id, r"key_[A-Za-z0-9]{16,}")
        told = await kw.get_key(key_id)
        is_now(told.pop("createdAt"))
        matches(told.pop("workspaceId"), r"ws_\w+")
        assert key.startswith(told["start"]) and len(told.pop("start")) < 6
        equal(told, {"id": key_id, "apiId": kw.api_id, "enabled": True, "permissions": [], "roles": []})
        equal(await kw.verify(key), bare(key_id))
        known = await kw.call("keys.whoami", key=key)
        is_now(known.pop("createdAt"))
        equal(known, {"id": key_id, "enabled": True})
    await kw.check(f"{section}: the least key has next to nothing", least)

    async def prefixed():
        api_id = (await kw.call("apis.create", name=kw.fresh("prefixed")))["apiId"]
        await set_api(api_id, "--default-prefix", "sk")
        for fields, prefix in (({}, "sk_"), ({"prefix": "test"}, "test_"), ({"prefix": ""}, "")):
            one = await kw.create_key(api_id=api_id, **fields)
            matches(one["key"], f"{prefix}[1-9A-HJ-NP-Za-km-z]{{20,24}}")
            assert (await kw.get_key(one["keyId"]))["start"].startswith(prefix)
        matches((await kw.create_key(prefix="test", byte_length=64))["key"], r"test_[1-9A-HJ-NP-Za-km-z]{80,90}")
    await kw.check(f"{section}: a prefix and a length make the key", prefixed)

    slug, role, user, expires = kw.fresh("docs.read"), kw.fresh("editor"), kw.fresh("user"), now_ms() + 3_600_000
    fields = {"name": "the key", "meta": {"plan": "pro", "list": [1, None]}, "expires": expires, "remaining": 100}
    refill = {"interval": "monthly", "amount": 500, "refill_day": 15}

    async def unknown():
        await kw.raises(NOT_FOUND, "keys.create", slug, role, api_id=kw.api_id, permissions=[slug], roles=[role])
        await kw.raises(NOT_FOUND, "keys.create", "api_doesnotexist0000", api_id="api_doesnotexist0000")
    await kw.check(f"{section}: permissions, roles and the api must exist, and what does not is named", unknown)

    await kw.call("permissions.create", name=slug)
    await kw.call("permissions.create_role", name=role)
    full = await kw.create_key(external_id=user, permissions=[slug], roles=[role], environment="test", refill=refill,
                               ratelimit={"limit": 10, "duration": LONG}, **fields)

    async def everything():
        told = await kw.get_key(full["keyId"])
        identity = told["identity"]
        refilled = told.pop("refill")
        refilled.pop("lastRefillAt", None)
        equal(refilled, {"interval": "monthly", "amount": 500, "refillDay": 15})
        for field in ("start", "workspaceId", "createdAt"):
            told.pop(field)
        equal(told, {
            "id": full["keyId"], "apiId": kw.api_id, "enabled": True, **fields, "ownerId": user, "permissions": [slug], "roles": [role],
            "identity": {"id": identity["id"], "externalId": user, "meta": {}},
            "ratelimit": {"async": True, "type": "fast", "limit": 10, "duration": LONG, "refillRate": 10, "refillInterval": LONG}})
        known = await kw.call("keys.whoami", key=full["key"])
        known.pop("createdAt")
        equal(known, {"id": full["keyId"], "enabled": True, "name": "the key", "remaining": 100, "meta": fields["meta"], "environment": "test",
                      "identity": {"id": identity["id"], "externalId": user}})
        equal(await kw.verify(full["key"], api_id=kw.api_id, tags=["a=b"]), {
            **bare(full["keyId"]), **fields, "remaining": 99, "environment": "test", "ownerId": user, "identity": identity,
            "permissions": [slug], "roles": [role], "ratelimit": {"limit": 10, "remaining": 9, "reset": window_end(LONG)}})
    await kw.check(f"{section}: get, whoami and verify tell all that a key has", everything)

    async def older():
        one = await kw.create_key(ratelimit={"type": "consistent", "async_": False, "limit": 1, "refill_rate": 9, "refill_interval": LONG})
        limit = {"async": False, "type": "consistent", "limit": 1, "duration": LONG, "refillRate": 1, "refillInterval": LONG}
        equal((await kw.get_key(one["keyId"]))["ratelimit"], limit)
        equal([await kw.code(one["key"]) for _ in range(2)], ["VALID", "RATE_LIMITED"])
        daily = await kw.create_key(remaining=3, refill={"interval": "daily", "amount": 5})
        refill = (await kw.get_key(daily["keyId"]))["refill"]
        refill.pop("lastRefillAt", None)
        equal(refill, {"interval": "daily", "amount": 5, "refillDay": None})
    await kw.check(f"{section}: a limit in its older words, and a daily refill", older)

    for title, fields in (
        ("no uses", {"remaining": 0}),
        ("a refill of an unlimited key", {"refill": {"interval": "daily", "amount": 1}}),
        ("a day of a daily refill", {"remaining": 1, "refill": {"interval": "daily", "amount": 1, "refill_day": 3}}),
        ("a day and a half", {"remaining": 1, "refill": {"interval": "monthly", "amount": 1, "refill_day": 1.5}}),
        ("a limit without a window", {"ratelimit": {"limit": 1}}),
    ):
        await kw.check(f"{section}: {title} is 400", lambda: kw.raises(BAD_REQUEST, "keys.create", api_id=kw.api_id, **fields))


async def deleting(kw, section):
    for permanent in (False, True):
        async def deleted():
            made = await kw.create_key()
            equal(await kw.code(made["key"]), "VALID")
            equal(await kw.call("keys.delete", key_id=made["keyId"], permanent=permanent), {})
            await kw.seen_by_all()
            equal(await kw.verify(made["key"]), NOTHING)
            await kw.raises(NOT_FOUND, "keys.get", made["keyId"], key_id=made["keyId"])
            await kw.raises(NOT_FOUND, "keys.whoami", key=made["key"])
            await kw.raises(NOT_FOUND, "keys.delete", key_id=made["keyId"])
        await kw.check(f"{section}: permanent: {permanent}", deleted)
