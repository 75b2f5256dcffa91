from python.support import (
    ATTACHER, equal, FORBIDDEN, matches, NO_PERMISSION, NO_ROLE, NO_ROLE_TO_DELETE, PERMISSION_EXISTS, ROLE_EXISTS,
)


async def permissions(kw, section):
    slug, role = kw.fresh("docs.read"), kw.fresh("editor")

    async def permission():
        made = await kw.call("permissions.create_permission", name="Read", slug=slug, description="Reads documents.")
        equal(sorted(made), ["permissionId"])
        matches(made["permissionId"], r"perm_[A-Za-z0-9]{16,}")
        await kw.call("permissions.create_permission", name="Read", slug=kw.fresh("docs.read2"))
    await kw.check(f"{section}: createPermission", permission)
    await kw.check(f"{section}: the same slug again is 409", lambda: kw.raises(PERMISSION_EXISTS, "permissions.create_permission", name="Other", slug=slug))
    for title, fields, location in (
        ("an empty name", {"name": "", "slug": kw.fresh("p1")}, "/properties/name/minLength"),
        ("a slug of 129", {"name": "p", "slug": "s" * 129}, "/properties/slug/maxLength"),
        ("a slug with a blank", {"name": "p", "slug": "a b"}, "/properties/slug/pattern"),
        ("a description of 513", {"name": "p", "slug": kw.fresh("p1"), "description": "d" * 513}, "/properties/description/maxLength"),
    ):
        await kw.check(f"{section}: createPermission refuses {title}", lambda: kw.rejects(location, "permissions.create_permission", **fields))

    async def created_role():
        made = await kw.call("permissions.create_role", name=role, description="Edits.", permissions=[slug, kw.fresh("docs.write"), slug])
        equal(sorted(made), ["roleId"])
        matches(made["roleId"], r"role_[A-Za-z0-9]{16,}")
        await kw.raises(PERMISSION_EXISTS, "permissions.create_permission", name="w", slug=kw.fresh("docs.write"))
        await kw.call("permissions.create_role", name=kw.fresh("bare"))
    await kw.check(f"{section}: createRole creates the slugs that are missing", created_role)

    async def same_role():
        await kw.raises(ROLE_EXISTS, "permissions.create_role", name=role, permissions=[kw.fresh("docs.never")])
        await kw.call("permissions.create_permission", name="n", slug=kw.fresh("docs.never"))
    await kw.check(f"{section}: the same role name again is 409, and creates nothing", same_role)
    await kw.check(f"{section}: createRole refuses a name of 129", lambda: kw.rejects("/properties/name/maxLength", "permissions.create_role", name="r" * 129))


async def permissions_listed(kw, section):
    async def make(slug, **more):
        made = await kw.call("permissions.create_permission", name=slug, slug=slug, **more)
        return {"id": made["permissionId"], "name": slug, "slug": slug, **more}
    await listed(kw, section, "permission", make, lambda thing: thing["slug"], NO_PERMISSION)


async def roles_listed(kw, section):
    async def make(name, **more):
        made = await kw.call("permissions.create_role", name=name, permissions=[f"{name}.p"], **more)
        has = await kw.call("permissions.get_permission", permission=f"{name}.p")
        return {"id": made["roleId"], "name": name, **more, "permissions": [has]}
    await listed(kw, section, "role", make, lambda thing: thing["permissions"][0]["slug"], NO_ROLE_TO_DELETE)


async def listed(kw, section, kind, make, slug_of, missing_to_delete):
    """What permissions and roles have in common: each is named by its id or by what the caller calls it."""
    missing = NO_PERMISSION if kind == "permission" else NO_ROLE
    names = [kw.fresh(f"{kind}-list.{letter}") for letter in "abcde"]
    things = [await make(names[0], description="What it is for."), *[await make(name) for name in names[1:]]]

    async def found():
        for thing, name in zip(things[:2], names):
            for named in (thing["id"], name):
                equal(await kw.call(f"permissions.get_{kind}", **{kind: named}), thing)
        await kw.raises(missing, f"permissions.get_{kind}", **{kind: names[0].upper()})
    await kw.check(f"{section}: get_{kind} finds it by id and by its very name, with every field", found)
    await kw.check_list(section, f"permissions.list_{kind}s", kw.fresh(f"{kind}-list"), things)

    made = await kw.create_key(**{f"{kind}s": names})

    async def deleted():
        for named in (things[0]["id"], names[1]):
            equal(await kw.call(f"permissions.delete_{kind}", **{kind: named}), {})
        await kw.verifies_everywhere(made["key"], {"code": "VALID", f"{kind}s": names[2:]})
        equal(await kw.code(made["key"], permissions=slug_of(things[0])), "INSUFFICIENT_PERMISSIONS")
        equal(await kw.code(made["key"], permissions=slug_of(things[2])), "VALID")
    await kw.check(f"{section}: delete_{kind} by id and by name takes it from a key", deleted)
    for verb, error in (("get", missing), ("delete", missing_to_delete)):
        for title, named in (("a deleted id", things[0]["id"]), ("a deleted name", names[1]), ("an unknown id", "some_doesnotexist0000")):
            await kw.check(f"{section}: {verb}_{kind} of {title} is 404", lambda: kw.raises(error, f"permissions.{verb}_{kind}", **{kind: named}))
        for named, bound in (("", "minLength"), ("n" * 129, "maxLength")):
            await kw.check(f"{section}: {verb}_{kind} refuses a name of {len(named)}",
                           lambda: kw.rejects(f"/properties/{kind}/{bound}", f"permissions.{verb}_{kind}", **{kind: named}))


async def role_permissions(kw, section):
    p1, p2, p3, name = map(kw.fresh, ("srp1", "srp2", "srp3", "srp"))
    role_id = (await kw.call("permissions.create_role", name=name, permissions=[p1]))["roleId"]
    made = await kw.create_key(roles=[name])

    def request(slugs, **more):
        return {"request": {"role_id": role_id, "permissions": slugs, **more}}

    for title, sent, slugs in (
        ("replaces them, sorted by slug and without doubles, and makes the missing ones", [p3, p2, p3], [p2, p3]),
        ("again changes nothing", [p2, p3], [p2, p3]),
        ("to none empties the role", [], []),
        ("fills it again", [p1], [p1]),
    ):
        async def set_and_look():
            answer = await kw.call("permissions.set_role_permissions", **request(sent))
            due = [await kw.call("permissions.get_permission", permission=slug) for slug in slugs]
            equal(answer, due)
            equal((await kw.call("permissions.get_role", role=role_id)).get("permissions", []), due)
            await kw.verifies_everywhere(made["key"], {"code": "VALID", "roles": [name], "permissions": slugs or None})
        await kw.check(f"{section}: {title}", set_and_look)

    async def not_allowed():
        detail = (await kw.raises(FORBIDDEN, "permissions.set_role_permissions", sdk=ATTACHER, **request([p2, kw.fresh("srp-new")])))["detail"]
        assert "rbac.*.create_permission" in detail, detail
        await kw.raises(NO_PERMISSION, "permissions.get_permission", permission=kw.fresh("srp-new"))
        equal((await kw.verify(made["key"]))["permissions"], [p1])
        equal(len(await kw.call("permissions.set_role_permissions", sdk=ATTACHER, **request([p1, p2]))), 2)
    await kw.check(f"{section}: a missing slug is 403 for one who may not make it, and changes nothing", not_allowed)
    await kw.check(f"{section}: an unknown role is 404", lambda: kw.raises(NO_ROLE, "permissions.set_role_permissions", **request([], role_id="role_doesnotexist0000")))
    for title, more, location in (
        ("a short id", {"role_id": "ro"}, "/properties/roleId/minLength"),
        ("an ill-formed id", {"role_id": "a.b.c"}, "/properties/roleId/pattern"),
        ("an ill-formed slug", {"permissions": ["a b"]}, "/properties/permissions/items/pattern"),
    ):
        await kw.check(f"{section}: refuses {title}", lambda: kw.rejects(location, "permissions.set_role_permissions", **request([], **more)))
