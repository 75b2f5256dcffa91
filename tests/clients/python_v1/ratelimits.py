from python_v1.support import client_for, equal, FORBIDDEN, LONG, matches, NOT_FOUND, window_end


def told(success, remaining, limit=10):
    return {"success": success, "limit": limit, "remaining": remaining, "reset": window_end(LONG)}


async def limiter(kw, section):
    namespace = kw.fresh("email.send")

    async def limit(**fields):
        request = {"namespace": namespace, "identifier": "user_1", "limit": 10, "duration": LONG, **fields}
        return await kw.call("ratelimits.limit", **{field: value for field, value in request.items() if value is not None})

    async def counted():
        equal(await limit(), told(True, 9))
        equal(await limit(cost=4), told(True, 5))
        equal((await limit(cost=6))["success"], False)
        equal(await limit(cost=0), told(True, 5))
        equal(await limit(cost=5), told(True, 0))
        equal(await limit(), told(False, 0))
    await kw.check(f"{section}: a cost is taken whole or not at all", counted)

    async def needless():
        resources = [{"type": "project", "id": "p_1", "name": "One", "meta": {"a": 1}}]
        meta = {"text": "a", "flag": True, "number": 1.5, "nothing": None}
        equal(await limit(identifier="user_2", async_=True), told(True, 9))
        equal(await limit(identifier="user_2", meta=meta, resources=resources), told(True, 8))
        await limit(namespace=None, identifier=kw.fresh("somebody"))
        equal(await limit(namespace="default", identifier=kw.fresh("somebody")), told(True, 8))
    await kw.check(f"{section}: what need not be said changes nothing", needless)

    async def lacking():
        sdk = client_for("ratelimit.*.limit")
        equal((await limit(sdk=sdk, identifier="user_3"))["success"], True)
        fields = {"namespace": kw.fresh("other"), "identifier": "user_3", "limit": 10, "duration": LONG}
        await kw.raises(FORBIDDEN, "ratelimits.limit", "ratelimit.*.create_namespace", sdk=sdk, **fields)
    await kw.check(f"{section}: a root key that may not make a namespace makes none", lacking)


async def overrides(kw, section):
    namespace = kw.fresh("sms.send")
    named = {"namespace_name": namespace}

    async def limit(identifier):
        return await kw.call("ratelimits.limit", namespace=namespace, identifier=identifier, limit=10, duration=LONG)

    async def set_override(identifier, **more):
        return (await kw.call("ratelimit.set_override", identifier=identifier, **{**named, "limit": 3, "duration": LONG, **more}))["overrideId"]

    await limit("nobody")
    override_id = await set_override("vip_*", async_=True)

    async def created():
        matches(override_id, r"rlor_[A-Za-z0-9]{16,}")
        equal(await set_override("vip_*"), override_id)
        known = {"id": override_id, "identifier": "vip_*", "limit": 3, "duration": LONG, "async": False}
        equal(await kw.call("ratelimit.get_override", identifier="vip_*", **named), known)
        await kw.raises(NOT_FOUND, "ratelimit.get_override", "vip_1", identifier="vip_1", **named)
    await kw.check(f"{section}: set again it keeps its id, and get finds it by its very text", created)

    async def applied():
        await set_override("vip_0", limit=0)
        await kw.seen_by_all()
        equal(await limit("vip_1"), told(True, 2, 3))
        equal(await limit("vip_0"), told(False, 0, 0))
        equal(await limit("guest"), told(True, 9))
    await kw.check(f"{section}: limit applies them", applied)

    async def listed():
        await set_override("vip_2")
        sizes, everything = await kw.pages("ratelimit.list_overrides", "overrides", limit=2, **named)
        equal((sizes, sorted(one["identifier"] for one in everything)), ([2, 1], ["vip_*", "vip_0", "vip_2"]))
        equal(await kw.call("ratelimit.list_overrides", **named), {"overrides": everything, "total": 3})
    await kw.check(f"{section}: list tells all of them page by page", listed)

    async def deleted():
        equal(await kw.call("ratelimits.delete_override", identifier="vip_*", **named), {})
        await kw.seen_by_all()
        equal((await limit("vip_3"))["limit"], 10)
        await kw.raises(NOT_FOUND, "ratelimits.delete_override", "vip_*", identifier="vip_*", **named)
        await kw.raises(NOT_FOUND, "ratelimit.get_override", "vip_*", identifier="vip_*", **named)
    await kw.check(f"{section}: delete ends it", deleted)

    operations = (("ratelimit.set_override", {"identifier": "vip_0", "limit": 3, "duration": LONG}), ("ratelimit.get_override", {"identifier": "vip_0"}),
                  ("ratelimits.delete_override", {"identifier": "vip_0"}), ("ratelimit.list_overrides", {}))

    async def nowhere():
        for operation, fields in operations:
            await kw.rejects("You must provide a namespaceId or a namespaceName", operation, **fields)
            await kw.raises(NOT_FOUND, operation, kw.fresh("nowhere"), namespace_name=kw.fresh("nowhere"), **fields)
    await kw.check(f"{section}: a namespace is needed, and is not made", nowhere)
