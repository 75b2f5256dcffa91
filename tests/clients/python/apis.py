from python.support import equal, matches, NO_API, NO_KEY, NOT_FOUND


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
        equal(await kw.verify(key), NOT_FOUND)
    await kw.check(f"{section}: after deleteApi its keys are NOT_FOUND", deleted)
    await kw.check(f"{section}: after deleteApi getApi is 404", lambda: kw.raises(NO_API, "apis.get_api", api_id=api_id))
    await kw.check(f"{section}: a second deleteApi is 404", lambda: kw.raises(NO_API, "apis.delete_api", api_id=api_id))
    await kw.check(f"{section}: after deleteApi createKey is 404", lambda: kw.raises(NO_API, "keys.create_key", api_id=api_id))
    await kw.check(f"{section}: after deleteApi getKey is 404", lambda: kw.raises(NO_KEY, "keys.get_key", key_id=key_id))
    await kw.check(f"{section}: after deleteApi whoami is 404", lambda: kw.raises(NO_KEY, "keys.whoami", key=key))
