from python_v1.support import BAD_REQUEST, equal, LONG, NOT_FOUND


async def updating(kw, section):
    slug, role = kw.fresh("update.read"), kw.fresh("update.editor")
    made = await kw.create_key()
    key_id, key = made["keyId"], made["key"]
    stored = await kw.get_key(key_id)

    async def update(**fields):
        equal(await kw.call("keys.update", key_id=key_id, **fields), {})

    def limit(kind, most):
        return {"async": kind == "fast", "type": kind, "limit": most, "duration": LONG, "refillRate": most, "refillInterval": LONG}

    # None stands for a field that must be absent.
    for title, fields, difference in (
        ("no field changes nothing", {}, {}),
        ("name and meta", {"name": "changed", "meta": {"a": 1}}, {"name": "changed", "meta": {"a": 1}}),
        ("an expiry", {"expires": 4_000_000_000_000}, {"expires": 4_000_000_000_000}),
        ("uses that come back each month", {"remaining": 50, "refill": {"interval": "monthly", "amount": 70, "refill_day": 31}},
         {"remaining": 50, "refill": {"interval": "monthly", "amount": 70, "refillDay": 31}}),
        ("uses that do not come back", {"refill": None}, {"refill": None}),
        ("uses without an end", {"remaining": None}, {"remaining": None}),
        ("a limit, with what the client adds", {"ratelimit": {"limit": 5, "duration": LONG}}, {"ratelimit": limit("consistent", 5)}),
        ("another limit", {"ratelimit": {"limit": 6, "duration": LONG, "async_": True}}, {"ratelimit": limit("fast", 6)}),
        ("no limit", {"ratelimit": None}, {"ratelimit": None}),
        ("permissions and roles that are made", {"permissions": [{"name": slug, "create": True}], "roles": [{"name": role, "create": True}]},
         {"permissions": [slug], "roles": [role]}),
        ("no permissions and no roles", {"permissions": [], "roles": []}, {"permissions": [], "roles": []}),
        ("disabled", {"enabled": False}, {"enabled": False}),
        ("null clears", {"name": None, "meta": None, "expires": None, "enabled": True}, {"name": None, "meta": None, "expires": None, "enabled": True}),
    ):
        async def updated():
            nonlocal stored
            await update(**fields)
            stored = {field: value for field, value in {**stored, **difference}.items() if value is not None}
            told = await kw.get_key(key_id)
            told.pop("updatedAt", None)
            equal(told, stored)
        await kw.check(f"{section}: {title}", updated)

    async def daily():
        await update(remaining=3, refill={"interval": "daily", "amount": 60})
        equal((await kw.get_key(key_id))["refill"], {"interval": "daily", "amount": 60, "refillDay": None})
        await update(remaining=None, refill=None)
    await kw.check(f"{section}: uses that come back each day have no day", daily)

    async def owned():
        await update(external_id=kw.fresh("first"), owner_id=kw.fresh("second"))
        await kw.verifies_everywhere(key, {"code": "VALID", "ownerId": kw.fresh("first")})
        await update(owner_id=kw.fresh("second"))
        equal((await kw.get_key(key_id))["identity"]["externalId"], kw.fresh("second"))
        await update(external_id=None)
        await kw.verifies_everywhere(key, {"code": "VALID", "ownerId": None, "identity": None})
    await kw.check(f"{section}: whose key it is, by either name, and nobody's", owned)

    async def seen():
        await update(enabled=False)
        await kw.verifies_everywhere(key, {"code": "DISABLED", "enabled": False})
        await update(enabled=True, expires=1)
        await kw.verifies_everywhere(key, {"code": "EXPIRED", "expires": 1})
        await update(expires=None, remaining=1)
        await kw.verifies_everywhere(key, {"code": "VALID", "remaining": 0})
        await kw.verifies_everywhere(key, {"code": "USAGE_EXCEEDED", "remaining": 0})
    await kw.check(f"{section}: what is changed is seen by the next verification", seen)

    async def refused():
        before = await kw.get_key(key_id)
        more = {"key_id": key_id, "name": "other"}
        await kw.raises(BAD_REQUEST, "keys.update", remaining=None, refill={"interval": "daily", "amount": 1}, **more)
        await kw.raises(BAD_REQUEST, "keys.update", permissions=[{}], **more)
        await kw.raises(NOT_FOUND, "keys.update", kw.fresh("no role"), roles=[{"name": kw.fresh("no role")}], **more)
        await kw.raises(NOT_FOUND, "keys.update", key_id="key_doesnotexist0000", name="other")
        equal(await kw.get_key(key_id), before)
    await kw.check(f"{section}: one fault changes nothing", refused)


async def remaining(kw, section):
    made = await kw.create_key()
    key_id = made["keyId"]

    for op, value, left in (("set", 10, 10), ("increment", 5, 15), ("decrement", 7, 8), ("decrement", 9, 0), ("increment", 3, 3),
                            ("increment", -1, 2), ("set", None, None), ("set", 2, 2)):
        async def changed():
            equal(await kw.call("keys.update_remaining", key_id=key_id, op=op, value=value), {"remaining": left})
            equal((await kw.get_key(key_id)).get("remaining"), left)
        await kw.check(f"{section}: {op} {value}", changed)

    async def verified():
        await kw.verifies_everywhere(made["key"], {"code": "VALID", "remaining": 1})
        equal((await kw.verify(made["key"], remaining={"cost": 0}))["remaining"], 1)
        equal([await kw.code(made["key"]) for _ in range(2)], ["VALID", "USAGE_EXCEEDED"])
    await kw.check(f"{section}: verify takes from what is left then", verified)

    async def refused():
        unlimited = await kw.create_key()
        await kw.raises(BAD_REQUEST, "keys.update_remaining", key_id=key_id, op="increment", value=None)
        await kw.raises(BAD_REQUEST, "keys.update_remaining", key_id=unlimited["keyId"], op="decrement", value=1)
        await kw.raises(NOT_FOUND, "keys.update_remaining", key_id="key_doesnotexist0000", op="set", value=1)
    await kw.check(f"{section}: what cannot be counted is 400", refused)
