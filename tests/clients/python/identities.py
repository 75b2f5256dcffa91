from python.support import (
    checked, equal, IDENTITY_EXISTS, in_order, INVALID, LONG, matches, MAX_INT64, NO_IDENTITY, problem, seen,
)


async def identities(kw, section):
    external_id = kw.fresh("Somebody-1_a")
    shared = {"name": "shared", "limit": 5, "duration": LONG, "auto_apply": True}
    spare = {"name": "spare", "limit": 3, "duration": 60_000, "auto_apply": False}
    meta = {"plan": "pro", "nested": {"list": [1, "two", None, True, 1.5]}, "big": MAX_INT64}

    async def make(name, **fields):
        made = await kw.call("identities.create_identity", external_id=name, **fields)
        equal(list(made), ["identityId"])
        return made["identityId"]

    async def get(named):
        return in_order(await kw.call("identities.get_identity", identity=named))

    def told(limit, limit_id, **more):
        return {"id": limit_id, "name": limit["name"], "limit": limit["limit"], "duration": limit["duration"], "autoApply": limit["auto_apply"], **more}

    identity_id = await make(external_id, meta=meta, ratelimits=[shared, spare])
    stored = await get(identity_id)

    async def created():
        matches(identity_id, r"id_[A-Za-z0-9]{16,}")
        ids = [limit["id"] for limit in stored["ratelimits"]]
        for limit_id in ids:
            matches(limit_id, r"rl_[A-Za-z0-9]{16,}")
        equal(stored, {"id": identity_id, "externalId": external_id, "meta": meta, "ratelimits": [told(shared, ids[0]), told(spare, ids[1])]})
        equal(await get(external_id), stored)
        least = await make(kw.fresh("least"), meta={}, ratelimits=[])
        equal(await get(least), {"id": least, "externalId": kw.fresh("least")})
    await kw.check(f"{section}: get_identity finds it by id and by externalId, with every field", created)

    async def twice():
        limits = (await get(await make(kw.fresh("twice"), ratelimits=[shared, {**shared, "limit": 9}])))["ratelimits"]
        equal(limits, [told({**shared, "limit": 9}, limits[0]["id"])])
    await kw.check(f"{section}: of two limits of one name the last wins", twice)
    await kw.check(f"{section}: the same externalId again is 409", lambda: kw.raises(IDENTITY_EXISTS, "identities.create_identity", external_id=external_id))

    keys = [await kw.create_key(external_id=external_id) for _ in range(2)]

    async def verified():
        for used, made in enumerate(keys, 1):
            equal(await kw.verify(made["key"]), {
                "valid": True, "code": "VALID", "keyId": made["keyId"], "enabled": True, "identity": stored,
                "ratelimits": [checked(stored["ratelimits"][0], 5 - used)]})
            equal(in_order((await kw.get_key(made["keyId"]))["identity"]), stored)
    await kw.check(f"{section}: verify_key tells the identity, and its keys share its limit", verified)

    # A function takes what the answer made, such as the id of a new limit; None stands for a field that must be absent.
    for title, fields, difference in (
        ("no field changes nothing", {}, lambda limits: {}),
        ("meta is replaced whole, and the limits stay", {"meta": {"a": 1}}, lambda limits: {"meta": {"a": 1}}),
        ("limits are replaced by name, and the id of the kept one stays",
         {"ratelimits": [{**shared, "limit": 50}, {**spare, "name": "unlike"}]},
         lambda limits: {"ratelimits": [{**stored["ratelimits"][0], "limit": 50}, told(spare, limits[1]["id"], name="unlike")]}),
        ("limits to none", {"ratelimits": []}, lambda limits: {"ratelimits": None}),
        ("meta to an empty object clears it", {"meta": {}}, lambda limits: {"meta": None}),
        ("both at once", {"meta": meta, "ratelimits": [shared]}, lambda limits: {"meta": meta, "ratelimits": [told(shared, limits[0]["id"])]}),
    ):
        async def updated():
            nonlocal stored
            answer = in_order(await kw.call("identities.update_identity", identity=external_id, **fields))
            due = {**stored, **difference(answer.get("ratelimits"))}
            stored = {field: value for field, value in due.items() if value is not None}
            equal(answer, stored)
            equal(await get(identity_id), stored)
            await kw.verifies_everywhere(keys[0]["key"], {"identity": stored})
        await kw.check(f"{section}: update_identity: {title}", updated)

    bad = (
        ("a limit of 0", {"ratelimits": [{**shared, "limit": 0}]}, "/properties/ratelimits/items/properties/limit/minimum"),
        ("a window under a second", {"ratelimits": [{**shared, "duration": 999}]}, "/properties/ratelimits/items/properties/duration/minimum"),
        ("51 limits", {"ratelimits": [{**shared, "name": f"lim{i}"} for i in range(51)]}, "/properties/ratelimits/maxItems"),
        ("meta of 101 properties", {"meta": {f"k{i}": i for i in range(101)}}, "/properties/meta/maxProperties"),
    )
    for operation, named in (("create_identity", {"external_id": kw.fresh("bad")}), ("update_identity", {"identity": identity_id})):
        for title, fields, location in bad:
            await kw.check(f"{section}: {operation} refuses {title}", lambda: kw.rejects(location, f"identities.{operation}", **named, **fields))
    for title, wrong, bound in (("empty", "", "minLength"), ("too long", "e" * 256, "maxLength"), ("ill-formed", "a b", "pattern")):
        await kw.check(f"{section}: create_identity refuses an externalId that is {title}",
                       lambda: kw.rejects(f"/properties/externalId/{bound}", "identities.create_identity", external_id=wrong))
    await kw.check(f"{section}: update_identity refuses two limits of one name",
                   lambda: kw.raises(INVALID, "identities.update_identity", identity=identity_id, ratelimits=[shared, shared]))

    async def unchanged():
        await kw.raises(NO_IDENTITY, "identities.get_identity", identity=kw.fresh("bad"))
        equal(await get(identity_id), stored)
    await kw.check(f"{section}: the refused calls make and change nothing", unchanged)

    things = [await get(await make(kw.fresh("identity-list.a"), meta=meta, ratelimits=[shared]))]
    things += [await get(await make(kw.fresh(f"identity-list.{letter}"))) for letter in "bcde"]
    await kw.check_list(section, "identities.list_identities", kw.fresh("identity-list"), things)

    async def deleted():
        response = await kw.respond("identities.delete_identity", identity=external_id)
        equal(response.model_fields_set, {"meta"})
        seen(response.meta.request_id)
        for made in keys:
            await kw.verifies_everywhere(made["key"], {"code": "VALID", "identity": None, "ratelimits": None})
            assert "identity" not in await kw.get_key(made["keyId"])
    await kw.check(f"{section}: delete_identity answers with meta only, and its keys go on without it", deleted)
    # The errors of this operation alone are application/problem+json: else the client would not know them.
    for operation, kind, fields in (("get_identity", tuple, {}), ("update_identity", tuple, {"meta": {}}), ("delete_identity", problem, {})):
        for title, named in (("its id", identity_id), ("its externalId", external_id), ("an unknown id", "id_doesnotexist0000")):
            await kw.check(f"{section}: {operation} of {title} is 404 then", lambda: kw.raises(kind(NO_IDENTITY), f"identities.{operation}", identity=named, **fields))
        for wrong, bound in (("", "minLength"), ("i" * 256, "maxLength")):
            await kw.check(f"{section}: {operation} refuses a name of {len(wrong)}",
                           lambda: kw.rejects(f"/properties/identity/{bound}", f"identities.{operation}", kind=kind(INVALID), identity=wrong))

    async def again():
        other = await make(external_id)
        assert other != identity_id
        await kw.verifies_everywhere(keys[0]["key"], {"code": "VALID", "identity": None})
    await kw.check(f"{section}: its externalId makes another identity, which is not that of the old keys", again)
