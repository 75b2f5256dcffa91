import assert from "node:assert/strict";
import { createKey, fresh, refused, refusedWith, result, section, unkey, verify } from "./support.mjs";

const NOTHING = {
  valid: 0, notFound: 0, forbidden: 0, usageExceeded: 0, rateLimited: 0, unauthorized: 0, disabled: 0,
  insufficientPermissions: 0, expired: 0, total: 0,
};
const DAY = 86_400_000;

await section("analytics", async (check) => {
  const { apiId } = await result(unkey.apis.create({ name: fresh("analytics") }));
  const externalId = fresh("analysed");
  const first = await createKey({ apiId, externalId });
  const second = await createKey({ apiId, remaining: 1 });
  const start = Date.now() - DAY;
  const ask = (fields = {}) => result(unkey.analytics.getVerifications({ apiId, start, end: Date.now() + DAY, ...fields }));
  await check("an api of which no key was used has one row of zeros", async () => assert.deepStrictEqual(await ask(), [NOTHING]));

  for (const tags of [["a"], ["a", "b"], []]) await verify(first.key, { tags });
  for (let n = 0; n < 3; n += 1) await verify(second.key);
  // Events are written every second, by each replica its own.
  for (let waited = 0; (await ask())[0].total < 6 && waited < 100; waited += 1) await new Promise((done) => setTimeout(done, 100));
  await check("outcomes are counted", async () =>
    assert.deepStrictEqual(await ask(), [{ ...NOTHING, valid: 4, usageExceeded: 2, total: 6 }]));
  await check("by key, the most used first, no more than asked for", async () => {
    const rows = await ask({ groupBy: "key", orderBy: "total", order: "desc" });
    assert.deepStrictEqual(new Set(rows.map((row) => row.keyId)), new Set([first.keyId, second.keyId]));
    assert.equal((await ask({ groupBy: "key", orderBy: "usageExceeded", order: "desc", limit: 1 }))[0].keyId, second.keyId);
  });
  await check("lists are joined by commas", async () => {
    const rows = await ask({ groupBy: ["key", "month"], keyId: [first.keyId, second.keyId] });
    assert.equal(rows.reduce((sum, row) => sum + row.total, 0), 6);
    assert.ok(rows.every((row) => typeof row.time === "number"));
  });
  await check("by identity", async () => {
    const [{ identity, total }] = await ask({ groupBy: "identity", externalId });
    assert.equal(identity.externalId, externalId);
    assert.equal(total, 3);
  });
  await check("by tag and by tags", async () => {
    const each = await ask({ groupBy: "tag" });
    assert.deepStrictEqual(each.map((row) => [row.tag, row.total]), [["a", 2], ["b", 1]]);
    const sets = await ask({ groupBy: "tags" });
    assert.deepStrictEqual(sets.map((row) => [row.tags, row.total]), [[[], 4], [["a"], 1], [["a", "b"], 1]]);
    assert.equal((await ask({ tag: ["a", "b"] }))[0].total, 1);
  });
  await check("every hour has its row", async () => {
    const rows = await ask({ groupBy: "hour", end: start + 3 * 3_600_000 });
    assert.deepStrictEqual(rows.map((row) => row.total), [0, 0, 0]);
  });
  await check("the days of a key, and of all keys of an owner", async () => {
    for (const of of [{ keyId: first.keyId }, { ownerId: externalId }]) {
      const { verifications } = await result(unkey.keys.getVerifications({ ...of, granularity: "day" }));
      assert.equal(verifications.reduce((sum, day) => sum + day.success, 0), 3);
      assert.deepStrictEqual(Object.keys(verifications[0]).sort(), ["rateLimited", "success", "time", "usageExceeded"]);
    }
  });
  await check("what cannot be answered is refused", async () => {
    await refused("NOT_FOUND", unkey.analytics.getVerifications({ apiId: "api_nobody", start }));
    await refused("NOT_FOUND", unkey.analytics.getVerifications({ apiId, start, externalId: "nobody" }));
    await refusedWith("BAD_REQUEST", "start must be before end", unkey.analytics.getVerifications({ apiId, start, end: start }));
    await refusedWith("BAD_REQUEST", "keyId or ownerId must be provided", unkey.keys.getVerifications({}));
    await refused("NOT_FOUND", unkey.keys.getVerifications({ ownerId: "nobody" }));
  });
});
