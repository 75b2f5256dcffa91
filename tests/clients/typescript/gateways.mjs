// Gateway policies and the endpoint that gateways ask. The official clients lack both, so these are requests as any program can
// send them.
import assert from "node:assert/strict";
import { createKey, data, fresh, isNow, rootKey, section, seen, seenByAll, serverURL, unkey, weakRootKey } from "./support.mjs";

// Returns the data of an answer, or the error if another status than 200 is expected.
async function call(operation, request, status = 200, key = rootKey) {
  const response = await fetch(`${serverURL}/v2/gateways.${operation}`, {
    method: "POST",
    headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
    body: JSON.stringify(request),
  });
  const answer = await response.json();
  seen(answer.meta);
  assert.equal(response.status, status, JSON.stringify(answer));
  return status === 200 ? answer.data : answer.error;
}

// Asks as a gateway does that has received this request. `by` is the method of the gateway's own request.
function ask({ policy, secret, key, method = "GET", uri = "/documents/1", query = "", by = "GET" }) {
  const headers = { "X-Forwarded-Method": method, "X-Forwarded-Uri": uri };
  if (secret) headers["Keyward-Gateway-Secret"] = secret;
  if (key) headers.Authorization = `Bearer ${key}`;
  return fetch(`${serverURL}/gateway/${policy}${query}`, { method: by, headers });
}

await section("gateways", async (check) => {
  const { apiId } = await data(unkey.apis.createApi({ name: fresh("gateways") }));
  const policy = fresh("edge");
  const rules = [
    { methods: ["GET"], path: "/documents/**", permissions: fresh("documents.read") },
    { path: "/limited", ratelimits: [{ name: "each", limit: 1, duration: 3_600_000 }] },
    { path: "/open/**" },
  ];
  const created = await call("createPolicy", { name: policy, apiIds: [apiId], rules, identityHeaders: { meta: ["plan"] } });
  const { policyId } = created;
  let { secret } = created;
  const reader = await createKey({ apiId, externalId: fresh("user"), permissions: [fresh("documents.read")], meta: { plan: "pro" } });
  const plain = await createKey({ apiId });
  const spent = await createKey({ apiId, credits: { remaining: 1 } });
  await seenByAll();

  await check("a policy is found by its id and by its name", async () => {
    assert.match(policyId, /^gwp_[A-Za-z0-9]{16,}$/);
    assert.match(secret, /^keyward_gateway_/);
    for (const named of [policyId, policy]) {
      const { createdAt, ...found } = await call("getPolicy", { policyId: named });
      isNow(createdAt);
      assert.deepStrictEqual([found.policyId, found.name, found.apiIds, found.rules], [policyId, policy, [apiId], rules]);
      assert.ok(!("secret" in found));
    }
    const listed = await call("listPolicies", { search: policy });
    assert.deepStrictEqual(listed.map((one) => one.policyId), [policyId]);
  });
  await check("an invalid, an unknown and a forbidden request are refused", async () => {
    const invalid = await call("createPolicy", { name: "a b", apiIds: [apiId] }, 400);
    assert.match(JSON.stringify(invalid.errors), /name/);
    await call("getPolicy", { policyId: fresh("none") }, 404);
    await call("createPolicy", { name: fresh("weak"), apiIds: [apiId] }, 403, weakRootKey);
  });
  await check("a valid key passes, and the upstream is told who calls", async () => {
    for (const named of [policyId, policy]) {
      const answer = await ask({ policy: named, secret, key: reader.key });
      assert.deepStrictEqual([answer.status, await answer.text()], [200, ""]);
      const told = (name) => answer.headers.get(`keyward-${name}`);
      assert.deepStrictEqual(
        [told("key-id"), told("api-id"), told("external-id"), told("permissions"), told("meta-plan"), told("roles")],
        [reader.keyId, apiId, fresh("user"), fresh("documents.read"), "pro", ""],
      );
      assert.match(told("request-id"), /^req_/);
    }
  });
  await check("the method of the gateway's own request does not matter", async () => {
    for (const by of ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"]) {
      assert.equal((await ask({ policy, secret, key: reader.key, by })).status, 200, by);
      assert.equal((await ask({ policy, secret, key: reader.key, method: "DELETE", by })).status, 403, by);
    }
    assert.equal((await ask({ policy, secret, key: reader.key, by: "HEAD" })).status, 200);
  });
  await check("a refusal says why", async () => {
    for (const [request, status, challenge] of [
      [{}, 401, "invalid_token"],
      [{ key: "nobody_knows_this_key" }, 401, "invalid_token"],
      [{ key: plain.key }, 403, "insufficient_scope"],
      [{ key: reader.key, uri: "/other" }, 403, "insufficient_scope"],
      [{ key: reader.key, uri: "/open/../other" }, 403, "insufficient_scope"],
    ]) {
      const answer = await ask({ policy, secret, ...request });
      const problem = await answer.json();
      assert.deepStrictEqual([answer.status, problem.status], [status, status], JSON.stringify(request));
      assert.equal(answer.headers.get("content-type"), "application/problem+json");
      assert.equal(answer.headers.get("www-authenticate"), `Bearer realm="${policy}", error="${challenge}"`);
    }
  });
  await check("limits and credits are told", async () => {
    const limited = () => ask({ policy, secret, key: plain.key, uri: "/limited" });
    assert.deepStrictEqual([(await limited()).status, (await limited()).status], [200, 429]);
    const refused = await limited();
    assert.ok(Number(refused.headers.get("retry-after")) > 0);
    assert.equal(refused.headers.get("ratelimit-policy"), '"each";q=1;w=3600');
    assert.match(refused.headers.get("ratelimit"), /^"each";r=0;t=\d+$/);
    const spend = () => ask({ policy, secret, key: spent.key, uri: "/open/1" });
    const last = await spend();
    assert.deepStrictEqual([last.status, last.headers.get("keyward-credits-remaining")], [200, "0"]);
    const over = await spend();
    assert.deepStrictEqual([over.status, over.headers.get("retry-after")], [429, null]);
  });
  await check("nginx gets 403 and the status in a header", async () => {
    const answer = await ask({ policy, secret, key: plain.key, uri: "/limited", query: "?mode=nginx" });
    assert.deepStrictEqual([answer.status, answer.headers.get("keyward-status"), await answer.text()], [403, "429", ""]);
  });
  await check("a gateway without the secret is refused", async () => {
    for (const request of [{ policy }, { policy, secret: "wrong" }, { policy: fresh("none"), secret }]) {
      const answer = await ask({ ...request, key: reader.key });
      assert.deepStrictEqual([answer.status, answer.headers.get("keyward-key-id")], [403, null]);
    }
  });
  await check("a changed policy is in effect", async () => {
    await call("updatePolicy", { policyId: policy, rules: [{ path: "/only" }] });
    await seenByAll();
    assert.equal((await ask({ policy, secret, key: plain.key, uri: "/only" })).status, 200);
    assert.equal((await ask({ policy, secret, key: reader.key })).status, 403);
  });
  await check("a rotated secret replaces the old one", async () => {
    const old = secret;
    ({ secret } = await call("rotateSecret", { policyId: policy }));
    await seenByAll();
    const status = async (shown) => (await ask({ policy, secret: shown, key: plain.key, uri: "/only" })).status;
    assert.deepStrictEqual([await status(old), await status(secret)], [403, 200]);
  });
  await check("a deleted policy refuses", async () => {
    await call("deletePolicy", { policyId });
    await seenByAll();
    assert.equal((await ask({ policy, secret, key: plain.key, uri: "/only" })).status, 403);
    await call("getPolicy", { policyId }, 404);
  });
});
