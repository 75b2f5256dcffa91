import asyncio

from python.support import equal, LONG, matches, NO_NAMESPACE, NO_OVERRIDE, plain, window_end


async def limiter(kw, section):
    namespace, other = kw.fresh("email.send"), kw.fresh("email.read")

    def request(identifier, **more):
        return {"namespace": namespace, "identifier": identifier, "limit": 10, "duration": LONG, **more}

    async def limit(identifier, **more):
        return await kw.call("ratelimit.limit", **request(identifier, **more))

    def answer(remaining, **more):
        return {"success": True, "limit": 10, "remaining": remaining, "reset": window_end(LONG), **more}

    async def set_override(identifier, maximum):
        return (await kw.call("ratelimit.set_override", **request(identifier, limit=maximum)))["overrideId"]

    def override(override_id, identifier, maximum):
        return {"overrideId": override_id, "identifier": identifier, "limit": maximum, "duration": LONG}

    async def unmade():
        named = {"namespace": namespace, "identifier": "a"}
        await kw.raises(NO_NAMESPACE, "ratelimit.set_override", **named, limit=1, duration=1000)
        await kw.raises(NO_NAMESPACE, "ratelimit.get_override", **named)
        await kw.raises(NO_NAMESPACE, "ratelimit.delete_override", **named)
        await kw.raises(NO_NAMESPACE, "ratelimit.list_overrides", namespace=namespace)
    await kw.check(f"{section}: overrides do not make a namespace", unmade)

    async def counting():
        for remaining in (9, 8, 7):
            equal(await limit("counting"), answer(remaining))
        equal(await limit("Counting"), answer(9))
    await kw.check(f"{section}: limit makes the namespace and counts each identifier down", counting)

    async def costs():
        equal(await limit("costs", cost=6), answer(4))
        equal(await limit("costs", cost=5), answer(0, success=False))
        equal(await limit("costs", cost=0), answer(4))
        equal(await limit("costs", cost=4), answer(0))
    await kw.check(f"{section}: a cost that does not fit is refused, takes nothing and is no error", costs)

    async def crowd():
        # The synchronous methods run on threads here, so both kinds are truly concurrent.
        if kw.mode == "sync":
            one = lambda: asyncio.to_thread(kw.unkey.ratelimit.limit, **request("crowd"))
        else:
            one = lambda: kw.unkey.ratelimit.limit_async(**request("crowd"))
        answers = [plain(response.data) for response in await asyncio.gather(*(one() for _ in range(20)))]
        equal(sorted(told["remaining"] for told in answers if told["success"]), list(range(10)))
    await kw.check(f"{section}: 20 checks at once admit exactly the limit", crowd)
    for title, fields, location in (
        ("an empty namespace", {"namespace": ""}, "/properties/namespace/minLength"),
        ("an identifier of 513", {"identifier": "é" * 513}, "/properties/identifier/maxLength"),
        ("a limit of 0", {"limit": 0}, "/properties/limit/minimum"),
        ("a window under a second", {"duration": 999}, "/properties/duration/minimum"),
        ("a window over 30 days", {"duration": LONG + 1}, "/properties/duration/maximum"),
        ("a negative cost", {"cost": -1}, "/properties/cost/minimum"),
    ):
        await kw.check(f"{section}: refuses {title}", lambda: kw.rejects(location, "ratelimit.limit", **{**request("a"), **fields}))

    async def multi():
        def told(where, maximum, remaining, passed):
            return {"namespace": where, "identifier": "both", "limit": maximum, "remaining": remaining,
                    "reset": window_end(LONG), "passed": passed}
        for cost, passed, left in ((4, False, 10), (3, True, 9)):
            members = [request("both"), request("both", namespace=other, limit=3, cost=cost)]
            equal(await kw.call("ratelimit.multi_limit", request=members),
                  {"passed": passed, "limits": [told(namespace, 10, left, True), told(other, 3, 0, passed)]})
    await kw.check(f"{section}: multi_limit takes all or nothing and tells each in order", multi)

    async def twice():
        answer = await kw.call("ratelimit.multi_limit", request=[request("twice", cost=5)] * 2)
        equal((answer["passed"], [member["remaining"] for member in answer["limits"]]), (True, [5, 0]))
    await kw.check(f"{section}: multi_limit adds up members of one counter", twice)
    await kw.check(f"{section}: multi_limit refuses an empty list", lambda: kw.rejects("/minItems", "ratelimit.multi_limit", request=[]))

    exact, pattern, never = await set_override("user_1", 2), await set_override("user_*", 5), await set_override("banned", 0)

    async def kept():
        for override_id in (exact, pattern, never):
            matches(override_id, r"rlor_[A-Za-z0-9]{16,}")
        equal(await set_override("user_1", 3), exact)
    await kw.check(f"{section}: set_override answers with an id, and keeps it", kept)
    await kw.seen_by_all()

    async def applied():
        equal(await limit("user_1"), answer(2, limit=3, overrideId=exact))
        equal(await limit("user_2"), answer(4, limit=5, overrideId=pattern))
        equal(await limit("banned"), answer(0, success=False, limit=0, overrideId=never))
        told = (await kw.call("ratelimit.multi_limit", request=[request("user_2")]))["limits"][0]
        equal((told["limit"], told["remaining"], told["overrideId"]), (5, 3, pattern))
    await kw.check(f"{section}: the exact override precedes a pattern, and 0 always denies", applied)

    async def found():
        equal(await kw.call("ratelimit.get_override", namespace=namespace, identifier="user_1"), override(exact, "user_1", 3))
        equal(await kw.call("ratelimit.get_override", namespace=namespace, identifier="user_9"), override(pattern, "user_*", 5))
        await kw.raises(NO_OVERRIDE, "ratelimit.get_override", namespace=namespace, identifier="somebody")
    await kw.check(f"{section}: get_override finds what a check would find", found)

    async def listed():
        overrides = [override(exact, "user_1", 3), override(pattern, "user_*", 5), override(never, "banned", 0)]
        overrides.sort(key=lambda known: known["overrideId"])
        for size, sizes in (({"limit": 2}, [2, 1]), ({"limit": 3}, [3]), ({}, [3])):
            equal(await kw.pages("ratelimit.list_overrides", namespace=namespace, **size), (sizes, overrides))
        await kw.rejects("/properties/limit/maximum", "ratelimit.list_overrides", namespace=namespace, limit=101)
    await kw.check(f"{section}: list_overrides goes through the pages by id", listed)

    async def deleted():
        await kw.raises(NO_OVERRIDE, "ratelimit.delete_override", namespace=namespace, identifier="user_7")
        equal(await kw.call("ratelimit.delete_override", namespace=namespace, identifier="user_1"), {})
        await kw.raises(NO_OVERRIDE, "ratelimit.delete_override", namespace=namespace, identifier="user_1")
        await kw.seen_by_all()
        equal(await limit("user_1"), answer(3, limit=5, overrideId=pattern))
    await kw.check(f"{section}: delete_override takes the exact identifier, once", deleted)

    async def anew():
        assert await set_override("user_1", 7) != exact
        await kw.seen_by_all()
        equal((await limit("user_1"))["limit"], 7)
    await kw.check(f"{section}: what was deleted can be set anew", anew)
