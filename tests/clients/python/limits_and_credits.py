import asyncio

from python.support import adhoc, checked, equal, LONG, MAX_INT64, plain, PRECONDITION


async def ratelimits(kw, section):
    async def make(**more):
        made = await kw.create_key(ratelimits=[{"name": "auto", "limit": 5, "duration": LONG, "auto_apply": True},
                                                 {"name": "manual", "limit": 3, "duration": LONG}], **more)
        auto, manual = (await kw.get_key(made["keyId"]))["ratelimits"]
        equal((auto["autoApply"], manual["autoApply"]), (True, False))
        return made["key"], made["keyId"], auto, manual

    async def limits(key, *asked):
        answer = await kw.verify(key, **({"ratelimits": list(asked)} if asked else {}))
        return answer["code"], answer["ratelimits"]

    async def automatic():
        key, key_id, auto, _ = await make(credits={"remaining": 9})
        for remaining in (4, 3, 2, 1, 0):
            equal(await limits(key), ("VALID", [checked(auto, remaining)]))
        equal(await kw.verify(key), {"valid": False, "code": "RATE_LIMITED", "keyId": key_id, "enabled": True, "credits": 4, "ratelimits": [checked(auto, 0, True)]})
    await kw.check(f"{section}: autoApply limits count without being asked for, the others do not", automatic)

    async def requested():
        key, _, auto, manual = await make()
        equal(await limits(key, {"name": "manual", "cost": 2}), ("VALID", [checked(auto, 4), checked(manual, 1)]))
        equal(await limits(key, {"name": "manual", "cost": 2}), ("RATE_LIMITED", [checked(auto, 4), checked(manual, 0, True)]))
        equal(await limits(key, {"name": "manual"}), ("VALID", [checked(auto, 3), checked(manual, 0)]))
        equal(await limits(key, {"name": "auto", "cost": 2}), ("VALID", [checked(auto, 1)]))
    await kw.check(f"{section}: requested limits count with their cost, all or nothing", requested)

    async def peek():
        key, _, auto, manual = await make()
        await limits(key, {"name": "auto", "cost": 5})
        equal(await limits(key, {"name": "auto", "cost": 0}, {"name": "manual", "cost": 0}), ("VALID", [checked(auto, 0), checked(manual, 3)]))
    await kw.check(f"{section}: cost 0 only looks", peek)

    async def ad_hoc():
        key, _, auto, _ = await make()
        ask = {"name": "zz-adhoc", "limit": 2, "duration": LONG}
        equal(await limits(key, ask), ("VALID", [checked(auto, 4), adhoc("zz-adhoc", 2, 1)]))
        equal(await limits(key, {**ask, "cost": 2}), ("RATE_LIMITED", [checked(auto, 4), adhoc("zz-adhoc", 2, 0, True)]))
        equal(await limits(key, {"name": "auto", "limit": 100, "duration": LONG // 2, "cost": 7}), ("VALID", [adhoc("auto", 100, 93, duration=LONG // 2)]))
        equal(await limits(key), ("VALID", [checked(auto, 3)]))
    await kw.check(f"{section}: ad-hoc limits count for the key, and replace a stored one of their name", ad_hoc)

    async def not_stored():
        key, _, auto, _ = await make()
        await kw.raises(PRECONDITION, "keys.verify_key", key=key, ratelimits=[{"name": "unknown"}])
        equal(await limits(key), ("VALID", [checked(auto, 4)]))
    await kw.check(f"{section}: a name that is not stored is 412, and spends nothing", not_stored)

    async def invalid():
        key = (await make())[0]
        await kw.rejects("/properties/ratelimits/items/properties/name/minLength", "keys.verify_key", key=key, ratelimits=[{"name": "ab"}])
        await kw.rejects("/properties/ratelimits/items/properties/cost/minimum", "keys.verify_key", key=key, ratelimits=[{"name": "manual", "cost": -1}])
    await kw.check(f"{section}: invalid requests for limits are 400", invalid)


async def credits(kw, section):
    async def spend(key, **more):
        answer = await kw.verify(key, **more)
        equal(answer["valid"], answer["code"] == "VALID")
        return answer["code"], answer["credits"]

    async def costs():
        made = await kw.create_key(credits={"remaining": 6})
        key = made["key"]
        equal(await spend(key), ("VALID", 5))
        equal(await spend(key, credits={"cost": 3}), ("VALID", 2))
        equal(await spend(key, credits={"cost": 3}), ("USAGE_EXCEEDED", 2))
        equal(await spend(key, credits={"cost": 0}), ("VALID", 2))
        equal(await spend(key, credits={"cost": 2}), ("VALID", 0))
        equal(await spend(key), ("USAGE_EXCEEDED", 0))
        equal(await spend(key, credits={"cost": 0}), ("VALID", 0))
        equal((await kw.get_key(made["keyId"]))["credits"], {"remaining": 0})
    await kw.check(f"{section}: each call costs 1, or what it says", costs)

    async def large():
        made = await kw.create_key(credits={"remaining": MAX_INT64})
        equal(await spend(made["key"]), ("VALID", MAX_INT64 - 1))
        equal((await kw.get_key(made["keyId"]))["credits"], {"remaining": MAX_INT64 - 1})
    await kw.check(f"{section}: the largest balance keeps every digit", large)

    async def unspent():
        made = await kw.create_key(credits={"remaining": 1}, ratelimits=[{"name": "auto", "limit": 5, "duration": LONG, "auto_apply": True}])
        equal(await spend(made["key"], credits={"cost": 2}), ("USAGE_EXCEEDED", 1))
        equal((await kw.verify(made["key"]))["ratelimits"][0]["remaining"], 4)
    await kw.check(f"{section}: credits that refuse leave the limits unspent", unspent)

    async def negative():
        made = await kw.create_key()
        await kw.rejects("/properties/credits/properties/cost/minimum", "keys.verify_key", key=made["key"], credits={"cost": -1})
    await kw.check(f"{section}: a negative cost is 400", negative)

    async def at_once():
        # The synchronous methods run on threads here, so both kinds are truly concurrent.
        made = await kw.create_key(credits={"remaining": 10})
        if kw.mode == "sync":
            one = lambda: asyncio.to_thread(kw.unkey.keys.verify_key, key=made["key"])
        else:
            one = lambda: kw.unkey.keys.verify_key_async(key=made["key"])
        answers = [plain(response.data) for response in await asyncio.gather(*(one() for _ in range(20)))]
        # Of calls at the same moment on two replicas, two may be told the same.
        told = [answer["credits"] for answer in answers if answer["code"] == "VALID"]
        equal((len(told), all(0 <= left <= 9 for left in told)), (10, True))
        equal(sum(answer["code"] == "USAGE_EXCEEDED" for answer in answers), 10)
    await kw.check(f"{section}: 20 calls at once spend exactly the balance", at_once)
