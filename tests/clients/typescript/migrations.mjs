// Keys that were issued elsewhere: only their hashes come in.
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import {
  apiId, checked, client, clientFor, createKey, data, E, fresh, getKey, ID, isNow, keyward, lacks, LONG, NOT_FOUND, pages, raises, rejects, section, seenByAll,
  unkey, verifiesEverywhere, verify, weak, whoami,
} from "./support.mjs";

const sha256 = (text, encoding) => createHash("sha256").update(text).digest(encoding);
const hash = (key) => sha256(key, "base64");
const migration = (algorithm, ...options) => keyward("migration", "create", "--algorithm", algorithm, ...options).migrationId;
const otherWorkspace = keyward("workspace", "create", "--name", fresh("elsewhere")).workspaceId;
const stranger = client(keyward("root-key", "create", "--all", "--workspace", otherWorkspace).key);

await section("migrateKeys", async (check) => {
  const migrationId = migration("sha256", "--name", fresh("provider"));
  const migrate = (keys, more = {}, caller = unkey) => caller.keys.migrateKeys({ migrationId, apiId, keys, ...more });
  const key = fresh("issued-elsewhere");
  await check("a key is NOT_FOUND before it is taken in", async () => assert.deepStrictEqual(await verify(key), NOT_FOUND));

  const [slug, role] = ["taken-in", "newcomer"].map(fresh);
  const [name, meta, expires, externalId] = ["from elsewhere", { plan: "old", list: [1, null] }, Date.now() + 3_600_000, `${fresh("user")} ü`];
  const refill = { interval: "monthly", amount: 500, refillDay: 31 };
  const limit = { name: "auto", limit: 10, duration: LONG, autoApply: true };
  const { migrated, failed } = await data(migrate([{
    hash: hash(key), name, externalId, meta, roles: [role], permissions: [slug], expires, credits: { remaining: 100, refill }, ratelimits: [limit],
  }]));
  const { keyId } = migrated[0];
  await check("answers with the hash and the key's id, and with an empty list of those that failed", () => {
    assert.match(keyId, ID("key"));
    assert.deepStrictEqual([migrated, failed], [[{ hash: hash(key), keyId }], []]);
  });
  const stored = await getKey(keyId);
  await check("getKey returns every field as it came, and no start", () => {
    isNow(stored.createdAt);
    assert.deepStrictEqual(stored, {
      keyId, start: "", enabled: true, name, meta, createdAt: stored.createdAt, expires, permissions: [slug], roles: [role],
      credits: { remaining: 100, refill }, identity: { id: stored.identity.id, externalId }, ratelimits: [{ id: stored.ratelimits[0].id, ...limit }],
    });
  });
  await check("whoami returns the same", async () => assert.deepStrictEqual(await whoami(key), stored));
  await check("verifyKey knows the key that was issued elsewhere", async () => {
    await verifiesEverywhere(key, {
      valid: true, code: "VALID", keyId, enabled: true, name, meta, expires, permissions: [slug], roles: [role], credits: 99,
      identity: { id: stored.identity.id, externalId }, ratelimits: [checked(stored.ratelimits[0], 9)],
    }, { permissions: slug });
  });
  await check("a permission, a role and an identity that did not exist have been made", async () => {
    assert.equal((await data(unkey.permissions.getPermission({ permission: slug }))).slug, slug);
    assert.equal((await data(unkey.permissions.getRole({ role }))).name, role);
    assert.equal((await data(unkey.identities.getIdentity({ identity: externalId }))).id, stored.identity.id);
  });
  await check("who may create keys in the API alone may bring them along too", async () => {
    const [permission, user, other] = ["brought-along", "companion", "with-company"].map(fresh);
    await data(migrate([{ hash: hash(other), permissions: [permission], externalId: user }], {}, clientFor(`api.${apiId}.create_key`)));
    assert.deepStrictEqual((await whoami(other)).permissions, [permission]);
    assert.equal((await whoami(other)).identity.externalId, user);
  });

  await check("a batch of a hash alone, a disabled key, an unlimited one, and a hash in hex", async () => {
    const [plain, disabled, unlimited, hex] = ["plain", "disabled", "unlimited", "hex"].map(fresh);
    const hashes = [hash(plain), hash(disabled), hash(unlimited), sha256(hex, "hex")];
    const answer = await data(migrate([
      { hash: hashes[0] }, { hash: hashes[1], enabled: false }, { hash: hashes[2], credits: { remaining: null } }, { hash: hashes[3] },
    ]));
    assert.deepStrictEqual([answer.migrated.map((one) => one.hash), answer.failed], [hashes, []]);
    const ids = answer.migrated.map((one) => one.keyId);
    assert.deepStrictEqual(await verify(plain), { valid: true, code: "VALID", keyId: ids[0], enabled: true });
    assert.deepStrictEqual(await verify(disabled), { valid: false, code: "DISABLED", keyId: ids[1], enabled: false });
    assert.deepStrictEqual(await verify(unlimited), { valid: true, code: "VALID", keyId: ids[2], enabled: true });
    assert.deepStrictEqual(await verify(hex), { valid: true, code: "VALID", keyId: ids[3], enabled: true });
  });
  await check("hashes that are known, of a deleted key, or twice in the batch have failed; the others are taken in", async () => {
    const [known, deleted] = [await createKey({ apiId }), await createKey({ apiId })];
    await data(unkey.keys.deleteKey({ keyId: deleted.keyId }));
    const [a, b] = ["batch-a", "batch-b"].map(fresh);
    const answer = await data(migrate([known.key, a, deleted.key, b, a, key].map((one) => ({ hash: hash(one) }))));
    assert.deepStrictEqual(answer.migrated.map((one) => one.hash), [a, b].map(hash));
    assert.deepStrictEqual(answer.failed, [known.key, deleted.key, a, key].map(hash));
    for (const valid of [known.key, a, b]) assert.equal((await verify(valid)).code, "VALID");
    assert.deepStrictEqual(await verify(deleted.key), NOT_FOUND);
  });
  await check("a batch that is sent again fails as a whole, and changes nothing", async () => {
    const again = await data(migrate([{ hash: hash(key), name: "another", enabled: false }]));
    assert.deepStrictEqual(again, { migrated: [], failed: [hash(key)] });
    assert.equal((await getKey(keyId)).name, name);
  });
  await check("a hash that another workspace has is taken too", async () => {
    const theirs = await data(stranger.keys.createKey(await data(stranger.apis.createApi({ name: fresh("theirs") }))));
    assert.deepStrictEqual(await data(migrate([{ hash: hash(theirs.key) }])), { migrated: [], failed: [hash(theirs.key)] });
    assert.deepStrictEqual(await verify(theirs.key), NOT_FOUND);
  });
  await check("a key that was taken in is re-rolled, changed and deleted as any other", async () => {
    const { key: next, keyId: nextId } = await data(unkey.keys.rerollKey({ keyId, expiration: 60_000 }));
    assert.deepStrictEqual([(await verify(next)).keyId, (await verify(next)).name], [nextId, name]);
    await data(unkey.keys.updateKey({ keyId, enabled: false }));
    await verifiesEverywhere(key, { code: "DISABLED" });
    await data(unkey.keys.deleteKey({ keyId }));
    await verifiesEverywhere(key, NOT_FOUND);
  });

  const one = [{ hash: hash(fresh("never")) }];
  await check("an unknown migration is 404", () => raises(E.noMigration, migrate(one, { migrationId: "mig_doesnotexist0000" })));
  await check("another workspace's migration is 404", () => raises(E.noMigration, migrate(one, { migrationId: migration("sha256", "--workspace", otherWorkspace) })));
  await check("an unknown API is 404", () => raises(E.noApi, migrate(one, { apiId: "api_doesnotexist0000" })));
  await check("a deleted API is 404", async () => {
    const gone = await data(unkey.apis.createApi({ name: fresh("gone") }));
    await data(unkey.apis.deleteApi(gone));
    await raises(E.noApi, migrate(one, gone));
  });
  await check("without create_key it is 403 before anything is looked up", () =>
    lacks(["api.*.create_key"], migrate(one, { apiId: "api_doesnotexist0000", migrationId: "mig_doesnotexist0000" }, weak)));
  const items = "/properties/keys/items/properties";
  for (const [title, fields, location] of [
    ["a migrationId of 2", { migrationId: "mi" }, "/properties/migrationId/minLength"],
    ["a migrationId of 256", { migrationId: "m".repeat(256) }, "/properties/migrationId/maxLength"],
    ["an apiId of 2", { apiId: "ap" }, "/properties/apiId/minLength"],
    ["a batch of none", { keys: [] }, "/properties/keys/minItems"],
    ["a hash of 2", { keys: [{ hash: "ab" }] }, `${items}/hash/minLength`],
    ["an empty name", { keys: [{ ...one[0], name: "" }] }, `${items}/name/minLength`],
    ["an externalId of 256", { keys: [{ ...one[0], externalId: "e".repeat(256) }] }, `${items}/externalId/maxLength`],
    ["an ill-formed permission", { keys: [{ ...one[0], permissions: ["a b"] }] }, `${items}/permissions/items/pattern`],
    ["a negative expires", { keys: [{ ...one[0], expires: -1 }] }, `${items}/expires/minimum`],
    ["negative credits", { keys: [{ ...one[0], credits: { remaining: -1 } }] }, `${items}/credits/properties/remaining/minimum`],
    ["a limit of 0", { keys: [{ ...one[0], ratelimits: [{ ...limit, limit: 0 }] }] }, `${items}/ratelimits/items/properties/limit/minimum`],
  ]) {
    await check(`refuses ${title}`, () => rejects(location, migrate(one, fields)));
  }
  await check("one fault refuses the whole batch", async () => {
    const [good, bad] = [fresh("good"), { remaining: 1, refill: { interval: "monthly", amount: 1 } }];
    await raises(E.invalid, migrate([{ hash: hash(good) }, { hash: hash(fresh("bad")), credits: bad }]));
    assert.deepStrictEqual(await verify(good), NOT_FOUND);
  });
});

await section("verifyKey with migrationId", async (check) => {
  const migrationId = migration("prefixed-api-key");
  // As the package prefixed-api-key makes them: prefix, short token and long token, of which it keeps the hash.
  const issue = () => {
    const [short, long] = [randomBytes(4).toString("hex"), randomBytes(12).toString("hex")];
    return { key: `my_company_${short}_${long}`, start: `my_company_${short.slice(0, 4)}`, hash: sha256(long, "hex") };
  };
  const issued = Array.from({ length: 4 }, issue);
  const [shown, crowded, waiting, deleted] = issued;
  const { migrated } = await data(unkey.keys.migrateKeys({ migrationId, apiId, keys: issued.map(({ hash }) => ({ hash, credits: { remaining: 50 } })) }));
  issued.forEach((key, i) => Object.assign(key, migrated[i]));

  await check("without it, a key that waits is NOT_FOUND", async () => assert.deepStrictEqual(await verify(shown.key), NOT_FOUND));
  await check("with it, a key that is shown for the first time is VALID", async () => {
    assert.deepStrictEqual(await verify(shown.key, { migrationId }), { valid: true, code: "VALID", keyId: shown.keyId, enabled: true, credits: 49 });
  });
  await check("from then on it is VALID without it", () => verifiesEverywhere(shown.key, { code: "VALID", keyId: shown.keyId, credits: 48 }));
  await check("and with it still", () => verifiesEverywhere(shown.key, { code: "VALID", keyId: shown.keyId, credits: 47 }, { migrationId }));
  await check("whoami knows it, and how it starts", async () => {
    const { keyId, start } = await whoami(shown.key);
    assert.deepStrictEqual([keyId, start], [shown.keyId, shown.start]);
  });
  await check("the long token by itself is no key", async () => assert.deepStrictEqual(await verify(shown.key.split("_").at(-1)), NOT_FOUND));
  await check("one that many show at once is VALID for all, and each is counted", async () => {
    const answers = await Promise.all(Array.from({ length: 20 }, () => verify(crowded.key, { migrationId })));
    assert.deepStrictEqual(new Set(answers.map(({ code }) => code)), new Set(["VALID"]));
    await verifiesEverywhere(crowded.key, { code: "VALID", credits: 29 });
  });
  for (const [title, other] of [
    ["another migration", () => migration("prefixed-api-key")],
    ["a migration of whole keys", () => migration("sha256")],
    ["a migration of another workspace", () => migration("prefixed-api-key", "--workspace", otherWorkspace)],
    ["an unknown migration", () => "mig_doesnotexist0000"],
  ]) {
    await check(`with ${title}, a key that waits is NOT_FOUND`, async () => {
      assert.deepStrictEqual(await verify(waiting.key, { migrationId: other() }), NOT_FOUND);
    });
  }
  await check("who may not verify it, or is of another workspace, is told NOT_FOUND and adopts nothing", async () => {
    for (const caller of [weak, stranger]) assert.deepStrictEqual(await data(caller.keys.verifyKey({ key: waiting.key, migrationId })), NOT_FOUND);
    assert.equal((await getKey(waiting.keyId)).start, "");
  });
  await check("a wrong long token is NOT_FOUND", async () => assert.deepStrictEqual(await verify(`${waiting.key}0`, { migrationId }), NOT_FOUND));
  await check("a key of two parts is 400", () => raises(E.badRequest, unkey.keys.verifyKey({ key: "company_token", migrationId })));
  await check("one that was deleted while it waited is NOT_FOUND", async () => {
    await data(unkey.keys.deleteKey({ keyId: deleted.keyId }));
    assert.deepStrictEqual(await verify(deleted.key, { migrationId }), NOT_FOUND);
  });
  await check("after all that, one that still waits is VALID when it is shown", async () => {
    assert.equal((await verify(waiting.key, { migrationId })).code, "VALID");
  });
});

await section("migrateKeys of many", async (check) => {
  const migrationId = migration("sha256");
  const { apiId } = await data(unkey.apis.createApi({ name: fresh("many") }));
  const [all, batch] = [100_000, 100];
  const keys = Array.from({ length: all }, (_, i) => fresh(`many-${i}`));
  const migrate = (from) => data(unkey.keys.migrateKeys({
    migrationId, apiId,
    keys: keys.slice(from, from + batch).map((key, i) => ({ hash: hash(key), externalId: fresh(`owner-${i}`), meta: { number: from + i } })),
  }));
  const ids = [];
  await check(`takes in ${all} keys in batches of ${batch}`, async () => {
    for (let from = 0; from < all; from += batch) {
      const { migrated, failed } = await migrate(from);
      assert.deepStrictEqual([migrated.length, failed], [batch, []]);
      ids.push(...migrated.map((one) => one.keyId));
      if (ids.length % 10_000 === 0) console.log(`... ${ids.length} of ${all} keys taken in`);
    }
  });
  await check("the API has each of them once", async () => {
    const [sizes, listed] = await pages(unkey.apis.listKeys({ apiId }));
    assert.deepStrictEqual(sizes, Array(all / batch).fill(batch));
    assert.deepStrictEqual(listed.map((key) => key.keyId), [...ids].sort());
  });
  for (const number of [0, batch - 1, batch, 2_345, all - 1]) {
    await check(`key ${number} verifies as itself`, async () => {
      const answer = await verify(keys[number]);
      assert.deepStrictEqual([answer.code, answer.keyId, answer.meta], ["VALID", ids[number], { number }]);
      assert.equal(answer.identity.externalId, fresh(`owner-${number % batch}`));
    });
  }
  await check("a batch that is sent again, as after a broken connection, fails as a whole", async () => {
    const { migrated, failed } = await migrate(all - batch);
    assert.deepStrictEqual([migrated, failed], [[], keys.slice(-batch).map(hash)]);
  });
  await check("a key that was not among them is NOT_FOUND", async () => assert.deepStrictEqual(await verify(fresh(`many-${all}`)), NOT_FOUND));
  await check("all are gone with their API", async () => {
    await data(unkey.apis.deleteApi({ apiId }));
    await seenByAll();
    for (const number of [0, all - 1]) assert.deepStrictEqual(await verify(keys[number]), NOT_FOUND);
  });
});
