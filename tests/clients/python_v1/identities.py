import asyncio

from python_v1.support import bare, CONFLICT, equal, LONG, matches, NOT_FOUND, window_end


async def identities(kw, section):
    external_id = f"{kw.fresh('somebody')} ü"
    meta = {"plan": "pro", "nested": {"list": [1, "two", None, True, 1.5]}}
    limits = [{"name": "shared", "limit": 5, "duration": LONG}, {"name": "spare", "limit": 3, "duration": 60_000}]
    made = await kw.call("identities.create", external_id=external_id, meta=meta, ratelimits=limits)
    identity_id = made["identityId"]
    stored = {"id": identity_id, "externalId": external_id, "meta": meta, "ratelimits": limits}

    async def created():
        equal(list(made), ["identityId"])
        matches(identity_id, r"id_[A-Za-z0-9]{16,}")
        equal(await kw.call("identities.get", identity_id=identity_id), stored)
        equal(await kw.call("identities.get", external_id=external_id), stored)
        least = (await kw.call("identities.create", external_id=kw.fresh("least")))["identityId"]
        equal(await kw.call("identities.get", identity_id=least), {"id": least, "externalId": kw.fresh("least"), "meta": {}, "ratelimits": []})
    await kw.check(f"{section}: get finds it by id and by external id, and the least one has empty meta and no limits", created)

    async def refused():
        await kw.raises(CONFLICT, "identities.create", external_id, external_id=external_id)
        await kw.raises(CONFLICT, "identities.create", '"shared"', external_id=kw.fresh("twice"), ratelimits=[limits[0], limits[0]])
        await kw.raises(CONFLICT, "identities.update", '"shared"', identity_id=identity_id, ratelimits=[limits[0], limits[0]])
    await kw.check(f"{section}: one identity of a user, and one limit of a name", refused)

    keys = [await kw.create_key(external_id=external_id), await kw.create_key(owner_id=external_id)]

    def identity():
        return {"id": identity_id, "externalId": external_id, "meta": stored["meta"]}

    async def verified():
        for used, one in enumerate(keys):
            equal(await kw.verify(one["key"], ratelimits=[{"name": "shared", "cost": 2}]), {
                **bare(one["keyId"]), "ownerId": external_id, "identity": identity(),
                "ratelimit": {"limit": 5, "remaining": 3 - 2 * used, "reset": window_end(LONG)}})
            equal((await kw.get_key(one["keyId"]))["identity"], identity())
        equal(await kw.code(keys[0]["key"], ratelimits=[{"name": "shared", "cost": 2}]), "RATE_LIMITED")
        assert "ratelimit" not in await kw.verify(keys[0]["key"])
    await kw.check(f"{section}: verify tells the identity of its keys, which share its limits", verified)

    for title, fields, difference in (
        ("no field changes nothing", {}, {}),
        ("meta is replaced whole, and the limits stay", {"meta": {"a": 1}}, {"meta": {"a": 1}}),
        ("limits are replaced by name", {"ratelimits": [{**limits[0], "limit": 50}]}, {"ratelimits": [{**limits[0], "limit": 50}]}),
        ("limits to none", {"ratelimits": []}, {"ratelimits": []}),
        ("meta to an empty object clears it", {"meta": {}}, {"meta": {}}),
        ("both at once", {"meta": meta, "ratelimits": limits}, {"meta": meta, "ratelimits": limits}),
    ):
        async def updated():
            nonlocal stored
            stored = {**stored, **difference}
            equal(await kw.call("identities.update", external_id=external_id, **fields), stored)
            equal(await kw.call("identities.get", identity_id=identity_id), stored)
            await kw.verifies_everywhere(keys[0]["key"], {"identity": identity()})
        await kw.check(f"{section}: update: {title}", updated)

    async def list_all():
        page = await kw.respond("identities.list", limit=100)
        total, all_of_them = None, []
        while page is not None:
            body = kw.body(page)
            total, all_of_them = body["total"], all_of_them + body["identities"]
            page = page.next()
            if asyncio.iscoroutine(page):
                page = await page
        other_total = (await kw.call("identities.list", limit=1, environment="default"))["total"]
        return all_of_them, (len(all_of_them), len({one["id"] for one in all_of_them}), other_total), (total, total, total)

    async def listed():
        # Other drivers may create and delete identities meanwhile.
        for _ in range(10):
            all_of_them, counts, totals = await list_all()
            if counts == totals:
                break
        equal(counts, totals)
        equal([one for one in all_of_them if one["id"] == identity_id], [{"id": identity_id, "externalId": external_id, "ratelimits": limits}])
    await kw.check(f"{section}: list tells all of them by the client's own pages, without meta", listed)

    async def deleted():
        equal(await kw.call("identities.delete", identity_id=identity_id), {})
        await kw.seen_by_all()
        for one in keys:
            equal(await kw.verify(one["key"]), {**bare(one["keyId"]), "ownerId": external_id})
        for operation in ("get", "update", "delete"):
            await kw.raises(NOT_FOUND, f"identities.{operation}", identity_id, identity_id=identity_id)
    await kw.check(f"{section}: delete leaves its keys without it", deleted)
