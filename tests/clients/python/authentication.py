import secrets

from python.support import (
    client, equal, FORBIDDEN, NO_API, NO_IDENTITY, NO_KEY, NO_OVERRIDE, NO_PERMISSION, NO_ROLE, NOT_FOUND, problem,
    ROOT_KEY, UNAUTHORIZED, WEAK,
)


def told(kind, operation):
    """The errors of one operation have another media type."""
    return problem(kind) if operation == "identities.delete_identity" else kind


async def authentication(kw, section):
    nobody, stranger = client(None), client("unkey_" + secrets.token_hex(12))
    # These bodies are invalid where they can be: an unauthenticated caller learns nothing about that.
    operations = {
        "apis.create_api": {"name": "x"}, "apis.get_api": {"api_id": "x"}, "apis.delete_api": {"api_id": "x"},
        "apis.list_keys": {"api_id": ""},
        "keys.create_key": {"api_id": "x"}, "keys.get_key": {"key_id": "x"}, "keys.update_key": {"key_id": "x"},
        "keys.delete_key": {"key_id": "x"}, "keys.whoami": {"key": ""}, "keys.verify_key": {"key": ""},
        "keys.update_credits": {"key_id": "x", "operation": "set"}, "keys.reroll_key": {"key_id": "x", "expiration": -1},
        "keys.migrate_keys": {"migration_id": "", "api_id": "", "keys": []},
        **{f"keys.{verb}_{what}": {"key_id": "x", what: [""]} for verb in ("add", "remove", "set") for what in ("permissions", "roles")},
        "permissions.create_permission": {"name": "", "slug": ""}, "permissions.get_permission": {"permission": ""},
        "permissions.list_permissions": {"limit": 0}, "permissions.delete_permission": {"permission": ""},
        "permissions.create_role": {"name": ""}, "permissions.get_role": {"role": ""}, "permissions.list_roles": {"limit": 0},
        "permissions.delete_role": {"role": ""}, "permissions.set_role_permissions": {"request": {"role_id": "", "permissions": []}},
        "identities.create_identity": {"external_id": ""}, "identities.get_identity": {"identity": ""},
        "identities.list_identities": {"limit": 0}, "identities.update_identity": {"identity": ""}, "identities.delete_identity": {"identity": ""},
        "ratelimit.limit": {"namespace": "", "identifier": "", "limit": 0, "duration": 0}, "ratelimit.multi_limit": {"request": []},
        "ratelimit.set_override": {"namespace": "", "identifier": "", "limit": 0, "duration": 0},
        "ratelimit.get_override": {"namespace": "", "identifier": ""}, "ratelimit.list_overrides": {"namespace": ""},
        "ratelimit.delete_override": {"namespace": "", "identifier": ""},
    }
    # An unknown key, a malformed header and a missing one have one type each, the same on every operation.
    types = {}

    async def unauthorized(kind, operation, /, **fields):
        detail = await kw.raises(told(UNAUTHORIZED, operation), operation, **fields)
        equal(detail["type"], types.setdefault(kind, detail["type"]))

    basic = {"Authorization": "Basic YTpi"}
    for operation, fields in operations.items():
        await kw.check(f"{section}: {operation} without a root key", lambda: unauthorized("missing", operation, sdk=nobody, **fields))
        await kw.check(f"{section}: {operation} with a malformed Authorization header", lambda: unauthorized("malformed", operation, http_headers=basic, **fields))
        await kw.check(f"{section}: {operation} with an unknown root key", lambda: unauthorized("unknown", operation, sdk=stranger, **fields))
    await kw.check(f"{section}: missing, malformed and unknown have distinct types", lambda: equal(len(set(types.values())), 3))

    lower_case = {"Authorization": f"bearer {ROOT_KEY}"}
    await kw.check(f"{section}: the scheme is case-sensitive", lambda: unauthorized("malformed", "apis.create_api", name=kw.fresh("x"), http_headers=lower_case))

    async def ordinary():
        made = await kw.create_key()
        await unauthorized("unknown", "apis.get_api", sdk=client(made["key"]), api_id=kw.api_id)
    await kw.check(f"{section}: an ordinary API key is no root key", ordinary)


async def authorization(kw, section):
    slug, role, external_id, namespace = map(kw.fresh, ("allowed", "allower", "somebody", "forbidden"))
    made = await kw.create_key()
    key, key_id = made["key"], made["keyId"]
    await kw.call("permissions.create_permission", name=slug, slug=slug)
    role_id = (await kw.call("permissions.create_role", name=role, permissions=[slug]))["roleId"]
    await kw.call("identities.create_identity", external_id=external_id)
    limit = {"namespace": namespace, "identifier": "a", "limit": 1, "duration": 1000}
    await kw.call("ratelimit.limit", **limit)

    # What each operation lacks with a root key that may only make APIs.
    for operation, fields, permission in (
        ("apis.get_api", {"api_id": kw.api_id}, "api.*.read_api"),
        ("apis.delete_api", {"api_id": kw.api_id}, "api.*.delete_api"),
        ("keys.get_key", {"key_id": key_id}, "api.*.read_key"),
        ("keys.update_key", {"key_id": key_id, "name": "x"}, "api.*.update_key"),
        ("keys.delete_key", {"key_id": key_id}, "api.*.delete_key"),
        ("keys.update_credits", {"key_id": key_id, "operation": "set", "value": 1}, "api.*.update_key"),
        ("keys.reroll_key", {"key_id": key_id, "expiration": 0}, "api.*.create_key"),
        *((f"keys.{verb}_permissions", {"key_id": key_id, "permissions": [slug]}, "api.*.update_key") for verb in ("add", "remove", "set")),
        *((f"keys.{verb}_roles", {"key_id": key_id, "roles": [role]}, "api.*.update_key") for verb in ("add", "remove", "set")),
        ("permissions.create_permission", {"name": "x", "slug": kw.fresh("x")}, "rbac.*.create_permission"),
        ("permissions.get_permission", {"permission": slug}, "rbac.*.read_permission"),
        ("permissions.list_permissions", {}, "rbac.*.read_permission"),
        ("permissions.delete_permission", {"permission": slug}, "rbac.*.delete_permission"),
        ("permissions.create_role", {"name": kw.fresh("x")}, "rbac.*.create_role"),
        ("permissions.get_role", {"role": role}, "rbac.*.read_role"),
        ("permissions.list_roles", {}, "rbac.*.read_role"),
        ("permissions.delete_role", {"role": role}, "rbac.*.delete_role"),
        ("permissions.set_role_permissions", {"request": {"role_id": role_id, "permissions": []}}, "rbac.*.add_permission_to_role"),
        ("identities.create_identity", {"external_id": kw.fresh("x")}, "identity.*.create_identity"),
        ("identities.get_identity", {"identity": external_id}, "identity.*.read_identity"),
        ("identities.list_identities", {}, "identity.*.read_identity"),
        ("identities.update_identity", {"identity": external_id, "meta": {}}, "identity.*.update_identity"),
        ("identities.delete_identity", {"identity": external_id}, "identity.*.delete_identity"),
        ("ratelimit.limit", limit, "ratelimit.*.limit"),
        ("ratelimit.multi_limit", {"request": [limit]}, "ratelimit.*.limit"),
        ("ratelimit.set_override", limit, "ratelimit.*.set_override"),
        ("ratelimit.list_overrides", {"namespace": namespace}, "ratelimit.*.read_override"),
        ("ratelimit.delete_override", {"namespace": namespace, "identifier": "a"}, "ratelimit.*.delete_override"),
    ):
        kind = told(FORBIDDEN, operation)
        await kw.check(f"{section}: {operation} needs {permission}", lambda: kw.lacks(operation, permission, kind=kind, sdk=WEAK, **fields))

    async def hidden():
        await kw.raises(NO_API, "keys.create_key", sdk=WEAK, api_id=kw.api_id)
        await kw.raises(NO_API, "apis.list_keys", sdk=WEAK, api_id=kw.api_id)
        await kw.raises(NO_KEY, "keys.whoami", sdk=WEAK, key=key)
        equal(await kw.call("keys.verify_key", sdk=WEAK, key=key), NOT_FOUND)
        await kw.call("ratelimit.set_override", **limit)
        await kw.raises(NO_OVERRIDE, "ratelimit.get_override", sdk=WEAK, namespace=namespace, identifier="a")
    await kw.check(f"{section}: some do not tell a stranger whether the thing is there", hidden)

    async def unchanged():
        equal(await kw.verify(key), {"valid": True, "code": "VALID", "keyId": key_id, "enabled": True})
        equal(len((await kw.call("permissions.get_role", role=role))["permissions"]), 1)
        equal((await kw.call("identities.get_identity", identity=external_id))["externalId"], external_id)
        await kw.raises(NO_PERMISSION, "permissions.get_permission", permission=kw.fresh("x"))
        await kw.raises(NO_ROLE, "permissions.get_role", role=kw.fresh("x"))
        await kw.raises(NO_IDENTITY, "identities.get_identity", identity=kw.fresh("x"))
    await kw.check(f"{section}: nothing of it has happened", unchanged)
