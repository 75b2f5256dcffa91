from python.support import equal, LONG, matches, NO_API, NO_KEY, NOT_FOUND, PRECONDITION


async def apis(kw, section):
    name = kw.fresh("api")
    made = await kw.call("apis.create_api", name=name)
    api_id = made["apiId"]

    async def created():
        equal(sorted(made), ["apiId"])
        matches(api_id, r"api_[A-Za-z0-9]{16,}")
        equal(await kw.call("apis.get_api", api_id=api_id), {"id": api_id, "name": name})
        other = await kw.call("apis.create_api", name=name)
        assert other["apiId"] != api_id
    await kw.check(f"{section}: createApi and getApi", created)

    async def code_points():
        await kw.call("apis.create_api", name="🔑" * 3)
        await kw.call("apis.create_api", name="🔑" * 256)
        await kw.rejects("/properties/name/minLength", "apis.create_api", name="🔑" * 2)
        await kw.rejects("/properties/name/maxLength", "apis.create_api", name="🔑" * 257)
    await kw.check(f"{section}: name lengths count code points", code_points)
    await kw.check(f"{section}: getApi of an unknown id", lambda: kw.raises(NO_API, "apis.get_api", api_id="api_doesnotexist0000"))
    await kw.check(f"{section}: getApi of a short id", lambda: kw.rejects("/properties/apiId/minLength", "apis.get_api", api_id="api_123"))
    await kw.check(f"{section}: getApi of an ill-formed id", lambda: kw.rejects("/properties/apiId/pattern", "apis.get_api", api_id="api-with-dashes"))
    await kw.check(f"{section}: deleteApi of an unknown id", lambda: kw.raises(NO_API, "apis.delete_api", api_id="api_doesnotexist0000"))

    orphan = await kw.create_key(api_id=api_id)
    key, key_id = orphan["key"], orphan["keyId"]

    async def deleted():
        equal(await kw.code(key), "VALID")
        equal(await kw.call("apis.delete_api", api_id=api_id), {})
        await kw.seen_by_all()
        equal(await kw.verify(key), NOT_FOUND)
    await kw.check(f"{section}: after deleteApi its keys are NOT_FOUND", deleted)
    await kw.check(f"{section}: after deleteApi getApi is 404", lambda: kw.raises(NO_API, "apis.get_api", api_id=api_id))
    await kw.check(f"{section}: a second deleteApi is 404", lambda: kw.raises(NO_API, "apis.delete_api", api_id=api_id))
    await kw.check(f"{section}: after deleteApi createKey is 404", lambda: kw.raises(NO_API, "keys.create_key", api_id=api_id))
    await kw.check(f"{section}: after deleteApi getKey is 404", lambda: kw.raises(NO_KEY, "keys.get_key", key_id=key_id))
    await kw.check(f"{section}: after deleteApi whoami is 404", lambda: kw.raises(NO_KEY, "keys.whoami", key=key))


async def keys_listed(kw, section):
    api_id = (await kw.call("apis.create_api", name=kw.fresh("list")))["apiId"]
    other = (await kw.call("apis.create_api", name=kw.fresh("other")))["apiId"]
    external_id = kw.fresh("keys-of")

    async def pages(**fields):
        sizes, keys = await kw.pages("apis.list_keys", **{"api_id": api_id, **fields})
        return sizes, [kw.settled(key) for key in keys]

    async def none():
        equal(await pages(), ([0], []))
    await kw.check(f"{section}: an API without keys has an empty page", none)

    made = []
    for fields in ({}, {"enabled": False, "expires": 1, "name": "old", "meta": {"a": 1}},
                   {"external_id": external_id, "prefix": "acme", "ratelimits": [{"name": "auto", "limit": 5, "duration": LONG, "auto_apply": True}]},
                   {"external_id": external_id}, {"credits": {"remaining": 7, "refill": {"interval": "daily", "amount": 10}}}):
        made.append(await kw.create_key(api_id=api_id, **fields))
        await kw.verify(made[-1]["key"])
    gone = await kw.create_key(api_id=api_id)
    await kw.call("keys.delete_key", key_id=gone["keyId"])
    await kw.create_key(api_id=other, external_id=external_id)

    for title, fields, sizes, keys in (
        ("pages of 2, each key as get_key tells it, and no deleted one", {"limit": 2}, [2, 2, 1], made),
        ("a page of 5", {"limit": 5}, [5], made),
        ("a page of 100, where no size is asked for", {}, [5], made),
        ("the keys of one user", {"external_id": external_id, "limit": 1}, [1, 1], made[2:4]),
        ("the keys of nobody", {"external_id": kw.fresh("nobody")}, [0], []),
    ):
        async def listed():
            due = [await kw.get_key(key_id) for key_id in sorted(key["keyId"] for key in keys)]
            equal(await pages(**fields), (sizes, due))
        await kw.check(f"{section}: {title}", listed)
    for title, kind, fields in (
        ("decrypt is 412 where no copies of keys are kept", PRECONDITION, {"decrypt": True}),
        ("an unknown API is 404", NO_API, {"api_id": "api_doesnotexist0000"}),
    ):
        await kw.check(f"{section}: {title}", lambda: kw.raises(kind, "apis.list_keys", **{"api_id": api_id, **fields}))
    for title, fields, location in (
        ("an empty apiId", {"api_id": ""}, "/properties/apiId/minLength"),
        ("a page of 0", {"limit": 0}, "/properties/limit/minimum"),
        ("a page of 101", {"limit": 101}, "/properties/limit/maximum"),
        ("a cursor of 1025", {"cursor": "c" * 1025}, "/properties/cursor/maxLength"),
        ("an empty externalId", {"external_id": ""}, "/properties/externalId/minLength"),
    ):
        await kw.check(f"{section}: refuses {title}", lambda: kw.rejects(location, "apis.list_keys", **{"api_id": api_id, **fields}))
