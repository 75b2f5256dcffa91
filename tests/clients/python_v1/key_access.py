from python_v1.support import BAD_REQUEST, client_for, equal, FORBIDDEN, NOT_FOUND


async def key_permissions(kw, section):
    await access(kw, section, "permission", "permissions.create", "permissionId")


async def key_roles(kw, section):
    await access(kw, section, "role", "permissions.create_role", "roleId")


async def access(kw, section, one, create, made_id):
    """Permissions and roles behave alike: what differs is what they are called."""
    many = f"{one}s"
    key_id = (await kw.create_key())["keyId"]
    a, b, c, d = (kw.fresh(f"{many}.{name}") for name in "abcd")
    ids = {name: (await kw.call(create, name=name))[made_id] for name in (a, b, c)}

    async def ask(verb, *items, sdk=None):
        answer = await kw.call(f"keys.{verb}_{many}", sdk=sdk, key_id=key_id, **{many: list(items)})
        return sorted(answer, key=lambda thing: thing["name"]) if isinstance(answer, list) else answer

    def connected(*names):
        return [{"id": ids[name], "name": name} for name in names]

    async def has(*names):
        equal((await kw.get_key(key_id))[many], list(names))

    async def added():
        equal(await ask("add", {"id": ids[a]}, {"name": b}), connected(a, b))
        [made] = await ask("add", {"name": d, "create": True})
        ids[d] = made["id"]
        equal(made, {"id": ids[d], "name": d})
        await has(a, b, d)
    await kw.check(f"{section}: add by id and by name, and what is to be made", added)

    async def removed():
        equal(await ask("remove", {"name": a}, {"id": ids[d]}, {"name": kw.fresh("nowhere")}, {"id": "nowhere"}), {})
        await has(b)
    await kw.check(f"{section}: remove takes each that is named, and passes over what is not there", removed)

    async def replaced():
        equal(await ask("set", {"id": ids[a]}, {"name": c}), connected(a, c))
        await has(a, c)
    await kw.check(f"{section}: set replaces all of them", replaced)

    async def refused():
        nowhere = kw.fresh("nowhere")
        for verb in ("add", "set"):
            operation = f"keys.{verb}_{many}"
            await kw.raises(NOT_FOUND, operation, nowhere, key_id=key_id, **{many: [{"name": b}, {"name": nowhere}]})
            await kw.raises(NOT_FOUND, operation, "nowhere", key_id=key_id, **{many: [{"name": b}, {"id": "nowhere"}]})
            await kw.raises(NOT_FOUND, operation, key_id="key_doesnotexist0000", **{many: [{"name": b}]})
        for verb in ("add", "set", "remove"):
            await kw.raises(BAD_REQUEST, f"keys.{verb}_{many}", key_id=key_id, **{many: [{}]})
            await kw.raises(BAD_REQUEST, f"keys.{verb}_{many}", key_id=key_id, **{many: []})
        await has(a, c)
    await kw.check(f"{section}: what does not exist or names nothing changes nothing", refused)

    async def lacking():
        adder = client_for(f"rbac.*.add_{one}_to_key")
        remove = f"rbac.*.remove_{one}_from_key"
        await kw.raises(FORBIDDEN, f"keys.remove_{many}", remove, sdk=adder, key_id=key_id, **{many: [{"name": a}]})
        await kw.raises(FORBIDDEN, f"keys.set_{many}", remove, sdk=adder, key_id=key_id, **{many: [{"name": b}]})
        new = [{"name": kw.fresh("new"), "create": True}]
        await kw.raises(FORBIDDEN, f"keys.add_{many}", f"rbac.*.create_{one}", sdk=adder, key_id=key_id, **{many: new})
        equal(await ask("add", {"name": b}, sdk=adder), connected(b))
        await has(a, b, c)
    await kw.check(f"{section}: who may add may not take, nor make", lacking)
