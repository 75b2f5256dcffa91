import assert from "node:assert/strict";
import { createKey, data, E, fresh, ID, NOT_FOUND, raises, rejects, section, unkey, verify } from "./support.mjs";

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
    assert.deepStrictEqual(await verify(key), NOT_FOUND);
  });
  await check("after deleteApi getApi is 404", () => raises(E.noApi, unkey.apis.getApi({ apiId })));
  await check("a second deleteApi is 404", () => raises(E.noApi, unkey.apis.deleteApi({ apiId })));
  await check("after deleteApi createKey is 404", () => raises(E.noApi, unkey.keys.createKey({ apiId })));
  await check("after deleteApi getKey is 404", () => raises(E.noKey, unkey.keys.getKey({ keyId })));
  await check("after deleteApi updateKey is 404", () => raises(E.noKey, unkey.keys.updateKey({ keyId, name: "back" })));
  await check("after deleteApi whoami is 404", () => raises(E.noKey, unkey.keys.whoami({ key })));
});
