import assert from "node:assert/strict";
import { apiId, bare, createKey, fresh, getKey, ID, LONG, names, pages, refused, refusedWith, result, section, seenByAll, unkey, verify, verifiesEverywhere, windowEnd } from "./support.mjs";

await section("identities", async (check) => {
  const { identities } = unkey;
  const externalId = `${fresh("somebody")} ü`;
  const meta = { plan: "pro", nested: { list: [1, "two", null, true, 1.5] } };
  const ratelimits = [{ name: "shared", limit: 5, duration: LONG }, { name: "spare", limit: 3, duration: 60_000 }];
  const { identityId, ...rest } = await result(identities.create({ externalId, meta, ratelimits }));
  let stored = { id: identityId, externalId, meta, ratelimits };
  await check("create answers with the id", () => {
    assert.match(identityId, ID("id"));
    assert.deepStrictEqual(rest, {});
  });
  await check("get finds it by id and by externalId, with every field", async () => {
    assert.deepStrictEqual(await result(identities.get({ identityId })), stored);
    assert.deepStrictEqual(await result(identities.get({ externalId })), stored);
    assert.deepStrictEqual(await result(identities.get({ identityId, externalId: fresh("nobody") })), stored);
  });
  await check("the least identity has empty meta and no limits", async () => {
    const least = await result(identities.create({ externalId: fresh("least") }));
    const told = { id: least.identityId, externalId: fresh("least"), meta: {}, ratelimits: [] };
    assert.deepStrictEqual(await result(identities.get(least)), told);
  });
  await check("there is one identity of a user", () => names("CONFLICT", [externalId], identities.create({ externalId })));
  await check("two limits of one name are CONFLICT", async () => {
    const twice = [ratelimits[0], ratelimits[0]];
    const message = 'Ratelimit with name "shared" is already defined in the request';
    await refusedWith("CONFLICT", message, identities.create({ externalId: fresh("twice"), ratelimits: twice }));
    await refusedWith("CONFLICT", message, identities.update({ identityId, ratelimits: twice }));
  });
  await check("without a name it is BAD_REQUEST", async () => {
    await refusedWith("BAD_REQUEST", "Provide either identityId or externalId", identities.get({}));
    await refusedWith("BAD_REQUEST", "Provide either identityId or externalId", identities.update({ meta }));
  });

  const keys = [await createKey({ apiId, externalId }), await createKey({ apiId, ownerId: externalId })];
  const identity = () => ({ id: identityId, externalId, meta: stored.meta });
  await check("verify tells the identity of its keys, which share its limits", async () => {
    for (const [used, { key, keyId }] of keys.entries()) {
      assert.deepStrictEqual(await verify(key, { ratelimits: [{ name: "shared", cost: 2 }] }), {
        ...bare(keyId), ownerId: externalId, identity: identity(),
        ratelimit: { limit: 5, remaining: 3 - 2 * used, reset: windowEnd(LONG) },
      });
      assert.deepStrictEqual((await getKey(keyId)).identity, identity());
    }
    assert.equal((await verify(keys[0].key, { ratelimits: [{ name: "shared", cost: 2 }] })).code, "RATE_LIMITED");
    assert.ok(!("ratelimit" in (await verify(keys[0].key))));
  });

  for (const [title, fields, difference] of [
    ["no field changes nothing", {}, {}],
    ["meta is replaced whole, and the limits stay", { meta: { a: 1 } }, { meta: { a: 1 } }],
    ["limits are replaced by name", { ratelimits: [{ ...ratelimits[0], limit: 50 }] }, { ratelimits: [{ ...ratelimits[0], limit: 50 }] }],
    ["limits to none", { ratelimits: [] }, { ratelimits: [] }],
    ["meta to an empty object clears it", { meta: {} }, { meta: {} }],
    ["both at once, in an environment", { meta, ratelimits, environment: "default" }, { meta, ratelimits }],
  ]) {
    await check(`update: ${title}`, async () => {
      stored = { ...stored, ...difference };
      assert.deepStrictEqual(await result(identities.update({ externalId, ...fields })), stored);
      assert.deepStrictEqual(await result(identities.get({ identityId })), stored);
      await verifiesEverywhere(keys[0].key, { identity: identity() });
    });
  }

  await check("list tells all of them page by page, without meta", async () => {
    let total, sizes, all;
    // Other drivers may create and delete identities meanwhile.
    for (let attempt = 0; attempt === 0 || (attempt < 10 && all.length !== total); attempt += 1) {
      ({ total } = await result(identities.list({ limit: 1 })));
      [sizes, all] = await pages((cursor) => identities.list({ limit: 100, cursor, environment: "default" }), "identities");
    }
    assert.ok(sizes.slice(0, -1).every((size) => size === 100), `${sizes}`);
    assert.equal(all.length, total);
    assert.equal(new Set(all.map((one) => one.id)).size, total);
    assert.deepStrictEqual(all.filter((one) => one.id === identityId), [{ id: identityId, externalId, ratelimits }]);
  });
  await check("delete leaves its keys without it", async () => {
    assert.deepStrictEqual(await result(identities.delete({ identityId })), {});
    await seenByAll();
    for (const { key, keyId } of keys) assert.deepStrictEqual(await verify(key), { ...bare(keyId), ownerId: externalId });
    for (const gone of [identities.get({ identityId }), identities.get({ externalId }), identities.update({ externalId }), identities.delete({ identityId })]) {
      await refused("NOT_FOUND", gone);
    }
  });
});
