import assert from "node:assert/strict";
import { createKey, data, E, fresh, getKey, ID, LONG, NOT_FOUND, pages, raises, rejects, section, seenByAll, settled, unkey, verify } from "./support.mjs";

await section("apis", async (check) => {
  const { apiId } = await data(unkey.apis.createApi({ name: fresh("api") }));
  await check("createApi answers with an id", () => assert.match(apiId, ID("api")));
  await check("getApi answers with id and name", async () => {
    assert.deepStrictEqual(await data(unkey.apis.getApi({ apiId })), { id: apiId, name: fresh("api") });
  });
  await check("names need not be unique", async () => {
    const other = await data(unkey.apis.createApi({ name: fresh("api") }));
    assert.match(other.apiId, ID("api"));
    assert.notEqual(other.apiId, apiId);
  });
  await check("name lengths count code points: three emoji are enough", async () => {
    const other = await data(unkey.apis.createApi({ name: "🔑🔑🔑" }));
    assert.equal((await data(unkey.apis.getApi({ apiId: other.apiId }))).name, "🔑🔑🔑");
  });
  await check("a name of 256 emoji is accepted", () => data(unkey.apis.createApi({ name: "🔑".repeat(256) })));
  await check("a name of two emoji is too short", () => rejects("/properties/name/minLength", unkey.apis.createApi({ name: "🔑🔑" })));
  await check("a name of 257 is too long", () => rejects("/properties/name/maxLength", unkey.apis.createApi({ name: "a".repeat(257) })));
  await check("getApi of an unknown id", () => raises(E.noApi, unkey.apis.getApi({ apiId: "api_doesnotexist0000" })));
  await check("getApi of a short id", () => rejects("/properties/apiId/minLength", unkey.apis.getApi({ apiId: "api_123" })));
  await check("getApi of an ill-formed id", () => rejects("/properties/apiId/pattern", unkey.apis.getApi({ apiId: "api-with-dashes" })));
  await check("deleteApi of an unknown id", () => raises(E.noApi, unkey.apis.deleteApi({ apiId: "api_doesnotexist0000" })));
  await check("deleteApi of a long id", () => rejects("/properties/apiId/maxLength", unkey.apis.deleteApi({ apiId: "a".repeat(256) })));

  const { keyId, key } = await createKey({ apiId, name: "orphan" });
  await check("a key verifies before deleteApi", async () => assert.equal((await verify(key)).code, "VALID"));
  await check("deleteApi answers with an empty object", async () => {
    assert.deepStrictEqual(await data(unkey.apis.deleteApi({ apiId })), {});
  });
  await check("after deleteApi the key is NOT_FOUND, with nothing else told", async () => {
    await seenByAll();
    assert.deepStrictEqual(await verify(key), NOT_FOUND);
  });
  await check("after deleteApi getApi is 404", () => raises(E.noApi, unkey.apis.getApi({ apiId })));
  await check("a second deleteApi is 404", () => raises(E.noApi, unkey.apis.deleteApi({ apiId })));
  await check("after deleteApi createKey is 404", () => raises(E.noApi, unkey.keys.createKey({ apiId })));
  await check("after deleteApi getKey is 404", () => raises(E.noKey, unkey.keys.getKey({ keyId })));
  await check("after deleteApi updateKey is 404", () => raises(E.noKey, unkey.keys.updateKey({ keyId, name: "back" })));
  await check("after deleteApi whoami is 404", () => raises(E.noKey, unkey.keys.whoami({ key })));
});

await section("listKeys", async (check) => {
  const { apiId } = await data(unkey.apis.createApi({ name: fresh("list") }));
  const list = (fields = {}) => unkey.apis.listKeys({ apiId, ...fields });
  await check("an API without keys has an empty page", async () => assert.deepStrictEqual(await pages(list()), [[0], []]));

  const externalId = fresh("keys-of");
  const limit = { name: "auto", limit: 5, duration: LONG, autoApply: true };
  const made = [];
  for (const fields of [
    {}, { enabled: false, expires: 1, name: "old", meta: { a: 1 } }, { externalId, prefix: "acme", ratelimits: [limit] }, { externalId },
    { credits: { remaining: 7, refill: { interval: "daily", amount: 10 } } },
  ]) {
    const key = await createKey({ apiId, ...fields });
    await verify(key.key);
    made.push({ ...key, externalId: fields.externalId });
  }
  const gone = await createKey({ apiId });
  await data(unkey.keys.deleteKey({ keyId: gone.keyId }));
  await createKey({ apiId: (await data(unkey.apis.createApi({ name: fresh("other") }))).apiId, externalId });
  const stored = async (keys) => Promise.all(keys.map(({ keyId }) => keyId).sort().map(getKey));

  for (const [title, fields, sizes, keys] of [
    ["pages of 2, each key as getKey tells it, and no deleted one", { limit: 2 }, [2, 2, 1], made],
    ["a page of 5", { limit: 5 }, [5], made],
    ["a page of 100, where no size is asked for", {}, [5], made],
    ["the keys of one user", { externalId, limit: 1 }, [1, 1], made.filter((key) => key.externalId)],
    ["the keys of nobody", { externalId: fresh("nobody") }, [0], []],
    ["without a cache", { revalidateKeysCache: true }, [5], made],
  ]) {
    await check(title, async () => {
      const [lengths, all] = await pages(list(fields));
      assert.deepStrictEqual([lengths, all.map(settled)], [sizes, await stored(keys)]);
    });
  }
  await check("decrypt is 412 where no copies of keys are kept", () => raises(E.precondition, list({ decrypt: true })));
  await check("an unknown API is 404", () => raises(E.noApi, list({ apiId: "api_doesnotexist0000" })));
  for (const [title, fields, location] of [
    ["an empty apiId", { apiId: "" }, "/properties/apiId/minLength"],
    ["a page of 0", { limit: 0 }, "/properties/limit/minimum"],
    ["a page of 101", { limit: 101 }, "/properties/limit/maximum"],
    ["a cursor of 1025", { cursor: "c".repeat(1025) }, "/properties/cursor/maxLength"],
    ["an empty externalId", { externalId: "" }, "/properties/externalId/minLength"],
  ]) {
    await check(`refuses ${title}`, () => rejects(location, list(fields)));
  }
  await check("a deleted API is 404", async () => {
    await data(unkey.apis.deleteApi({ apiId }));
    await raises(E.noApi, list());
  });
});
