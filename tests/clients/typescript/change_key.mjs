import assert from "node:assert/strict";
import { apiId, avoidMinuteEnd, base58Bytes, checked, createKey, data, E, fresh, getKey, ID, isNow, LONG, raises, rejects, section, unkey, updateKey, verifiesEverywhere, verify } from "./support.mjs";

await section("updateKey", async (check) => {
  const [p1, p2, p3] = ["up1", "up2", "up3"].map(fresh);
  const [r1, r2] = ["ur1", "ur2"].map(fresh);
  await data(unkey.permissions.createPermission({ name: p1, slug: p1 }));
  await data(unkey.permissions.createRole({ name: r1, permissions: [p2] }));
  await data(unkey.permissions.createRole({ name: r2 }));
  const expires = Date.now() + 7_200_000;
  const refill = { interval: "monthly", amount: 40, refillDay: 15 };
  const { key, keyId } = await createKey({
    apiId, name: "before", externalId: fresh("owner-1"), meta: { a: 1, b: 2 }, expires,
    credits: { remaining: 10, refill }, roles: [r1], permissions: [p1],
    ratelimits: [{ name: "keep", limit: 100, duration: LONG, autoApply: true }, { name: "drop", limit: 5, duration: LONG, autoApply: false }],
  });
  let now = await getKey(keyId);
  // Each change is applied to what is known, so a field that an update must not touch is checked every time.
  const changes = async (title, fields, difference) => check(title, async () => {
    await updateKey(keyId, fields);
    const answer = await getKey(keyId);
    if (Object.keys(fields).length > 0) {
      isNow(answer.updatedAt);
      assert.ok(answer.updatedAt >= answer.createdAt);
    }
    const expected = { ...now, updatedAt: answer.updatedAt, ...(typeof difference === "function" ? difference(answer) : difference) };
    for (const [field, value] of Object.entries(expected)) if (value === undefined) delete expected[field];
    now = answer;
    assert.deepStrictEqual(answer, expected);
  });
  const firstIdentity = now.identity;

  await changes("no field at all changes nothing", {}, {});
  await changes("name to null", { name: null }, { name: undefined });
  await changes("name to a value", { name: "after" }, { name: "after" });
  await changes("externalId to null", { externalId: null }, { identity: undefined });
  await check("an unlinked key verifies without identity", async () => assert.ok(!("identity" in (await verify(key)))));
  now = await getKey(keyId);
  await changes("externalId to a new value makes the identity", { externalId: fresh("owner-2") }, (answer) => {
    assert.match(answer.identity.id, ID("id"));
    assert.notEqual(answer.identity.id, firstIdentity.id);
    return { identity: { id: answer.identity.id, externalId: fresh("owner-2") } };
  });
  await changes("externalId back to the old value finds the old identity", { externalId: fresh("owner-1") }, { identity: firstIdentity });
  await changes("meta to a value replaces it whole", { meta: { c: [null, 3] } }, { meta: { c: [null, 3] } });
  await changes("meta to null", { meta: null }, { meta: undefined });
  await changes("meta to an empty object", { meta: {} }, { meta: undefined });
  await changes("meta to a value again", { meta: { d: 4 } }, { meta: { d: 4 } });
  await changes("expires to null", { expires: null }, { expires: undefined });
  await changes("expires to a value", { expires: expires + 1 }, { expires: expires + 1 });

  await changes("credits.remaining to a value keeps the refill", { credits: { remaining: 7 } }, { credits: { remaining: 7, refill } });
  await check("verifyKey counts from the new balance", async () => assert.equal((await verify(key)).credits, 6));
  now = await getKey(keyId);
  await changes("credits.refill to null keeps the balance", { credits: { refill: null } }, { credits: { remaining: 6 } });
  await changes("credits.refill to a daily value", { credits: { refill: { interval: "daily", amount: 9 } } }, { credits: { remaining: 6, refill: { interval: "daily", amount: 9 } } });
  await changes("credits.refill to a monthly value", { credits: { refill } }, { credits: { remaining: 6, refill } });
  await changes("credits.remaining to null is unlimited, without refill", { credits: { remaining: null } }, { credits: undefined });
  await changes("credits.remaining to a value does not bring the refill back", { credits: { remaining: 5 } }, { credits: { remaining: 5 } });
  await changes("credits to remaining and refill at once", { credits: { remaining: 8, refill } }, { credits: { remaining: 8, refill } });
  await changes("credits to null", { credits: null }, { credits: undefined });
  await changes("credits of an unlimited key to 0", { credits: { remaining: 0 } }, { credits: { remaining: 0 } });
  await check("a balance of 0 is USAGE_EXCEEDED", async () => {
    const answer = await verify(key);
    assert.deepStrictEqual([answer.valid, answer.code, answer.credits], [false, "USAGE_EXCEEDED", 0]);
  });
  await changes("uses restored", { credits: { remaining: 50 } }, { credits: { remaining: 50 } });
  await check("a key with restored uses is VALID", async () => assert.deepStrictEqual((await verify(key)).credits, 49));
  now = await getKey(keyId);

  await changes("enabled to false", { enabled: false }, { enabled: false });
  await check("a disabled key is DISABLED", async () => assert.equal((await verify(key)).code, "DISABLED"));
  await changes("enabled to true", { enabled: true }, { enabled: true });
  await check("an enabled key is VALID again", async () => assert.equal((await verify(key)).code, "VALID"));
  now = await getKey(keyId);
  await changes("expires into the past", { expires: 1 }, { expires: 1 });
  await check("that key is EXPIRED", async () => assert.equal((await verify(key)).code, "EXPIRED"));
  await changes("expires moved back", { expires }, { expires });
  await check("that key is VALID again", async () => assert.equal((await verify(key)).code, "VALID"));
  now = await getKey(keyId);

  await changes("permissions replaced, and a missing one created", { permissions: [p3] }, { permissions: [p2, p3].sort() });
  await check("the missing one exists now", () => raises(E.permissionExists, unkey.permissions.createPermission({ name: p3, slug: p3 })));
  await changes("permissions to none leaves those of the role", { permissions: [] }, { permissions: [p2] });
  await changes("roles replaced", { roles: [r2] }, { roles: [r2], permissions: undefined });
  await changes("roles to none", { roles: [] }, { roles: undefined });
  await changes("roles and permissions, each given twice", { roles: [r1, r1], permissions: [p1, p1] }, { roles: [r1], permissions: [p1, p2].sort() });
  await check("verifyKey sees them at once", async () => {
    const answer = await verify(key, { permissions: `${p1} AND ${p2}` });
    assert.deepStrictEqual([answer.code, answer.roles, answer.permissions], ["VALID", [r1], [p1, p2].sort()]);
  });
  now = await getKey(keyId);

  const spent = (await verify(key, { credits: { cost: 0 } })).ratelimits[0];
  now = await getKey(keyId);
  await changes("ratelimits replaced by name, ids of the kept ones stay", {
    ratelimits: [{ name: "keep", limit: 500, duration: LONG, autoApply: true }, { name: "new", limit: 3, duration: 2000, autoApply: false }],
  }, (answer) => ({
    ratelimits: [
      { id: now.ratelimits.find((limit) => limit.name === "keep").id, name: "keep", limit: 500, duration: LONG, autoApply: true },
      { id: answer.ratelimits[1].id, name: "new", limit: 3, duration: 2000, autoApply: false },
    ],
  }));
  await check("a changed limit keeps its count", async () => {
    const [limit] = (await verify(key)).ratelimits;
    assert.equal(limit.remaining, 500 - (100 - spent.remaining) - 1);
  });
  now = await getKey(keyId);
  await changes("of two limits of one name the last wins", {
    ratelimits: [{ name: "new", limit: 1, duration: 2000, autoApply: false }, { name: "new", limit: 4, duration: 3000, autoApply: true }],
  }, { ratelimits: [{ id: now.ratelimits.find((limit) => limit.name === "new").id, name: "new", limit: 4, duration: 3000, autoApply: true }] });
  await changes("ratelimits to none", { ratelimits: [] }, { ratelimits: undefined });
  await check("verifyKey applies no limit any more", async () => assert.ok(!("ratelimits" in (await verify(key)))));
  now = await getKey(keyId);
  await changes("everything at once", {
    name: "all", externalId: fresh("owner-2"), meta: { e: 5 }, expires, credits: { remaining: 1, refill: { interval: "daily", amount: 2 } },
    ratelimits: [{ name: "last", limit: 1, duration: 1000 }], enabled: false, roles: [r2], permissions: [p3],
  }, (answer) => ({
    name: "all", identity: { id: answer.identity.id, externalId: fresh("owner-2") }, meta: { e: 5 }, expires,
    credits: { remaining: 1, refill: { interval: "daily", amount: 2 } },
    ratelimits: [{ id: answer.ratelimits[0].id, name: "last", limit: 1, duration: 1000, autoApply: false }],
    enabled: false, roles: [r2], permissions: [p3],
  }));

  const bad = [
    ["a short keyId", { keyId: "ke" }, "/properties/keyId/minLength"],
    ["an empty name", { name: "" }, "/properties/name/minLength"],
    ["a name of 256", { name: "n".repeat(256) }, "/properties/name/maxLength"],
    ["an ill-formed externalId", { externalId: "a b" }, "/properties/externalId/pattern"],
    ["a negative expires", { expires: -1 }, "/properties/expires/minimum"],
    ["an expires past the year 2100", { expires: 4_102_444_800_001 }, "/properties/expires/maximum"],
    ["negative credits", { credits: { remaining: -1 } }, "/properties/credits/properties/remaining/minimum"],
    ["a refill of 0", { credits: { refill: { interval: "daily", amount: 0 } } }, "/properties/credits/properties/refill/properties/amount/minimum"],
    ["a limit of 0", { ratelimits: [{ name: "bad", limit: 0, duration: 1000 }] }, "/properties/ratelimits/items/properties/limit/minimum"],
    ["an ill-formed permission", { permissions: ["a b"] }, "/properties/permissions/items/pattern"],
    ["an empty role", { roles: [""] }, "/properties/roles/items/minLength"],
  ];
  for (const [title, fields, location] of bad) {
    await check(`refuses ${title}`, () => rejects(location, unkey.keys.updateKey({ keyId, ...fields })));
  }
  await check("refuses a monthly refill without a day", () => raises(E.invalid, unkey.keys.updateKey({ keyId, credits: { refill: { interval: "monthly", amount: 1 } } })));
  await check("refuses a daily refill with a day", () => raises(E.invalid, unkey.keys.updateKey({ keyId, credits: { refill: { interval: "daily", amount: 1, refillDay: 1 } } })));
  await check("a missing role is 404", async () => {
    const error = await raises(E.noRole, unkey.keys.updateKey({ keyId, name: "half", credits: null, roles: [fresh("no-role-4")], permissions: [fresh("no-perm-4")] }));
    assert.ok(error.detail.includes(fresh("no-role-4")), error.detail);
  });
  await check("the refused calls change nothing", async () => {
    assert.deepStrictEqual(await getKey(keyId), now);
    await data(unkey.permissions.createPermission({ name: "free", slug: fresh("no-perm-4") }));
  });
  await check("an unknown key is 404", () => raises(E.noKey, unkey.keys.updateKey({ keyId: "key_doesnotexist0000", name: "x" })));
});

await section("updateCredits", async (check) => {
  const refill = { interval: "monthly", amount: 40, refillDay: 15 };
  const { key, keyId } = await createKey({ apiId, credits: { remaining: 10, refill } });
  const update = (operation, value) => unkey.keys.updateCredits({ keyId, operation, ...(value === undefined ? {} : { value }) });
  // What the key then has is told, is stored, and is what verifyKey counts from; undefined stands for unlimited.
  for (const [title, operation, value, expected] of [
    ["set to a number keeps the refill", "set", 20, { remaining: 20, refill }],
    ["increment", "increment", 5, { remaining: 24, refill }],
    ["decrement", "decrement", 4, { remaining: 19, refill }],
    ["increment by 0", "increment", 0, { remaining: 18, refill }],
    ["decrement below 0 is 0", "decrement", 1000, { remaining: 0, refill }],
    ["set to null is unlimited, without refill", "set", null, { remaining: null }],
    ["set to a number does not bring the refill back", "set", 3, { remaining: 3 }],
    ["set without a value is unlimited", "set", undefined, { remaining: null }],
    ["set to the largest integer of the client", "set", Number.MAX_SAFE_INTEGER, { remaining: Number.MAX_SAFE_INTEGER }],
  ]) {
    await check(title, async () => {
      assert.deepStrictEqual(await data(update(operation, value)), expected);
      const unlimited = expected.remaining === null;
      assert.deepStrictEqual((await getKey(keyId)).credits, unlimited ? undefined : expected);
      const spendable = unlimited || expected.remaining > 0;
      await verifiesEverywhere(key, {
        code: spendable ? "VALID" : "USAGE_EXCEEDED", credits: unlimited ? undefined : Math.max(expected.remaining - 1, 0),
      });
    });
  }
  for (const operation of ["increment", "decrement"]) {
    for (const value of [undefined, null]) {
      await check(`${operation} by ${value} is 400`, () => rejects("/properties/value", update(operation, value)));
    }
    await check(`${operation} of an unlimited key is 400`, async () => {
      await data(update("set", null));
      await raises(E.invalid, update(operation, 1));
      assert.ok(!("credits" in (await getKey(keyId))));
    });
  }
  await check("refuses a negative value", () => rejects("/properties/value/minimum", update("set", -1)));
  await check("refuses an unknown operation", () => rejects("/properties/operation/enum", update("double", 1)));
  await check("an unknown key is 404", () => raises(E.noKey, unkey.keys.updateCredits({ keyId: "key_doesnotexist0000", operation: "set", value: 1 })));
});

await section("rerollKey", async (check) => {
  const [slug, role, externalId] = ["reroll", "reroll-role", "reroll-user"].map(fresh);
  await data(unkey.permissions.createPermission({ name: slug, slug }));
  await data(unkey.permissions.createRole({ name: role, permissions: [`${slug}.r`] }));
  const MINUTE = 60_000;
  const make = (more = {}) => createKey({ apiId, ...more });
  const reroll = (keyId, expiration) => data(unkey.keys.rerollKey({ keyId, expiration }));

  await check("the new key has all of the old one, and an id, a secret and limits of its own", async () => {
    const expires = Date.now() + 10_000 * MINUTE;
    const old = await make({
      prefix: "acme_live", byteLength: 24, name: "rolled", externalId, meta: { a: 1 }, expires, roles: [role], permissions: [slug], enabled: true,
      credits: { remaining: 100, refill: { interval: "daily", amount: 7 } }, ratelimits: [{ name: "auto", limit: 10, duration: LONG, autoApply: true }],
    });
    await verify(old.key);
    const before = await getKey(old.keyId);
    const made = await reroll(old.keyId, MINUTE);
    assert.deepStrictEqual(Object.keys(made).sort(), ["key", "keyId"]);
    assert.match(made.keyId, ID("key"));
    assert.notEqual(made.keyId, old.keyId);
    assert.ok(made.key.startsWith("acme_live_") && made.key !== old.key);
    assert.equal(base58Bytes(made.key.slice("acme_live_".length)), 24);
    const after = await getKey(made.keyId);
    isNow(after.createdAt);
    assert.notEqual(after.ratelimits[0].id, before.ratelimits[0].id);
    assert.deepStrictEqual(after, {
      ...before, keyId: made.keyId, start: made.key.slice(0, "acme_live_".length + 4), createdAt: after.createdAt,
      ratelimits: [{ ...before.ratelimits[0], id: after.ratelimits[0].id }],
    });
    assert.deepStrictEqual(await verify(made.key), {
      valid: true, code: "VALID", keyId: made.keyId, enabled: true, name: "rolled", meta: { a: 1 }, expires, roles: [role],
      permissions: [slug, `${slug}.r`], credits: 98, identity: before.identity, ratelimits: [checked(after.ratelimits[0], 9)],
    });
  });
  await check("with 0 the old key ends at once", async () => {
    const old = await make();
    const made = await reroll(old.keyId, 0);
    await verifiesEverywhere(old.key, { valid: false, code: "EXPIRED", keyId: old.keyId });
    assert.deepStrictEqual(await verify(made.key), { valid: true, code: "VALID", keyId: made.keyId, enabled: true });
  });
  for (const [title, fields, expiration, ends] of [
    ["a grace is rounded up to a full minute", {}, 1, (from) => [from + 1, from + 1 + MINUTE]],
    ["a grace of an hour", {}, 60 * MINUTE, (from) => [from + 60 * MINUTE, from + 61 * MINUTE]],
    ["a later end comes down to it", { expires: 4_102_444_800_000 }, 60 * MINUTE, (from) => [from + 60 * MINUTE, from + 61 * MINUTE]],
  ]) {
    await check(title, async () => {
      await avoidMinuteEnd();
      const from = Date.now();
      const old = await make(fields);
      await reroll(old.keyId, expiration);
      const { expires } = await getKey(old.keyId);
      const [least, most] = ends(from);
      assert.ok(expires >= least && expires <= most + 5000 && expires % MINUTE === 0, `${expires - from} ms from now`);
      await verifiesEverywhere(old.key, { valid: true, code: "VALID", keyId: old.keyId, expires });
    });
  }
  await check("the old key never goes on for longer than it would have", async () => {
    const expires = Date.now() + 5 * MINUTE;
    const old = await make({ expires });
    const made = await reroll(old.keyId, 60 * MINUTE);
    for (const { keyId } of [old, made]) assert.equal((await getKey(keyId)).expires, expires);
  });
  await check("a disabled key gives a disabled key", async () => {
    const { keyId } = await make({ enabled: false });
    assert.equal((await verify((await reroll(keyId, 0)).key)).code, "DISABLED");
  });
  const { keyId } = await make();
  for (const [title, fields, location] of [
    ["a negative expiration", { expiration: -1 }, "/properties/expiration/minimum"],
    ["an expiration past its bound", { expiration: 4_102_444_800_001 }, "/properties/expiration/maximum"],
    ["a short id", { keyId: "ke" }, "/properties/keyId/minLength"],
    ["an ill-formed id", { keyId: "key-1" }, "/properties/keyId/pattern"],
  ]) {
    await check(`refuses ${title}`, () => rejects(location, unkey.keys.rerollKey({ keyId, expiration: 0, ...fields })));
  }
  await check("an unknown key is 404", () => raises(E.noKey, unkey.keys.rerollKey({ keyId: "key_doesnotexist0000", expiration: 0 })));
  await check("a deleted key is 404", async () => {
    await data(unkey.keys.deleteKey({ keyId }));
    await raises(E.noKey, unkey.keys.rerollKey({ keyId, expiration: 0 }));
  });
});
