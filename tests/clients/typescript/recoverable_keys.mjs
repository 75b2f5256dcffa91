// Keys of which a sealed copy is kept, so that who may can read them again.
import assert from "node:assert/strict";
import {
  apiId as otherApi, clientFor, createKey, data, E, fresh, getKey, lacks, NOT_FOUND, pages, raises, section, setApi, settled, unkey, updateKey,
  verifiesEverywhere, verify, whoami,
} from "./support.mjs";

await section("recoverable keys", async (check) => {
  const { apiId } = await data(unkey.apis.createApi({ name: fresh("recoverable") }));
  const decrypt = async (keyId) => settled(await data(unkey.keys.getKey({ keyId, decrypt: true })));
  const list = (fields, caller = unkey) => caller.apis.listKeys({ apiId, ...fields });

  await check("createKey is 412 while the API keeps no copies, names it, and makes no key", async () => {
    const { detail } = await raises(E.precondition, createKey({ apiId, recoverable: true }));
    assert.ok(detail.includes(apiId), detail);
    assert.deepStrictEqual(await pages(list()), [[0], []]);
  });
  const older = await createKey({ apiId });
  await setApi(apiId, "--recoverable-keys", "on");
  const plain = await createKey({ apiId, recoverable: false });
  const made = await createKey({
    apiId, recoverable: true, prefix: "acme_live", byteLength: 255, name: fresh("sealed"), externalId: fresh("owner"), meta: { a: 1 }, credits: { remaining: 5 },
  });
  const off = await createKey({ apiId, recoverable: true, enabled: false, expires: 1 });
  const copies = { [made.keyId]: made.key, [off.keyId]: off.key };

  await check("a recoverable key verifies as any other", async () => {
    assert.deepStrictEqual([(await verify(made.key)).code, (await verify(plain.key)).code], ["VALID", "VALID"]);
  });
  const hidden = await getKey(made.keyId);
  await check("getKey and whoami do not show the key to who does not ask", async () => {
    assert.ok(!("plaintext" in hidden));
    assert.deepStrictEqual(await data(unkey.keys.getKey({ keyId: made.keyId, decrypt: false })).then(settled), hidden);
    assert.deepStrictEqual(await whoami(made.key), hidden);
  });
  await check("getKey with decrypt shows it beside all the rest", async () => {
    assert.deepStrictEqual(await decrypt(made.keyId), { ...hidden, plaintext: made.key });
  });
  await check("getKey with decrypt shows a disabled, expired one too", async () => assert.equal((await decrypt(off.keyId)).plaintext, off.key));
  await check("getKey with decrypt leaves out what was never kept", async () => {
    for (const { keyId } of [older, plain]) assert.deepStrictEqual(await decrypt(keyId), await getKey(keyId));
  });
  for (const [title, fields, sizes] of [["one page", {}, [4]], ["pages of 3", { limit: 3 }, [3, 1]]]) {
    await check(`listKeys with decrypt shows each copy, in ${title}`, async () => {
      const [lengths, keys] = await pages(list({ decrypt: true, ...fields }));
      assert.deepStrictEqual(lengths, sizes);
      const due = await Promise.all([older, plain, made, off].map(({ keyId }) => keyId).sort().map(decrypt));
      assert.deepStrictEqual(keys.map(settled), due);
      assert.deepStrictEqual(Object.fromEntries(due.filter((key) => "plaintext" in key).map((key) => [key.keyId, key.plaintext])), copies);
    });
  }
  await check("listKeys shows none to who does not ask", async () => {
    for (const key of (await pages(list()))[1]) assert.ok(!("plaintext" in key));
  });
  await check("a key that has been changed is shown still", async () => {
    await updateKey(made.keyId, { name: fresh("renamed"), credits: null });
    assert.deepStrictEqual([(await decrypt(made.keyId)).plaintext, (await decrypt(made.keyId)).name], [made.key, fresh("renamed")]);
  });

  const reader = clientFor("api.*.read_key", "api.*.read_api", "api.*.create_key");
  await check("without decrypt_key, getKey and listKeys are 403, but only with decrypt", async () => {
    await lacks([`api.${apiId}.decrypt_key`], reader.keys.getKey({ keyId: made.keyId, decrypt: true }));
    await lacks(["api.*.decrypt_key"], list({ decrypt: true }, reader));
    assert.equal((await data(reader.keys.getKey({ keyId: made.keyId }))).keyId, made.keyId);
    assert.equal((await pages(list({}, reader)))[1].length, 4);
  });
  await check("decrypt_key of this API alone is enough, and of another is not", async () => {
    const own = clientFor("api.*.read_key", "api.*.read_api", `api.${apiId}.decrypt_key`);
    assert.equal((await data(own.keys.getKey({ keyId: made.keyId, decrypt: true }))).plaintext, made.key);
    const other = clientFor("api.*.read_key", "api.*.read_api", `api.${otherApi}.decrypt_key`);
    await lacks(["api.*.decrypt_key"], other.keys.getKey({ keyId: made.keyId, decrypt: true }));
  });
  await check("decrypt_key alone reads no key", async () => {
    await lacks(["api.*.read_key"], clientFor("api.*.decrypt_key").keys.getKey({ keyId: made.keyId, decrypt: true }));
  });
  await check("without encrypt_key, createKey hides the API and rerollKey is 403", async () => {
    await raises(E.noApi, reader.keys.createKey({ apiId, recoverable: true }));
    await lacks(["api.*.encrypt_key"], reader.keys.rerollKey({ keyId: made.keyId, expiration: 0 }));
    const { keyId } = await data(reader.keys.createKey({ apiId }));
    await data(reader.keys.rerollKey({ keyId, expiration: 0 }));
  });
  await check("with encrypt_key, createKey makes one that its maker cannot read", async () => {
    const maker = clientFor("api.*.create_key", "api.*.read_key", `api.${apiId}.encrypt_key`);
    const { keyId, key } = await data(maker.keys.createKey({ apiId, recoverable: true }));
    await lacks(["api.*.decrypt_key"], maker.keys.getKey({ keyId, decrypt: true }));
    assert.equal((await decrypt(keyId)).plaintext, key);
  });

  const next = await data(unkey.keys.rerollKey({ keyId: made.keyId, expiration: 0 }));
  await check("a re-rolled key is recoverable again, and so is the old one", async () => {
    assert.notEqual(next.key, made.key);
    assert.equal((await decrypt(next.keyId)).plaintext, next.key);
    assert.equal((await decrypt(made.keyId)).plaintext, made.key);
    await verifiesEverywhere(next.key, { code: "VALID" });
    await verifiesEverywhere(made.key, { code: "EXPIRED" });
  });
  await check("a re-rolled key that was not recoverable is not", async () => {
    const { keyId } = await data(unkey.keys.rerollKey({ keyId: plain.keyId, expiration: 60_000 }));
    assert.ok(!("plaintext" in (await decrypt(keyId))));
  });
  for (const permanent of [false, true]) {
    await check(`a deleted one is 404, ${permanent ? "for good" : "softly"}`, async () => {
      const { keyId, key } = await createKey({ apiId, recoverable: true });
      await data(unkey.keys.deleteKey({ keyId, permanent }));
      await raises(E.noKey, unkey.keys.getKey({ keyId, decrypt: true }));
      await verifiesEverywhere(key, NOT_FOUND);
    });
  }

  await setApi(apiId, "--recoverable-keys", "off");
  await check("once the API keeps no copies, all that needs one is 412", async () => {
    await raises(E.precondition, createKey({ apiId, recoverable: true }));
    await raises(E.precondition, unkey.keys.getKey({ keyId: next.keyId, decrypt: true }));
    await raises(E.precondition, list({ decrypt: true }));
    await raises(E.precondition, unkey.keys.rerollKey({ keyId: next.keyId, expiration: 0 }));
  });
  await check("and the rest goes on", async () => {
    assert.equal((await getKey(next.keyId)).keyId, next.keyId);
    assert.equal((await verify(next.key)).code, "VALID");
    await data(unkey.keys.rerollKey({ keyId: plain.keyId, expiration: 60_000 }));
  });
  await setApi(apiId, "--recoverable-keys", "on");
  await check("once it keeps copies again, those from before are shown", async () => assert.equal((await decrypt(next.keyId)).plaintext, next.key));
});
