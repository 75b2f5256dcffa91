import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { apiId, client, createKey, data, E, fresh, lacks, NOT_FOUND, problem, raises, rootKey, section, seen, serverURL, unkey, verify, weak } from "./support.mjs";

await section("liveness", async (check) => {
  // The client has no operation for it, so this one is a plain request, without a root key.
  await check("answers without a root key", async () => {
    const response = await fetch(new URL("/v2/liveness", serverURL));
    assert.equal(response.status, 200);
    assert.match(response.headers.get("content-type"), /^application\/json/);
    const body = await response.json();
    seen(body.meta);
    assert.deepEqual(Object.keys(body).sort(), ["data", "meta"]);
    assert.ok(typeof body.data.message === "string" && body.data.message.length > 0);
  });
});

await section("authentication", async (check) => {
  // These bodies are invalid where they can be: an unauthenticated caller learns nothing about that.
  const limit = { namespace: "", identifier: "", limit: 0, duration: 0 };
  const operations = {
    apis: { createApi: { name: "x" }, getApi: { apiId: "x" }, deleteApi: { apiId: "x" }, listKeys: { apiId: "" } },
    keys: {
      createKey: { apiId: "x" }, getKey: { keyId: "x" }, updateKey: { keyId: "x" }, deleteKey: { keyId: "x" },
      whoami: { key: "" }, verifyKey: { key: "" }, updateCredits: { keyId: "x", operation: "set" }, rerollKey: { keyId: "x", expiration: -1 },
      addPermissions: { keyId: "x", permissions: [] }, removePermissions: { keyId: "x", permissions: [] }, setPermissions: { keyId: "x", permissions: [""] },
      addRoles: { keyId: "x", roles: [] }, removeRoles: { keyId: "x", roles: [] }, setRoles: { keyId: "x", roles: [""] },
      migrateKeys: { migrationId: "", apiId: "", keys: [] },
    },
    permissions: {
      createPermission: { name: "", slug: "" }, getPermission: { permission: "" }, listPermissions: { limit: 0 }, deletePermission: { permission: "" },
      createRole: { name: "" }, getRole: { role: "" }, listRoles: { limit: 0 }, deleteRole: { role: "" }, setRolePermissions: { roleId: "", permissions: [] },
    },
    identities: {
      createIdentity: { externalId: "" }, getIdentity: { identity: "" }, listIdentities: { limit: 0 }, updateIdentity: { identity: "" }, deleteIdentity: { identity: "" },
    },
    ratelimit: {
      limit, multiLimit: [], setOverride: limit, getOverride: { namespace: "", identifier: "" }, listOverrides: { namespace: "" },
      deleteOverride: { namespace: "", identifier: "" },
    },
  };
  const nobody = client(undefined);
  const stranger = client(`unkey_${randomBytes(12).toString("hex")}`);
  // An unknown key, a malformed header and a missing one have one type each, the same on every operation.
  const types = {};
  const hasType = (kind, { type }) => assert.equal(type, (types[kind] ??= type));
  for (const [service, procedures] of Object.entries(operations)) {
    for (const [procedure, body] of Object.entries(procedures)) {
      const name = `${service}.${procedure}`;
      const call = (caller, options) => caller[service][procedure](body, options);
      const unauthorized = name === "identities.deleteIdentity" ? problem(E.unauthorized) : E.unauthorized;
      await check(`${name} without a root key`, async () => {
        hasType("missing", await raises(unauthorized, call(nobody)));
      });
      await check(`${name} with a malformed Authorization header`, async () => {
        hasType("malformed", await raises(unauthorized, call(unkey, { headers: { Authorization: "Basic YTpi" } })));
      });
      await check(`${name} with an unknown root key`, async () => {
        hasType("unknown", await raises(unauthorized, call(stranger)));
      });
    }
  }
  for (const header of ["Bearer", rootKey, `bearer ${rootKey}`, `Token ${rootKey}`]) {
    await check(`a header of the form "${header.replace(rootKey, "<root key>")}"`, async () => {
      hasType("malformed", await raises(E.unauthorized, unkey.apis.createApi({ name: fresh("api") }, { headers: { Authorization: header } })));
    });
  }
  await check("missing, malformed and unknown have distinct types", () => {
    assert.equal(new Set([types.missing, types.malformed, types.unknown]).size, 3, JSON.stringify(types));
  });
  await check("an ordinary API key is no root key", async () => {
    const { apiId } = await data(unkey.apis.createApi({ name: fresh("no-root") }));
    const { key } = await createKey({ apiId });
    hasType("unknown", await raises(E.unauthorized, client(key).apis.getApi({ apiId })));
  });
});

await section("authorization", async (check) => {
  const { key, keyId } = await createKey({ apiId });
  const [slug, role, externalId, namespace] = ["allowed", "allower", "somebody", "forbidden"].map(fresh);
  await data(unkey.permissions.createPermission({ name: slug, slug }));
  const { roleId } = await data(unkey.permissions.createRole({ name: role, permissions: [slug] }));
  await data(unkey.identities.createIdentity({ externalId }));
  await data(unkey.ratelimit.limit({ namespace, identifier: "a", limit: 1, duration: 1000 }));
  const limit = { namespace, identifier: "a", limit: 1, duration: 1000 };

  // What each operation does to a root key that may only make APIs: the action that it names as missing.
  const missing = {
    "apis.getApi": [{ apiId }, "api.*.read_api"],
    "apis.deleteApi": [{ apiId }, "api.*.delete_api"],
    "keys.getKey": [{ keyId }, "api.*.read_key"],
    "keys.updateKey": [{ keyId, name: "x" }, "api.*.update_key"],
    "keys.deleteKey": [{ keyId }, "api.*.delete_key"],
    "keys.updateCredits": [{ keyId, operation: "set", value: 1 }, "api.*.update_key"],
    "keys.rerollKey": [{ keyId, expiration: 0 }, "api.*.create_key"],
    "keys.addPermissions": [{ keyId, permissions: [slug] }, "api.*.update_key"],
    "keys.removePermissions": [{ keyId, permissions: [slug] }, "api.*.update_key"],
    "keys.setPermissions": [{ keyId, permissions: [slug] }, "api.*.update_key"],
    "keys.addRoles": [{ keyId, roles: [role] }, "api.*.update_key"],
    "keys.removeRoles": [{ keyId, roles: [role] }, "api.*.update_key"],
    "keys.setRoles": [{ keyId, roles: [role] }, "api.*.update_key"],
    "permissions.createPermission": [{ name: "x", slug: fresh("x") }, "rbac.*.create_permission"],
    "permissions.getPermission": [{ permission: slug }, "rbac.*.read_permission"],
    "permissions.listPermissions": [{}, "rbac.*.read_permission"],
    "permissions.deletePermission": [{ permission: slug }, "rbac.*.delete_permission"],
    "permissions.createRole": [{ name: fresh("x") }, "rbac.*.create_role"],
    "permissions.getRole": [{ role }, "rbac.*.read_role"],
    "permissions.listRoles": [{}, "rbac.*.read_role"],
    "permissions.deleteRole": [{ role }, "rbac.*.delete_role"],
    "permissions.setRolePermissions": [{ roleId, permissions: [] }, "rbac.*.add_permission_to_role"],
    "identities.createIdentity": [{ externalId: fresh("x") }, "identity.*.create_identity"],
    "identities.getIdentity": [{ identity: externalId }, "identity.*.read_identity"],
    "identities.listIdentities": [{}, "identity.*.read_identity"],
    "identities.updateIdentity": [{ identity: externalId, meta: {} }, "identity.*.update_identity"],
    "identities.deleteIdentity": [{ identity: externalId }, "identity.*.delete_identity"],
    "ratelimit.limit": [limit, "ratelimit.*.limit"],
    "ratelimit.multiLimit": [[limit], "ratelimit.*.limit"],
    "ratelimit.setOverride": [limit, "ratelimit.*.set_override"],
    "ratelimit.listOverrides": [{ namespace }, "ratelimit.*.read_override"],
    "ratelimit.deleteOverride": [{ namespace, identifier: "a" }, "ratelimit.*.delete_override"],
  };
  for (const [name, [body, permission]] of Object.entries(missing)) {
    await check(`${name} needs ${permission}`, () => {
      const [service, procedure] = name.split(".");
      const forbidden = name === "identities.deleteIdentity" ? problem(E.forbidden) : E.forbidden;
      return lacks([permission], weak[service][procedure](body), forbidden);
    });
  }
  // These do not tell a stranger whether the thing is there.
  await check("keys.createKey hides the API", () => raises(E.noApi, weak.keys.createKey({ apiId })));
  await check("apis.listKeys hides the API", () => raises(E.noApi, weak.apis.listKeys({ apiId })));
  await check("keys.whoami hides the key", () => raises(E.noKey, weak.keys.whoami({ key })));
  await check("keys.verifyKey hides the key", async () => {
    assert.deepStrictEqual(await data(weak.keys.verifyKey({ key })), NOT_FOUND);
  });
  await check("ratelimit.getOverride hides the override", async () => {
    await data(unkey.ratelimit.setOverride(limit));
    await raises(E.noOverride, weak.ratelimit.getOverride({ namespace, identifier: "a" }));
  });
  await check("nothing of it has happened", async () => {
    assert.deepStrictEqual(await verify(key), { valid: true, code: "VALID", keyId, enabled: true });
    assert.equal((await data(unkey.permissions.getRole({ role }))).permissions.length, 1);
    assert.equal((await data(unkey.identities.getIdentity({ identity: externalId }))).externalId, externalId);
    await raises(E.noPermission, unkey.permissions.getPermission({ permission: fresh("x") }));
    await raises(E.noRole, unkey.permissions.getRole({ role: fresh("x") }));
    await raises(E.noIdentity, unkey.identities.getIdentity({ identity: fresh("x") }));
  });
});
