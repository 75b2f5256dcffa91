import assert from "node:assert/strict";
import { apiId, code, createKey, fresh, getKey, LONG, refused, result, section, unkey, updateKey, verifiesEverywhere } from "./support.mjs";

await section("updateKey", async (check) => {
  const [slug, role] = [fresh("update.read"), fresh("update.editor")];
  const { keyId, key } = await createKey({ apiId });
  let stored = await getKey(keyId);
  // Undefined stands for a field that must be absent.
  for (const [title, fields, difference] of [
    ["no field changes nothing", {}, {}],
    ["name and meta", { name: "changed", meta: { a: 1 } }, { name: "changed", meta: { a: 1 } }],
    ["an expiry", { expires: 4_000_000_000_000 }, { expires: 4_000_000_000_000 }],
    ["uses, less than none too", { remaining: -5 }, { remaining: 0 }],
    ["uses that come back each month", { remaining: 50, refill: { interval: "monthly", amount: 70 } },
      { remaining: 50, refill: { interval: "monthly", amount: 70, refillDay: 1 } }],
    ["uses that come back each day", { refill: { interval: "daily", amount: 60 } }, { refill: { interval: "daily", amount: 60, refillDay: null } }],
    ["uses that do not come back", { refill: null }, { refill: undefined }],
    ["uses without an end", { remaining: null }, { remaining: undefined }],
    ["a limit", { ratelimit: { async: false, limit: 5, duration: LONG } },
      { ratelimit: { async: false, type: "consistent", limit: 5, duration: LONG, refillRate: 5, refillInterval: LONG } }],
    ["another limit", { ratelimit: { type: "fast", limit: 6, duration: LONG } },
      { ratelimit: { async: true, type: "fast", limit: 6, duration: LONG, refillRate: 6, refillInterval: LONG } }],
    ["no limit", { ratelimit: null }, { ratelimit: undefined }],
    ["permissions and roles that are made", { permissions: [{ name: slug, create: true }], roles: [{ name: role, create: true }] },
      { permissions: [slug], roles: [role] }],
    ["no permissions and no roles", { permissions: [], roles: [] }, { permissions: [], roles: [] }],
    ["disabled", { enabled: false }, { enabled: false }],
    ["null clears", { name: null, meta: null, expires: null, enabled: true }, { name: undefined, meta: undefined, expires: undefined, enabled: true }],
  ]) {
    await check(title, async () => {
      await updateKey(keyId, fields);
      const { updatedAt, ...told } = await getKey(keyId);
      const { updatedAt: _, ...due } = { ...stored, ...difference };
      for (const field of Object.keys(due)) if (due[field] === undefined) delete due[field];
      assert.deepStrictEqual(told, due);
      stored = told;
    });
  }
  await check("whose key it is, by either name, and nobody's", async () => {
    await updateKey(keyId, { externalId: fresh("first"), ownerId: fresh("second") });
    assert.deepStrictEqual([(await getKey(keyId)).identity.externalId, (await getKey(keyId)).ownerId], [fresh("first"), fresh("first")]);
    await updateKey(keyId, { ownerId: fresh("second") });
    await verifiesEverywhere(key, { code: "VALID", ownerId: fresh("second") });
    await updateKey(keyId, { externalId: null });
    await verifiesEverywhere(key, { code: "VALID", ownerId: undefined, identity: undefined });
  });
  await check("what is changed is seen by the next verification", async () => {
    await updateKey(keyId, { enabled: false });
    await verifiesEverywhere(key, { code: "DISABLED", enabled: false });
    await updateKey(keyId, { enabled: true, expires: 1 });
    await verifiesEverywhere(key, { code: "EXPIRED", expires: 1 });
    await updateKey(keyId, { expires: null, remaining: 1 });
    await verifiesEverywhere(key, { code: "VALID", remaining: 0 });
    await verifiesEverywhere(key, { code: "USAGE_EXCEEDED", remaining: 0 });
  });
  await check("one fault changes nothing", async () => {
    const before = await getKey(keyId);
    await refused("BAD_REQUEST", unkey.keys.update({ keyId, name: "other", remaining: null, refill: { interval: "daily", amount: 1 } }));
    await refused("BAD_REQUEST", unkey.keys.update({ keyId, name: "other", permissions: [{}] }));
    await refused("NOT_FOUND", unkey.keys.update({ keyId, name: "other", roles: [{ name: fresh("no role") }] }));
    await refused("NOT_FOUND", unkey.keys.update({ keyId: "key_doesnotexist0000", name: "other" }));
    assert.deepStrictEqual(await getKey(keyId), before);
  });
});

await section("updateRemaining", async (check) => {
  const { keyId, key } = await createKey({ apiId });
  for (const [op, value, left] of [
    ["set", 10, 10], ["increment", 5, 15], ["decrement", 7, 8], ["decrement", 9, 0], ["increment", 3, 3], ["increment", -1, 2],
    ["decrement", -2, 4], ["set", 0, 0], ["set", null, null], ["set", 2, 2],
  ]) {
    await check(`${op} ${value}`, async () => {
      assert.deepStrictEqual(await result(unkey.keys.updateRemaining({ keyId, op, value })), { remaining: left });
      assert.equal((await getKey(keyId)).remaining, left ?? undefined);
    });
  }
  await check("verify takes from what is left then", async () => {
    await verifiesEverywhere(key, { code: "VALID", remaining: 1 });
    await verifiesEverywhere(key, { code: "VALID", remaining: 0 });
    assert.equal(await code(key), "USAGE_EXCEEDED");
  });
  await check("what cannot be counted is BAD_REQUEST", async () => {
    await refused("BAD_REQUEST", unkey.keys.updateRemaining({ keyId, op: "increment", value: null }));
    await refused("BAD_REQUEST", unkey.keys.updateRemaining({ keyId, op: "set" }));
    await refused("BAD_REQUEST", unkey.keys.updateRemaining({ keyId, op: "double", value: 2 }));
    const unlimited = await createKey({ apiId });
    await refused("BAD_REQUEST", unkey.keys.updateRemaining({ keyId: unlimited.keyId, op: "decrement", value: 1 }));
    await refused("NOT_FOUND", unkey.keys.updateRemaining({ keyId: "key_doesnotexist0000", op: "set", value: 1 }));
  });
});
