import assert from "node:assert/strict";
import { apiId, checked, checkList, createKey, data, E, fresh, getKey, ID, LONG, problem, raises, rejects, section, seen, seenByAll, sorted, unkey, verify } from "./support.mjs";

await section("identities", async (check) => {
  const { identities } = unkey;
  const get = async (identity) => sorted(await data(identities.getIdentity({ identity })));
  const make = async (externalId, fields = {}) => (await data(identities.createIdentity({ externalId, ...fields }))).identityId;
  const shared = { name: "shared", limit: 5, duration: LONG, autoApply: true };
  const spare = { name: "spare", limit: 3, duration: 60_000, autoApply: false };
  const meta = { plan: "pro", nested: { list: [1, "two", null, true, 1.5] } };

  const externalId = fresh("Somebody-1_a");
  const id = await make(externalId, { meta, ratelimits: [shared, spare] });
  let stored = await get(id);
  await check("createIdentity answers with an id only", async () => {
    assert.match(id, ID("id"));
    assert.deepStrictEqual(Object.keys(await data(identities.createIdentity({ externalId: fresh("only") }))), ["identityId"]);
  });
  await check("getIdentity finds it by id and by externalId, with every field", async () => {
    for (const limit of stored.ratelimits) assert.match(limit.id, ID("rl"));
    const ratelimits = [shared, spare].map((limit, i) => ({ id: stored.ratelimits[i].id, ...limit }));
    assert.deepStrictEqual(stored, { id, externalId, meta, ratelimits });
    assert.deepStrictEqual(await get(externalId), stored);
  });
  await check("getIdentity leaves out what the least identity does not have", async () => {
    const least = await make(fresh("least"), { meta: {}, ratelimits: [] });
    assert.deepStrictEqual(await get(least), { id: least, externalId: fresh("least") });
  });
  await check("of two limits of one name the last wins", async () => {
    const { ratelimits } = await get(await make(fresh("twice"), { ratelimits: [shared, { ...shared, limit: 9 }] }));
    assert.deepStrictEqual(ratelimits, [{ ...shared, id: ratelimits[0].id, limit: 9 }]);
  });
  await check("the same externalId again is 409", () => raises(E.identityExists, identities.createIdentity({ externalId })));
  await check("another case is another identity", async () => assert.notEqual(await make(externalId.toUpperCase()), id));

  const keys = [await createKey({ apiId, externalId }), await createKey({ apiId, externalId })];
  const told = () => ({ id: stored.id, externalId, meta: stored.meta, ratelimits: stored.ratelimits });
  await check("verifyKey tells the identity, and its keys share its limit", async () => {
    for (const [i, key] of [[0, keys[0]], [1, keys[1]]]) {
      assert.deepStrictEqual(await verify(key.key), {
        valid: true, code: "VALID", keyId: key.keyId, enabled: true, identity: told(), ratelimits: [checked(stored.ratelimits[0], 4 - i)],
      });
    }
  });
  await check("getKey tells the identity", async () => assert.deepStrictEqual(sorted((await getKey(keys[0].keyId)).identity), told()));

  for (const [title, fields, expected] of [
    ["no field changes nothing", {}, () => ({})],
    ["meta is replaced whole, and the limits stay", { meta: { a: 1 } }, () => ({ meta: { a: 1 } })],
    ["limits are replaced by name, and the id of the kept one stays",
      { ratelimits: [{ ...shared, limit: 50 }, { ...spare, name: "unlike" }] },
      (answer) => ({ ratelimits: [{ ...stored.ratelimits[0], limit: 50 }, { ...spare, name: "unlike", id: answer.ratelimits[1].id }] })],
    ["limits to none", { ratelimits: [] }, () => ({ ratelimits: undefined })],
    ["meta to an empty object clears it", { meta: {} }, () => ({ meta: undefined })],
    ["both at once", { meta, ratelimits: [shared] }, (answer) => ({ meta, ratelimits: [{ ...shared, id: answer.ratelimits[0].id }] })],
  ]) {
    await check(`updateIdentity: ${title}`, async () => {
      const answer = sorted(await data(identities.updateIdentity({ identity: externalId, ...fields })));
      const due = { ...stored, ...expected(answer) };
      for (const field of Object.keys(due)) if (due[field] === undefined) delete due[field];
      stored = due;
      assert.deepStrictEqual(answer, due);
      assert.deepStrictEqual(await get(id), due);
      await seenByAll();
      assert.deepStrictEqual((await verify(keys[0].key, { ratelimits: [] })).identity, due);
    });
  }
  await check("updateIdentity refuses two limits of one name", () => raises(E.invalid, identities.updateIdentity({ identity: id, ratelimits: [shared, shared] })));
  const limitBounds = [
    ["a limit with a name of 2", { ratelimits: [{ ...shared, name: "ab" }] }, "/properties/ratelimits/items/properties/name/minLength"],
    ["a limit of 0", { ratelimits: [{ ...shared, limit: 0 }] }, "/properties/ratelimits/items/properties/limit/minimum"],
    ["a window under a second", { ratelimits: [{ ...shared, duration: 999 }] }, "/properties/ratelimits/items/properties/duration/minimum"],
    ["51 limits", { ratelimits: Array.from({ length: 51 }, (_, i) => ({ ...shared, name: `lim${i}` })) }, "/properties/ratelimits/maxItems"],
    ["meta of 101 properties", { meta: Object.fromEntries(Array.from({ length: 101 }, (_, i) => [`k${i}`, i])) }, "/properties/meta/maxProperties"],
  ];
  for (const [title, fields, location] of limitBounds) {
    await check(`createIdentity refuses ${title}`, () => rejects(location, identities.createIdentity({ externalId: fresh("bad"), ...fields })));
    await check(`updateIdentity refuses ${title}`, () => rejects(location, identities.updateIdentity({ identity: id, ...fields })));
  }
  for (const [title, wrong, location] of [
    ["an empty externalId", "", "/properties/externalId/minLength"],
    ["an externalId of 256", "e".repeat(256), "/properties/externalId/maxLength"],
    ["an ill-formed externalId", "a b", "/properties/externalId/pattern"],
  ]) {
    await check(`createIdentity refuses ${title}`, () => rejects(location, identities.createIdentity({ externalId: wrong })));
  }
  await check("meta of a million characters is kept", async () => {
    const large = { text: "x".repeat(1_000_000) };
    assert.deepStrictEqual((await get(await make(fresh("large"), { meta: large }))).meta, large);
  });
  await check("the refused calls make and change nothing", async () => {
    await raises(E.noIdentity, identities.getIdentity({ identity: fresh("bad") }));
    assert.deepStrictEqual(await get(id), stored);
  });

  const listed = [];
  for (const name of ["a", "b", "c", "d", "e"]) {
    const fields = name === "a" ? { meta, ratelimits: [shared] } : {};
    listed.push(await get(await make(fresh(`identity-list.${name}`), fields)));
  }
  await checkList(check, "listIdentities", (fields) => identities.listIdentities(fields), fresh("identity-list"), listed);

  // The errors of this operation alone are application/problem+json: else the client would not know them.
  await check("deleteIdentity answers with meta only", async () => {
    const response = await identities.deleteIdentity({ identity: externalId });
    seen(response.meta);
    assert.deepStrictEqual(Object.keys(response), ["meta"]);
  });
  await check("its keys go on without it", async () => {
    await seenByAll();
    for (const { key, keyId } of keys) assert.deepStrictEqual(await verify(key), { valid: true, code: "VALID", keyId, enabled: true });
    assert.ok(!("identity" in (await getKey(keys[0].keyId))));
  });
  for (const named of [id, externalId, "id_doesnotexist0000"]) {
    const title = named === id ? "its id" : named === externalId ? "its externalId" : "an unknown id";
    await check(`getIdentity of ${title} is 404 then`, () => raises(E.noIdentity, identities.getIdentity({ identity: named })));
    await check(`updateIdentity of ${title} is 404 then`, () => raises(E.noIdentity, identities.updateIdentity({ identity: named, meta: {} })));
    await check(`deleteIdentity of ${title} is 404 then`, () => raises(problem(E.noIdentity), identities.deleteIdentity({ identity: named })));
  }
  await check("its externalId makes another identity, which is not that of the old keys", async () => {
    const again = await make(externalId);
    assert.notEqual(again, id);
    await seenByAll();
    assert.ok(!("identity" in (await verify(keys[0].key))));
    assert.deepStrictEqual(Object.keys(await identities.deleteIdentity({ identity: again })), ["meta"]);
  });
  for (const [procedure, kind] of [["getIdentity", E.invalid], ["updateIdentity", E.invalid], ["deleteIdentity", problem(E.invalid)]]) {
    await check(`${procedure} refuses an empty name`, () => rejects("/properties/identity/minLength", identities[procedure]({ identity: "" }), kind));
    await check(`${procedure} refuses a name of 256`, () => rejects("/properties/identity/maxLength", identities[procedure]({ identity: "i".repeat(256) }), kind));
  }
});
