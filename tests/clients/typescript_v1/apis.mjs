import assert from "node:assert/strict";
import { clientFor, code, createKey, fresh, getKey, ID, names, NOT_FOUND, pages, refused, refusedWith, result, section, seenByAll, setApi, unkey, verify } from "./support.mjs";

await section("apis", async (check) => {
  const { apis, keys } = unkey;
  const name = fresh("api");
  const { apiId, ...rest } = await result(apis.create({ name }));
  await check("create answers with the id and the name", () => {
    assert.match(apiId, ID("api"));
    assert.deepStrictEqual(rest, { name });
  });
  await check("get answers with id, workspace and name", async () => {
    const { workspaceId, ...api } = await result(apis.get({ apiId }));
    assert.match(workspaceId, /^ws_/);
    assert.deepStrictEqual(api, { id: apiId, name });
  });
  await check("names need not be unique", async () => assert.notEqual((await result(apis.create({ name }))).apiId, apiId));
  await check("an unknown api is NOT_FOUND and is named", async () => {
    for (const method of ["get", "listKeys", "delete"]) {
      await names("NOT_FOUND", ["api_doesnotexist0000"], apis[method]({ apiId: "api_doesnotexist0000" }));
    }
  });
  await check("an empty id is BAD_REQUEST", () =>
    refusedWith("BAD_REQUEST", "apiId: String must contain at least 1 character(s)", apis.delete({ apiId: "" })));

  const { keyId, key } = await createKey({ apiId });
  await check("a protected api is not deleted", async () => {
    await setApi(apiId, "--delete-protection", "on");
    await refused("DELETE_PROTECTED", apis.delete({ apiId }));
    assert.equal(await code(key), "VALID");
    await setApi(apiId, "--delete-protection", "off");
  });
  await check("delete takes its keys with it", async () => {
    assert.deepStrictEqual(await result(apis.delete({ apiId })), {});
    await seenByAll();
    assert.deepStrictEqual(await verify(key), NOT_FOUND);
    for (const gone of [apis.get({ apiId }), apis.delete({ apiId }), keys.create({ apiId }), keys.get({ keyId }), keys.update({ keyId, name: "back" })]) {
      await refused("NOT_FOUND", gone);
    }
  });
});

await section("listKeys", async (check) => {
  const { apiId } = await result(unkey.apis.create({ name: fresh("list") }));
  const { apiId: other } = await result(unkey.apis.create({ name: fresh("other") }));
  const list = (fields = {}) => (cursor) => unkey.apis.listKeys({ apiId, ...fields, cursor });
  await check("an api without keys has an empty page", async () => {
    assert.deepStrictEqual(await result(list()()), { keys: [], total: 0 });
  });

  const user = fresh("keys of");
  const made = [];
  for (const fields of [
    {}, { enabled: false, expires: 1, name: "old", meta: { a: 1 } }, { ownerId: user, prefix: "acme", environment: "test" },
    { externalId: user, ratelimit: { type: "fast", limit: 5, duration: 60_000 } }, { remaining: 7, refill: { interval: "daily", amount: 10 } },
  ]) {
    made.push((await createKey({ apiId, ...fields })).keyId);
  }
  const gone = await createKey({ apiId });
  await result(unkey.keys.delete({ keyId: gone.keyId }));
  await createKey({ apiId: other, externalId: user });

  for (const [title, fields, sizes, found] of [
    ["pages of 2, each key as get tells it, and no deleted one", { limit: 2 }, [2, 2, 1], made],
    ["a page of 5", { limit: 5 }, [5], made],
    ["a page of 100, where no size is asked for", {}, [5], made],
    ["the keys of one user, by externalId", { externalId: user, limit: 1 }, [1, 1], made.slice(2, 4)],
    ["the keys of one user, by ownerId", { ownerId: user }, [2], made.slice(2, 4)],
    ["externalId before ownerId", { externalId: user, ownerId: fresh("nobody") }, [2], made.slice(2, 4)],
    ["the keys of nobody", { externalId: fresh("nobody") }, [0], []],
    ["what a list may be asked for and need not", { decrypt: false, revalidateKeysCache: true }, [5], made],
  ]) {
    await check(title, async () => {
      const [told, keys] = await pages(list(fields), "keys");
      assert.deepStrictEqual(told, sizes);
      const due = [];
      for (const keyId of [...found].sort()) due.push(await getKey(keyId));
      const inOrder = keys.map((key) => ({ ...key, permissions: [...key.permissions].sort(), roles: [...key.roles].sort() }));
      assert.deepStrictEqual(inOrder, due);
    });
  }
  await check("the total is of the whole api", async () => {
    assert.equal((await result(list({ externalId: user, limit: 1 })())).total, 5);
  });
  await check("reading keys takes two permissions, and decrypting a third", async () => {
    const reads = [`api.${apiId}.read_key`, `api.${apiId}.read_api`];
    await refused("NOT_FOUND", clientFor(reads[0]).apis.listKeys({ apiId }));
    const reader = clientFor(...reads);
    assert.equal((await result(reader.apis.listKeys({ apiId, decrypt: false }))).keys.length, 5);
    await names("INSUFFICIENT_PERMISSIONS", ["decrypt_key"], reader.apis.listKeys({ apiId, decrypt: true }));
  });
  await check("keys that are kept are shown to who asks", async () => {
    await setApi(other, "--recoverable-keys", "on");
    const kept = await createKey({ apiId: other, recoverable: true });
    const { keys } = await result(unkey.apis.listKeys({ apiId: other, decrypt: true }));
    assert.deepStrictEqual(keys.filter((key) => "plaintext" in key).map((key) => [key.id, key.plaintext]), [[kept.keyId, kept.key]]);
    assert.equal((await getKey(kept.keyId, { decrypt: true })).plaintext, kept.key);
    assert.ok(!("plaintext" in (await getKey(kept.keyId))));
  });
});
