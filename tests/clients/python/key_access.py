"""The permissions and roles that a key has of itself, added, removed and set, each proven by what verify_key then says."""

from python.support import ATTACHER, equal, FORBIDDEN, NO_KEY, NO_PERMISSION, NO_ROLE, WEAK


async def key_permissions(kw, section):
    async def make(slug):
        await kw.call("permissions.create_permission", name=f"Name of {slug}", slug=slug, description="What it is for.")
        return await kw.call("permissions.get_permission", permission=slug)
    await changing(kw, section, "permissions", make, {"remove": NO_PERMISSION}, 1000, "a b", "pattern")

    for verb in ("add", "set"):
        async def made():
            key_id, slug = (await kw.create_key())["keyId"], kw.fresh(f"made-by-{verb}")
            [made] = await kw.call(f"keys.{verb}_permissions", key_id=key_id, permissions=[slug])
            equal(made, {"id": made["id"], "name": slug, "slug": slug})
            equal(await kw.call("permissions.get_permission", permission=slug), made)
        await kw.check(f"{section}: {verb}_permissions makes what is missing for one who may", made)

        async def not_made():
            key_id, slug = (await kw.create_key())["keyId"], kw.fresh("never-made")
            detail = (await kw.raises(FORBIDDEN, f"keys.{verb}_permissions", sdk=ATTACHER, key_id=key_id, permissions=[slug]))["detail"]
            assert "rbac.*.create_permission" in detail, detail
            assert "permissions" not in await kw.get_key(key_id)
            await kw.raises(NO_PERMISSION, "permissions.get_permission", permission=slug)
        await kw.check(f"{section}: {verb}_permissions of a missing one is 403 for one who may not make it", not_made)


async def key_roles(kw, section):
    async def make(name):
        await kw.call("permissions.create_role", name=name, description="What it is for.", permissions=[f"{name}.b", f"{name}.a"])
        return await kw.call("permissions.get_role", role=name)
    await changing(kw, section, "roles", make, dict.fromkeys(("add", "remove", "set"), NO_ROLE), 100, "", "minLength")


async def changing(kw, section, what, make, unknown, maximum, wrong, bound):
    a, b, c, d = names = [kw.fresh(f"{what}-{letter}") for letter in "abcd"]
    known = {name: await make(name) for name in names}
    made = await kw.create_key(**{what: [b]})
    key, key_id = made["key"], made["keyId"]

    def request(names, **more):
        return {"key_id": key_id, what: names, **more}

    for verb, title, sent, has in (
        ("add", "tells all, those from before first", [c, a, a], [b, a, c]),
        ("add", "passes over what the key has", [b], [a, b, c]),
        ("remove", "tells what is left", [a, a], [b, c]),
        ("remove", "passes over what the key does not have", [d], [b, c]),
        ("set", "replaces all", [d, a, d], [a, d]),
        ("set", "again changes nothing", [a, d], [a, d]),
        ("set", "to none takes all", [], []),
        ("add", "gives to a key that has none", [c], [c]),
        ("remove", "takes the last one", [c], []),
    ):
        async def changed():
            equal(await kw.call(f"keys.{verb}_{what}", **request(sent)), [known[name] for name in has])
            await kw.verifies_everywhere(key, {"valid": True, "code": "VALID", "keyId": key_id, what: sorted(has) or None})
            equal((await kw.get_key(key_id)).get(what, []), sorted(has))
        await kw.check(f"{section}: {verb}_{what} {title}", changed)

    for verb in ("add", "remove", "set"):
        operation = f"keys.{verb}_{what}"
        for title, fields, location in (
            ("a short key id", request([a], key_id="ke"), "/properties/keyId/minLength"),
            ("an ill-formed key id", request([a], key_id="key-1"), "/properties/keyId/pattern"),
            (f"{wrong!r}", request([wrong]), f"/properties/{what}/items/{bound}"),
            ("a name of 129", request(["n" * 129]), f"/properties/{what}/items/maxLength"),
            (f"{maximum + 1}", request([f"n{i}" for i in range(maximum + 1)]), f"/properties/{what}/maxItems"),
            *([("none", request([]), f"/properties/{what}/minItems")] if verb != "set" else []),
        ):
            await kw.check(f"{section}: {verb}_{what} refuses {title}", lambda: kw.rejects(location, operation, **fields))
        for title, sdk in (("is 404", None), ("is 404 before it is 403", WEAK)):
            await kw.check(f"{section}: {verb}_{what} of an unknown key {title}",
                           lambda: kw.raises(NO_KEY, operation, sdk=sdk, **request([a], key_id="key_doesnotexist0000")))
        if verb in unknown:
            async def missing():
                missing = [kw.fresh("no-1"), kw.fresh("no-2")]
                detail = (await kw.raises(unknown[verb], operation, **request([b, *missing])))["detail"]
                assert all(name in detail for name in missing), detail
                assert what not in await kw.get_key(key_id)
            await kw.check(f"{section}: {verb}_{what} of an unknown name is 404, names all of them and changes nothing", missing)

        async def attached():
            equal(await kw.call(operation, sdk=ATTACHER, **request([a])), [] if verb == "remove" else [known[a]])
            await kw.call(f"keys.set_{what}", **request([]))
        await kw.check(f"{section}: {verb}_{what} of what is there is open to one who may not make it", attached)


async def through_a_role(kw, section):
    slug, name = kw.fresh("both"), kw.fresh("both-role")
    await kw.call("permissions.create_role", name=name, permissions=[slug])
    made = await kw.create_key(roles=[name], permissions=[slug])

    async def removed():
        for operation, fields, code, left in (
            ("keys.remove_permissions", {"permissions": [slug]}, "VALID", [slug]),
            ("keys.remove_roles", {"roles": [name]}, "INSUFFICIENT_PERMISSIONS", None),
        ):
            equal(await kw.call(operation, key_id=made["keyId"], **fields), [])
            await kw.verifies_everywhere(made["key"], {"code": code, "permissions": left}, permissions=slug)
    await kw.check(f"{section}: what a role gives stays as long as the role", removed)
