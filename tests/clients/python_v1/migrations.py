from base64 import b64encode
from hashlib import sha256

from python_v1.support import (
    BAD_REQUEST, client_for, CONFLICT, equal, FORBIDDEN, LONG, matches, NOT_FOUND, NOTHING, PRECONDITION, seen, set_api,
)


def hash_of(key):
    return {"value": b64encode(sha256(key.encode()).digest()).decode(), "variant": "sha256_base64"}


async def migrating(kw, section):
    slug, role, user = map(kw.fresh, ("migrated.read", "migrated", "migrated user"))
    await kw.call("permissions.create", name=slug)
    await kw.call("permissions.create_role", name=role)
    old, other, kept = map(kw.fresh, ("old", "other", "kept"))
    keeping = (await kw.call("apis.create", name=kw.fresh("keeping")))["apiId"]
    await set_api(keeping, "--recoverable-keys", "on")

    async def create(*keys, **more):
        return await kw.call("migrations.create_keys", request=[{"api_id": kw.api_id, **key} for key in keys], **more)

    async def taken_in():
        equal(await kw.verify(old), NOTHING)
        refill = {"interval": "monthly", "amount": 9, "refill_day": 15}
        told = {"name": "from elsewhere", "meta": {"plan": "old", "list": [1, None]}, "permissions": [slug], "roles": [role], "remaining": 9}
        key_ids = (await create(
            {"hash": hash_of(old), "start": "old_", "external_id": user, "environment": "test", "refill": refill,
             "ratelimit": {"limit": 2, "refill_rate": 2, "refill_interval": LONG}, **told},
            {"hash": hash_of(other), "owner_id": user, "enabled": False},
            {"api_id": keeping, "plaintext": kept},
        ))["keyIds"]
        for key_id in key_ids:
            matches(key_id, r"key_[A-Za-z0-9]{16,}")
        first, second, third = [await kw.get_key(key_id, decrypt=True) for key_id in key_ids]
        equal({field: first[field] for field in told}, told)
        equal((first["start"], first["identity"]["externalId"], first["refill"]["refillDay"]), ("old_", user, 15.0))
        equal((second["ownerId"], "identity" in second, second["enabled"]), (user, False, False))
        equal((third["apiId"], third["start"], third["plaintext"]), (keeping, kept[:4], kept))
        await kw.seen_by_all()
        answer = await kw.verify(old, authorization={"permissions": slug})
        equal((answer["code"], answer["remaining"], answer["ratelimit"]["remaining"], answer["environment"]), ("VALID", 8, 1, "test"))
        equal([await kw.code(key) for key in (old, old, other, kept)], ["VALID", "RATE_LIMITED", "DISABLED", "VALID"])
    await kw.check(f"{section}: keys are taken in with all that comes with them, and verify", taken_in)

    async def refused():
        good = kw.fresh("good")

        async def batch(kind, *named, **key):
            keys = [{"api_id": kw.api_id, "hash": hash_of(good)}, {"api_id": kw.api_id, "hash": hash_of(kw.fresh("bad")), **key}]
            await kw.raises(kind, "migrations.create_keys", *named, request=keys)

        await batch(CONFLICT, hash=hash_of(old))
        await batch(BAD_REQUEST, "1.hash", hash={"value": "bm8=", "variant": "sha256_base64"})
        await batch(BAD_REQUEST, "1.refill", refill={"interval": "daily", "amount": 1})
        await batch(PRECONDITION, kw.fresh("no role"), kw.fresh("no.slug"), roles=[kw.fresh("no role")], permissions=[kw.fresh("no.slug")])
        await batch(NOT_FOUND, "api_doesnotexist0000", api_id="api_doesnotexist0000")
        equal(await kw.verify(good), NOTHING)
        equal(await create(), {"keyIds": []})
    await kw.check(f"{section}: one fault takes in nothing", refused)

    async def lacking():
        weak = client_for("api.*.create_key")
        plain = [{"api_id": kw.api_id, "plaintext": kw.fresh("plain")}]
        await kw.raises(FORBIDDEN, "migrations.create_keys", "encrypt_key", sdk=weak, request=plain)
        equal(len((await create({"hash": hash_of(kw.fresh("hashed"))}, sdk=weak))["keyIds"]), 1)
    await kw.check(f"{section}: to bring a key itself takes the right to encrypt", lacking)


async def queueing(kw, section):
    queued = kw.fresh("queued")
    known = await kw.create_key(name="known")

    async def taken_in():
        item = {"hash": hash_of(queued), "name": "from elsewhere", "meta": {"a": 1}, "owner_id": kw.fresh("owner"),
                "ratelimit": {"limit": 1, "duration": LONG}}
        for _ in range(2):
            keys = [item, {"hash": hash_of(known["key"]), "name": "changed"}]
            response = await kw.respond("migrations.enqueue", migration_id=kw.fresh("shop"), api_id=kw.api_id, keys=keys)
            seen(response.http_meta.response)
            equal((response.http_meta.response.status_code, response.http_meta.response.text), (202, "{}"))
        await kw.seen_by_all()
        answer = await kw.verify(queued)
        equal((answer["code"], answer["name"], answer["meta"], answer["ownerId"]), ("VALID", "from elsewhere", {"a": 1}, kw.fresh("owner")))
        equal((await kw.code(queued), (await kw.get_key(known["keyId"]))["name"]), ("RATE_LIMITED", "known"))
    await kw.check(f"{section}: those that are not there yet are taken in", taken_in)

    async def refused():
        fields = {"migration_id": "m", "api_id": kw.api_id, "keys": [{"name": "nothing"}]}
        await kw.rejects("keys.0.hash: requires a hash or a plaintext", "migrations.enqueue", **fields)
        await kw.raises(NOT_FOUND, "migrations.enqueue", "api_doesnotexist0000", **{**fields, "api_id": "api_doesnotexist0000", "keys": [{"hash": hash_of("a")}]})
    await kw.check(f"{section}: a key that is not there at all is refused, and an unknown api", refused)
