import assert from "node:assert/strict";
import { adhoc, apiId, checked, createKey, E, fresh, getKey, LONG, raises, rejects, section, sleep, unkey, verify, windowEnd } from "./support.mjs";

await section("rate limits", async (check) => {
  const make = async (more = {}) => {
    const made = await createKey({
      apiId, ...more,
      ratelimits: [
        { name: "auto", limit: 5, duration: LONG, autoApply: true },
        { name: "manual", limit: 3, duration: LONG, autoApply: false },
      ],
    });
    const [auto, manual] = (await getKey(made.keyId)).ratelimits;
    return { ...made, auto, manual };
  };
  const outcome = (answer) => [answer.valid, answer.code];

  await check("autoApply limits count without being asked for, the others do not", async () => {
    const { key, auto } = await make();
    for (const remaining of [4, 3, 2, 1, 0]) assert.deepStrictEqual((await verify(key)).ratelimits, [checked(auto, remaining)]);
    const denied = await verify(key);
    assert.deepStrictEqual(outcome(denied), [false, "RATE_LIMITED"]);
    assert.deepStrictEqual(denied.ratelimits, [checked(auto, 0, true)]);
  });
  await check("RATE_LIMITED tells the key and spends no credits", async () => {
    const { key, keyId, auto } = await make({ name: "full", credits: { remaining: 9 } });
    await verify(key, { ratelimits: [{ name: "auto", cost: 5 }] });
    assert.deepStrictEqual(await verify(key), {
      valid: false, code: "RATE_LIMITED", keyId, enabled: true, name: "full", credits: 8, ratelimits: [checked(auto, 0, true)],
    });
  });
  await check("a requested limit counts with its cost, beside the automatic one", async () => {
    const { key, auto, manual } = await make();
    assert.deepStrictEqual((await verify(key, { ratelimits: [{ name: "manual", cost: 2 }] })).ratelimits, [checked(auto, 4), checked(manual, 1)]);
    assert.deepStrictEqual((await verify(key, { ratelimits: [{ name: "manual" }] })).ratelimits, [checked(auto, 3), checked(manual, 0)]);
  });
  await check("several limits are all or nothing", async () => {
    const { key, auto, manual } = await make();
    await verify(key, { ratelimits: [{ name: "manual", cost: 3 }] });
    const denied = await verify(key, { ratelimits: [{ name: "manual" }] });
    assert.deepStrictEqual(outcome(denied), [false, "RATE_LIMITED"]);
    assert.deepStrictEqual(denied.ratelimits, [checked(auto, 4), checked(manual, 0, true)]);
    assert.deepStrictEqual((await verify(key)).ratelimits, [checked(auto, 3)]);
  });
  await check("a cost past what is left is denied and spends nothing", async () => {
    const { key, auto } = await make();
    await verify(key, { ratelimits: [{ name: "auto", cost: 3 }] });
    const denied = await verify(key, { ratelimits: [{ name: "auto", cost: 3 }] });
    assert.deepStrictEqual([denied.code, denied.ratelimits], ["RATE_LIMITED", [checked(auto, 0, true)]]);
    assert.deepStrictEqual((await verify(key, { ratelimits: [{ name: "auto", cost: 2 }] })).ratelimits, [checked(auto, 0)]);
  });
  await check("naming an automatic limit changes its cost, it does not count twice", async () => {
    const { key, auto } = await make();
    assert.deepStrictEqual((await verify(key, { ratelimits: [{ name: "auto", cost: 2 }] })).ratelimits, [checked(auto, 3)]);
  });
  await check("cost 0 only looks, also at a limit that is used up", async () => {
    const { key, auto, manual } = await make();
    const look = { ratelimits: [{ name: "auto", cost: 0 }, { name: "manual", cost: 0 }] };
    assert.deepStrictEqual((await verify(key, look)).ratelimits, [checked(auto, 5), checked(manual, 3)]);
    await verify(key, { ratelimits: [{ name: "auto", cost: 5 }, { name: "manual", cost: 3 }] });
    const answer = await verify(key, look);
    assert.deepStrictEqual([answer.code, answer.ratelimits], ["VALID", [checked(auto, 0), checked(manual, 0)]]);
  });
  await check("of two requests for one limit the last counts", async () => {
    const { key, auto, manual } = await make();
    assert.deepStrictEqual((await verify(key, { ratelimits: [{ name: "manual", cost: 3 }, { name: "manual", cost: 1 }] })).ratelimits, [checked(auto, 4), checked(manual, 2)]);
  });
  await check("a lone limit or duration does not change a stored limit", async () => {
    const { key, auto, manual } = await make();
    const answer = await verify(key, { ratelimits: [{ name: "auto", limit: 100 }, { name: "manual", duration: 1000 }] });
    assert.deepStrictEqual(answer.ratelimits, [checked(auto, 4), checked(manual, 2)]);
  });
  await check("an ad-hoc limit counts for the key", async () => {
    const { key, auto } = await make();
    const ask = { ratelimits: [{ name: "zz-adhoc", limit: 2, duration: LONG }] };
    assert.deepStrictEqual((await verify(key, ask)).ratelimits, [checked(auto, 4), adhoc("zz-adhoc", 2, 1)]);
    assert.deepStrictEqual((await verify(key, ask)).ratelimits, [checked(auto, 3), adhoc("zz-adhoc", 2, 0)]);
    const denied = await verify(key, ask);
    assert.deepStrictEqual([denied.code, denied.ratelimits], ["RATE_LIMITED", [checked(auto, 3), adhoc("zz-adhoc", 2, 0, true)]]);
    const other = await make();
    assert.deepStrictEqual((await verify(other.key, ask)).ratelimits[1], adhoc("zz-adhoc", 2, 1));
  });
  await check("an ad-hoc limit takes the place of a stored one of its name", async () => {
    const { key, auto } = await make();
    const duration = LONG / 2;
    assert.deepStrictEqual((await verify(key, { ratelimits: [{ name: "auto", limit: 100, duration, cost: 7 }] })).ratelimits,
      [{ id: "", name: "auto", limit: 100, duration, autoApply: false, reset: windowEnd(duration), remaining: 93, exceeded: false }]);
    assert.deepStrictEqual((await verify(key)).ratelimits, [checked(auto, 4)]);
  });
  await check("keys do not share the counters of their own limits", async () => {
    const one = await make({ externalId: fresh("sharing") });
    const two = await make({ externalId: fresh("sharing") });
    await verify(one.key, { ratelimits: [{ name: "auto", cost: 5 }] });
    assert.deepStrictEqual((await verify(two.key)).ratelimits, [checked(two.auto, 4)]);
  });
  await check("a name that is not stored is 412, and spends nothing", async () => {
    const { key, auto } = await make();
    await raises(E.precondition, unkey.keys.verifyKey({ key, ratelimits: [{ name: "unknown" }] }));
    await raises(E.precondition, unkey.keys.verifyKey({ key, ratelimits: [{ name: "unknown", limit: 3 }] }));
    assert.deepStrictEqual((await verify(key)).ratelimits, [checked(auto, 4)]);
  });
  await check("an ad-hoc window under a second is 400", async () => {
    const { key } = await make();
    await raises(E.invalid, unkey.keys.verifyKey({ key, ratelimits: [{ name: "short", limit: 1, duration: 999 }] }));
  });
  await check("an ad-hoc limit of 0 never lets a key through", async () => {
    const { key } = await make();
    try {
      assert.equal((await verify(key, { ratelimits: [{ name: "none", limit: 0, duration: 1000 }] })).code, "RATE_LIMITED");
    } catch (error) {
      await raises(E.invalid, Promise.reject(error));
    }
  });
  await check("invalid requests for limits are 400", async () => {
    const { key } = await make();
    const ask = (item) => unkey.keys.verifyKey({ key, ratelimits: [item] });
    await rejects("/properties/ratelimits/items/properties/name/minLength", ask({ name: "ab" }));
    await rejects("/properties/ratelimits/items/properties/name/maxLength", ask({ name: "n".repeat(256) }));
    await rejects("/properties/ratelimits/items/properties/cost/minimum", ask({ name: "manual", cost: -1 }));
    await rejects("/properties/ratelimits/items/properties/limit/minimum", ask({ name: "manual", limit: -1 }));
    await rejects("/properties/ratelimits/items/properties/duration/minimum", ask({ name: "manual", duration: -1 }));
  });
  await check("20 calls at once get through exactly as often as the limit allows", async () => {
    const { key } = await make();
    const codes = (await Promise.all(Array.from({ length: 20 }, () => verify(key)))).map((answer) => answer.code);
    assert.deepStrictEqual([codes.filter((code) => code === "VALID").length, codes.filter((code) => code === "RATE_LIMITED").length], [5, 15]);
  });
  await check("the window slides: the last window still weighs on the next", async () => {
    const duration = 4000;
    const { key } = await createKey({ apiId, ratelimits: [{ name: "sliding", limit: 4, duration, autoApply: true }] });
    await sleep(windowEnd(duration) - Date.now() + 100);
    for (const remaining of [3, 2, 1, 0]) assert.equal((await verify(key)).ratelimits[0].remaining, remaining);
    const end = windowEnd(duration);
    const denied = await verify(key);
    assert.deepStrictEqual([denied.code, denied.ratelimits[0].reset], ["RATE_LIMITED", end]);
    // Within the first quarter of the next window three of the four still count.
    await sleep(end - Date.now() + 200);
    const first = await verify(key);
    assert.deepStrictEqual([first.code, first.ratelimits[0].remaining, first.ratelimits[0].reset], ["VALID", 0, end + duration]);
    assert.equal((await verify(key)).code, "RATE_LIMITED");
    // One whole window later the four are forgotten, and of the one that got through nothing is left.
    await sleep(end + duration - Date.now() + 200);
    assert.equal((await verify(key)).ratelimits[0].remaining, 3);
  });
});

await section("credits", async (check) => {
  const make = (remaining, more = {}) => createKey({ apiId, credits: { remaining }, ...more });
  const spend = async (key, cost) => {
    const { valid, code, credits } = await verify(key, cost === undefined ? {} : { credits: { cost } });
    return [valid, code, credits];
  };
  await check("each call costs 1, or what it says", async () => {
    const { key, keyId } = await make(6);
    assert.deepStrictEqual(await spend(key), [true, "VALID", 5]);
    assert.deepStrictEqual(await spend(key, 3), [true, "VALID", 2]);
    assert.deepStrictEqual(await spend(key, 3), [false, "USAGE_EXCEEDED", 2]);
    assert.deepStrictEqual(await spend(key, 0), [true, "VALID", 2]);
    assert.deepStrictEqual(await spend(key, 2), [true, "VALID", 0]);
    assert.deepStrictEqual(await spend(key), [false, "USAGE_EXCEEDED", 0]);
    assert.deepStrictEqual(await spend(key, 0), [true, "VALID", 0]);
    assert.deepStrictEqual((await getKey(keyId)).credits, { remaining: 0 });
  });
  await check("USAGE_EXCEEDED tells the key", async () => {
    const { key, keyId } = await make(0, { name: "empty" });
    assert.deepStrictEqual(await verify(key), { valid: false, code: "USAGE_EXCEEDED", keyId, enabled: true, name: "empty", credits: 0 });
  });
  await check("a cost does not meter an unlimited key", async () => {
    const { key, keyId } = await createKey({ apiId });
    assert.deepStrictEqual(await verify(key, { credits: { cost: 10 } }), { valid: true, code: "VALID", keyId, enabled: true });
  });
  await check("credits that refuse leave the limits unspent", async () => {
    const { key, keyId } = await make(1, { ratelimits: [{ name: "auto", limit: 5, duration: LONG, autoApply: true }] });
    const [auto] = (await getKey(keyId)).ratelimits;
    const refused = await verify(key, { credits: { cost: 2 } });
    assert.deepStrictEqual([refused.code, refused.credits, refused.ratelimits.length], ["USAGE_EXCEEDED", 1, 1]);
    assert.equal(refused.ratelimits[0].exceeded, false);
    assert.deepStrictEqual((await verify(key)).ratelimits, [checked(auto, 4)]);
  });
  await check("a negative cost is 400", async () => rejects("/properties/credits/properties/cost/minimum", unkey.keys.verifyKey({ key: (await make(1)).key, credits: { cost: -1 } })));
  await check("a cost past 10^12 is 400", async () => rejects("/properties/credits/properties/cost/maximum", unkey.keys.verifyKey({ key: (await make(1)).key, credits: { cost: 1_000_000_000_001 } })));
  await check("large balances keep every digit", async () => {
    const { key, keyId } = await make(Number.MAX_SAFE_INTEGER);
    assert.deepStrictEqual(await spend(key), [true, "VALID", Number.MAX_SAFE_INTEGER - 1]);
    assert.equal((await getKey(keyId)).credits.remaining, Number.MAX_SAFE_INTEGER - 1);
  });
  await check("20 calls at once spend exactly the balance", async () => {
    const { key, keyId } = await make(10);
    const answers = await Promise.all(Array.from({ length: 20 }, () => verify(key)));
    const valid = answers.filter((answer) => answer.code === "VALID").map((answer) => answer.credits).sort((x, y) => x - y);
    // Of calls at the same moment on two replicas, two may be told the same.
    assert.equal(valid.length, 10);
    assert.ok(valid.every((told) => told >= 0 && told <= 9), `${valid}`);
    assert.equal(answers.filter((answer) => answer.code === "USAGE_EXCEEDED").length, 10);
    assert.deepStrictEqual((await getKey(keyId)).credits, { remaining: 0 });
  });
});
