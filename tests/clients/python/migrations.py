"""Keys that were issued elsewhere: only their hashes come in."""

import asyncio
import secrets
from base64 import b64encode
from hashlib import sha256

from python.support import (
    BAD_REQUEST, checked, client, client_for, equal, INVALID, keyward, LONG, matches, NO_API, NO_MIGRATION, NOT_FOUND, now_ms, WEAK,
)


def hash_of(key):
    return b64encode(sha256(key.encode()).digest()).decode()


def migration(algorithm, *options):
    return keyward("migration", "create", "--algorithm", algorithm, *options)["migrationId"]


def other_workspace(kw):
    """Its id, and what may do everything in it."""
    workspace = keyward("workspace", "create", "--name", kw.fresh("elsewhere"))["workspaceId"]
    return workspace, client(keyward("root-key", "create", "--all", "--workspace", workspace)["key"])


async def migrating(kw, section):
    migration_id = migration("sha256", "--name", kw.fresh("provider"))
    workspace, stranger = other_workspace(kw)

    def batch(*keys, **more):
        return {"migration_id": migration_id, "api_id": kw.api_id, "keys": keys, **more}

    async def migrate(*keys, **more):
        answer = await kw.call("keys.migrate_keys", **batch(*keys, **more))
        return answer["migrated"], answer["failed"]

    key, slug, role = map(kw.fresh, ("issued-elsewhere", "taken-in", "newcomer"))
    await kw.check(f"{section}: a key is NOT_FOUND before it is taken in", lambda: not_found(kw, key))
    limit = {"name": "auto", "limit": 10, "duration": LONG}
    refill = {"interval": "monthly", "amount": 500}
    told = {"name": "from elsewhere", "meta": {"plan": "old", "list": [1, None]}, "expires": now_ms() + 3_600_000, "permissions": [slug], "roles": [role]}
    external_id = f"{kw.fresh('user')} ü"
    migrated, failed = await migrate({
        "hash": hash_of(key), "external_id": external_id, **told, "credits": {"remaining": 100, "refill": {**refill, "refill_day": 31}},
        "ratelimits": [{**limit, "auto_apply": True}],
    })
    key_id = migrated[0]["keyId"]
    stored = await kw.get_key(key_id)

    async def taken_in():
        matches(key_id, r"key_[A-Za-z0-9]{16,}")
        equal((migrated, failed), ([{"hash": hash_of(key), "keyId": key_id}], []))
        equal(stored, {
            "keyId": key_id, "start": "", "enabled": True, "createdAt": stored["createdAt"], **told,
            "credits": {"remaining": 100, "refill": {**refill, "refillDay": 31}}, "identity": {"id": stored["identity"]["id"], "externalId": external_id},
            "ratelimits": [{"id": stored["ratelimits"][0]["id"], **limit, "autoApply": True}],
        })
        equal(await kw.whoami(key), stored)
    await kw.check(f"{section}: a key is taken in with all that comes with it", taken_in)

    async def verified():
        await kw.verifies_everywhere(key, {
            "valid": True, "code": "VALID", "keyId": key_id, "enabled": True, **told, "credits": 99,
            "identity": stored["identity"], "ratelimits": [checked(stored["ratelimits"][0], 9)],
        }, permissions=slug)
    await kw.check(f"{section}: verifyKey knows the key that was issued elsewhere", verified)

    async def made():
        equal((await kw.call("permissions.get_permission", permission=slug))["slug"], slug)
        equal((await kw.call("permissions.get_role", role=role))["name"], role)
        equal((await kw.call("identities.get_identity", identity=external_id))["id"], stored["identity"]["id"])
        other, permission = kw.fresh("with-company"), kw.fresh("brought-along")
        await migrate({"hash": hash_of(other), "permissions": [permission]}, sdk=client_for(f"api.{kw.api_id}.create_key"))
        equal((await kw.whoami(other))["permissions"], [permission])
    await kw.check(f"{section}: permissions, roles and identities that did not exist have been made", made)

    async def least():
        plain, disabled, unlimited, in_hex = map(kw.fresh, ("plain", "disabled", "unlimited", "hex"))
        hashes = [*map(hash_of, (plain, disabled, unlimited)), sha256(in_hex.encode()).hexdigest()]
        migrated, failed = await migrate(
            {"hash": hashes[0]}, {"hash": hashes[1], "enabled": False}, {"hash": hashes[2], "credits": {"remaining": None}}, {"hash": hashes[3]})
        equal(([one["hash"] for one in migrated], failed), (hashes, []))
        for other, one in zip((plain, disabled, unlimited, in_hex), migrated):
            valid = other != disabled
            equal(await kw.verify(other), {"valid": valid, "code": "VALID" if valid else "DISABLED", "keyId": one["keyId"], "enabled": valid})
    await kw.check(f"{section}: a batch of a hash alone, a disabled key, an unlimited one, and a hash in hex", least)

    async def duplicates():
        known, deleted = await kw.create_key(), await kw.create_key()
        await kw.call("keys.delete_key", key_id=deleted["keyId"])
        theirs = await kw.create_key(sdk=stranger, api_id=(await kw.call("apis.create_api", sdk=stranger, name="theirs"))["apiId"])
        a, b = kw.fresh("batch-a"), kw.fresh("batch-b")
        sent = (known["key"], a, deleted["key"], b, a, theirs["key"], key)
        migrated, failed = await migrate(*({"hash": hash_of(one), "name": "again"} for one in sent))
        equal([one["hash"] for one in migrated], [hash_of(a), hash_of(b)])
        equal(failed, [hash_of(one) for one in (known["key"], deleted["key"], a, theirs["key"], key)])
        for one in (known["key"], a, b):
            equal(await kw.code(one), "VALID")
        for one in (deleted["key"], theirs["key"]):
            equal(await kw.verify(one), NOT_FOUND)
        equal((await kw.get_key(key_id))["name"], told["name"])
    await kw.check(f"{section}: hashes that are known anywhere, of a deleted key, or twice in the batch have failed; the others are taken in", duplicates)

    async def no_other():
        rerolled = await kw.call("keys.reroll_key", key_id=key_id, expiration=60_000)
        equal((await kw.verify(rerolled["key"]))["keyId"], rerolled["keyId"])
        await kw.call("keys.update_key", key_id=key_id, enabled=False)
        await kw.verifies_everywhere(key, {"code": "DISABLED"})
        await kw.call("keys.delete_key", key_id=key_id)
        await kw.verifies_everywhere(key, NOT_FOUND)
    await kw.check(f"{section}: a key that was taken in is re-rolled, changed and deleted as any other", no_other)

    one = {"hash": hash_of(kw.fresh("never"))}
    for title, kind, fields in (
        ("an unknown migration is 404", NO_MIGRATION, {"migration_id": "mig_doesnotexist0000"}),
        ("another workspace's migration is 404", NO_MIGRATION, {"migration_id": migration("sha256", "--workspace", workspace)}),
        ("an unknown API is 404", NO_API, {"api_id": "api_doesnotexist0000"}),
    ):
        await kw.check(f"{section}: {title}", lambda: kw.raises(kind, "keys.migrate_keys", **batch(one, **fields)))

    unknown = batch(one, api_id="api_doesnotexist0000", migration_id="mig_doesnotexist0000")
    await kw.check(f"{section}: without create_key it is 403 before anything is looked up",
                   lambda: kw.lacks("keys.migrate_keys", "api.*.create_key", sdk=WEAK, **unknown))

    items = "/properties/keys/items/properties"
    for title, fields, location in (
        ("a migrationId of 2", {"migration_id": "mi"}, "/properties/migrationId/minLength"),
        ("an apiId of 256", {"api_id": "a" * 256}, "/properties/apiId/maxLength"),
        ("a batch of none", {"keys": []}, "/properties/keys/minItems"),
        ("a hash of 2", {"keys": [{"hash": "ab"}]}, f"{items}/hash/minLength"),
        ("an empty externalId", {"keys": [{**one, "external_id": ""}]}, f"{items}/externalId/minLength"),
        ("a role of 129", {"keys": [{**one, "roles": ["r" * 129]}]}, f"{items}/roles/items/maxLength"),
    ):
        await kw.check(f"{section}: refuses {title}", lambda: kw.rejects(location, "keys.migrate_keys", **batch(one, **fields)))

    async def all_or_nothing():
        good = kw.fresh("good")
        bad = {"hash": hash_of(kw.fresh("bad")), "credits": {"remaining": 1, "refill": {"interval": "monthly", "amount": 1}}}
        await kw.raises(INVALID, "keys.migrate_keys", **batch({"hash": hash_of(good)}, bad))
        equal(await kw.verify(good), NOT_FOUND)
    await kw.check(f"{section}: one fault refuses the whole batch", all_or_nothing)


async def not_found(kw, key, **more):
    equal(await kw.verify(key, **more), NOT_FOUND)


async def prefixed(kw, section):
    migration_id = migration("prefixed-api-key")
    workspace, stranger = other_workspace(kw)
    # As the package prefixed-api-key makes them: prefix, short token and long token, of which it keeps the hash.
    tokens = [(secrets.token_hex(4), secrets.token_hex(12)) for _ in range(3)]
    shown, crowded, waiting = keys = [f"my_company_{short}_{long}" for short, long in tokens]
    taken = [{"hash": sha256(long.encode()).hexdigest(), "credits": {"remaining": 50}} for _, long in tokens]
    answer = await kw.call("keys.migrate_keys", migration_id=migration_id, api_id=kw.api_id, keys=taken)
    ids = dict(zip(keys, (one["keyId"] for one in answer["migrated"])))

    await kw.check(f"{section}: without a migrationId, a key that waits is NOT_FOUND", lambda: not_found(kw, shown))

    async def first():
        equal(await kw.verify(shown, migration_id=migration_id), {"valid": True, "code": "VALID", "keyId": ids[shown], "enabled": True, "credits": 49})
        await kw.verifies_everywhere(shown, {"code": "VALID", "keyId": ids[shown], "credits": 48})
        await kw.verifies_everywhere(shown, {"code": "VALID", "keyId": ids[shown], "credits": 47}, migration_id=migration_id)
        known = await kw.whoami(shown)
        equal((known["keyId"], known["start"]), (ids[shown], f"my_company_{tokens[0][0][:4]}"))
        await not_found(kw, tokens[0][1])
    await kw.check(f"{section}: a key that is shown with it is VALID, and from then on without it", first)

    async def at_once():
        shows = (kw.code(crowded, migration_id=migration_id) for _ in range(10))
        equal(await asyncio.gather(*shows), ["VALID"] * 10)
        await kw.verifies_everywhere(crowded, {"code": "VALID", "credits": 39})
    await kw.check(f"{section}: one that many show at once is VALID for all, and each is counted", at_once)

    async def elsewhere():
        for other in (migration("prefixed-api-key"), migration("sha256"), migration("prefixed-api-key", "--workspace", workspace), "mig_doesnotexist0000"):
            await not_found(kw, waiting, migration_id=other)
        await not_found(kw, f"{waiting}0", migration_id=migration_id)
        for sdk in (WEAK, stranger):
            await not_found(kw, waiting, sdk=sdk, migration_id=migration_id)
        equal((await kw.get_key(ids[waiting]))["start"], "")
        equal(await kw.code(waiting, migration_id=migration_id), "VALID")
    await kw.check(f"{section}: in another migration, with another secret or for who may not verify it, it is NOT_FOUND and waits on", elsewhere)
    await kw.check(f"{section}: a key of two parts is 400", lambda: kw.raises(BAD_REQUEST, "keys.verify_key", key="company_token", migration_id=migration_id))
