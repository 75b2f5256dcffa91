from python.support import (
    base58_bytes, checked, equal, INVALID, is_now, LONG, matches, MAX_INT64, NO_KEY, NO_ROLE, now_ms,
)


async def updating(kw, section):
    p1, p2, p3, r1, r2 = map(kw.fresh, ("up1", "up2", "up3", "ur1", "ur2"))
    await kw.call("permissions.create_permission", name=p1, slug=p1)
    await kw.call("permissions.create_role", name=r1, permissions=[p2])
    await kw.call("permissions.create_role", name=r2)
    expires = now_ms() + 7_200_000
    sent = {"interval": "monthly", "amount": 40, "refill_day": 15}
    refill = {"interval": "monthly", "amount": 40, "refillDay": 15}
    made = await kw.create_key(
        name="before", external_id=kw.fresh("owner-1"), meta={"a": 1, "b": 2}, expires=expires,
        credits={"remaining": 10, "refill": sent}, roles=[r1], permissions=[p1],
        ratelimits=[{"name": "keep", "limit": 100, "duration": LONG, "auto_apply": True},
                    {"name": "drop", "limit": 5, "duration": LONG, "auto_apply": False}])
    key, key_id = made["key"], made["keyId"]
    state = await kw.get_key(key_id)
    first_identity = state["identity"]
    keep = state["ratelimits"][1]

    # Each change is applied to what is known, so a field that an update must not touch is checked every time.
    async def changes(title, fields, difference):
        async def body():
            nonlocal state
            equal(await kw.call("keys.update_key", key_id=key_id, **fields), {})
            answer = await kw.get_key(key_id)
            expected = {**state, **(difference(answer) if callable(difference) else difference)}
            state = answer
            if fields:
                is_now(answer["updatedAt"])
            expected["updatedAt"] = answer.get("updatedAt")
            equal(answer, {field: value for field, value in expected.items() if value is not None})
        await kw.check(f"{section}: {title}", body)

    async def verifies(title, expected, **more):
        async def body():
            nonlocal state
            answer = await kw.verify(key, **more)
            state = await kw.get_key(key_id)
            for field, value in expected.items():  # None stands for a field that must be absent.
                assert field in answer if value is not None else field not in answer, f"{field} in {answer!r}"
                equal(answer.get(field), value)
        await kw.check(f"{section}: {title}", body)

    await changes("no field at all changes nothing", {}, {})
    await changes("name to null", {"name": None}, {"name": None})
    await changes("name to a value", {"name": "after"}, {"name": "after"})
    await changes("externalId to null", {"external_id": None}, {"identity": None})
    await verifies("an unlinked key verifies without identity", {"code": "VALID", "identity": None})
    await changes("externalId to a new value makes the identity", {"external_id": kw.fresh("owner-2")},
                  lambda answer: {"identity": {"id": answer["identity"]["id"], "externalId": kw.fresh("owner-2")}})
    await changes("externalId back finds the old identity", {"external_id": kw.fresh("owner-1")}, {"identity": first_identity})
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
        await kw.raises(NO_ROLE, "keys.update_key", key_id=key_id, name="half", credits=None, roles=[kw.fresh("no-role-4")], permissions=[kw.fresh("no-perm-4")])
        equal(await kw.get_key(key_id), state)
        await kw.call("permissions.create_permission", name="free", slug=kw.fresh("no-perm-4"))
    await kw.check(f"{section}: a missing role is 404 and changes nothing", missing_role)
    await kw.check(f"{section}: an unknown key is 404", lambda: kw.raises(NO_KEY, "keys.update_key", key_id="key_doesnotexist0000", name="x"))
    for title, fields, location in (
        ("an empty name", {"name": ""}, "/properties/name/minLength"),
        ("an ill-formed externalId", {"external_id": "a b"}, "/properties/externalId/pattern"),
        ("negative credits", {"credits": {"remaining": -1}}, "/properties/credits/properties/remaining/minimum"),
        ("a refill of 0", {"credits": {"refill": {"interval": "daily", "amount": 0}}}, "/properties/credits/properties/refill/properties/amount/minimum"),
        ("a limit of 0", {"ratelimits": [{"name": "bad", "limit": 0, "duration": 1000}]}, "/properties/ratelimits/items/properties/limit/minimum"),
    ):
        await kw.check(f"{section}: refuses {title}", lambda: kw.rejects(location, "keys.update_key", key_id=key_id, **fields))
    for title, wrong in (("a monthly refill without a day", {"interval": "monthly", "amount": 1}),
                         ("a daily refill with a day", {"interval": "daily", "amount": 1, "refill_day": 1})):
        await kw.check(f"{section}: refuses {title}", lambda: kw.raises(INVALID, "keys.update_key", key_id=key_id, credits={"refill": wrong}))


async def updating_credits(kw, section):
    refill = {"interval": "monthly", "amount": 40, "refillDay": 15}
    made = await kw.create_key(credits={"remaining": 10, "refill": {"interval": "monthly", "amount": 40, "refill_day": 15}})
    key, key_id = made["key"], made["keyId"]

    def request(operation, *value):
        return {"key_id": key_id, "operation": operation, **({"value": value[0]} if value else {})}

    # What the key then has is told, is stored, and is what verify_key counts from.
    for title, sent, expected in (
        ("set to a number keeps the refill", ("set", 20), {"remaining": 20, "refill": refill}),
        ("increment", ("increment", 5), {"remaining": 24, "refill": refill}),
        ("decrement", ("decrement", 4), {"remaining": 19, "refill": refill}),
        ("increment by 0", ("increment", 0), {"remaining": 18, "refill": refill}),
        ("decrement below 0 is 0", ("decrement", MAX_INT64), {"remaining": 0, "refill": refill}),
        ("set to null is unlimited, without refill", ("set", None), {"remaining": None}),
        ("set to a number does not bring the refill back", ("set", 3), {"remaining": 3}),
        ("set without a value is unlimited", ("set",), {"remaining": None}),
        ("set to the largest integer", ("set", MAX_INT64), {"remaining": MAX_INT64}),
    ):
        async def updated():
            equal(await kw.call("keys.update_credits", **request(*sent)), expected)
            left = expected["remaining"]
            equal((await kw.get_key(key_id)).get("credits", {"remaining": None}), expected)
            await kw.verifies_everywhere(key, {"code": "USAGE_EXCEEDED" if left == 0 else "VALID", "credits": left and left - 1})
        await kw.check(f"{section}: {title}", updated)
    for operation in ("increment", "decrement"):
        for value in ((), (None,)):
            await kw.check(f"{section}: {operation} by {value or 'nothing'} is 400", lambda: kw.rejects("/properties/value", "keys.update_credits", **request(operation, *value)))

        async def unlimited():
            await kw.call("keys.update_credits", **request("set", None))
            await kw.raises(INVALID, "keys.update_credits", **request(operation, 1))
            assert "credits" not in await kw.get_key(key_id)
        await kw.check(f"{section}: {operation} of an unlimited key is 400", unlimited)
    await kw.check(f"{section}: refuses a negative value", lambda: kw.rejects("/properties/value/minimum", "keys.update_credits", **request("set", -1)))
    await kw.check(f"{section}: an unknown key is 404", lambda: kw.raises(NO_KEY, "keys.update_credits", **{**request("set", 1), "key_id": "key_doesnotexist0000"}))


async def rerolling(kw, section):
    minute = 60_000
    slug, role = kw.fresh("reroll"), kw.fresh("reroll-role")
    await kw.call("permissions.create_permission", name=slug, slug=slug)
    await kw.call("permissions.create_role", name=role, permissions=[f"{slug}.r"])

    async def reroll(key_id, expiration):
        return await kw.call("keys.reroll_key", key_id=key_id, expiration=expiration)

    async def everything():
        expires = now_ms() + 10_000 * minute
        old = await kw.create_key(
            prefix="acme_live", byte_length=24, name="rolled", external_id=kw.fresh("reroll-user"), meta={"a": 1}, expires=expires, roles=[role],
            permissions=[slug], credits={"remaining": 100, "refill": {"interval": "daily", "amount": 7}},
            ratelimits=[{"name": "auto", "limit": 10, "duration": LONG, "auto_apply": True}])
        await kw.verify(old["key"])
        before = await kw.get_key(old["keyId"])
        made = await reroll(old["keyId"], minute)
        key, key_id = made["key"], made["keyId"]
        equal(sorted(made), ["key", "keyId"])
        matches(key_id, r"key_[A-Za-z0-9]{16,}")
        matches(key, r"acme_live_[A-Za-z0-9]+")
        assert key != old["key"] and key_id != old["keyId"]
        equal(base58_bytes(key.removeprefix("acme_live_")), 24)
        after = await kw.get_key(key_id)
        limit = after["ratelimits"][0]
        is_now(after["createdAt"])
        assert limit["id"] != before["ratelimits"][0]["id"]
        equal(after, {**before, "keyId": key_id, "start": key[:14], "createdAt": after["createdAt"],
                      "ratelimits": [{**before["ratelimits"][0], "id": limit["id"]}]})
        equal(await kw.verify(key), {
            "valid": True, "code": "VALID", "keyId": key_id, "enabled": True, "name": "rolled", "meta": {"a": 1}, "expires": expires, "roles": [role],
            "permissions": [slug, f"{slug}.r"], "credits": 98, "identity": before["identity"], "ratelimits": [checked(limit, 9)]})
    await kw.check(f"{section}: the new key has all of the old one, and an id, a secret and limits of its own", everything)

    async def at_once():
        old = await kw.create_key()
        made = await reroll(old["keyId"], 0)
        await kw.verifies_everywhere(old["key"], {"valid": False, "code": "EXPIRED", "keyId": old["keyId"]})
        equal(await kw.verify(made["key"]), {"valid": True, "code": "VALID", "keyId": made["keyId"], "enabled": True})
    await kw.check(f"{section}: with 0 the old key ends at once", at_once)

    async def later():
        for fields, grace in (({}, 1), ({}, 60 * minute), ({"expires": 4_102_444_800_000}, 60 * minute)):
            await kw.avoid_minute_end()
            least = now_ms() + grace
            old = await kw.create_key(**fields)
            await reroll(old["keyId"], grace)
            ends = (await kw.get_key(old["keyId"]))["expires"]
            assert least <= ends <= now_ms() + grace + minute and ends % minute == 0, f"{ends - least} ms past {grace}"
            await kw.verifies_everywhere(old["key"], {"valid": True, "code": "VALID", "keyId": old["keyId"], "expires": ends})
    await kw.check(f"{section}: a grace is rounded up to a full minute", later)

    async def no_longer():
        expires = now_ms() + 5 * minute
        old = await kw.create_key(expires=expires)
        made = await reroll(old["keyId"], 60 * minute)
        for key_id in (old["keyId"], made["keyId"]):
            equal((await kw.get_key(key_id))["expires"], expires)
    await kw.check(f"{section}: the old key never goes on for longer than it would have", no_longer)
    for title, fields, location in (
        ("a negative expiration", {"key_id": "key_0", "expiration": -1}, "/properties/expiration/minimum"),
        ("an expiration past its bound", {"key_id": "key_0", "expiration": 4_102_444_800_001}, "/properties/expiration/maximum"),
        ("a short id", {"key_id": "ke", "expiration": 0}, "/properties/keyId/minLength"),
        ("an ill-formed id", {"key_id": "key-1", "expiration": 0}, "/properties/keyId/pattern"),
    ):
        await kw.check(f"{section}: refuses {title}", lambda: kw.rejects(location, "keys.reroll_key", **fields))
    await kw.check(f"{section}: an unknown key is 404", lambda: kw.raises(NO_KEY, "keys.reroll_key", key_id="key_doesnotexist0000", expiration=0))

    async def deleted():
        key_id = (await kw.create_key())["keyId"]
        await kw.call("keys.delete_key", key_id=key_id)
        await kw.raises(NO_KEY, "keys.reroll_key", key_id=key_id, expiration=0)
    await kw.check(f"{section}: a deleted key is 404", deleted)
