// Root keys whose permissions name one instance: `api.<id>.create_key` and not `api.*.create_key`.
import assert from "node:assert/strict";
import {
  clientFor, createKey, data, E, fresh, keyward, lacks, LONG, NOT_FOUND, pages, problem, raises, section, seen, seenByAll, unkey, verifiesEverywhere, verify,
} from "./support.mjs";

// What is missing is told for every instance and for this one.
const either = (type, id, action) => [`${type}.*.${action}`, `${type}.${id}.${action}`];

await section("permissions for one API", async (check) => {
  const [own, other] = await Promise.all(["own", "other"].map(async (name) => (await data(unkey.apis.createApi({ name: fresh(name) }))).apiId));
  const actions = ["read_api", "delete_api", "create_key", "read_key", "update_key", "delete_key", "verify_key"];
  const caller = clientFor(...actions.map((action) => `api.${own}.${action}`));
  const { migrationId } = keyward("migration", "create", "--algorithm", "sha256");
  const foreign = await createKey({ apiId: other, credits: { remaining: 5 } });

  let made;
  await check("createKey in that API", async () => {
    made = await data(caller.keys.createKey({ apiId: own, credits: { remaining: 5 } }));
    await verifiesEverywhere(made.key, { code: "VALID", credits: 4 });
  });
  // What each operation needs, and what it is asked: of an API and a key in it.
  const operations = [
    ["apis.getApi", "read_api", ({ apiId }) => ({ apiId })],
    ["keys.getKey", "read_key", ({ keyId }) => ({ keyId })],
    ["keys.updateKey", "update_key", ({ keyId }) => ({ keyId, name: fresh("renamed") })],
    ["keys.updateCredits", "update_key", ({ keyId }) => ({ keyId, operation: "set", value: 9 })],
    ["keys.setRoles", "update_key", ({ keyId }) => ({ keyId, roles: [] })],
    ["keys.rerollKey", "create_key", ({ keyId }) => ({ keyId, expiration: 3_600_000 })],
    ["keys.migrateKeys", "create_key", ({ apiId }) => ({ migrationId, apiId, keys: [{ hash: fresh(`hash-${apiId}`) }] })],
    ["keys.deleteKey", "delete_key", ({ keyId }) => ({ keyId })],
    ["apis.deleteApi", "delete_api", ({ apiId }) => ({ apiId })],
  ];
  const call = (name, body) => {
    const [service, procedure] = name.split(".");
    return caller[service][procedure](body);
  };
  await check("whoami, listKeys and verifyKey of its keys", async () => {
    assert.equal((await data(caller.keys.whoami({ key: made.key }))).keyId, made.keyId);
    assert.deepStrictEqual((await pages(caller.apis.listKeys({ apiId: own })))[1].map((key) => key.keyId), [made.keyId]);
    assert.equal((await data(caller.keys.verifyKey({ key: made.key }))).code, "VALID");
  });
  for (const [name, action, body] of operations) {
    await check(`${name} of another API is 403`, () => lacks(either("api", other, action), call(name, body({ apiId: other, ...foreign }))));
  }
  // These do not tell a stranger whether the thing is there.
  await check("createKey and listKeys hide another API", async () => {
    await raises(E.noApi, caller.keys.createKey({ apiId: other }));
    await raises(E.noApi, caller.apis.listKeys({ apiId: other }));
  });
  await check("whoami and verifyKey hide another API's key", async () => {
    await raises(E.noKey, caller.keys.whoami({ key: foreign.key }));
    assert.deepStrictEqual(await data(caller.keys.verifyKey({ key: foreign.key })), NOT_FOUND);
  });
  await check("nothing of it has happened to the other API and its key", async () => {
    assert.deepStrictEqual(await verify(foreign.key), { valid: true, code: "VALID", keyId: foreign.keyId, enabled: true, credits: 4 });
    assert.equal((await pages(unkey.apis.listKeys({ apiId: other })))[1].length, 1);
  });
  await check("createApi is not in it", () => lacks(["api.*.create_api"], caller.apis.createApi({ name: fresh("third") })));
  await check("an action on one API and another action on all", async () => {
    const mixed = clientFor("api.*.read_key", `api.${own}.update_key`);
    for (const keyId of [made.keyId, foreign.keyId]) await data(mixed.keys.getKey({ keyId }));
    await data(mixed.keys.updateKey({ keyId: made.keyId, name: fresh("mixed") }));
    await lacks(either("api", other, "update_key"), mixed.keys.updateKey({ keyId: foreign.keyId, name: fresh("mixed") }));
    await lacks(either("api", own, "delete_key"), mixed.keys.deleteKey({ keyId: made.keyId }));
  });
  for (const [name, , body] of operations) {
    await check(`${name} of that API`, () => data(call(name, body({ apiId: own, ...made }))));
  }
});

await section("permissions for one identity", async (check) => {
  const [own, other] = await Promise.all(["own", "other"].map(async (name) => {
    const externalId = fresh(`${name}-identity`);
    return { externalId, id: (await data(unkey.identities.createIdentity({ externalId }))).identityId };
  }));
  const caller = clientFor(...["read_identity", "update_identity", "delete_identity"].map((action) => `identity.${own.id}.${action}`));
  await check("getIdentity of it, by both its names, and listIdentities has it alone", async () => {
    for (const identity of [own.id, own.externalId]) assert.deepStrictEqual(await data(caller.identities.getIdentity({ identity })), own);
    assert.deepStrictEqual(await pages(caller.identities.listIdentities({ search: fresh("") })), [[1], [own]]);
  });
  await check("getIdentity of another is 403", () => lacks(either("identity", other.id, "read_identity"), caller.identities.getIdentity({ identity: other.id })));
  // These do not tell which others there are.
  await check("createIdentity is 403", () => lacks(["identity.*.create_identity"], caller.identities.createIdentity({ externalId: fresh("third") })));
  for (const identity of [other.id, other.externalId, fresh("nobody")]) {
    await check(`updateIdentity and deleteIdentity of ${identity === fresh("nobody") ? "nobody" : "another"} are 403`, async () => {
      await lacks(["identity.*.update_identity"], caller.identities.updateIdentity({ identity, meta: { a: 1 } }));
      await lacks(["identity.*.delete_identity"], caller.identities.deleteIdentity({ identity }), problem(E.forbidden));
    });
  }
  await check("the other is as it was", async () => assert.deepStrictEqual(await data(unkey.identities.getIdentity({ identity: other.id })), other));
  await check("updateIdentity and deleteIdentity of it", async () => {
    const answer = await data(caller.identities.updateIdentity({ identity: own.externalId, meta: { a: 1 } }));
    assert.deepStrictEqual(answer, { ...own, meta: { a: 1 } });
    seen((await caller.identities.deleteIdentity({ identity: own.id })).meta);
    await raises(E.noIdentity, unkey.identities.getIdentity({ identity: own.id }));
  });
});

await section("permissions for one namespace", async (check) => {
  const [own, other] = ["own", "other"].map((name) => fresh(`${name}-namespace`));
  const limit = (namespace, identifier = "a") => ({ namespace, identifier, limit: 10, duration: LONG });
  for (const namespace of [own, other]) await data(unkey.ratelimit.limit(limit(namespace)));
  const ids = Object.fromEntries(keyward("namespace", "list").map(({ name, namespaceId }) => [name, namespaceId]));
  const caller = clientFor(...["limit", "set_override", "read_override", "delete_override"].map((action) => `ratelimit.${ids[own]}.${action}`));
  const many = (...namespaces) => caller.ratelimit.multiLimit(namespaces.map((namespace) => limit(namespace)));

  await check("limit and multiLimit in it, by both its names, count together", async () => {
    assert.equal((await data(caller.ratelimit.limit(limit(own)))).remaining, 8);
    assert.equal((await data(caller.ratelimit.limit(limit(ids[own])))).remaining, 7);
    assert.equal((await data(many(own))).limits[0].remaining, 6);
  });
  await check("limit and multiLimit in another are 403, and count nothing", async () => {
    await lacks(either("ratelimit", ids[other], "limit"), caller.ratelimit.limit(limit(other)));
    await lacks(either("ratelimit", ids[other], "limit"), many(own, other));
    assert.equal((await data(unkey.ratelimit.limit({ ...limit(other), cost: 0 }))).remaining, 9);
    assert.equal((await data(unkey.ratelimit.limit({ ...limit(own), cost: 0 }))).remaining, 6);
  });
  await check("a namespace that is not there is 403, and is not made", async () => {
    await lacks(["ratelimit.*.create_namespace"], caller.ratelimit.limit(limit(fresh("third-namespace"))));
    await raises(E.noNamespace, unkey.ratelimit.listOverrides({ namespace: fresh("third-namespace") }));
  });
  const override = (namespace) => ({ namespace, identifier: "vip" });
  await check("overrides in it", async () => {
    const { overrideId } = await data(caller.ratelimit.setOverride({ ...limit(own, "vip"), limit: 99 }));
    await seenByAll();
    assert.equal((await data(caller.ratelimit.getOverride(override(own)))).limit, 99);
    assert.deepStrictEqual((await pages(caller.ratelimit.listOverrides({ namespace: own })))[1].map((one) => one.overrideId), [overrideId]);
    await data(caller.ratelimit.deleteOverride(override(own)));
  });
  await check("overrides in another are 403, or hidden", async () => {
    await data(unkey.ratelimit.setOverride(limit(other, "vip")));
    await seenByAll();
    await lacks(either("ratelimit", ids[other], "set_override"), caller.ratelimit.setOverride({ ...limit(other, "vip"), limit: 99 }));
    await lacks(either("ratelimit", ids[other], "read_override"), caller.ratelimit.listOverrides({ namespace: other }));
    await lacks(either("ratelimit", ids[other], "delete_override"), caller.ratelimit.deleteOverride(override(other)));
    await raises(E.noOverride, caller.ratelimit.getOverride(override(other)));
    assert.equal((await data(unkey.ratelimit.getOverride(override(other)))).limit, 10);
  });
});
