from python_v1.support import bare, BAD_REQUEST, equal, LONG, NOTHING, ROOT_KEY, window_end


async def verifying(kw, section):
    async def unknown():
        equal(await kw.verify("nobody_knows_this"), NOTHING)
        equal(await kw.verify(ROOT_KEY), NOTHING)
        await kw.rejects("key: String must contain at least 1 character(s)", "keys.verify", key="")
    await kw.check(f"{section}: an unknown key is NOT_FOUND, with nothing else told", unknown)

    async def in_turn():
        other = (await kw.call("apis.create", name=kw.fresh("other")))["apiId"]
        off = await kw.create_key(enabled=False, expires=1, meta={"a": 1}, remaining=5)
        old = await kw.create_key(expires=1)
        told = {**bare(off["keyId"]), "valid": False, "code": "DISABLED", "enabled": False, "expires": 1, "meta": {"a": 1}}
        equal(await kw.verify(off["key"], api_id=other), told)
        equal(await kw.code(old["key"], api_id=other), "FORBIDDEN")
        equal(await kw.verify(old["key"], api_id=kw.api_id), {**bare(old["keyId"]), "valid": False, "code": "EXPIRED", "expires": 1})
    await kw.check(f"{section}: DISABLED before FORBIDDEN before EXPIRED, each with what is known", in_turn)

    async def uses():
        key = (await kw.create_key(remaining=5))["key"]
        for cost, code, left in ((2, "VALID", 3), (4, "USAGE_EXCEEDED", None), (0, "VALID", 3), (3, "VALID", 0), (1, "USAGE_EXCEEDED", 0), (0, "VALID", 0)):
            answer = await kw.verify(key, remaining={"cost": cost})
            equal(answer["code"], code)
            assert left is None or answer["remaining"] == left, answer
        await kw.raises(BAD_REQUEST, "keys.verify", key=key, remaining={"cost": -1})
    await kw.check(f"{section}: uses are taken by cost, and a cost that is too much takes none", uses)

    async def limits():
        key = (await kw.create_key(ratelimit={"limit": 5, "duration": LONG}))["key"]
        for fields, left in (({}, 4), ({"ratelimit": {"cost": 3}}, 1), ({"ratelimits": [{"name": "default", "cost": 0}]}, 1)):
            equal((await kw.verify(key, **fields))["ratelimit"], {"limit": 5, "remaining": left, "reset": window_end(LONG)})
        equal(await kw.code(key, ratelimit={"cost": 2}), "RATE_LIMITED")
        equal([await kw.code(key) for _ in range(2)], ["VALID", "RATE_LIMITED"])
    await kw.check(f"{section}: the limit of a key is told, and named in older words", limits)

    async def of_the_call():
        key = (await kw.create_key())["key"]
        uploads = [{"name": "uploads", "limit": 2, "duration": LONG}]
        equal((await kw.verify(key, ratelimits=uploads))["ratelimit"], {"limit": 2, "remaining": 1, "reset": window_end(LONG)})
        equal([await kw.code(key, ratelimits=uploads) for _ in range(2)], ["VALID", "RATE_LIMITED"])
        await kw.raises(BAD_REQUEST, "keys.verify", "nowhere", key=key, ratelimits=[{"name": "nowhere"}])
    await kw.check(f"{section}: a limit of the call needs nothing that is stored", of_the_call)


async def queries(kw, section):
    a, b, c, none = (kw.fresh(f"query.{name}") for name in ("a", "b", "c", "none"))
    for name in (a, b, c):
        await kw.call("permissions.create", name=name)
    key = (await kw.create_key(permissions=[a, b, c]))["key"]
    for title, query, code in (
        ("one that it has", a, "VALID"),
        ("one that it has not", none, "INSUFFICIENT_PERMISSIONS"),
        ("all", {"and_": [a, b, c]}, "VALID"),
        ("all but one", {"and_": [a, none]}, "INSUFFICIENT_PERMISSIONS"),
        ("any", {"or_": [none, b]}, "VALID"),
        ("any of any", {"or_": [none, {"and_": [a, {"or_": [none, c]}]}]}, "VALID"),
        ("null", None, "VALID"),
    ):
        async def answered():
            equal(await kw.code(key, authorization={"permissions": query}), code)
        await kw.check(f"{section}: {title}", answered)

    async def refused():
        for query in ({"and_": []}, {"or_": [None]}):
            await kw.raises(BAD_REQUEST, "keys.verify", key=key, authorization={"permissions": query})
    await kw.check(f"{section}: a list of none and null in a list are 400", refused)
