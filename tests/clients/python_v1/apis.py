from python_v1.support import client_for, equal, FORBIDDEN, in_order, matches, NOT_FOUND, NOTHING, PROTECTED, set_api


async def apis(kw, section):
    name = kw.fresh("api")
    made = await kw.call("apis.create", name=name)
    api_id = made["apiId"]

    async def created():
        equal(list(made), ["apiId"])
        matches(api_id, r"api_[A-Za-z0-9]{16,}")
        told = await kw.call("apis.get", api_id=api_id)
        matches(told.pop("workspaceId"), r"ws_\w+")
        equal(told, {"id": api_id, "name": name})
        assert (await kw.call("apis.create", name=name))["apiId"] != api_id
    await kw.check(f"{section}: create and get, and names need not be unique", created)

    async def unknown():
        for method in ("get", "delete", "list_keys", "delete_keys"):
            await kw.raises(NOT_FOUND, f"apis.{method}", "api_doesnotexist0000", api_id="api_doesnotexist0000")
        await kw.rejects("apiId: String must contain at least 1 character(s)", "apis.delete", api_id="")
    await kw.check(f"{section}: an unknown api is 404 and is named", unknown)

    orphan = await kw.create_key(api_id=api_id)

    async def protected():
        await set_api(api_id, "--delete-protection", "on")
        await kw.raises(PROTECTED, "apis.delete", api_id=api_id)
        equal(await kw.code(orphan["key"]), "VALID")
        await set_api(api_id, "--delete-protection", "off")
    await kw.check(f"{section}: a protected api is not deleted", protected)

    async def deleted():
        equal(await kw.call("apis.delete", api_id=api_id), {})
        await kw.seen_by_all()
        equal(await kw.verify(orphan["key"]), NOTHING)
        for operation, fields in (("apis.get", {"api_id": api_id}), ("apis.delete", {"api_id": api_id}), ("keys.create", {"api_id": api_id}),
                                  ("keys.get", {"key_id": orphan["keyId"]}), ("keys.whoami", {"key": orphan["key"]})):
            await kw.raises(NOT_FOUND, operation, **fields)
    await kw.check(f"{section}: delete takes its keys with it", deleted)


async def keys_listed(kw, section):
    api_id = (await kw.call("apis.create", name=kw.fresh("list")))["apiId"]
    other = (await kw.call("apis.create", name=kw.fresh("other")))["apiId"]
    user = kw.fresh("keys of")

    async def none():
        equal(await kw.call("apis.list_keys", api_id=api_id), {"keys": [], "total": 0})
    await kw.check(f"{section}: an api without keys has an empty page", none)

    made = []
    for fields in ({}, {"enabled": False, "expires": 1, "name": "old", "meta": {"a": 1}}, {"owner_id": user, "prefix": "acme"},
                   {"external_id": user, "ratelimit": {"limit": 5, "duration": 60_000}},
                   {"remaining": 7, "refill": {"interval": "daily", "amount": 10}}):
        made.append((await kw.create_key(api_id=api_id, **fields))["keyId"])
    gone = await kw.create_key(api_id=api_id)
    await kw.call("keys.delete", key_id=gone["keyId"])
    await kw.create_key(api_id=other, external_id=user)

    for title, fields, sizes, found in (
        ("pages of 2, each key as get tells it, and no deleted one", {"limit": 2}, [2, 2, 1], made),
        ("a page of 100, where no size is asked for", {}, [5], made),
        ("the keys of one user, by external_id", {"external_id": user, "limit": 1}, [1, 1], made[2:4]),
        ("the keys of one user, by owner_id", {"owner_id": user}, [2], made[2:4]),
        ("the keys of nobody", {"external_id": kw.fresh("nobody")}, [0], []),
        ("what is said and not meant", {"decrypt": False, "revalidate_keys_cache": False}, [5], made),
    ):
        async def listed():
            told, keys = await kw.pages("apis.list_keys", "keys", api_id=api_id, **fields)
            equal(told, sizes)
            equal([in_order(key) for key in keys], [await kw.get_key(key_id) for key_id in sorted(found)])
            equal((await kw.call("apis.list_keys", api_id=api_id, **fields))["total"], 5 if found else 0)
        await kw.check(f"{section}: {title}", listed)

    async def decrypted():
        await set_api(other, "--recoverable-keys", "on")
        kept = await kw.create_key(api_id=other, recoverable=True)
        keys = (await kw.call("apis.list_keys", api_id=other, decrypt=True))["keys"]
        equal([(key["id"], key["plaintext"]) for key in keys if "plaintext" in key], [(kept["keyId"], kept["key"])])
        equal((await kw.get_key(kept["keyId"], decrypt=True))["plaintext"], kept["key"])
        reader = client_for("api.*.read_key", "api.*.read_api")
        for operation, fields in (("apis.list_keys", {"api_id": other}), ("keys.get", {"key_id": kept["keyId"]})):
            await kw.raises(FORBIDDEN, operation, "decrypt_key", sdk=reader, decrypt=True, **fields)
            assert "plaintext" not in str(await kw.call(operation, sdk=reader, decrypt=False, **fields))
    await kw.check(f"{section}: keys that are kept are shown to who may decrypt and asks", decrypted)


async def keys_deleted(kw, section):
    for permanent, left in ((False, 2), (True, 4)):
        async def deleted():
            api_id = (await kw.call("apis.create", name=kw.fresh("emptied")))["apiId"]
            for _ in range(2):
                await kw.create_key(api_id=api_id)
            equal(await kw.call("apis.delete_keys", api_id=api_id), {"deletedKeys": 2})
            made = [await kw.create_key(api_id=api_id) for _ in range(2)]
            equal(await kw.call("apis.delete_keys", api_id=api_id, permanent=permanent), {"deletedKeys": left})
            await kw.seen_by_all()
            for one in made:
                equal(await kw.verify(one["key"]), NOTHING)
            equal((await kw.call("apis.list_keys", api_id=api_id))["total"], 0)
            await kw.call("apis.get", api_id=api_id)
        await kw.check(f"{section}: permanent: {permanent}", deleted)
