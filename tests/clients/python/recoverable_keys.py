"""Keys of which a sealed copy is kept, so that who may can read them again."""

from python.support import client_for, equal, NO_API, NO_KEY, NOT_FOUND, PRECONDITION, set_api


async def recoverable(kw, section):
    api_id = (await kw.call("apis.create_api", name=kw.fresh("recoverable")))["apiId"]

    async def decrypt(made):
        return kw.settled(await kw.call("keys.get_key", key_id=made["keyId"], decrypt=True))

    async def listed(**fields):
        sizes, keys = await kw.pages("apis.list_keys", api_id=api_id, **fields)
        return sizes, [kw.settled(key) for key in keys]

    async def refused():
        detail = (await kw.raises(PRECONDITION, "keys.create_key", api_id=api_id, recoverable=True))["detail"]
        assert api_id in detail, detail
        equal(await listed(), ([0], []))
    await kw.check(f"{section}: createKey is 412 while the API keeps no copies, names it, and makes no key", refused)

    older = await kw.create_key(api_id=api_id)
    await set_api(api_id, "--recoverable-keys", "on")
    plain = await kw.create_key(api_id=api_id, recoverable=False)
    fields = {"prefix": "acme_live", "byte_length": 255, "name": "sealed", "external_id": kw.fresh("owner"), "credits": {"remaining": 5}}
    made = await kw.create_key(api_id=api_id, recoverable=True, **fields)
    off = await kw.create_key(api_id=api_id, recoverable=True, enabled=False, expires=1)
    keys = (older, plain, made, off)

    async def shown():
        equal([await kw.code(one["key"]) for one in (made, plain)], ["VALID", "VALID"])
        hidden = await kw.get_key(made["keyId"])
        assert "plaintext" not in hidden, hidden
        equal(await kw.whoami(made["key"]), hidden)
        equal(await decrypt(made), {**hidden, "plaintext": made["key"]})
        equal((await decrypt(off))["plaintext"], off["key"])
    await kw.check(f"{section}: getKey shows it with decrypt and not without, and whoami never", shown)

    async def never_kept():
        for one in (older, plain):
            equal(await decrypt(one), await kw.get_key(one["keyId"]))
    await kw.check(f"{section}: getKey with decrypt leaves out what was never kept", never_kept)

    async def list_shows():
        due = [await decrypt(one) for one in sorted(keys, key=lambda one: one["keyId"])]
        equal({one["keyId"]: one.get("plaintext") for one in due}, {one["keyId"]: one["key"] if one in (made, off) else None for one in keys})
        equal(await listed(decrypt=True), ([4], due))
        equal(await listed(decrypt=True, limit=3), ([3, 1], due))
        equal([one for one in (await listed())[1] if "plaintext" in one], [])
    await kw.check(f"{section}: listKeys shows each copy with decrypt and none without", list_shows)

    async def reading():
        reader = client_for("api.*.read_key", "api.*.read_api")
        await kw.lacks("keys.get_key", f"api.{api_id}.decrypt_key", sdk=reader, key_id=made["keyId"], decrypt=True)
        await kw.lacks("apis.list_keys", "api.*.decrypt_key", sdk=reader, api_id=api_id, decrypt=True)
        equal((await kw.call("keys.get_key", sdk=reader, key_id=made["keyId"]))["keyId"], made["keyId"])
        equal(len((await kw.pages("apis.list_keys", sdk=reader, api_id=api_id))[1]), 4)
        own = client_for("api.*.read_key", f"api.{api_id}.decrypt_key")
        equal((await kw.call("keys.get_key", sdk=own, key_id=made["keyId"], decrypt=True))["plaintext"], made["key"])
        other = client_for("api.*.read_key", f"api.{kw.api_id}.decrypt_key")
        await kw.lacks("keys.get_key", "api.*.decrypt_key", sdk=other, key_id=made["keyId"], decrypt=True)
    await kw.check(f"{section}: decrypt takes decrypt_key, on all APIs or this one", reading)

    async def sealing():
        maker = client_for("api.*.create_key")
        await kw.raises(NO_API, "keys.create_key", sdk=maker, api_id=api_id, recoverable=True)
        await kw.lacks("keys.reroll_key", "api.*.encrypt_key", sdk=maker, key_id=made["keyId"], expiration=0)
        await kw.call("keys.create_key", sdk=maker, api_id=api_id)
        sealer = client_for("api.*.create_key", f"api.{api_id}.encrypt_key")
        sealed = await kw.call("keys.create_key", sdk=sealer, api_id=api_id, recoverable=True)
        equal((await decrypt(sealed))["plaintext"], sealed["key"])
    await kw.check(f"{section}: to keep a copy takes encrypt_key, without which createKey hides the API", sealing)

    rerolled = await kw.call("keys.reroll_key", key_id=made["keyId"], expiration=0)

    async def again():
        assert rerolled["key"] != made["key"]
        for one in (rerolled, made):
            equal((await decrypt(one))["plaintext"], one["key"])
        await kw.verifies_everywhere(rerolled["key"], {"code": "VALID"})
        await kw.verifies_everywhere(made["key"], {"code": "EXPIRED"})
        of_plain = await kw.call("keys.reroll_key", key_id=plain["keyId"], expiration=60_000)
        assert "plaintext" not in await decrypt(of_plain)
    await kw.check(f"{section}: a re-rolled key is recoverable if the old one is, which stays so", again)

    async def deleted():
        for permanent in (False, True):
            gone = await kw.create_key(api_id=api_id, recoverable=True)
            await kw.call("keys.delete_key", key_id=gone["keyId"], permanent=permanent)
            await kw.raises(NO_KEY, "keys.get_key", key_id=gone["keyId"], decrypt=True)
            await kw.verifies_everywhere(gone["key"], NOT_FOUND)
    await kw.check(f"{section}: a deleted one is 404", deleted)

    async def no_more():
        await set_api(api_id, "--recoverable-keys", "off")
        for operation, fields in (("keys.create_key", {"api_id": api_id, "recoverable": True}), ("keys.get_key", {"key_id": rerolled["keyId"], "decrypt": True}),
                                  ("apis.list_keys", {"api_id": api_id, "decrypt": True}), ("keys.reroll_key", {"key_id": rerolled["keyId"], "expiration": 0})):
            await kw.raises(PRECONDITION, operation, **fields)
        equal(await kw.code(rerolled["key"]), "VALID")
        await set_api(api_id, "--recoverable-keys", "on")
        equal((await decrypt(rerolled))["plaintext"], rerolled["key"])
    await kw.check(f"{section}: while the API keeps no copies any more, all that needs one is 412", no_more)
