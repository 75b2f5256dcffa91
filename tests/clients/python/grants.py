"""Root keys whose permissions name one instance: `api.<id>.create_key` and not `api.*.create_key`."""

from python.support import (
    client_for, equal, FORBIDDEN, keyward, LONG, NO_API, NO_IDENTITY, NO_KEY, NO_NAMESPACE, NO_OVERRIDE, NOT_FOUND, problem, seen,
)


def grants_on(kind, instance, *actions):
    return client_for(*(f"{kind}.{instance}.{action}" for action in actions))


async def granted_apis(kw, section):
    own, other = [(await kw.call("apis.create_api", name=kw.fresh(name)))["apiId"] for name in ("own", "other")]
    sdk = grants_on("api", own, "read_api", "delete_api", "create_key", "read_key", "update_key", "delete_key", "verify_key")
    migration_id = keyward("migration", "create", "--algorithm", "sha256")["migrationId"]
    foreign = await kw.create_key(api_id=other)
    made = await kw.create_key(sdk=sdk, api_id=own)

    async def its_keys():
        equal((await kw.verify(made["key"], sdk=sdk))["code"], "VALID")
        equal((await kw.call("keys.whoami", sdk=sdk, key=made["key"]))["keyId"], made["keyId"])
        equal([key["keyId"] for key in (await kw.pages("apis.list_keys", sdk=sdk, api_id=own))[1]], [made["keyId"]])
    await kw.check(f"{section}: createKey, verifyKey, whoami and listKeys of that API", its_keys)

    def operations(api_id, key_id):
        return (
            ("apis.get_api", "read_api", {"api_id": api_id}), ("keys.get_key", "read_key", {"key_id": key_id}),
            ("keys.update_key", "update_key", {"key_id": key_id, "name": "renamed"}), ("keys.set_roles", "update_key", {"key_id": key_id, "roles": []}),
            ("keys.update_credits", "update_key", {"key_id": key_id, "operation": "set", "value": 9}),
            ("keys.reroll_key", "create_key", {"key_id": key_id, "expiration": 3_600_000}),
            ("keys.migrate_keys", "create_key", {"migration_id": migration_id, "api_id": api_id, "keys": [{"hash": kw.fresh(api_id)}]}),
            ("keys.delete_key", "delete_key", {"key_id": key_id}), ("apis.delete_api", "delete_api", {"api_id": api_id}),
        )

    for operation, action, fields in operations(other, foreign["keyId"]):
        permissions = [f"api.{instance}.{action}" for instance in ("*", other)]
        await kw.check(f"{section}: {operation} of another API is 403", lambda: kw.lacks(operation, *permissions, sdk=sdk, **fields))

    async def hidden():
        await kw.raises(NO_API, "keys.create_key", sdk=sdk, api_id=other)
        await kw.raises(NO_API, "apis.list_keys", sdk=sdk, api_id=other)
        await kw.raises(NO_KEY, "keys.whoami", sdk=sdk, key=foreign["key"])
        equal(await kw.verify(foreign["key"], sdk=sdk), NOT_FOUND)
        await kw.lacks("apis.create_api", "api.*.create_api", sdk=sdk, name="third")
        equal(await kw.verify(foreign["key"]), {"valid": True, "code": "VALID", "keyId": foreign["keyId"], "enabled": True})
        equal(len((await kw.pages("apis.list_keys", api_id=other))[1]), 1)
    await kw.check(f"{section}: the rest of another API is hidden, and nothing has happened to it", hidden)

    for operation, _, fields in operations(own, made["keyId"]):
        await kw.check(f"{section}: {operation} of that API", lambda: kw.call(operation, sdk=sdk, **fields))


async def granted_identities(kw, section):
    own, other = [
        {"externalId": kw.fresh(name), "id": (await kw.call("identities.create_identity", external_id=kw.fresh(name)))["identityId"]}
        for name in ("own-identity", "other-identity")
    ]
    sdk = grants_on("identity", own["id"], "read_identity", "update_identity", "delete_identity")

    async def read():
        for identity in own.values():
            equal(await kw.call("identities.get_identity", sdk=sdk, identity=identity), own)
        equal(await kw.pages("identities.list_identities", sdk=sdk, search=kw.fresh("")), ([1], [own]))
        await kw.lacks("identities.get_identity", "identity.*.read_identity", f"identity.{other['id']}.read_identity", sdk=sdk, identity=other["id"])
    await kw.check(f"{section}: getIdentity of that one, not of another, and listIdentities has it alone", read)

    # These do not tell which others there are.
    async def refused():
        await kw.lacks("identities.create_identity", "identity.*.create_identity", sdk=sdk, external_id=kw.fresh("third"))
        for identity in (*other.values(), kw.fresh("nobody")):
            await kw.lacks("identities.update_identity", "identity.*.update_identity", sdk=sdk, identity=identity, meta={"a": 1})
            await kw.lacks("identities.delete_identity", "identity.*.delete_identity", kind=problem(FORBIDDEN), sdk=sdk, identity=identity)
        equal(await kw.call("identities.get_identity", identity=other["id"]), other)
    await kw.check(f"{section}: createIdentity, and updateIdentity and deleteIdentity of another, are 403", refused)

    async def changed():
        equal(await kw.call("identities.update_identity", sdk=sdk, identity=own["externalId"], meta={"a": 1}), {**own, "meta": {"a": 1}})
        seen((await kw.respond("identities.delete_identity", sdk=sdk, identity=own["id"])).meta.request_id)
        await kw.raises(NO_IDENTITY, "identities.get_identity", identity=own["id"])
    await kw.check(f"{section}: updateIdentity and deleteIdentity of that one", changed)


async def granted_namespaces(kw, section):
    own, other, third = map(kw.fresh, ("own-namespace", "other-namespace", "third-namespace"))
    for namespace in (own, other):
        await kw.call("ratelimit.limit", namespace=namespace, identifier="a", limit=10, duration=LONG)
    ids = {one["name"]: one["namespaceId"] for one in keyward("namespace", "list")}
    sdk = grants_on("ratelimit", ids[own], "limit", "set_override", "read_override", "delete_override")

    def limit(namespace, **more):
        return {"namespace": namespace, "identifier": "a", "limit": 10, "duration": LONG, **more}

    async def lacks_on_other(action, operation, **fields):
        await kw.lacks(operation, f"ratelimit.*.{action}", f"ratelimit.{ids[other]}.{action}", sdk=sdk, **fields)

    async def limits():
        for namespace, remaining in ((own, 8), (ids[own], 7)):
            equal((await kw.call("ratelimit.limit", sdk=sdk, **limit(namespace)))["remaining"], remaining)
        await lacks_on_other("limit", "ratelimit.limit", **limit(other))
        await lacks_on_other("limit", "ratelimit.multi_limit", request=[limit(own), limit(other)])
        for namespace, remaining in ((own, 7), (other, 9)):
            equal((await kw.call("ratelimit.limit", **limit(namespace, cost=0)))["remaining"], remaining)
    await kw.check(f"{section}: limit in that one; in another it is 403, and counts nothing", limits)

    async def missing():
        await kw.lacks("ratelimit.limit", "ratelimit.*.create_namespace", sdk=sdk, **limit(third))
        await kw.raises(NO_NAMESPACE, "ratelimit.list_overrides", namespace=third)
    await kw.check(f"{section}: a namespace that is not there is 403, and is not made", missing)

    async def overrides():
        of_own, of_other = ({"namespace": namespace, "identifier": "vip"} for namespace in (own, other))
        made = await kw.call("ratelimit.set_override", sdk=sdk, **limit(own, identifier="vip"))
        await kw.call("ratelimit.set_override", **limit(other, identifier="vip"))
        await kw.seen_by_all()
        equal((await kw.call("ratelimit.get_override", sdk=sdk, **of_own))["overrideId"], made["overrideId"])
        equal(len((await kw.pages("ratelimit.list_overrides", sdk=sdk, namespace=own))[1]), 1)
        await kw.call("ratelimit.delete_override", sdk=sdk, **of_own)
        await lacks_on_other("set_override", "ratelimit.set_override", **limit(other, identifier="vip"))
        await lacks_on_other("read_override", "ratelimit.list_overrides", namespace=other)
        await lacks_on_other("delete_override", "ratelimit.delete_override", **of_other)
        await kw.raises(NO_OVERRIDE, "ratelimit.get_override", sdk=sdk, **of_other)
        equal((await kw.call("ratelimit.get_override", **of_other))["limit"], 10)
    await kw.check(f"{section}: overrides of that one; of another they are 403, or hidden", overrides)
