// Keys as OAuth access tokens, introspected with oauth4webapi.
import assert from "node:assert/strict";
import * as oauth from "oauth4webapi";
import { createKey, data, fresh, rootKey, section, serverURL, unkey, weakRootKey } from "./support.mjs";

const keyward = { issuer: serverURL, introspection_endpoint: `${serverURL}/oauth2/introspect` };
const resourceServer = { client_id: "https://api.example.com/" };
// The servers of these checks have no TLS.
const insecure = { [oauth.allowInsecureRequests]: true };
const request = (token, secret = rootKey, parameters = {}) =>
  oauth.introspectionRequest(keyward, resourceServer, oauth.ClientSecretBasic(secret), token, { ...insecure, additionalParameters: parameters });
const introspect = async (...args) => oauth.processIntrospectionResponse(keyward, resourceServer, await request(...args));
const spend = (token, cost) => introspect(token, rootKey, { cost: String(cost) });

await section("introspection", async (check) => {
  const { apiId } = await data(unkey.apis.createApi({ name: fresh("introspection") }));
  const expires = Date.now() + 3_600_000;
  const { key, keyId } = await createKey({
    apiId, externalId: fresh("user"), permissions: [fresh("read"), fresh("write")], expires, credits: { remaining: 5 }, meta: { plan: "pro" },
  });
  const disabled = await createKey({ apiId, enabled: false });

  await check("an active key is described", async () => {
    const { iat, keyward: own, ...token } = await introspect(key);
    assert.deepStrictEqual(token, {
      active: true, client_id: apiId, sub: fresh("user"), scope: `${fresh("read")} ${fresh("write")}`, token_type: "Bearer",
      exp: Math.floor(expires / 1000), jti: keyId,
    });
    assert.ok(Math.abs(iat - Date.now() / 1000) < 120, String(iat));
    assert.deepStrictEqual([own.credits, own.meta, own.identity.externalId], [5, { plan: "pro" }, fresh("user")]);
  });
  await check("a disabled, an unknown and a very long token are inactive", async () => {
    for (const token of [disabled.key, "nobody_knows_this_key", "x".repeat(10_000)]) {
      assert.deepStrictEqual(await introspect(token), { active: false });
    }
  });
  await check("only a cost spends", async () => {
    await introspect(key);
    assert.equal((await spend(key, 3)).keyward.credits, 2);
    assert.deepStrictEqual(await spend(key, 3), { active: false });
    assert.equal((await introspect(key)).keyward.credits, 2);
  });
  await check("a wrong root key is told by its challenge", async () => {
    await assert.rejects(introspect(key, "nobody_knows_this_key"), (error) => {
      assert.ok(error instanceof oauth.WWWAuthenticateChallengeError, String(error));
      assert.deepStrictEqual(error.cause.map(({ scheme }) => scheme), ["bearer", "basic"]);
      assert.equal(error.cause[0].parameters.error, "invalid_token");
      return error.status === 401;
    });
  });
  await check("a root key that may not verify is told by its challenge", async () => {
    await assert.rejects(introspect(key, weakRootKey), (error) => {
      assert.equal(error.cause[0].parameters.error, "insufficient_scope");
      return error.status === 403;
    });
  });
  await check("an invalid request is an OAuth error", async () => {
    await assert.rejects(introspect(key, rootKey, { cost: "-1" }), (error) => {
      assert.ok(error instanceof oauth.ResponseBodyError, String(error));
      assert.match(error.error_description, /cost/);
      return error.error === "invalid_request" && error.status === 400;
    });
  });
});
