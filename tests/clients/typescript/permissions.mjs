import assert from "node:assert/strict";
import { apiId, attacher, checkList, createKey, data, E, fresh, ID, raises, rejects, run, section, unkey, verifiesEverywhere, verify } from "./support.mjs";

await section("permissions", async (check) => {
  const slug = fresh("docs.read");
  await check("createPermission answers with an id", async () => {
    const made = await data(unkey.permissions.createPermission({ name: "Read", slug, description: "Reads documents." }));
    assert.deepStrictEqual(Object.keys(made), ["permissionId"]);
    assert.match(made.permissionId, ID("perm"));
  });
  await check("the same slug again is 409", () =>
    raises(E.permissionExists, unkey.permissions.createPermission({ name: "Other", slug })));
  await check("the same name with another slug is fine", async () => {
    assert.match((await data(unkey.permissions.createPermission({ name: "Read", slug: fresh("docs.read2") }))).permissionId, ID("perm"));
  });
  await check("a slug may hold letters, digits and _ : - . *", () =>
    data(unkey.permissions.createPermission({ name: "All", slug: `${run}_A:b-c.*` })));
  const bad = [
    ["an empty name", { name: "", slug: fresh("p1") }, "/properties/name/minLength"],
    ["a name of 513", { name: "n".repeat(513), slug: fresh("p1") }, "/properties/name/maxLength"],
    ["an empty slug", { name: "p", slug: "" }, "/properties/slug/minLength"],
    ["a slug of 129", { name: "p", slug: "s".repeat(129) }, "/properties/slug/maxLength"],
    ["a slug with a blank", { name: "p", slug: "a b" }, "/properties/slug/pattern"],
    ["a description of 513", { name: "p", slug: fresh("p1"), description: "d".repeat(513) }, "/properties/description/maxLength"],
  ];
  for (const [title, request, location] of bad) {
    await check(`createPermission refuses ${title}`, () => rejects(location, unkey.permissions.createPermission(request)));
  }
  await check("the refused calls create nothing", () => data(unkey.permissions.createPermission({ name: "p", slug: fresh("p1") })));

  const role = fresh("editor");
  await check("createRole answers with an id, and creates the slugs that are missing", async () => {
    const made = await data(unkey.permissions.createRole({ name: role, description: "Edits.", permissions: [slug, fresh("docs.write"), slug] }));
    assert.deepStrictEqual(Object.keys(made), ["roleId"]);
    assert.match(made.roleId, ID("role"));
    await raises(E.permissionExists, unkey.permissions.createPermission({ name: "w", slug: fresh("docs.write") }));
  });
  await check("the same role name again is 409", () => raises(E.roleExists, unkey.permissions.createRole({ name: role })));
  await check("a refused role creates no permission", async () => {
    await raises(E.roleExists, unkey.permissions.createRole({ name: role, permissions: [fresh("docs.never")] }));
    await data(unkey.permissions.createPermission({ name: "never", slug: fresh("docs.never") }));
  });
  await check("a role needs no permissions", async () => {
    assert.match((await data(unkey.permissions.createRole({ name: fresh("bare") }))).roleId, ID("role"));
  });
  await check("createRole refuses an empty name", () => rejects("/properties/name/minLength", unkey.permissions.createRole({ name: "" })));
  await check("createRole refuses a name of 129", () => rejects("/properties/name/maxLength", unkey.permissions.createRole({ name: "r".repeat(129) })));
  await check("createRole refuses a description of 513", () =>
    rejects("/properties/description/maxLength", unkey.permissions.createRole({ name: fresh("r"), description: "d".repeat(513) })));
  await check("createRole refuses an ill-formed slug", () =>
    rejects("/properties/permissions/items/pattern", unkey.permissions.createRole({ name: fresh("r"), permissions: ["a b"] })));
});

// What permissions and roles have in common: each is named by its id or by what the caller calls it.
const described = { description: "What it is for." };
const kinds = [
  {
    kind: "Permission", field: "permission", missing: E.noPermission, missingToDelete: E.noPermission, attached: "permissions",
    make: async (slug, more) => {
      const { permissionId: id } = await data(unkey.permissions.createPermission({ name: slug, slug, ...more }));
      return { id, name: slug, slug, ...more };
    },
  },
  {
    kind: "Role", field: "role", missing: E.noRole, missingToDelete: E.noRoleToDelete, attached: "roles",
    make: async (name, more) => {
      const slug = `${name}.p`;
      const { roleId } = await data(unkey.permissions.createRole({ name, ...more, permissions: [slug] }));
      return { id: roleId, name, ...more, permissions: [await data(unkey.permissions.getPermission({ permission: slug }))] };
    },
  },
];
for (const { kind, field, missing, missingToDelete, attached, make } of kinds) {
  await section(`${field}s, one by one and listed`, async (check) => {
    const call = (procedure, named, caller = unkey) => caller.permissions[`${procedure}${kind}`]({ [field]: named });
    const names = ["a", "b", "c", "d", "e"].map((name) => fresh(`${field}-list.${name}`));
    const all = [await make(names[0], described)];
    for (const name of names.slice(1)) all.push(await make(name));
    const [first, second] = all;

    await check(`get${kind} finds it by id and by name, with every field`, async () => {
      for (const thing of [first, second]) {
        for (const named of [thing.id, thing.slug ?? thing.name]) assert.deepStrictEqual(await data(call("get", named)), thing);
      }
    });
    await check(`get${kind} goes by the very letters`, () => raises(missing, call("get", names[0].toUpperCase())));
    await checkList(check, `list${kind}s`, (fields) => unkey.permissions[`list${kind}s`](fields), fresh(`${field}-list`), all);

    const keep = await createKey({ apiId, [attached]: names });
    await check(`delete${kind} by id and by name answers with an empty object`, async () => {
      for (const named of [first.id, names[1]]) assert.deepStrictEqual(await data(call("delete", named)), {});
    });
    await check(`verifyKey knows that they are gone, and what stayed`, async () => {
      await verifiesEverywhere(keep.key, { valid: true, code: "VALID", [attached]: names.slice(2) });
      const [gone, stayed] = [first, all[2]].map((thing) => thing.slug ?? thing.permissions[0].slug);
      assert.equal((await verify(keep.key, { permissions: gone })).code, "INSUFFICIENT_PERMISSIONS");
      assert.equal((await verify(keep.key, { permissions: stayed })).code, "VALID");
    });
    for (const [procedure, error] of [["get", missing], ["delete", missingToDelete]]) {
      for (const [title, named] of [["a deleted id", first.id], ["a deleted name", names[1]], ["an unknown id", `${field.slice(0, 4)}_doesnotexist0000`]]) {
        await check(`${procedure}${kind} of ${title} is 404`, () => raises(error, call(procedure, named)));
      }
      await check(`${procedure}${kind} refuses an empty name`, () => rejects(`/properties/${field}/minLength`, call(procedure, "")));
      await check(`${procedure}${kind} refuses a name of 129`, () => rejects(`/properties/${field}/maxLength`, call(procedure, "n".repeat(129))));
    }
    await check("what was deleted can be made anew", async () => assert.notEqual((await make(names[1])).id, second.id));
  });
}

await section("setRolePermissions", async (check) => {
  const [p1, p2, p3, name] = ["srp1", "srp2", "srp3", "srp"].map(fresh);
  const { roleId } = await data(unkey.permissions.createRole({ name, permissions: [p1] }));
  const { key, keyId } = await createKey({ apiId, roles: [name] });
  const set = (permissions, caller = unkey) => caller.permissions.setRolePermissions({ roleId, permissions });
  const known = async (slugs) => Promise.all(slugs.map((permission) => data(unkey.permissions.getPermission({ permission }))));
  for (const [title, sent, slugs] of [
    ["replaces them, sorted by slug and without doubles, and makes the missing ones", [p3, p2, p3], [p2, p3]],
    ["again changes nothing", [p2, p3], [p2, p3]],
    ["to one of them keeps it", [p3], [p3]],
    ["to none empties the role", [], []],
    ["fills it again", [p1], [p1]],
  ]) {
    await check(title, async () => {
      const answer = await data(set(sent));
      assert.deepStrictEqual(answer, await known(slugs));
      assert.deepStrictEqual((await data(unkey.permissions.getRole({ role: name }))).permissions, slugs.length > 0 ? answer : undefined);
      await verifiesEverywhere(key, { code: "VALID", keyId, roles: [name], permissions: slugs.length > 0 ? slugs : undefined });
    });
  }
  await check("a missing slug is 403 for one who may not make it, and changes nothing", async () => {
    const { detail } = await raises(E.forbidden, set([p2, fresh("srp-new")], attacher));
    assert.ok(detail.includes("rbac.*.create_permission"), detail);
    await raises(E.noPermission, unkey.permissions.getPermission({ permission: fresh("srp-new") }));
    assert.deepStrictEqual((await verify(key)).permissions, [p1]);
  });
  await check("known slugs are enough for one who may not make any", async () => {
    assert.deepStrictEqual(await data(set([p1, p2], attacher)), await known([p1, p2]));
  });
  await check("a role is named by its id only", () => raises(E.noRole, unkey.permissions.setRolePermissions({ roleId: "role_doesnotexist0000", permissions: [] })));
  for (const [title, fields, location] of [
    ["a short id", { roleId: "ro" }, "/properties/roleId/minLength"],
    ["an id of 256", { roleId: "r".repeat(256) }, "/properties/roleId/maxLength"],
    ["an ill-formed id", { roleId: name }, "/properties/roleId/pattern"],
    ["an ill-formed slug", { permissions: ["a b"] }, "/properties/permissions/items/pattern"],
    ["a slug of 129", { permissions: ["s".repeat(129)] }, "/properties/permissions/items/maxLength"],
  ]) {
    await check(`refuses ${title}`, () => rejects(location, unkey.permissions.setRolePermissions({ roleId, permissions: [], ...fields })));
  }
});
