import assert from "node:assert/strict";
import { apiId, bare, base58Bytes, code, createKey, fresh, getKey, ID, isNow, LONG, names, NOT_FOUND, refused, refusedWith, result, section, seenByAll, setApi, unkey, verify, windowEnd } from "./support.mjs";

await section("createKey", async (check) => {
  const { keyId, key, ...rest } = await createKey({ apiId });
  await check("the reply is the id and the key", () => {
    assert.match(keyId, ID("key"));
    assert.equal(base58Bytes(key), 16);
    assert.deepStrictEqual(rest, {});
  });
  await check("the least key has next to nothing", async () => {
    const { createdAt, start, workspaceId, ...told } = await getKey(keyId);
    isNow(createdAt);
    assert.ok(key.startsWith(start) && start.length < 6, start);
    assert.match(workspaceId, /^ws_/);
    assert.deepStrictEqual(told, { id: keyId, apiId, enabled: true, permissions: [], roles: [] });
    assert.deepStrictEqual(await verify(key), bare(keyId));
  });
  await check("a prefix and a length make the key, whatever the api is set to", async () => {
    const own = await result(unkey.apis.create({ name: fresh("prefixed") }));
    await setApi(own.apiId, "--default-prefix", "sk", "--default-bytes", "24");
    const plain = await createKey({ apiId: own.apiId });
    const given = await createKey({ apiId: own.apiId, prefix: "test", byteLength: 32 });
    const none = await createKey({ apiId: own.apiId, prefix: "" });
    assert.deepStrictEqual([plain.key.slice(0, 3), base58Bytes(plain.key.slice(3))], ["sk_", 24]);
    assert.deepStrictEqual([given.key.slice(0, 5), base58Bytes(given.key.slice(5))], ["test_", 32]);
    assert.equal(base58Bytes(none.key), 24);
    assert.ok((await getKey(plain.keyId)).start.startsWith("sk_"));
    assert.ok((await getKey(given.keyId)).start.startsWith("test_"));
  });

  const [slug, role] = [fresh("docs.read"), fresh("editor")];
  const expires = Date.now() + 3_600_000;
  const fields = {
    name: "the key", meta: { plan: "pro", list: [1, null] }, expires, remaining: 100, environment: "test",
    refill: { interval: "monthly", amount: 500, refillDay: 31 }, ratelimit: { type: "fast", limit: 10, duration: LONG },
  };
  await check("permissions and roles must exist, and each that does not is named", () =>
    names("NOT_FOUND", [slug, role], unkey.keys.create({ apiId, permissions: [slug], roles: [role] })));
  await result(unkey.permissions.createPermission({ name: slug }));
  await result(unkey.permissions.createRole({ name: role }));
  const full = await createKey({ apiId, externalId: fresh("user"), permissions: [slug], roles: [role], ...fields });
  let identity;
  await check("get tells all that a key has", async () => {
    const { createdAt, start, workspaceId, refill, ...told } = await getKey(full.keyId);
    identity = told.identity;
    assert.match(identity.id, ID("id"));
    const { lastRefillAt, ...wanted } = refill;
    assert.deepStrictEqual(wanted, fields.refill);
    assert.deepStrictEqual(told, {
      id: full.keyId, apiId, enabled: true, name: fields.name, meta: fields.meta, expires, remaining: 100, environment: "test",
      ownerId: fresh("user"), identity: { id: identity.id, externalId: fresh("user"), meta: {} }, permissions: [slug], roles: [role],
      ratelimit: { async: true, type: "fast", limit: 10, duration: LONG, refillRate: 10, refillInterval: LONG },
    });
  });
  await check("verify tells all that a key has, and takes from it", async () => {
    assert.deepStrictEqual(await verify(full.key, { apiId, tags: ["a=b", "c"] }), {
      ...bare(full.keyId), name: fields.name, meta: fields.meta, expires, environment: "test", ownerId: fresh("user"), identity,
      permissions: [slug], roles: [role], remaining: 99, ratelimit: { limit: 10, remaining: 9, reset: windowEnd(LONG) },
    });
  });
  await check("an owner is an identity", async () => {
    const { keyId: owned } = await createKey({ apiId, ownerId: fresh("user") });
    assert.deepStrictEqual((await getKey(owned)).identity, identity);
  });
  await check("a limit is known by its older words", async () => {
    const older = await createKey({ apiId, ratelimit: { type: "consistent", limit: 1, refillRate: 9, refillInterval: LONG } });
    assert.deepStrictEqual((await getKey(older.keyId)).ratelimit, { async: false, type: "consistent", limit: 1, duration: LONG, refillRate: 1, refillInterval: LONG });
    assert.deepStrictEqual([await code(older.key), await code(older.key)], ["VALID", "RATE_LIMITED"]);
  });
  for (const [title, more, message] of [
    ["no uses", { remaining: 0 }, "remaining: must not be 0; omit it for an unlimited key, or send enabled: false"],
    ["15 bytes", { byteLength: 15 }, "byteLength: Number must be greater than or equal to 16"],
    ["a refill by the year", { remaining: 1, refill: { interval: "yearly", amount: 1 } }, undefined],
    ["a refill of an unlimited key", { refill: { interval: "daily", amount: 1 } }, undefined],
    ["a day of a daily refill", { remaining: 1, refill: { interval: "daily", amount: 1, refillDay: 3 } }, undefined],
    ["a day and a half", { remaining: 1, refill: { interval: "monthly", amount: 1, refillDay: 1.5 } }, undefined],
    ["a limit without a window", { ratelimit: { limit: 1 } }, "ratelimit.duration: Required"],
  ]) {
    await check(`${title} is BAD_REQUEST`, async () => {
      const told = await refused("BAD_REQUEST", unkey.keys.create({ apiId, ...more }));
      if (message) assert.equal(told, message);
    });
  }
  await check("an unknown api is NOT_FOUND and is named", () =>
    names("NOT_FOUND", ["api_doesnotexist0000"], unkey.keys.create({ apiId: "api_doesnotexist0000" })));
});

await section("deleteKey", async (check) => {
  for (const permanent of [undefined, false, true]) {
    await check(`permanent: ${permanent}`, async () => {
      const { keyId, key } = await createKey({ apiId });
      assert.equal(await code(key), "VALID");
      assert.deepStrictEqual(await result(unkey.keys.delete({ keyId, permanent })), {});
      await seenByAll();
      assert.deepStrictEqual(await verify(key), NOT_FOUND);
      await names("NOT_FOUND", [keyId], unkey.keys.get({ keyId }));
      await refused("NOT_FOUND", unkey.keys.delete({ keyId }));
    });
  }
  await check("an empty id is BAD_REQUEST", () =>
    refusedWith("BAD_REQUEST", "keyId: String must contain at least 1 character(s)", unkey.keys.delete({ keyId: "" })));
});
