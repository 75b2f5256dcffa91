import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { apiId, clientFor, code, createKey, fresh, getKey, ID, LONG, names, NOT_FOUND, refused, refusedWith, result, section, seenByAll, setApi, unkey, verify } from "./support.mjs";

const hash = (key) => ({ value: createHash("sha256").update(key).digest("base64"), variant: "sha256_base64" });

await section("migrations", async (check) => {
  const { migrations } = unkey;
  const [slug, role, user] = [fresh("migrated.read"), fresh("migrated"), fresh("migrated user")];
  await result(unkey.permissions.createPermission({ name: slug }));
  await result(unkey.permissions.createRole({ name: role }));
  const [old, other, kept, queued] = ["old", "other", "kept", "queued"].map(fresh);
  const { apiId: keeping } = await result(unkey.apis.create({ name: fresh("keeping") }));
  await setApi(keeping, "--recoverable-keys", "on");
  const fields = { name: "from elsewhere", meta: { plan: "old", list: [1, null] }, permissions: [slug], roles: [role], environment: "test" };

  await check("createKeys answers with ids in the order of the request", async () => {
    assert.deepStrictEqual(await verify(old), NOT_FOUND);
    const { keyIds } = await result(migrations.createKeys([
      { apiId, hash: hash(old), start: "old_", externalId: user, remaining: 9, refill: { interval: "daily", amount: 9 },
        ratelimit: { type: "fast", limit: 2, refillRate: 2, refillInterval: LONG }, ...fields },
      { apiId, hash: hash(other), ownerId: user, enabled: false },
      { apiId: keeping, plaintext: kept },
    ]));
    for (const id of keyIds) assert.match(id, ID("key"));
    const [first, second, third] = await Promise.all(keyIds.map((keyId) => getKey(keyId, { decrypt: true })));
    assert.deepStrictEqual([first.start, first.name, first.meta, first.environment, first.remaining], ["old_", fields.name, fields.meta, "test", 9]);
    assert.deepStrictEqual([first.permissions, first.roles, first.identity.externalId], [[slug], [role], user]);
    assert.deepStrictEqual([second.ownerId, second.identity, second.enabled], [user, undefined, false]);
    assert.deepStrictEqual([third.apiId, third.start, third.plaintext], [keeping, kept.slice(0, 4), kept]);
  });
  await check("such keys verify as any other", async () => {
    await seenByAll();
    const answer = await verify(old, { apiId, authorization: { permissions: slug } });
    assert.deepStrictEqual([answer.code, answer.remaining, answer.ratelimit.remaining, answer.ownerId], ["VALID", 8, 1, user]);
    assert.deepStrictEqual([await code(old), await code(old), await code(other), await code(kept)], ["VALID", "RATE_LIMITED", "DISABLED", "VALID"]);
  });
  await check("a request of none makes none", async () => assert.deepStrictEqual(await result(migrations.createKeys([])), { keyIds: [] }));
  await check("one fault takes in nothing", async () => {
    const good = fresh("good");
    const batch = (fields) => migrations.createKeys([{ apiId, hash: hash(good) }, { apiId, ...fields }]);
    await refused("CONFLICT", batch({ hash: hash(old) }));
    await refused("BAD_REQUEST", batch({}));
    await refused("BAD_REQUEST", batch({ hash: hash(fresh("a")), refill: { interval: "daily", amount: 1 } }));
    await names("PRECONDITION_FAILED", [fresh("no role"), fresh("no.slug")],
      batch({ hash: hash(fresh("a")), roles: [fresh("no role")], permissions: [fresh("no.slug")] }));
    await names("NOT_FOUND", ["api_doesnotexist0000"], batch({ apiId: "api_doesnotexist0000", hash: hash(fresh("a")) }));
    assert.deepStrictEqual(await verify(good), NOT_FOUND);
  });
  await check("101 keys are too many", () =>
    refused("BAD_REQUEST", migrations.createKeys(Array.from({ length: 101 }, (_, n) => ({ apiId, hash: hash(fresh(`${n}`)) })))));
  await check("to bring a key itself takes the right to encrypt", async () => {
    const weak = clientFor("api.*.create_key");
    await names("INSUFFICIENT_PERMISSIONS", ["encrypt_key"], weak.migrations.createKeys([{ apiId, plaintext: fresh("plain") }]));
    await names("INSUFFICIENT_PERMISSIONS", ["encrypt_key"], weak.migrations.enqueueKeys({ migrationId: "m", apiId, keys: [{ plaintext: fresh("plain") }] }));
    await result(weak.migrations.createKeys([{ apiId, hash: hash(fresh("hashed")) }]));
  });

  const enqueue = (...keys) => migrations.enqueueKeys({ migrationId: fresh("shop"), apiId, keys });
  await check("enqueueKeys takes in those that are not there yet", async () => {
    const known = await createKey({ apiId, name: "known" });
    const item = { hash: hash(queued), ...fields, ratelimit: { limit: 1, duration: LONG } };
    for (let again = 0; again < 2; again += 1) {
      assert.deepStrictEqual(await result(enqueue(item, { hash: hash(known.key), name: "changed" })), {});
    }
    await seenByAll();
    const answer = await verify(queued);
    assert.deepStrictEqual([answer.code, answer.name, answer.meta, answer.permissions, answer.roles], ["VALID", fields.name, fields.meta, [slug], [role]]);
    assert.deepStrictEqual([await code(queued), (await getKey(known.keyId)).name], ["RATE_LIMITED", "known"]);
  });
  await check("enqueueKeys refuses a key that is not there at all", () =>
    refusedWith("BAD_REQUEST", "keys.0.hash: requires a hash or a plaintext", enqueue({ name: "nothing" })));
});
