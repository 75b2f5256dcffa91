import asyncio
import time

from python_v1.support import BAD_REQUEST, equal, NOT_FOUND

NOTHING = {name: 0 for name in (
    "valid", "notFound", "forbidden", "usageExceeded", "rateLimited", "unauthorized", "disabled", "insufficientPermissions", "expired", "total")}
DAY = 86_400_000


async def analytics(kw, section):
    api_id = (await kw.call("apis.create", name=kw.fresh("analytics")))["apiId"]
    external_id = kw.fresh("analysed")
    first = await kw.create_key(api_id=api_id, external_id=external_id)
    second = await kw.create_key(api_id=api_id, remaining=1)
    start = int(time.time() * 1000) - DAY
    end = start + 2 * DAY

    async def ask(**fields):
        return await kw.call("analytics.get_verifications", **{"api_id": api_id, "start": start, "end": end, **fields})

    async def nothing():
        equal(await ask(), [NOTHING])
    await kw.check(f"{section}: an api of which no key was used has one row of zeros", nothing)

    for tags in (["a"], ["a", "b"], []):
        await kw.verify(first["key"], tags=tags)
    for _ in range(3):
        await kw.verify(second["key"])
    # Events are written every second, by each replica its own.
    for _ in range(100):
        if (await ask())[0]["total"] == 6:
            break
        await asyncio.sleep(0.1)

    async def counted():
        equal(await ask(), [{**NOTHING, "valid": 4, "usageExceeded": 2, "total": 6}])
    await kw.check(f"{section}: outcomes are counted", counted)

    async def grouped():
        rows = await ask(group_by=["key", "day"], key_id=[first["keyId"], second["keyId"]])
        equal(sum(row["total"] for row in rows), 6)
        top = await ask(group_by="key", order_by="usageExceeded", order="desc", limit=1)
        equal([row["keyId"] for row in top], [second["keyId"]])
        [row] = await ask(group_by="identity", external_id=external_id)
        equal((row["identity"]["externalId"], row["total"]), (external_id, 3))
    await kw.check(f"{section}: by key, by day and by identity, the most used first", grouped)

    async def tagged():
        equal([(row["tag"], row["total"]) for row in await ask(group_by="tag")], [("a", 2), ("b", 1)])
        equal([(row["tags"], row["total"]) for row in await ask(group_by="tags")], [([], 4), (["a"], 1), (["a", "b"], 1)])
        equal((await ask(tag=["a", "b"]))[0]["total"], 1)
    await kw.check(f"{section}: by tag and by tags", tagged)

    async def days():
        for of in ({"key_id": first["keyId"]}, {"owner_id": external_id}):
            told = (await kw.call("keys.get_verifications", start=start, end=end, **of))["verifications"]
            equal(sum(day["success"] for day in told), 3)
    await kw.check(f"{section}: the days of a key, and of all keys of an owner", days)

    async def refused():
        await kw.raises(NOT_FOUND, "analytics.get_verifications", "api_nobody", api_id="api_nobody", start=start, end=end)
        await kw.raises(BAD_REQUEST, "analytics.get_verifications", "start", api_id=api_id, start=end, end=end)
        await kw.raises(NOT_FOUND, "keys.get_verifications", owner_id="nobody")
    await kw.check(f"{section}: what cannot be answered is refused", refused)
