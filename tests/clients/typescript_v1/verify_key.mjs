import assert from "node:assert/strict";
import { and, or } from "unkey-api-v1";
import { apiId, bare, code, createKey, fresh, LONG, NOT_FOUND, refused, refusedWith, result, rootKey, section, unkey, verify, windowEnd } from "./support.mjs";

await section("verifyKey", async (check) => {
  await check("an unknown key is NOT_FOUND, with nothing else told", async () => assert.deepStrictEqual(await verify("nobody_knows_this"), NOT_FOUND));
  await check("the root key is no key of an api", async () => assert.deepStrictEqual(await verify(rootKey), NOT_FOUND));
  await check("an empty key is BAD_REQUEST", () =>
    refusedWith("BAD_REQUEST", "key: String must contain at least 1 character(s)", unkey.keys.verify({ key: "" })));
  await check("DISABLED before FORBIDDEN before EXPIRED, each with what is known", async () => {
    const { apiId: other } = await result(unkey.apis.create({ name: fresh("other") }));
    const off = await createKey({ apiId, enabled: false, expires: 1, meta: { a: 1 }, remaining: 5 });
    const old = await createKey({ apiId, expires: 1, externalId: fresh("user") });
    const told = { ...bare(off.keyId), valid: false, code: "DISABLED", enabled: false, expires: 1, meta: { a: 1 } };
    assert.deepStrictEqual(await verify(off.key, { apiId: other }), told);
    assert.equal(await code(old.key, { apiId: other }), "FORBIDDEN");
    const expired = await verify(old.key, { apiId });
    assert.deepStrictEqual([expired.code, expired.ownerId], ["EXPIRED", fresh("user")]);
    assert.equal(await code(old.key, { apiId: "" }), "EXPIRED");
  });
  await check("uses are taken by cost, and a cost that is too much takes none", async () => {
    const { key } = await createKey({ apiId, remaining: 5 });
    const left = async (cost) => (({ code, remaining }) => [code, remaining])(await verify(key, { remaining: { cost } }));
    assert.deepStrictEqual(await left(2), ["VALID", 3]);
    assert.equal((await left(4))[0], "USAGE_EXCEEDED");
    assert.deepStrictEqual(await left(0), ["VALID", 3]);
    assert.deepStrictEqual(await left(3), ["VALID", 0]);
    assert.deepStrictEqual(await left(1), ["USAGE_EXCEEDED", 0]);
    assert.deepStrictEqual(await left(0), ["VALID", 0]);
    await refused("BAD_REQUEST", unkey.keys.verify({ key, remaining: { cost: -1 } }));
  });
  await check("the limit of a key is told, and named in older words", async () => {
    const { key } = await createKey({ apiId, ratelimit: { limit: 5, duration: LONG } });
    const standing = (remaining) => ({ limit: 5, remaining, reset: windowEnd(LONG) });
    assert.deepStrictEqual((await verify(key)).ratelimit, standing(4));
    assert.deepStrictEqual((await verify(key, { ratelimit: { cost: 3 } })).ratelimit, standing(1));
    assert.deepStrictEqual((await verify(key, { ratelimits: [{ name: "default", cost: 0 }] })).ratelimit, standing(1));
    assert.equal(await code(key, { ratelimit: { cost: 2 } }), "RATE_LIMITED");
    assert.equal(await code(key), "VALID");
    assert.equal(await code(key), "RATE_LIMITED");
  });
  await check("a limit of the call needs nothing that is stored", async () => {
    const { key } = await createKey({ apiId });
    const ratelimits = [{ name: "uploads", limit: 2, duration: LONG }];
    assert.deepStrictEqual((await verify(key, { ratelimits })).ratelimit, { limit: 2, remaining: 1, reset: windowEnd(LONG) });
    assert.deepStrictEqual([await code(key, { ratelimits }), await code(key, { ratelimits })], ["VALID", "RATE_LIMITED"]);
    await refused("BAD_REQUEST", unkey.keys.verify({ key, ratelimits: [{ name: "nowhere" }] }));
  });
});

await section("permission queries", async (check) => {
  const [a, b, c, none] = ["a", "b", "c", "none"].map((name) => fresh(`query.${name}`));
  for (const name of [a, b, c]) await result(unkey.permissions.createPermission({ name }));
  const { key } = await createKey({ apiId, permissions: [a, b, c] });
  for (const [title, query, expected] of [
    ["one that it has", a, "VALID"],
    ["one that it has not", none, "INSUFFICIENT_PERMISSIONS"],
    ["all", and(a, b, c), "VALID"],
    ["all but one", and(a, none), "INSUFFICIENT_PERMISSIONS"],
    ["any", or(none, b), "VALID"],
    ["none of them", or(none, fresh("query.other")), "INSUFFICIENT_PERMISSIONS"],
    ["any of any", or(none, and(a, or(none, c))), "VALID"],
    ["what the client leaves out", and(a, undefined, null, false, or(b, "")), "VALID"],
    ["nothing", undefined, "VALID"],
    ["an empty text", "", "VALID"],
  ]) {
    await check(title, async () => assert.equal(await code(key, { authorization: { permissions: query } }), expected));
  }
  for (const query of [{}, { and: [] }, { or: [null] }, [a], 5]) {
    await check(`${JSON.stringify(query).replace(a, "a")} is BAD_REQUEST`, () =>
      refused("BAD_REQUEST", unkey.keys.verify({ key, authorization: { permissions: query } })));
  }
});
