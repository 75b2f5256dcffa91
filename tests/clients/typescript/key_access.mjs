// The permissions and roles that a key has of itself, added, removed and set, each proven by what verifyKey then says.
import assert from "node:assert/strict";
import { apiId, attacher, createKey, data, E, fresh, getKey, ID, raises, rejects, section, unkey, verifiesEverywhere, weak } from "./support.mjs";

// Permissions and roles differ in what a missing one is: the first are made, the others refused.
const permission = {
  what: "permissions", max: 1000, unknown: { remove: E.noPermission }, letter: "a b", bound: "pattern",
  known: (slug) => data(unkey.permissions.getPermission({ permission: slug })),
  make: (slug) => data(unkey.permissions.createPermission({ name: `Name of ${slug}`, slug, description: "What it is for." })),
};
const role = {
  what: "roles", max: 100, unknown: { add: E.noRole, remove: E.noRole, set: E.noRole }, letter: "", bound: "minLength",
  known: (name) => data(unkey.permissions.getRole({ role: name })),
  make: (name) => data(unkey.permissions.createRole({ name, description: "What it is for.", permissions: [`${name}.b`, `${name}.a`] })),
};
for (const { what, max, unknown, letter, bound, known, make } of [permission, role]) {
  const suffix = what[0].toUpperCase() + what.slice(1);
  await section(`key ${what}`, async (check) => {
    const [a, b, c, d] = ["a", "b", "c", "d"].map((name) => fresh(`${what}-${name}`));
    for (const name of [a, b, c, d]) await make(name);
    const { key, keyId } = await createKey({ apiId, [what]: [b] });
    const call = (verb, names, caller = unkey, id = keyId) => caller.keys[`${verb}${suffix}`]({ keyId: id, [what]: names });

    for (const [verb, title, sent, has] of [
      ["add", "tells all, those from before first", [c, a, a], [b, a, c]],
      ["add", "passes over what the key has", [b], [a, b, c]],
      ["remove", "tells what is left", [a, a], [b, c]],
      ["remove", "passes over what the key does not have", [d], [b, c]],
      ["set", "replaces all", [d, a, d], [a, d]],
      ["set", "again changes nothing", [a, d], [a, d]],
      ["set", "to none takes all", [], []],
      ["add", "gives to a key that has none", [c], [c]],
      ["remove", "takes the last one", [c], []],
    ]) {
      await check(`${verb}${suffix} ${title}`, async () => {
        assert.deepStrictEqual(await data(call(verb, sent)), await Promise.all(has.map(known)));
        const names = has.length > 0 ? [...has].sort() : undefined;
        await verifiesEverywhere(key, { valid: true, code: "VALID", keyId, [what]: names });
        assert.deepStrictEqual((await getKey(keyId))[what], names);
      });
    }
    await check("a query sees what is added and what is removed", async () => {
      const slug = what === "roles" ? `${a}.a` : a;
      await data(call("add", [a]));
      await verifiesEverywhere(key, { code: "VALID" }, { permissions: slug });
      await data(call("remove", [a]));
      await verifiesEverywhere(key, { code: "INSUFFICIENT_PERMISSIONS" }, { permissions: slug });
    });
    for (const verb of ["add", "remove", "set"]) {
      const bad = [
        ["a short key id", ["x"], "/properties/keyId/minLength", "ke"],
        ["an ill-formed key id", ["x"], "/properties/keyId/pattern", "key-1"],
        [letter === "" ? "an empty name" : "an ill-formed slug", [letter], `/properties/${what}/items/${bound}`],
        ["a name of 129", ["n".repeat(129)], `/properties/${what}/items/maxLength`],
        [`${max + 1}`, Array.from({ length: max + 1 }, (_, i) => `n${i}`), `/properties/${what}/maxItems`],
      ];
      if (verb !== "set") bad.push(["none", [], `/properties/${what}/minItems`]);
      for (const [title, names, location, id] of bad) {
        await check(`${verb}${suffix} refuses ${title}`, () => rejects(location, call(verb, names, unkey, id)));
      }
      await check(`${verb}${suffix} of an unknown key is 404`, () => raises(E.noKey, call(verb, [a], unkey, "key_doesnotexist0000")));
      await check(`${verb}${suffix} of an unknown key is 404 before 403`, () => raises(E.noKey, call(verb, [a], weak, "key_doesnotexist0000")));
      if (unknown[verb]) {
        await check(`${verb}${suffix} of an unknown name is 404, names all of them and changes nothing`, async () => {
          const { detail } = await raises(unknown[verb], call(verb, [b, fresh("no-1"), fresh("no-2")]));
          for (const missing of [fresh("no-1"), fresh("no-2")]) assert.ok(detail.includes(missing), detail);
          assert.ok(!(what in (await getKey(keyId))));
        });
      } else {
        await check(`${verb}${suffix} makes what is missing for one who may`, async () => {
          const slug = fresh(`made-by-${verb}`);
          const [made] = await data(call(verb, [slug]));
          assert.deepStrictEqual(made, { id: made.id, name: slug, slug });
          assert.match(made.id, ID("perm"));
          assert.deepStrictEqual(await data(call("remove", [slug])), []);
        });
        await check(`${verb}${suffix} of a missing name is 403 for one who may not make it, and changes nothing`, async () => {
          const { detail } = await raises(E.forbidden, call(verb, [a, fresh("never-made")], attacher));
          assert.ok(detail.includes("rbac.*.create_permission"), detail);
          assert.ok(!(what in (await getKey(keyId))));
          await raises(E.noPermission, unkey.permissions.getPermission({ permission: fresh("never-made") }));
        });
      }
      await check(`${verb}${suffix} of what is there is open to one who may not make it`, async () => {
        assert.deepStrictEqual(await data(call(verb, [a], attacher)), verb === "remove" ? [] : [await known(a)]);
        await data(call("set", []));
      });
    }
  });
}

await section("permissions through a role and of itself", async (check) => {
  const [slug, name] = ["both", "both-role"].map(fresh);
  await data(unkey.permissions.createRole({ name, permissions: [slug] }));
  const { key, keyId } = await createKey({ apiId, roles: [name], permissions: [slug] });
  await check("removePermissions leaves what a role gives, and does not tell it", async () => {
    assert.deepStrictEqual(await data(unkey.keys.removePermissions({ keyId, permissions: [slug] })), []);
    await verifiesEverywhere(key, { code: "VALID", permissions: [slug] }, { permissions: slug });
  });
  await check("without the role it is gone", async () => {
    assert.deepStrictEqual(await data(unkey.keys.removeRoles({ keyId, roles: [name] })), []);
    await verifiesEverywhere(key, { code: "INSUFFICIENT_PERMISSIONS", permissions: undefined }, { permissions: slug });
  });
});
