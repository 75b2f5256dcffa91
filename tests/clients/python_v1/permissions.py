from python_v1.support import BAD_REQUEST, CONFLICT, equal, matches, NOT_FOUND


async def permissions(kw, section):
    name = kw.fresh("docs.read")
    permission_id = (await kw.call("permissions.create", name=name, description="all of it"))["permissionId"]
    plain = await kw.call("permissions.create", name=kw.fresh("plain"))

    async def created():
        equal(list(plain), ["permissionId"])
        matches(permission_id, r"perm_[A-Za-z0-9]{16,}")
        told = {"id": permission_id, "name": name, "description": "all of it"}
        least = {"id": plain["permissionId"], "name": kw.fresh("plain")}
        equal(await kw.call("permissions.get", permission_id=permission_id), told)
        equal(await kw.call("permissions.get", permission_id=plain["permissionId"]), least)
        listed = await kw.call("permissions.list")
        equal([one for one in listed if one["id"] in (permission_id, plain["permissionId"]) and one not in (told, least)], [])
        equal(sum(one in (told, least) for one in listed), 2)
    await kw.check(f"{section}: create, get and list", created)

    async def refused():
        await kw.raises(CONFLICT, "permissions.create", name, name=name)
        for wrong in ("docs read", "docs.*", "ab"):
            await kw.raises(BAD_REQUEST, "permissions.create", name=wrong)
    await kw.check(f"{section}: a name is taken once, and has neither blanks nor stars", refused)

    async def deleted():
        made = await kw.create_key(permissions=[name])
        asked = {"authorization": {"permissions": name}}
        equal(await kw.code(made["key"], **asked), "VALID")
        equal(await kw.call("permissions.delete", permission_id=permission_id), {})
        await kw.verifies_everywhere(made["key"], {"code": "INSUFFICIENT_PERMISSIONS", "permissions": []}, **asked)
        await kw.raises(NOT_FOUND, "permissions.get", permission_id, permission_id=permission_id)
        await kw.raises(NOT_FOUND, "permissions.delete", permission_id, permission_id=permission_id)
    await kw.check(f"{section}: delete takes it from its keys", deleted)


async def roles(kw, section):
    name = f"{kw.fresh('editor')} ü *"
    role_id = (await kw.call("permissions.create_role", name=name, description="all of it"))["roleId"]
    plain = await kw.call("permissions.create_role", name=kw.fresh("plain"), description="")

    async def created():
        equal(list(plain), ["roleId"])
        matches(role_id, r"role_[A-Za-z0-9]{16,}")
        told, least = {"id": role_id, "name": name, "description": "all of it"}, {"id": plain["roleId"], "name": kw.fresh("plain")}
        equal(await kw.call("permissions.get_role", role_id=role_id), told)
        equal(await kw.call("permissions.get_role", role_id=plain["roleId"]), least)
        equal(sum(one in (told, least) for one in await kw.call("permissions.list_roles")), 2)
        await kw.raises(CONFLICT, "permissions.create_role", name, name=name)
    await kw.check(f"{section}: create, get and list, and a name is taken once", created)

    async def deleted():
        made = await kw.create_key(roles=[name])
        equal((await kw.verify(made["key"]))["roles"], [name])
        equal(await kw.call("permissions.delete_role", role_id=role_id), {})
        await kw.verifies_everywhere(made["key"], {"code": "VALID", "roles": []})
        await kw.raises(NOT_FOUND, "permissions.get_role", role_id, role_id=role_id)
        await kw.raises(NOT_FOUND, "permissions.delete_role", role_id, role_id=role_id)
    await kw.check(f"{section}: delete takes it from its keys", deleted)
