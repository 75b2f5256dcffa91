from python.support import equal, NOT_FOUND, QUERY, ROOT_KEY


async def verifying(kw, section):
    async def unknown():
        equal(await kw.verify("nobody_knows_this"), NOT_FOUND)
        equal(await kw.verify(ROOT_KEY), NOT_FOUND)
        equal(await kw.verify("🔑" * 512), NOT_FOUND)
    await kw.check(f"{section}: an unknown key is NOT_FOUND, with nothing else told", unknown)
    await kw.check(f"{section}: an empty key is 400", lambda: kw.rejects("/properties/key/minLength", "keys.verify_key", key=""))
    await kw.check(f"{section}: a key of 513 is 400", lambda: kw.rejects("/properties/key/maxLength", "keys.verify_key", key="k" * 513))

    async def disabled():
        made = await kw.create_key(name="off", enabled=False, expires=1, meta={"a": 1}, credits={"remaining": 0})
        equal(await kw.verify(made["key"]), {"valid": False, "code": "DISABLED", "keyId": made["keyId"], "enabled": False,
                                               "name": "off", "expires": 1, "meta": {"a": 1}, "credits": 0})
    await kw.check(f"{section}: DISABLED tells the key, and comes before EXPIRED", disabled)

    async def expired():
        made = await kw.create_key(expires=1)
        equal(await kw.verify(made["key"], permissions=kw.fresh("none")),
              {"valid": False, "code": "EXPIRED", "keyId": made["keyId"], "enabled": True, "expires": 1})
    await kw.check(f"{section}: EXPIRED tells the key, and comes before the permissions", expired)

    async def tagged():
        made = await kw.create_key()
        tags = [f"{i}={'é' * 512}"[:512] for i in range(20)]
        equal(await kw.verify(made["key"], tags=tags), {"valid": True, "code": "VALID", "keyId": made["keyId"], "enabled": True})
        await kw.rejects("/properties/tags/maxItems", "keys.verify_key", key=made["key"], tags=[*tags, "one more"])
        await kw.rejects("/properties/tags/items/maxLength", "keys.verify_key", key=made["key"], tags=["t" * 513])
    await kw.check(f"{section}: 20 tags of 512 do not change the outcome", tagged)

    async def migrating():
        made = await kw.create_key()
        equal(await kw.code(made["key"], migration_id="mig_unknown"), "VALID")
        equal(await kw.verify("seam_short_long", migration_id="mig_unknown"), NOT_FOUND)
    await kw.check(f"{section}: a migrationId does not matter to a key that is known", migrating)


async def expressions(kw, section):
    a, b, c, d, star, role = map(kw.fresh, ("a", "b", "c", "d", "x.*", "expressions"))
    for slug in (a, b, star):
        await kw.call("permissions.create_permission", name=slug, slug=slug)
    await kw.call("permissions.create_role", name=role, permissions=[c])
    made = await kw.create_key(permissions=[a, b, star], roles=[role], credits={"remaining": 1000})
    key = made["key"]
    spent = 0
    for query, holds in (
        (a, True), (c, True), (d, False), (f"{a} AND {b}", True), (f"{a} AND {d}", False), (f"{d} OR {a}", True),
        (f"{a} AND ({d} OR {c})", True), (f"({a} AND {d}) OR {c}", True), (f"{d} AND ({a} OR {b})", False),
        # These two tell whether AND binds tighter than OR.
        (f"{b} OR {a} AND {d}", True), (f"({b} OR {a}) AND {d}", False),
        (f"{d} and {a} or {b}", True), (a.upper(), False), (star, True), (kw.fresh("x.read"), False),
    ):
        async def body():
            equal(await kw.code(key, permissions=query), "VALID" if holds else "INSUFFICIENT_PERMISSIONS")
        await kw.check(f"{section}: {query.replace(kw.run + '.', '')!r} is {'VALID' if holds else 'INSUFFICIENT_PERMISSIONS'}", body)
        spent += holds

    async def insufficient():
        equal(await kw.verify(key, permissions=d), {
            "valid": False, "code": "INSUFFICIENT_PERMISSIONS", "keyId": made["keyId"], "enabled": True,
            "permissions": sorted([a, b, c, star]), "roles": [role], "credits": 1000 - spent})
    await kw.check(f"{section}: INSUFFICIENT_PERMISSIONS tells the key and spends nothing", insufficient)
    for query in (" ", f"{a} AND", f"OR {a}", f"({a}", f"{a})", "()", f"{a} {b}", f"{a} & {b}", "é"):
        async def body():
            equal((await kw.raises(QUERY, "keys.verify_key", key=key, permissions=query))["errors"], [])
        await kw.check(f"{section}: {query.replace(kw.run + '.', '')!r} is a syntax error", body)
    await kw.check(f"{section}: an expression of 1001 is 400", lambda: kw.rejects("/properties/permissions/maxLength", "keys.verify_key", key=key, permissions="p" * 1001))
