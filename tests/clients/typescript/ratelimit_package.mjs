import assert from "node:assert/strict";
import { Overrides, Ratelimit } from "@unkey/ratelimit";
import { data, fresh, LONG, rootKey, section, seenByAll, serverURL, windowEnd } from "./support.mjs";

await section("@unkey/ratelimit", async (check) => {
  const namespace = fresh("package");
  // Nothing listens on this port, which no program gets by chance.
  const DEAD = "http://127.0.0.1:1";
  // Past its time, or on a failure, this client answers by itself. Here neither may pass for an answer of the server.
  const told = (error) => {
    throw error;
  };
  const make = (more = {}) =>
    new Ratelimit({ rootKey, baseUrl: serverURL, namespace, limit: 3, duration: "30d", timeout: false, onError: told, ...more });
  const answer = (remaining, more = {}) => ({ success: true, limit: 3, remaining, reset: windowEnd(LONG), ...more });

  await check("counts down, then denies, and remembers that until the reset", async () => {
    const cache = new Map();
    const limiter = make({ cache });
    for (const remaining of [2, 1, 0]) assert.deepStrictEqual(await limiter.limit("one"), answer(remaining));
    assert.deepStrictEqual(await limiter.limit("one"), answer(0, { success: false }));
    // A client that shares the memory does not even ask; a new one asks, and is told the same.
    for (const other of [make({ baseUrl: DEAD, cache }), make()]) {
      assert.deepStrictEqual(await other.limit("one"), answer(0, { success: false }));
    }
    assert.deepStrictEqual(await limiter.limit("two"), answer(2));
  });
  await check("takes a cost, another limit and another duration", async () => {
    const limiter = make();
    assert.deepStrictEqual(await limiter.limit("costs", { cost: 2 }), answer(1));
    const other = { limit: { limit: 10, duration: LONG / 2 }, cost: 4 };
    assert.deepStrictEqual(await limiter.limit("costs", other), { success: true, limit: 10, remaining: 6, reset: windowEnd(LONG / 2) });
  });
  await check("a refusal of the server reaches onError", async () => {
    const errors = [];
    const fallback = { success: true, limit: 1, remaining: 1, reset: 1 };
    const onError = (error, identifier) => {
      errors.push([error.message, identifier]);
      return fallback;
    };
    assert.equal(await make({ onError, limit: 0 }).limit("zero"), fallback);
    assert.equal(errors[0][1], "zero");
    await assert.rejects(make({ rootKey: "nobody" }).limit("zero"), (error) => error instanceof Error);
    await assert.rejects(make({ limit: 0, onError: undefined }).limit("zero"), (error) => error.statusCode === 400);
  });
  // What the checks above would have seen, had the server not answered: an error, and with a timeout the fallback.
  await check("a dead address would have been noticed", async () => {
    await assert.rejects(make({ baseUrl: DEAD }).limit("dead"), (error) => error instanceof Error);
    const fallback = { success: false, limit: -1, remaining: -1, reset: 0 };
    assert.deepStrictEqual(await make({ baseUrl: DEAD, timeout: { ms: 300, fallback } }).limit("dead"), fallback);
  });
  await check("Overrides sets, gets, lists and deletes", async () => {
    const overrides = new Overrides({ rootKey, baseUrl: serverURL });
    const item = { identifier: "vip_*", limit: 7, duration: LONG };
    const { overrideId } = await data(overrides.setOverride({ namespace, ...item }));
    await seenByAll();
    assert.deepStrictEqual(await data(overrides.getOverride({ namespace, identifier: "vip_1" })), { overrideId, ...item });
    assert.deepStrictEqual(await data(overrides.listOverrides({ namespace })), [{ overrideId, ...item }]);
    assert.deepStrictEqual(await make().limit("vip_1"), answer(6, { limit: 7, overrideId }));
    assert.deepStrictEqual(await data(overrides.deleteOverride({ namespace, identifier: "vip_*" })), {});
  });
});
