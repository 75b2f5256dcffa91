// @unkey/hono and @unkey/nextjs in front of a handler that tells what they handed down to it.
//
// Neither has an option or a variable for the address of the server: both make their client with the root key alone, and
// it calls the first of the addresses that @unkey/api exports as ServerList. So that is where it is changed. They load
// @unkey/api with `require`, hence so does this file: what `import` gives is another copy.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { apiId, createKey, data, fresh, rootKey, section, seen, serverURL, unkey, verify, weakRootKey } from "./support.mjs";

const require = createRequire(import.meta.url);
const { ServerList } = require("@unkey/api");
const { Hono } = require("hono");
const { unkey: honoUnkey } = require("@unkey/hono");
const { NextRequest } = require("next/server");
const { withUnkey } = require("@unkey/nextjs");
ServerList[0] = serverURL;

// Each guards the handler as `config` says, and gives a function that sends a request with these headers through it.
const guards = {
  "@unkey/hono": (config) => {
    const app = new Hono();
    app.use(honoUnkey(config));
    app.get("/", (c) => c.json(c.get("unkey")));
    app.onError((error, c) => c.json({ thrown: error.name }, 500));
    return (headers) => app.request("/", { headers });
  },
  "@unkey/nextjs": (config) => {
    const handler = withUnkey((request) => Response.json(request.unkey), config);
    return (headers) =>
      handler(new NextRequest("http://localhost/", { headers }), { params: Promise.resolve({}) })
        .catch((error) => Response.json({ thrown: error.name }, { status: 500 }));
  },
};
const bearer = (key) => ({ Authorization: `Bearer ${key}` });
const refuse = (_, { data: { code } }) => Response.json({ refused: code }, { status: 403 });
const told = async (response) => [response.status, await response.json()];

for (const [name, guard] of Object.entries(guards)) {
  await section(name, async (check) => {
    const slug = fresh(`${name.slice(7)}.read`);
    await data(unkey.permissions.createPermission({ name: slug, slug }));
    const may = await createKey({ apiId, permissions: [slug], meta: { plan: "pro" }, credits: { remaining: 10 } });
    const mayNot = await createKey({ apiId });
    const off = await createKey({ apiId, enabled: false });
    const limited = await createKey({ apiId, ratelimits: [{ name: "auto", limit: 1, duration: 2_592_000_000, autoApply: true }] });
    await verify(limited.key);
    const send = guard({ rootKey, permissions: slug, tags: ["path=/"], handleInvalidKey: refuse });

    await check("a valid key reaches the handler, with what the server said", async () => {
      const [status, { meta, data: answer }] = await told(await send(bearer(may.key)));
      assert.equal(status, 200);
      seen(meta);
      assert.deepStrictEqual(answer, {
        valid: true, code: "VALID", keyId: may.keyId, enabled: true, meta: { plan: "pro" }, permissions: [slug], credits: 9,
      });
    });
    await check("the server counted it", async () => assert.equal((await verify(may.key)).credits, 8));
    await check("a missing key is 401, and nobody is asked", async () => {
      assert.deepStrictEqual(await told(await send({})), [401, { error: "unauthorized" }]);
    });
    for (const [title, key, code] of [
      ["an unknown key", "nobody_knows_this", "NOT_FOUND"], ["a key without the permission", mayNot.key, "INSUFFICIENT_PERMISSIONS"],
      ["a disabled key", off.key, "DISABLED"],
    ]) {
      await check(`${title} is refused as ${code}`, async () => {
        assert.deepStrictEqual(await told(await send(bearer(key))), [403, { refused: code }]);
      });
    }
    await check("a key past its rate limit is refused as RATE_LIMITED", async () => {
      assert.deepStrictEqual(await told(await guard({ rootKey, handleInvalidKey: refuse })(bearer(limited.key))), [403, { refused: "RATE_LIMITED" }]);
    });
    await check("a root key that may not verify refuses as NOT_FOUND", async () => {
      assert.deepStrictEqual(await told(await guard({ rootKey: weakRootKey, handleInvalidKey: refuse })(bearer(may.key))), [403, { refused: "NOT_FOUND" }]);
    });
    for (const [title, config, thrown] of [
      ["an unknown root key", { rootKey: "nobody" }, "UnauthorizedErrorResponse"],
      ["a permission query that is none", { rootKey, permissions: "(" }, "BadRequestErrorResponse"],
    ]) {
      await check(`${title} throws the client's own ${thrown}, and lets nobody through`, async () => {
        assert.deepStrictEqual(await told(await guard(config)(bearer(may.key))), [500, { thrown }]);
      });
    }
    await check("getKey takes the key from elsewhere", async () => {
      const getKey = (from) => (from.req ? from.req.header("x-key") : from.headers.get("x-key"));
      const [status, { data: answer }] = await told(await guard({ rootKey, getKey })({ "x-key": mayNot.key }));
      assert.deepStrictEqual([status, answer.code, answer.keyId], [200, "VALID", mayNot.keyId]);
    });
  });
}
