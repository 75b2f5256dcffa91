import assert from "node:assert/strict";
import { clientFor, fresh, ID, LONG, names, pages, refused, refusedWith, result, section, seenByAll, unkey, windowEnd } from "./support.mjs";

await section("ratelimits", async (check) => {
  const { ratelimits } = unkey;
  const namespace = fresh("email.send");
  const request = (fields) => ({ namespace, identifier: "user_1", limit: 10, duration: LONG, ...fields });
  const limit = (fields) => result(ratelimits.limit(request(fields)));
  const told = (success, remaining, limit = 10) => ({ success, limit, remaining, reset: windowEnd(LONG) });

  await check("limit tells success, the limit, what is left and the end of the window", async () => {
    assert.deepStrictEqual(await limit({}), told(true, 9));
  });
  await check("a cost is taken whole or not at all", async () => {
    assert.deepStrictEqual(await limit({ cost: 4 }), told(true, 5));
    assert.equal((await limit({ cost: 6 })).success, false);
    assert.deepStrictEqual(await limit({ cost: 0 }), told(true, 5));
    assert.deepStrictEqual(await limit({ cost: 5 }), told(true, 0));
    assert.deepStrictEqual(await limit({}), told(false, 0));
  });
  await check("what need not be said changes nothing", async () => {
    const identifier = "user_2";
    const resources = [{ type: "project", id: "p_1", name: "One", meta: { a: 1 } }];
    assert.deepStrictEqual(await limit({ identifier, async: true }), told(true, 9));
    assert.deepStrictEqual(await limit({ identifier, meta: { text: "a", flag: true, number: 1, nothing: null }, resources }), told(true, 8));
  });
  await check("without a namespace there is one", async () => {
    const identifier = fresh("somebody");
    await limit({ namespace: undefined, identifier });
    assert.deepStrictEqual(await limit({ namespace: "default", identifier }), told(true, 8));
  });
  await check("many at once admit as many as the limit says", async () => {
    const answers = await Promise.all(Array.from({ length: 20 }, () => limit({ identifier: "crowd" })));
    assert.equal(answers.filter((answer) => answer.success).length, 10);
  });
  await check("a root key that may not make a namespace makes none", async () => {
    const limiter = clientFor("ratelimit.*.limit");
    await names("INSUFFICIENT_PERMISSIONS", ["ratelimit.*.create_namespace"], limiter.ratelimits.limit(request({ namespace: fresh("other") })));
    assert.equal((await result(limiter.ratelimits.limit(request({ identifier: "user_3" })))).success, true);
  });

  const override = { namespaceName: namespace, limit: 3, duration: LONG };
  let overrideId;
  await check("setOverride answers with the id, and setting it again keeps it", async () => {
    ({ overrideId } = await result(ratelimits.setOverride({ ...override, identifier: "vip_*", async: true })));
    assert.match(overrideId, ID("rlor"));
    assert.deepStrictEqual(await result(ratelimits.setOverride({ ...override, identifier: "vip_*" })), { overrideId });
  });
  await check("getOverride tells every field of the one that was set for this very text", async () => {
    const known = { id: overrideId, identifier: "vip_*", limit: 3, duration: LONG, async: false };
    assert.deepStrictEqual(await result(ratelimits.getOverride({ namespaceName: namespace, identifier: "vip_*" })), known);
    await names("NOT_FOUND", ["vip_1"], ratelimits.getOverride({ namespaceName: namespace, identifier: "vip_1" }));
  });
  await check("limit applies it, and the very identifier precedes a pattern", async () => {
    await result(ratelimits.setOverride({ ...override, identifier: "vip_0", limit: 0 }));
    await seenByAll();
    assert.deepStrictEqual(await limit({ identifier: "vip_1" }), told(true, 2, 3));
    assert.deepStrictEqual(await limit({ identifier: "vip_0" }), told(false, 0, 0));
    assert.deepStrictEqual(await limit({ identifier: "guest" }), told(true, 9));
  });
  await check("listOverrides tells all of them page by page", async () => {
    await result(ratelimits.setOverride({ ...override, identifier: "vip_2" }));
    const list = (fields) => (cursor) => ratelimits.listOverrides({ namespaceName: namespace, ...fields, cursor });
    const [sizes, all] = await pages(list({ limit: 2 }), "overrides");
    assert.deepStrictEqual(sizes, [2, 1]);
    assert.deepStrictEqual(all.map((one) => one.identifier).sort(), ["vip_*", "vip_0", "vip_2"]);
    const whole = await result(list({})());
    assert.deepStrictEqual(whole, { overrides: all, total: 3 });
  });
  await check("deleteOverride ends it", async () => {
    const named = { namespaceName: namespace, identifier: "vip_*" };
    assert.deepStrictEqual(await result(ratelimits.deleteOverride(named)), {});
    await seenByAll();
    assert.equal((await limit({ identifier: "vip_3" })).limit, 10);
    await refused("NOT_FOUND", ratelimits.deleteOverride(named));
    await refused("NOT_FOUND", ratelimits.getOverride(named));
  });
  await check("a namespace is needed, and is not made", async () => {
    const message = "You must provide a namespaceId or a namespaceName";
    for (const fields of [{ namespaceId: "" }, { namespaceName: undefined }]) {
      await refusedWith("BAD_REQUEST", message, ratelimits.getOverride({ ...fields, identifier: "vip_0" }));
      await refusedWith("BAD_REQUEST", message, ratelimits.setOverride({ ...override, namespaceName: undefined, ...fields, identifier: "vip_0" }));
      await refusedWith("BAD_REQUEST", message, ratelimits.deleteOverride({ ...fields, identifier: "vip_0" }));
      await refusedWith("BAD_REQUEST", message, ratelimits.listOverrides(fields));
    }
    for (const method of ["getOverride", "setOverride", "deleteOverride", "listOverrides"]) {
      const fields = { ...override, namespaceName: fresh("nowhere"), identifier: "vip_0" };
      if (method === "listOverrides") delete fields.limit;
      await names("NOT_FOUND", [fresh("nowhere")], ratelimits[method](fields));
    }
  });
});
