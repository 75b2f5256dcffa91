import assert from "node:assert/strict";
import { data, E, fresh, ID, LONG, pages, raises, rejects, section, seenByAll, unkey, windowEnd } from "./support.mjs";

await section("ratelimit", async (check) => {
  const namespace = fresh("email.send");
  const other = fresh("email.read");
  const limit = (identifier, more = {}) =>
    data(unkey.ratelimit.limit({ namespace, identifier, limit: 10, duration: LONG, ...more }));
  const answer = (remaining, more = {}) => ({ success: true, limit: 10, remaining, reset: windowEnd(LONG), ...more });
  const setOverride = async (identifier, max, duration = LONG) =>
    (await data(unkey.ratelimit.setOverride({ namespace, identifier, limit: max, duration }))).overrideId;
  const getOverride = (identifier) => data(unkey.ratelimit.getOverride({ namespace, identifier }));
  const deleteOverride = (identifier) => data(unkey.ratelimit.deleteOverride({ namespace, identifier }));
  const override = (overrideId, identifier, max, duration = LONG) => ({ overrideId, identifier, limit: max, duration });

  await check("overrides do not make a namespace", async () => {
    await raises(E.noNamespace, unkey.ratelimit.setOverride({ namespace, identifier: "a", limit: 1, duration: 1000 }));
    await raises(E.noNamespace, getOverride("a"));
    await raises(E.noNamespace, deleteOverride("a"));
    await raises(E.noNamespace, unkey.ratelimit.listOverrides({ namespace }));
  });
  await check("limit makes the namespace and counts down", async () => {
    for (const remaining of [9, 8, 7]) assert.deepStrictEqual(await limit("counting"), answer(remaining));
  });
  await check("limit counts identifiers apart", async () => assert.deepStrictEqual(await limit("Counting"), answer(9)));
  await check("a cost that does not fit is refused, takes nothing and is no error", async () => {
    assert.deepStrictEqual(await limit("costs", { cost: 6 }), answer(4));
    assert.deepStrictEqual(await limit("costs", { cost: 5 }), answer(0, { success: false }));
    assert.deepStrictEqual(await limit("costs", { cost: 0 }), answer(4));
    assert.deepStrictEqual(await limit("costs", { cost: 4 }), answer(0));
    assert.deepStrictEqual(await limit("costs", { cost: 0 }), answer(0));
  });
  await check("20 checks at once admit exactly the limit", async () => {
    const answers = await Promise.all(Array.from({ length: 20 }, () => limit("crowd")));
    const left = answers.filter(({ success }) => success).map(({ remaining }) => remaining).sort((x, y) => x - y);
    assert.deepStrictEqual(left, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  });
  await check("refuses what is out of bounds", async () => {
    await rejects("/properties/namespace/minLength", limit("a", { namespace: "" }));
    await rejects("/properties/identifier/maxLength", limit("🔑".repeat(513)));
    await rejects("/properties/limit/minimum", limit("a", { limit: 0 }));
    await rejects("/properties/duration/minimum", limit("a", { duration: 999 }));
    await rejects("/properties/duration/maximum", limit("a", { duration: LONG + 1 }));
    await rejects("/properties/cost/minimum", limit("a", { cost: -1 }));
  });

  await check("multiLimit takes all or nothing and tells each in order", async () => {
    const multi = (cost) => data(unkey.ratelimit.multiLimit([
      { namespace, identifier: "both", limit: 10, duration: LONG },
      { namespace: other, identifier: "both", limit: 3, duration: LONG, cost },
    ]));
    const told = (max, left, passed, where) =>
      ({ namespace: where, identifier: "both", limit: max, remaining: left, reset: windowEnd(LONG), passed });
    assert.deepStrictEqual(await multi(4), { passed: false, limits: [told(10, 10, true, namespace), told(3, 0, false, other)] });
    assert.deepStrictEqual(await multi(3), { passed: true, limits: [told(10, 9, true, namespace), told(3, 0, true, other)] });
  });
  await check("multiLimit adds up members of one counter", async () => {
    const member = { namespace, identifier: "twice", limit: 10, duration: LONG, cost: 5 };
    const twice = await data(unkey.ratelimit.multiLimit([member, member]));
    assert.deepStrictEqual([twice.passed, twice.limits.map(({ remaining }) => remaining)], [true, [5, 0]]);
  });
  await check("multiLimit refuses an empty list, and a fault by its place", async () => {
    await rejects("/minItems", unkey.ratelimit.multiLimit([]));
    await rejects("/items/properties/limit/minimum", unkey.ratelimit.multiLimit([{ namespace, identifier: "a", limit: 0, duration: 1000 }]));
  });

  const exact = await setOverride("user_1", 2);
  const pattern = await setOverride("user_*", 5);
  const never = await setOverride("banned", 0);
  await check("setOverride answers with an id, and keeps it", async () => {
    for (const id of [exact, pattern, never]) assert.match(id, ID("rlor"));
    assert.equal(await setOverride("user_1", 3), exact);
  });
  await seenByAll();
  await check("the exact override precedes a pattern, and 0 always denies", async () => {
    assert.deepStrictEqual(await limit("user_1"), answer(2, { limit: 3, overrideId: exact }));
    assert.deepStrictEqual(await limit("user_2"), answer(4, { limit: 5, overrideId: pattern }));
    assert.deepStrictEqual(await limit("banned"), answer(0, { success: false, limit: 0, overrideId: never }));
    const { limits } = await data(unkey.ratelimit.multiLimit([{ namespace, identifier: "user_2", limit: 1, duration: 1000 }]));
    assert.deepStrictEqual([limits[0].limit, limits[0].remaining, limits[0].overrideId], [5, 3, pattern]);
  });
  await check("getOverride finds what a check would find", async () => {
    assert.deepStrictEqual(await getOverride("user_1"), override(exact, "user_1", 3));
    assert.deepStrictEqual(await getOverride("user_9"), override(pattern, "user_*", 5));
    await raises(E.noOverride, getOverride("somebody"));
  });
  await check("listOverrides goes through the pages by id", async () => {
    const all = [override(exact, "user_1", 3), override(pattern, "user_*", 5), override(never, "banned", 0)];
    all.sort((a, b) => (a.overrideId < b.overrideId ? -1 : 1));
    for (const [limit, sizes] of [[2, [2, 1]], [3, [3]], [undefined, [3]]]) {
      assert.deepStrictEqual(await pages(unkey.ratelimit.listOverrides({ namespace, limit })), [sizes, all]);
    }
    await rejects("/properties/limit/maximum", unkey.ratelimit.listOverrides({ namespace, limit: 101 }));
  });
  await check("deleteOverride takes the exact identifier, once", async () => {
    await raises(E.noOverride, deleteOverride("user_7"));
    assert.deepStrictEqual(await deleteOverride("user_1"), {});
    await raises(E.noOverride, deleteOverride("user_1"));
    await seenByAll();
    assert.deepStrictEqual(await limit("user_1"), answer(3, { limit: 5, overrideId: pattern }));
  });
  await check("what was deleted can be set anew", async () => {
    assert.notEqual(await setOverride("user_1", 7), exact);
    await seenByAll();
    assert.equal((await limit("user_1")).limit, 7);
  });
});
