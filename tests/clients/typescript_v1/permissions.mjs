import assert from "node:assert/strict";
import { apiId, code, createKey, fresh, ID, names, refused, result, section, seenByAll, unkey, verify } from "./support.mjs";

await section("permissions", async (check) => {
  const { permissions } = unkey;
  const [name, slug] = [fresh("Reading"), fresh("docs.read")];
  const { permissionId } = await result(permissions.createPermission({ name, slug, description: "all of it" }));
  const plain = await result(permissions.createPermission({ name: fresh("plain") }));
  const told = { id: permissionId, name, slug, description: "all of it" };
  await check("createPermission answers with the id", () => {
    assert.match(permissionId, ID("perm"));
    assert.deepStrictEqual(Object.keys(plain), ["permissionId"]);
  });
  await check("getPermission tells every field", async () => {
    assert.deepStrictEqual(await result(permissions.getPermission({ permissionId })), told);
    const least = { id: plain.permissionId, name: fresh("plain"), slug: fresh("plain") };
    assert.deepStrictEqual(await result(permissions.getPermission(plain)), least);
  });
  await check("listPermissions tells all of them so", async () => {
    const list = await result(permissions.listPermissions());
    assert.deepStrictEqual(list.filter((one) => one.id === permissionId), [told]);
    assert.equal(list.filter((one) => one.id === plain.permissionId).length, 1);
  });
  await check("a slug is taken once", () => names("CONFLICT", [slug], permissions.createPermission({ name: fresh("other"), slug })));
  await check("a name has no blanks and no stars", async () => {
    for (const wrong of ["docs read", "docs.*", "ab"]) await refused("BAD_REQUEST", permissions.createPermission({ name: wrong }));
  });
  await check("a description may be empty", async () => {
    const { permissionId: id } = await result(permissions.createPermission({ name: fresh("empty"), description: "" }));
    assert.ok(!("description" in (await result(permissions.getPermission({ permissionId: id })))));
  });

  const { key } = await createKey({ apiId, permissions: [slug] });
  await check("deletePermission takes it from its keys", async () => {
    const asked = { authorization: { permissions: slug } };
    assert.equal(await code(key, asked), "VALID");
    assert.deepStrictEqual(await result(permissions.deletePermission({ permissionId })), {});
    await seenByAll();
    assert.equal(await code(key, asked), "INSUFFICIENT_PERMISSIONS");
    await refused("NOT_FOUND", permissions.getPermission({ permissionId }));
    await refused("NOT_FOUND", permissions.deletePermission({ permissionId }));
  });
});

await section("roles", async (check) => {
  const { permissions } = unkey;
  const name = `${fresh("editor")} ü *`;
  const { roleId, ...rest } = await result(permissions.createRole({ name, description: "all of it" }));
  const plain = await result(permissions.createRole({ name: fresh("plain") }));
  await check("createRole answers with the id", () => {
    assert.match(roleId, ID("role"));
    assert.deepStrictEqual(rest, {});
  });
  await check("getRole tells every field", async () => {
    assert.deepStrictEqual(await result(permissions.getRole({ roleId })), { id: roleId, name, description: "all of it" });
    assert.deepStrictEqual(await result(permissions.getRole(plain)), { id: plain.roleId, name: fresh("plain") });
  });
  await check("listRoles tells all of them so", async () => {
    const list = await result(permissions.listRoles());
    assert.deepStrictEqual(list.filter((one) => one.id === roleId), [{ id: roleId, name, description: "all of it" }]);
    assert.equal(list.filter((one) => one.id === plain.roleId).length, 1);
  });
  await check("a name is taken once", () => names("CONFLICT", [name], permissions.createRole({ name })));

  const { key } = await createKey({ apiId, roles: [name] });
  await check("deleteRole takes it from its keys", async () => {
    assert.deepStrictEqual((await verify(key)).roles, [name]);
    assert.deepStrictEqual(await result(permissions.deleteRole({ roleId })), {});
    await seenByAll();
    assert.deepStrictEqual((await verify(key)).roles, []);
    await refused("NOT_FOUND", permissions.getRole({ roleId }));
    await refused("NOT_FOUND", permissions.deleteRole({ roleId }));
  });
});
