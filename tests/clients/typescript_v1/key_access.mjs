import assert from "node:assert/strict";
import { apiId, clientFor, createKey, fresh, getKey, names, refused, result, section, unkey, verifiesEverywhere } from "./support.mjs";

// Permissions and roles behave alike: what differs is what they are called.
for (const [list, add, set, remove, make, madeId] of [
  ["permissions", "addPermissions", "setPermissions", "removePermissions", "createPermission", "permissionId"],
  ["roles", "addRoles", "setRoles", "removeRoles", "createRole", "roleId"],
]) {
  await section(`the ${list} of a key`, async (check) => {
    const { keys, permissions } = unkey;
    const { keyId, key } = await createKey({ apiId });
    const [a, b, c, d] = ["a", "b", "c", "d"].map((name) => fresh(`${list}.${name}`));
    const ids = {};
    for (const name of [a, b, c]) ids[name] = (await result(permissions[make]({ name })))[madeId];
    const connected = (...names) => names.map((name) => ({ id: ids[name], name }));
    const byName = (answer) => [...answer].sort((one, other) => (one.name < other.name ? -1 : 1));
    const ask = async (method, ...items) => byName(await result(keys[method]({ keyId, [list]: items })));
    const has = async (...names) => assert.deepStrictEqual((await getKey(keyId))[list], names);

    await check(`${add} by id and by name tells those that were asked for`, async () => {
      assert.deepStrictEqual(await ask(add, { id: ids[a] }, { name: b }), connected(a, b));
      assert.deepStrictEqual(await ask(add, { name: b }), connected(b));
      await has(a, b);
    });
    await check(`${add} makes what is to be made`, async () => {
      const [made] = await ask(add, { name: d, create: true });
      ids[d] = made.id;
      assert.deepStrictEqual(made, { id: ids[d], name: d });
      await has(a, b, d);
      await verifiesEverywhere(key, { code: "VALID", [list]: [a, b, d] });
    });
    await check(`${remove} takes each that is named, and passes over what is not there`, async () => {
      const items = [{ name: a }, { id: ids[d] }, { name: fresh("nowhere") }, { id: "nowhere" }];
      assert.deepStrictEqual(await result(keys[remove]({ keyId, [list]: items })), {});
      await has(b);
      await verifiesEverywhere(key, { code: "VALID", [list]: [b] });
    });
    await check(`${set} replaces all of them`, async () => {
      assert.deepStrictEqual(await ask(set, { id: ids[a] }, { name: c }), connected(a, c));
      await has(a, c);
      await verifiesEverywhere(key, { code: "VALID", [list]: [a, c] });
    });
    await check("what does not exist changes nothing", async () => {
      for (const method of [add, set]) {
        await names("NOT_FOUND", [fresh("nowhere")], keys[method]({ keyId, [list]: [{ name: b }, { name: fresh("nowhere") }] }));
        await refused("NOT_FOUND", keys[method]({ keyId, [list]: [{ name: b }, { id: "nowhere" }] }));
        await refused("NOT_FOUND", keys[method]({ keyId: "key_doesnotexist0000", [list]: [{ name: b }] }));
      }
      await has(a, c);
    });
    await check("an item that names nothing and a list of none are BAD_REQUEST", async () => {
      for (const method of [add, set, remove]) {
        await refused("BAD_REQUEST", keys[method]({ keyId, [list]: [{}] }));
        await refused("BAD_REQUEST", keys[method]({ keyId, [list]: [] }));
      }
      await has(a, c);
    });
    await check("who may add may not take, nor make", async () => {
      const one = list.slice(0, -1);
      const adder = clientFor(`rbac.*.add_${one}_to_key`);
      await names("INSUFFICIENT_PERMISSIONS", [`rbac.*.remove_${one}_from_key`], adder.keys[remove]({ keyId, [list]: [{ name: a }] }));
      await names("INSUFFICIENT_PERMISSIONS", [`rbac.*.remove_${one}_from_key`], adder.keys[set]({ keyId, [list]: [{ name: b }] }));
      await names("INSUFFICIENT_PERMISSIONS", [`rbac.*.create_${one}`], adder.keys[add]({ keyId, [list]: [{ name: fresh("new"), create: true }] }));
      await result(adder.keys[add]({ keyId, [list]: [{ name: b }] }));
      await has(a, b, c);
    });
  });
}
