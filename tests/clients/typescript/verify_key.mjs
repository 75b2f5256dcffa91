import assert from "node:assert/strict";
import { apiId, createKey, data, E, fresh, LONG, NOT_FOUND, raises, rejects, rootKey, run, section, sleep, unkey, verify } from "./support.mjs";

await section("verifyKey", async (check) => {
  await check("an unknown key is NOT_FOUND, with nothing else told", async () => assert.deepStrictEqual(await verify("nobody_knows_this"), NOT_FOUND));
  await check("a key of 512 is looked up", async () => assert.deepStrictEqual(await verify("🔑".repeat(512)), NOT_FOUND));
  await check("an empty key is 400", () => rejects("/properties/key/minLength", unkey.keys.verifyKey({ key: "" })));
  await check("a key of 513 is 400", () => rejects("/properties/key/maxLength", unkey.keys.verifyKey({ key: "k".repeat(513) })));
  await check("the root key is no key of an API", async () => assert.deepStrictEqual(await verify(rootKey), NOT_FOUND));
  await check("a key with one letter changed is NOT_FOUND", async () => {
    const { key } = await createKey({ apiId });
    assert.deepStrictEqual(await verify(key.slice(0, -1) + (key.endsWith("x") ? "y" : "x")), NOT_FOUND);
    assert.deepStrictEqual(await verify(` ${key}`), NOT_FOUND);
    assert.equal((await verify(key)).code, "VALID");
  });
  await check("DISABLED tells the key, and comes before EXPIRED", async () => {
    const { key, keyId } = await createKey({ apiId, name: "off", enabled: false, expires: 1, meta: { a: 1 }, credits: { remaining: 0 } });
    assert.deepStrictEqual(await verify(key), { valid: false, code: "DISABLED", keyId, enabled: false, name: "off", expires: 1, meta: { a: 1 }, credits: 0 });
  });
  await check("EXPIRED tells the key, and comes before the permissions", async () => {
    const { key, keyId } = await createKey({ apiId, expires: 1, credits: { remaining: 4 } });
    assert.deepStrictEqual(await verify(key, { permissions: fresh("none") }), { valid: false, code: "EXPIRED", keyId, enabled: true, expires: 1, credits: 4 });
  });
  await check("a key expires when its time comes", async () => {
    const expires = Date.now() + 1500;
    const { key, keyId } = await createKey({ apiId, expires });
    assert.equal((await verify(key)).code, "VALID");
    await sleep(expires - Date.now() + 300);
    assert.deepStrictEqual(await verify(key), { valid: false, code: "EXPIRED", keyId, enabled: true, expires });
  });
  await check("20 tags of 512 do not change the outcome", async () => {
    const { key, keyId } = await createKey({ apiId });
    const tags = Array.from({ length: 20 }, (_, i) => `${i}=${"é".repeat(512)}`.slice(0, 512));
    assert.deepStrictEqual(await verify(key, { tags }), { valid: true, code: "VALID", keyId, enabled: true });
    await rejects("/properties/tags/maxItems", unkey.keys.verifyKey({ key, tags: [...tags, "one more"] }));
    await rejects("/properties/tags/items/maxLength", unkey.keys.verifyKey({ key, tags: ["t".repeat(513)] }));
    await rejects("/properties/tags/items/minLength", unkey.keys.verifyKey({ key, tags: [""] }));
  });
  await check("a migrationId does not matter to a key that is known", async () => {
    const { key } = await createKey({ apiId });
    assert.equal((await verify(key, { migrationId: "mig_unknown" })).code, "VALID");
    assert.deepStrictEqual(await verify("seam_short_long", { migrationId: "mig_unknown" }), NOT_FOUND);
    await rejects("/properties/migrationId/maxLength", unkey.keys.verifyKey({ key, migrationId: "m".repeat(257) }));
  });
});

await section("permission expressions", async (check) => {
  const [a, b, c, d] = ["a", "b", "c", "d"].map(fresh);
  const star = fresh("x.*");
  for (const slug of [a, b, star]) await data(unkey.permissions.createPermission({ name: slug, slug }));
  const role = fresh("expressions");
  await data(unkey.permissions.createRole({ name: role, permissions: [c] }));
  const { key, keyId } = await createKey({
    apiId, permissions: [a, b, star], roles: [role], credits: { remaining: 1000 },
    ratelimits: [{ name: "auto", limit: 1000, duration: LONG, autoApply: true }],
  });
  const cases = [
    [a, true], [c, true], [d, false],
    [`${a} AND ${b}`, true], [`${a} AND ${d}`, false], [`${a} OR ${d}`, true], [`${d} OR ${a}`, true], [`${d} OR ${d}`, false],
    [`${a} AND (${d} OR ${c})`, true], [`(${a} AND ${d}) OR ${c}`, true], [`${d} AND (${a} OR ${b})`, false],
    // These two tell whether AND binds tighter than OR.
    [`${b} OR ${a} AND ${d}`, true], [`${d} AND ${d} OR ${a}`, true],
    [`(${b} OR ${a}) AND ${d}`, false], [`${a} AND ${b} AND ${c}`, true], [`${a} AND ${b} AND ${d}`, false],
    [`${d} and ${a} or ${b}`, true], [`${a} And ${b}`, true], [` \t${a}\r\nAND\n${b} `, true],
    [a.toUpperCase(), false], [star, true], [fresh("x.read"), false], [`${run}.*`, false], [`${a}/${b}`, false],
    [`${"(".repeat(400)}${a}${")".repeat(400)}`, true],
  ];
  let valid = 0;
  for (const [query, holds] of cases) {
    const title = query.replaceAll(`${run}.`, "").replaceAll(run, "run").replace(/\(+/, (all) => (all.length > 9 ? "(…" : all)).replace(/\)+/, (all) => (all.length > 9 ? "…)" : all));
    await check(`${JSON.stringify(title)} is ${holds ? "VALID" : "INSUFFICIENT_PERMISSIONS"}`, async () => {
      const answer = await verify(key, { permissions: query });
      assert.deepStrictEqual([answer.valid, answer.code], [holds, holds ? "VALID" : "INSUFFICIENT_PERMISSIONS"]);
      if (holds) valid += 1;
    });
  }
  await check("INSUFFICIENT_PERMISSIONS tells the key and spends nothing", async () => {
    assert.deepStrictEqual(await verify(key, { permissions: d }), {
      valid: false, code: "INSUFFICIENT_PERMISSIONS", keyId, enabled: true,
      permissions: [a, b, c, star].sort(), roles: [role], credits: 1000 - valid,
    });
    const answer = await verify(key, { credits: { cost: 0 }, ratelimits: [{ name: "auto", cost: 0 }] });
    assert.deepStrictEqual([answer.credits, answer.ratelimits[0].remaining], [1000 - valid, 1000 - valid]);
  });
  for (const query of [" ", "AND", `${a} AND`, `OR ${a}`, `${a} AND OR ${b}`, `(${a}`, `${a})`, "()", `${a} ${b}`, `${a} & ${b}`, `"${a}"`, `${a} AND (${b}`, "é", "a\u0000b"]) {
    await check(`${JSON.stringify(query.replaceAll(`${run}.`, ""))} is a syntax error`, async () => {
      const error = await raises(E.query, unkey.keys.verifyKey({ key, permissions: query }));
      assert.deepStrictEqual(error.errors, []);
      assert.notEqual(error.detail, "");
    });
  }
  await check("a syntax error wins over DISABLED", async () => {
    const off = await createKey({ apiId, enabled: false });
    await raises(E.query, unkey.keys.verifyKey({ key: off.key, permissions: "(" }));
  });
  await check("an empty expression is 400", () => rejects("/properties/permissions/minLength", unkey.keys.verifyKey({ key, permissions: "" })));
  await check("an expression of 1001 is 400", () => rejects("/properties/permissions/maxLength", unkey.keys.verifyKey({ key, permissions: "p".repeat(1001) })));
});
