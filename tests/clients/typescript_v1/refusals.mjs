import assert from "node:assert/strict";
import { createServer } from "node:http";
import { apiId, client, clientFor, code, createKey, fresh, names, refused, refusedWith, result, rootKey, section, serverURL, unkey } from "./support.mjs";

await section("refusals", async (check) => {
  for (const [title, key] of [["an unknown root key", "nobody_knows_this_key"], ["the word public", "public"]]) {
    await check(`${title} is UNAUTHORIZED`, async () => {
      const stranger = client(key);
      await refused("UNAUTHORIZED", stranger.apis.get({ apiId }));
      await refused("UNAUTHORIZED", stranger.apis.create({ name: "" }));
      await refused("UNAUTHORIZED", stranger.keys.get({ keyId: "key_doesnotexist0000" }));
      await refused("UNAUTHORIZED", stranger.migrations.createKeys([]));
    });
  }
  await check("a key of an API is no root key", async () => {
    const { key } = await createKey({ apiId });
    await refused("UNAUTHORIZED", client(key).apis.get({ apiId }));
  });
  await check("verify takes whatever root key there is", async () => {
    const { key, keyId } = await createKey({ apiId });
    const answer = await result(client("public").keys.verify({ key }));
    assert.deepEqual([answer.valid, answer.keyId], [true, keyId]);
  });
  await check("what a root key lacks is named", async () => {
    const weak = clientFor("api.*.create_api");
    await names("INSUFFICIENT_PERMISSIONS", ["api.*.read_api"], weak.apis.get({ apiId }));
    await names("INSUFFICIENT_PERMISSIONS", ["identity.*.create_identity"], weak.identities.create({ externalId: fresh("weak") }));
    await names("INSUFFICIENT_PERMISSIONS", ["rbac.*.create_role"], weak.permissions.createRole({ name: fresh("weak") }));
    await refused("NOT_FOUND", weak.keys.create({ apiId }));
    await refused("NOT_FOUND", weak.apis.listKeys({ apiId }));
  });
  await check("faults are worded as programs know them", async () => {
    await refusedWith("BAD_REQUEST", "name: Required", unkey.apis.create({}));
    await refusedWith("BAD_REQUEST", "name: String must contain at least 3 character(s)", unkey.apis.create({ name: "ab" }));
    await refusedWith("BAD_REQUEST", "name: Expected string, received number", unkey.apis.create({ name: 5 }));
    await refusedWith("BAD_REQUEST", "byteLength: Expected integer, received float", unkey.keys.create({ apiId, byteLength: 16.5 }));
    await refusedWith("BAD_REQUEST", "limit: Number must be less than or equal to 100", unkey.apis.listKeys({ apiId, limit: 101 }));
  });
  await check("null is no field that was left out", () =>
    refusedWith("BAD_REQUEST", "name: Expected string, received null", unkey.keys.create({ apiId, name: null })));
  await check("undefined is, in a body and in a query", async () => {
    await createKey({ apiId, name: undefined });
    await result(unkey.apis.listKeys({ apiId, limit: 1, cursor: undefined, ownerId: null }));
  });
  await check("fields that nobody knows are passed over", async () => {
    const { key } = await createKey({ apiId, surprise: 1 });
    assert.equal(await code(key, { surprise: [1] }), "VALID");
  });
});

await section("retries", async (check) => {
  const { debug } = console;
  console.debug = () => {};
  let asked = 0;
  // What stands before the server: it breaks the first request off, and has no server for the second.
  const balancer = createServer(async (request, response) => {
    asked += 1;
    if (asked === 1) return request.socket.destroy();
    if (asked === 2) return response.writeHead(503).end("no server");
    const answer = await fetch(serverURL + request.url, { headers: { authorization: request.headers.authorization } });
    response.writeHead(answer.status, { "content-type": "application/json" }).end(await answer.text());
  });
  await new Promise((listening) => balancer.listen(0, "127.0.0.1", listening));
  const retrying = client(rootKey, { baseUrl: `http://127.0.0.1:${balancer.address().port}`, retry: { attempts: 5, backoff: () => 1 } });

  await check("what breaks off is asked again until there is an answer", async () => {
    assert.equal((await result(retrying.apis.get({ apiId }))).id, apiId);
    assert.equal(asked, 3);
  });
  await check("a refusal is an answer and is not asked again", async () => {
    await refused("NOT_FOUND", retrying.apis.get({ apiId: "api_doesnotexist0000" }));
    assert.equal(asked, 4);
  });
  balancer.close();
  balancer.closeAllConnections?.();
  console.debug = debug;
});
