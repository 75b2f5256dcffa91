import assert from "node:assert/strict";
import { apiId, base58Bytes, checked, createKey, data, E, fresh, getKey, ID, isNow, LONG, NOT_FOUND, raises, rejects, section, unkey, verify, whoami } from "./support.mjs";

await section("createKey", async (check) => {
  const direct = fresh("direct");
  const shared = fresh("shared");
  const viaRole = fresh("via-role");
  const role = fresh("key-role");
  await data(unkey.permissions.createPermission({ name: direct, slug: direct }));
  await data(unkey.permissions.createRole({ name: role, permissions: [shared, viaRole] }));

  // The name is 255 code points long and twice that in UTF-16, and the metadata holds what JSON can hold.
  const name = "🗝".repeat(255);
  const meta = { plan: "pro", nested: { list: [1, "two", null, true, 1.5], empty: {} }, big: Number.MAX_SAFE_INTEGER, "k é": "" };
  const expires = Date.now() + 3_600_000;
  const externalId = fresh("user-1_a");
  const made = await createKey({
    apiId, prefix: "acme_live", name, byteLength: 32, externalId, meta, expires,
    roles: [role], permissions: [direct, shared],
    credits: { remaining: 100, refill: { interval: "monthly", amount: 500, refillDay: 31 } },
    ratelimits: [
      { name: "auto", limit: 10, duration: LONG, autoApply: true },
      { name: "manual", limit: 20, duration: 60_000, autoApply: false },
    ],
    enabled: true, recoverable: false,
  });
  await check("answers with key id and key only", () => {
    assert.deepStrictEqual(Object.keys(made).sort(), ["key", "keyId"]);
    assert.match(made.keyId, ID("key"));
  });
  await check("the key is prefix, underscore and 32 bytes in Base58", () => {
    assert.ok(made.key.startsWith("acme_live_"));
    assert.equal(base58Bytes(made.key.slice("acme_live_".length)), 32);
  });
  const stored = await getKey(made.keyId);
  const permissions = [direct, shared, viaRole].sort();
  await check("getKey returns every field as it was set", () => {
    isNow(stored.createdAt);
    assert.match(stored.identity.id, ID("id"));
    for (const limit of stored.ratelimits) assert.match(limit.id, ID("rl"));
    assert.deepStrictEqual(stored, {
      keyId: made.keyId, start: made.key.slice(0, "acme_live_".length + 4), enabled: true, name, meta,
      createdAt: stored.createdAt, expires, permissions, roles: [role],
      credits: { remaining: 100, refill: { interval: "monthly", amount: 500, refillDay: 31 } },
      identity: { id: stored.identity.id, externalId },
      ratelimits: [
        { id: stored.ratelimits[0].id, name: "auto", limit: 10, duration: LONG, autoApply: true },
        { id: stored.ratelimits[1].id, name: "manual", limit: 20, duration: 60_000, autoApply: false },
      ],
    });
  });
  await check("whoami returns the same, with sorted permissions", async () => {
    assert.deepStrictEqual((await data(unkey.keys.whoami({ key: made.key }))).permissions, permissions);
    assert.deepStrictEqual(await whoami(made.key), stored);
  });
  await check("verifyKey returns every field", async () => {
    assert.deepStrictEqual(await verify(made.key), {
      valid: true, code: "VALID", keyId: made.keyId, enabled: true, name, meta, expires, permissions, roles: [role], credits: 99,
      identity: { id: stored.identity.id, externalId },
      ratelimits: [checked(stored.ratelimits[0], 9)],
    });
  });
  await check("getKey shows the credits that verifyKey left", async () => {
    assert.deepStrictEqual((await getKey(made.keyId)).credits, { remaining: 99, refill: { interval: "monthly", amount: 500, refillDay: 31 } });
  });
  await check("two keys of one externalId share the identity", async () => {
    const other = await createKey({ apiId, externalId });
    assert.deepStrictEqual((await verify(other.key)).identity, { id: stored.identity.id, externalId });
  });

  const bare = await createKey({ apiId });
  await check("the least key has 16 bytes and no prefix", () => assert.equal(base58Bytes(bare.key), 16));
  await check("getKey leaves out what the least key does not have", async () => {
    const answer = await data(unkey.keys.getKey({ keyId: bare.keyId }));
    isNow(answer.createdAt);
    assert.deepStrictEqual(answer, { keyId: bare.keyId, start: bare.key.slice(0, 4), enabled: true, createdAt: answer.createdAt });
  });
  await check("verifyKey leaves out what the least key does not have", async () => {
    assert.deepStrictEqual(await verify(bare.key), { valid: true, code: "VALID", keyId: bare.keyId, enabled: true });
  });
  await check("empty meta, roles, permissions and ratelimits are left out", async () => {
    const { keyId } = await createKey({ apiId, meta: {}, roles: [], permissions: [], ratelimits: [] });
    assert.deepStrictEqual(Object.keys(await getKey(keyId)).sort(), ["createdAt", "enabled", "keyId", "start"]);
  });
  await check("byteLength 255", async () => assert.equal(base58Bytes((await createKey({ apiId, byteLength: 255 })).key), 255));
  await check("a prefix of 16", async () => {
    const { key, keyId } = await createKey({ apiId, prefix: "p".repeat(16) });
    assert.equal(base58Bytes(key.slice(17)), 16);
    assert.equal((await getKey(keyId)).start, key.slice(0, 21));
  });
  await check("a daily refill has no day", async () => {
    const { keyId } = await createKey({ apiId, credits: { remaining: 0, refill: { interval: "daily", amount: 10 } } });
    assert.deepStrictEqual((await getKey(keyId)).credits, { remaining: 0, refill: { interval: "daily", amount: 10 } });
  });
  await check("credits.remaining null is an unlimited key", async () => {
    const { keyId, key } = await createKey({ apiId, credits: { remaining: null } });
    assert.ok(!("credits" in (await getKey(keyId))));
    assert.ok(!("credits" in (await verify(key))));
  });
  await check("of two limits of one name the last wins", async () => {
    const limit = (n) => ({ name: "twice", limit: n, duration: LONG, autoApply: n === 2 });
    const { keyId } = await createKey({ apiId, ratelimits: [limit(1), limit(2)] });
    const { ratelimits } = await getKey(keyId);
    assert.deepStrictEqual(ratelimits, [{ id: ratelimits[0].id, ...limit(2) }]);
  });
  await check("repeated roles and permissions are attached once", async () => {
    const { keyId } = await createKey({ apiId, roles: [role, role], permissions: [direct, direct] });
    const answer = await getKey(keyId);
    assert.deepStrictEqual([answer.roles, answer.permissions], [[role], permissions]);
  });

  await check("an unknown API is 404", () => raises(E.noApi, unkey.keys.createKey({ apiId: "api_doesnotexist0000" })));
  await check("a missing role is 404 and is named", async () => {
    const error = await raises(E.noRole, unkey.keys.createKey({ apiId, roles: [role, fresh("no-role-1"), fresh("no-role-2")] }));
    for (const missing of [fresh("no-role-1"), fresh("no-role-2")]) assert.ok(error.detail.includes(missing), error.detail);
    assert.ok(!error.detail.includes(role), error.detail);
  });
  await check("a missing permission is created", async () => {
    const slugs = [fresh("new-perm-1"), fresh("new-perm-2")];
    const { keyId } = await createKey({ apiId, permissions: [direct, ...slugs] });
    assert.deepStrictEqual((await getKey(keyId)).permissions, [direct, ...slugs].sort());
    for (const slug of slugs) assert.equal((await data(unkey.permissions.getPermission({ permission: slug }))).name, slug);
  });
  await check("a missing role with a missing permission is 404, and creates nothing", async () => {
    const slug = fresh("no-perm-3");
    await raises(E.notFound, unkey.keys.createKey({ apiId, roles: [fresh("no-role-3")], permissions: [slug] }));
    await data(unkey.permissions.createPermission({ name: slug, slug }));
  });
  await check("recoverable is 412", () => raises(E.precondition, unkey.keys.createKey({ apiId, recoverable: true })));
  await check("getKey with decrypt is 412", () => raises(E.precondition, unkey.keys.getKey({ keyId: bare.keyId, decrypt: true })));

  const limit = { name: "requests", limit: 1, duration: 1000 };
  const credits = (refill, remaining = 1) => ({ credits: { remaining, refill } });
  const many = (n, make) => Array.from({ length: n }, (_, i) => make(i));
  const bad = [
    ["a short apiId", { apiId: "ap" }, "/properties/apiId/minLength"],
    ["an ill-formed apiId", { apiId: "api-1" }, "/properties/apiId/pattern"],
    ["an empty prefix", { prefix: "" }, "/properties/prefix/minLength"],
    ["a prefix of 17", { prefix: "p".repeat(17) }, "/properties/prefix/maxLength"],
    ["an ill-formed prefix", { prefix: "a-b" }, "/properties/prefix/pattern"],
    ["an empty name", { name: "" }, "/properties/name/minLength"],
    ["a name of 256", { name: "n".repeat(256) }, "/properties/name/maxLength"],
    ["byteLength 15", { byteLength: 15 }, "/properties/byteLength/minimum"],
    ["byteLength 256", { byteLength: 256 }, "/properties/byteLength/maximum"],
    ["an empty externalId", { externalId: "" }, "/properties/externalId/minLength"],
    ["an externalId of 256", { externalId: "e".repeat(256) }, "/properties/externalId/maxLength"],
    ["an ill-formed externalId", { externalId: "a b" }, "/properties/externalId/pattern"],
    ["meta of 101 properties", { meta: Object.fromEntries(many(101, (i) => [`k${i}`, i])) }, "/properties/meta/maxProperties"],
    ["an empty role", { roles: [""] }, "/properties/roles/items/minLength"],
    ["a role of 129", { roles: ["r".repeat(129)] }, "/properties/roles/items/maxLength"],
    ["101 roles", { roles: many(101, (i) => `r${i}`) }, "/properties/roles/maxItems"],
    ["an ill-formed permission", { permissions: ["a b"] }, "/properties/permissions/items/pattern"],
    ["a permission of 129", { permissions: ["p".repeat(129)] }, "/properties/permissions/items/maxLength"],
    ["1001 permissions", { permissions: many(1001, (i) => `p${i}`) }, "/properties/permissions/maxItems"],
    ["a negative expires", { expires: -1 }, "/properties/expires/minimum"],
    ["an expires past the year 2100", { expires: 4_102_444_800_001 }, "/properties/expires/maximum"],
    ["negative credits", { credits: { remaining: -1 } }, "/properties/credits/properties/remaining/minimum"],
    ["a refill of 0", credits({ interval: "daily", amount: 0 }), "/properties/credits/properties/refill/properties/amount/minimum"],
    ["refillDay 0", credits({ interval: "monthly", amount: 1, refillDay: 0 }), "/properties/credits/properties/refill/properties/refillDay/minimum"],
    ["refillDay 32", credits({ interval: "monthly", amount: 1, refillDay: 32 }), "/properties/credits/properties/refill/properties/refillDay/maximum"],
    ["an unknown interval", credits({ interval: "weekly", amount: 1 }), "/properties/credits/properties/refill/properties/interval/enum"],
    ["a limit with a name of 2", { ratelimits: [{ ...limit, name: "ab" }] }, "/properties/ratelimits/items/properties/name/minLength"],
    ["a limit with a name of 129", { ratelimits: [{ ...limit, name: "n".repeat(129) }] }, "/properties/ratelimits/items/properties/name/maxLength"],
    ["a limit of 0", { ratelimits: [{ ...limit, limit: 0 }] }, "/properties/ratelimits/items/properties/limit/minimum"],
    ["a window under a second", { ratelimits: [{ ...limit, duration: 999 }] }, "/properties/ratelimits/items/properties/duration/minimum"],
    ["51 limits", { ratelimits: many(51, (i) => ({ ...limit, name: `lim${i}` })) }, "/properties/ratelimits/maxItems"],
  ];
  for (const [title, fields, location] of bad) {
    await check(`refuses ${title}`, () => rejects(location, unkey.keys.createKey({ apiId, ...fields })));
  }
  await check("refuses a monthly refill without a day", () => raises(E.invalid, unkey.keys.createKey({ apiId, ...credits({ interval: "monthly", amount: 1 }) })));
  await check("refuses a daily refill with a day", () => raises(E.invalid, unkey.keys.createKey({ apiId, ...credits({ interval: "daily", amount: 1, refillDay: 1 }) })));
  await check("refuses a refill of unlimited credits", () => raises(E.invalid, unkey.keys.createKey({ apiId, ...credits({ interval: "daily", amount: 1 }, null) })));
  await check("meta of 100 properties is accepted", async () => {
    const meta = Object.fromEntries(many(100, (i) => [`k${i}`, i]));
    assert.deepStrictEqual((await getKey((await createKey({ apiId, meta })).keyId)).meta, meta);
  });
});

await section("getKey and whoami", async (check) => {
  await check("getKey of an unknown id", () => raises(E.noKey, unkey.keys.getKey({ keyId: "key_doesnotexist0000" })));
  await check("getKey of a short id", () => rejects("/properties/keyId/minLength", unkey.keys.getKey({ keyId: "ke" })));
  await check("getKey of an ill-formed id", () => rejects("/properties/keyId/pattern", unkey.keys.getKey({ keyId: "key-1" })));
  await check("whoami of an unknown key", () => raises(E.noKey, unkey.keys.whoami({ key: "nobody_knows_this" })));
  await check("whoami of an empty key", () => rejects("/properties/key/minLength", unkey.keys.whoami({ key: "" })));
  await check("whoami of a key of 513", () => rejects("/properties/key/maxLength", unkey.keys.whoami({ key: "k".repeat(513) })));
  await check("whoami knows a disabled, expired key and spends nothing", async () => {
    const { key, keyId } = await createKey({ apiId, enabled: false, expires: 1, credits: { remaining: 3 } });
    const answer = await whoami(key);
    assert.deepStrictEqual(answer, { keyId, start: key.slice(0, 4), enabled: false, createdAt: answer.createdAt, expires: 1, credits: { remaining: 3 } });
    assert.deepStrictEqual(await getKey(keyId), answer);
  });
});

await section("deleteKey", async (check) => {
  for (const [how, request] of [["soft", {}], ["soft, said so", { permanent: false }], ["permanent", { permanent: true }]]) {
    const { key, keyId } = await createKey({ apiId, name: how, externalId: fresh("gone"), ratelimits: [{ name: "any", limit: 1, duration: 1000, autoApply: true }] });
    await check(`${how}: answers with an empty object`, async () => {
      assert.deepStrictEqual(await data(unkey.keys.deleteKey({ keyId, ...request })), {});
    });
    await check(`${how}: verifyKey is NOT_FOUND, with nothing else told`, async () => assert.deepStrictEqual(await verify(key), NOT_FOUND));
    await check(`${how}: getKey is 404`, () => raises(E.noKey, unkey.keys.getKey({ keyId })));
    await check(`${how}: whoami is 404`, () => raises(E.noKey, unkey.keys.whoami({ key })));
    await check(`${how}: updateKey is 404`, () => raises(E.noKey, unkey.keys.updateKey({ keyId, enabled: true })));
    await check(`${how}: deleteKey again is 404`, () => raises(E.noKey, unkey.keys.deleteKey({ keyId })));
    await check(`${how}: a permanent deleteKey afterwards is 404`, () => raises(E.noKey, unkey.keys.deleteKey({ keyId, permanent: true })));
  }
  await check("an unknown key is 404", () => raises(E.noKey, unkey.keys.deleteKey({ keyId: "key_doesnotexist0000" })));
  await check("a short id is 400", () => rejects("/properties/keyId/minLength", unkey.keys.deleteKey({ keyId: "ke" })));
});
