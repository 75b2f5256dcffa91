// Drives a running Keyward server through the official TypeScript client, unmodified, and
// checks every answer against the v2 contract. It reads KEYWARD_URL and KEYWARD_ROOT_KEY,
// and it may run any number of times against the same server: every name it makes is new.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { Unkey } from "@unkey/api";
import * as errors from "@unkey/api/models/errors";

const serverURL = process.env.KEYWARD_URL;
const rootKey = process.env.KEYWARD_ROOT_KEY;
if (!serverURL || !rootKey) {
  console.error("KEYWARD_URL and KEYWARD_ROOT_KEY must be set.");
  process.exit(2);
}
// The client falls back to this variable, which would hide the checks of a missing root key.
delete process.env.UNKEY_ROOT_KEY;

// Retries are off, so that one 5xx answer is a failure here and not a slow success.
const client = (key) => new Unkey({ serverURL, rootKey: key, retryConfig: { strategy: "none" } });
const unkey = client(rootKey);

// ---------------------------------------------------------------------------------- helpers

const run = randomBytes(6).toString("hex");
const fresh = (name) => `${run}.${name}`;
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

let passed = 0;
let failed = 0;
async function check(name, body) {
  try {
    await body();
    passed += 1;
    console.log(`ok - ${name}`);
  } catch (error) {
    failed += 1;
    const reason = error?.message ?? String(error);
    console.log(`NOT OK - ${name}: ${reason.replace(/\s*\n\s*/g, " | ").slice(0, 1500)}`);
  }
}
// A section that cannot even set its scene counts as one failed check, and the next one still runs.
async function section(name, body) {
  try {
    await body((title, inner) => check(`${name}: ${title}`, inner));
  } catch (error) {
    await check(`${name}: set-up`, () => Promise.reject(error));
  }
}

const requestIds = [];
function seen(meta) {
  assert.match(meta.requestId, /^req_[A-Za-z0-9]{16,}$/);
  requestIds.push(meta.requestId);
}
async function data(promise) {
  const response = await promise;
  seen(response.meta);
  return response.data;
}

// Each kind of failure: the class that the client throws, status, title and the error name that ends `type`.
const E = {
  invalid: [errors.BadRequestErrorResponse, 400, "Bad Request", "invalid_input"],
  query: [errors.BadRequestErrorResponse, 400, "Bad Request", "permissions_query_syntax_error"],
  unauthorized: [errors.UnauthorizedErrorResponse, 401, "Unauthorized", ""],
  noApi: [errors.NotFoundErrorResponse, 404, "Not Found", "api_not_found"],
  noKey: [errors.NotFoundErrorResponse, 404, "Not Found", "key_not_found"],
  noRole: [errors.NotFoundErrorResponse, 404, "Not Found", "role_not_found"],
  noPermission: [errors.NotFoundErrorResponse, 404, "Not Found", "permission_not_found"],
  noNamespace: [errors.NotFoundErrorResponse, 404, "Not Found", "ratelimit_namespace_not_found"],
  noOverride: [errors.NotFoundErrorResponse, 404, "Not Found", "ratelimit_override_not_found"],
  notFound: [errors.NotFoundErrorResponse, 404, "Not Found", ""],
  permissionExists: [errors.ConflictErrorResponse, 409, "Conflicting Resource", "permission_already_exists"],
  roleExists: [errors.ConflictErrorResponse, 409, "Conflicting Resource", "role_already_exists"],
  // The client declares no 412 for the key operations, so its generic class is the right one.
  precondition: [errors.APIError, 412, "Precondition Failed", "precondition_failed"],
};
async function raises([type, status, title, name], promise) {
  let error;
  try {
    await promise;
  } catch (thrown) {
    error = thrown;
  }
  assert.ok(error, `expected status ${status}, but the call succeeded`);
  assert.ok(error instanceof type, `expected ${type.name}, got ${error.name}: ${error.body ?? error.message}`);
  assert.equal(error.statusCode, status);
  assert.match(error.contentType, /^application\/json/);
  const body = JSON.parse(error.body);
  seen(body.meta);
  if (type !== errors.APIError) assert.deepEqual(error.error, body.error, "the client's view of the error");
  assert.equal(body.error.status, status);
  assert.equal(body.error.title, title);
  assert.equal(typeof body.error.detail, "string");
  assert.match(body.error.type, new RegExp(`^https?://.+/errors/${name || "[a-z_]+"}$`));
  assert.deepEqual(Object.keys(body).sort(), ["error", "meta"]);
  if (status === 400) {
    assert.ok(Array.isArray(body.error.errors), "a 400 carries an errors array");
  } else {
    assert.ok(!("errors" in body.error), `a ${status} carries no errors array`);
  }
  return body.error;
}
async function rejects(location, promise) {
  const error = await raises(E.invalid, promise);
  const locations = error.errors.map((item) => item.location);
  assert.ok(locations.includes(location), `expected an error at ${location}, got ${JSON.stringify(error.errors)}`);
  assert.ok(error.errors.every((item) => item.message.length > 0));
}

// Lists whose order the contract leaves open are sorted before they are compared.
const byName = (a, b) => (a.name < b.name ? -1 : 1);
function sorted(answer) {
  const copy = { ...answer };
  for (const field of ["permissions", "roles"]) if (copy[field]) copy[field] = [...copy[field]].sort();
  if (copy.ratelimits) copy.ratelimits = [...copy.ratelimits].sort(byName);
  return copy;
}
// `lastUsedAt` may lag behind by minutes, so it is judged by itself and then left out of the comparison.
function settled({ lastUsedAt, ...answer }) {
  if (lastUsedAt !== undefined) isNow(lastUsedAt);
  return sorted(answer);
}
const getKey = async (keyId) => settled(await data(unkey.keys.getKey({ keyId })));
const whoami = async (key) => settled(await data(unkey.keys.whoami({ key })));
const verify = async (key, more = {}) => sorted(await data(unkey.keys.verifyKey({ key, ...more })));
const createKey = (fields) => data(unkey.keys.createKey(fields));
const updateKey = async (keyId, fields) => assert.deepStrictEqual(await data(unkey.keys.updateKey({ keyId, ...fields })), {});
const isNow = (ms) => assert.ok(Math.abs(ms - Date.now()) < 300_000, `${ms} is not a recent unix time in ms`);

// A window of 30 days starts no new window while the checks run, so counts and `reset` are exact.
const LONG = 2_592_000_000;
const windowEnd = (duration) => (Math.floor(Date.now() / duration) + 1) * duration;
const checked = (stored, remaining, exceeded = false) =>
  ({ ...stored, reset: windowEnd(stored.duration), remaining, exceeded });
const adhoc = (name, limit, remaining, exceeded = false) =>
  ({ id: "", name, limit, duration: LONG, autoApply: false, reset: windowEnd(LONG), remaining, exceeded });

const BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
function base58Bytes(text) {
  let number = 0n;
  for (const letter of text) {
    const digit = BASE58.indexOf(letter);
    assert.notEqual(digit, -1, `${letter} is not a Base58 letter`);
    number = number * 58n + BigInt(digit);
  }
  const zeros = text.match(/^1*/)[0].length;
  return zeros + (number === 0n ? 0 : Math.ceil(number.toString(16).length / 2));
}
const ID = (prefix) => new RegExp(`^${prefix}_[A-Za-z0-9]{16,}$`);
const NOT_FOUND = { valid: false, code: "NOT_FOUND" };

// ----------------------------------------------------------------------------------- checks

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
  const operations = {
    // These bodies are invalid where they can be: an unauthenticated caller learns nothing about that.
    "apis.createApi": (c, o) => c.apis.createApi({ name: "x" }, o),
    "apis.getApi": (c, o) => c.apis.getApi({ apiId: "x" }, o),
    "apis.deleteApi": (c, o) => c.apis.deleteApi({ apiId: "x" }, o),
    "keys.createKey": (c, o) => c.keys.createKey({ apiId: "x" }, o),
    "keys.getKey": (c, o) => c.keys.getKey({ keyId: "x" }, o),
    "keys.updateKey": (c, o) => c.keys.updateKey({ keyId: "x" }, o),
    "keys.deleteKey": (c, o) => c.keys.deleteKey({ keyId: "x" }, o),
    "keys.whoami": (c, o) => c.keys.whoami({ key: "" }, o),
    "keys.verifyKey": (c, o) => c.keys.verifyKey({ key: "" }, o),
    "permissions.createPermission": (c, o) => c.permissions.createPermission({ name: "", slug: "" }, o),
    "permissions.createRole": (c, o) => c.permissions.createRole({ name: "" }, o),
    "ratelimit.limit": (c, o) => c.ratelimit.limit({ namespace: "", identifier: "", limit: 0, duration: 0 }, o),
    "ratelimit.multiLimit": (c, o) => c.ratelimit.multiLimit([], o),
    "ratelimit.setOverride": (c, o) => c.ratelimit.setOverride({ namespace: "", identifier: "", limit: 0, duration: 0 }, o),
    "ratelimit.getOverride": (c, o) => c.ratelimit.getOverride({ namespace: "", identifier: "" }, o),
    "ratelimit.listOverrides": (c, o) => c.ratelimit.listOverrides({ namespace: "" }, o),
    "ratelimit.deleteOverride": (c, o) => c.ratelimit.deleteOverride({ namespace: "", identifier: "" }, o),
  };
  const nobody = client(undefined);
  const stranger = client(`unkey_${randomBytes(12).toString("hex")}`);
  // An unknown key, a malformed header and a missing one have one type each, the same on every operation.
  const types = {};
  const hasType = (kind, { type }) => assert.equal(type, (types[kind] ??= type));
  for (const [name, call] of Object.entries(operations)) {
    await check(`${name} without a root key`, async () => {
      hasType("missing", await raises(E.unauthorized, call(nobody)));
    });
    await check(`${name} with a malformed Authorization header`, async () => {
      hasType("malformed", await raises(E.unauthorized, call(unkey, { headers: { Authorization: "Basic YTpi" } })));
    });
    await check(`${name} with an unknown root key`, async () => {
      hasType("unknown", await raises(E.unauthorized, call(stranger)));
    });
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

await section("apis", async (check) => {
  const { apiId } = await data(unkey.apis.createApi({ name: fresh("api") }));
  await check("createApi answers with an id", () => assert.match(apiId, ID("api")));
  await check("getApi answers with id and name", async () => {
    assert.deepStrictEqual(await data(unkey.apis.getApi({ apiId })), { id: apiId, name: fresh("api") });
  });
  await check("names need not be unique", async () => {
    const other = await data(unkey.apis.createApi({ name: fresh("api") }));
    assert.match(other.apiId, ID("api"));
    assert.notEqual(other.apiId, apiId);
  });
  await check("name lengths count code points: three emoji are enough", async () => {
    const other = await data(unkey.apis.createApi({ name: "🔑🔑🔑" }));
    assert.equal((await data(unkey.apis.getApi({ apiId: other.apiId }))).name, "🔑🔑🔑");
  });
  await check("a name of 256 emoji is accepted", () => data(unkey.apis.createApi({ name: "🔑".repeat(256) })));
  await check("a name of two emoji is too short", () => rejects("/properties/name/minLength", unkey.apis.createApi({ name: "🔑🔑" })));
  await check("a name of 257 is too long", () => rejects("/properties/name/maxLength", unkey.apis.createApi({ name: "a".repeat(257) })));
  await check("getApi of an unknown id", () => raises(E.noApi, unkey.apis.getApi({ apiId: "api_doesnotexist0000" })));
  await check("getApi of a short id", () => rejects("/properties/apiId/minLength", unkey.apis.getApi({ apiId: "api_123" })));
  await check("getApi of an ill-formed id", () => rejects("/properties/apiId/pattern", unkey.apis.getApi({ apiId: "api-with-dashes" })));
  await check("deleteApi of an unknown id", () => raises(E.noApi, unkey.apis.deleteApi({ apiId: "api_doesnotexist0000" })));
  await check("deleteApi of a long id", () => rejects("/properties/apiId/maxLength", unkey.apis.deleteApi({ apiId: "a".repeat(256) })));

  const { keyId, key } = await createKey({ apiId, name: "orphan" });
  await check("a key verifies before deleteApi", async () => assert.equal((await verify(key)).code, "VALID"));
  await check("deleteApi answers with an empty object", async () => {
    assert.deepStrictEqual(await data(unkey.apis.deleteApi({ apiId })), {});
  });
  await check("after deleteApi the key is NOT_FOUND, with nothing else told", async () => {
    assert.deepStrictEqual(await verify(key), NOT_FOUND);
  });
  await check("after deleteApi getApi is 404", () => raises(E.noApi, unkey.apis.getApi({ apiId })));
  await check("a second deleteApi is 404", () => raises(E.noApi, unkey.apis.deleteApi({ apiId })));
  await check("after deleteApi createKey is 404", () => raises(E.noApi, unkey.keys.createKey({ apiId })));
  await check("after deleteApi getKey is 404", () => raises(E.noKey, unkey.keys.getKey({ keyId })));
  await check("after deleteApi updateKey is 404", () => raises(E.noKey, unkey.keys.updateKey({ keyId, name: "back" })));
  await check("after deleteApi whoami is 404", () => raises(E.noKey, unkey.keys.whoami({ key })));
});

// The sections below make their keys in one API. Without it each of them fails, and says so.
let apiId;
await check("the API of the checks below", async () => {
  ({ apiId } = await data(unkey.apis.createApi({ name: fresh("main") })));
});

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

await section("createKey", async (check) => {
  const direct = fresh("direct");
  const shared = fresh("shared");
  const viaRole = fresh("via-role");
  const role = fresh("key-role");
  await data(unkey.permissions.createPermission({ name: direct, slug: direct }));
  await data(unkey.permissions.createRole({ name: role, permissions: [shared, viaRole] }));

  // The name is 255 code points long and twice that in UTF-16, and the metadata holds what JSON can hold.
  const name = "🗝".repeat(255);
  const meta = { plan: "pro", nested: { list: [1, "two", null, true, 1.5], empty: {} }, big: Number.MAX_SAFE_INTEGER, "k é": "" };
  const expires = Date.now() + 3_600_000;
  const externalId = fresh("user-1_a");
  const made = await createKey({
    apiId, prefix: "acme_live", name, byteLength: 32, externalId, meta, expires,
    roles: [role], permissions: [direct, shared],
    credits: { remaining: 100, refill: { interval: "monthly", amount: 500, refillDay: 31 } },
    ratelimits: [
      { name: "auto", limit: 10, duration: LONG, autoApply: true },
      { name: "manual", limit: 20, duration: 60_000, autoApply: false },
    ],
    enabled: true, recoverable: false,
  });
  await check("answers with key id and key only", () => {
    assert.deepStrictEqual(Object.keys(made).sort(), ["key", "keyId"]);
    assert.match(made.keyId, ID("key"));
  });
  await check("the key is prefix, underscore and 32 bytes in Base58", () => {
    assert.ok(made.key.startsWith("acme_live_"));
    assert.equal(base58Bytes(made.key.slice("acme_live_".length)), 32);
  });
  const stored = await getKey(made.keyId);
  const permissions = [direct, shared, viaRole].sort();
  await check("getKey returns every field as it was set", () => {
    isNow(stored.createdAt);
    assert.match(stored.identity.id, ID("id"));
    for (const limit of stored.ratelimits) assert.match(limit.id, ID("rl"));
    assert.deepStrictEqual(stored, {
      keyId: made.keyId, start: made.key.slice(0, "acme_live_".length + 4), enabled: true, name, meta,
      createdAt: stored.createdAt, expires, permissions, roles: [role],
      credits: { remaining: 100, refill: { interval: "monthly", amount: 500, refillDay: 31 } },
      identity: { id: stored.identity.id, externalId },
      ratelimits: [
        { id: stored.ratelimits[0].id, name: "auto", limit: 10, duration: LONG, autoApply: true },
        { id: stored.ratelimits[1].id, name: "manual", limit: 20, duration: 60_000, autoApply: false },
      ],
    });
  });
  await check("whoami returns the same, with sorted permissions", async () => {
    assert.deepStrictEqual((await data(unkey.keys.whoami({ key: made.key }))).permissions, permissions);
    assert.deepStrictEqual(await whoami(made.key), stored);
  });
  await check("verifyKey returns every field", async () => {
    assert.deepStrictEqual(await verify(made.key), {
      valid: true, code: "VALID", keyId: made.keyId, enabled: true, name, meta, expires, permissions, roles: [role], credits: 99,
      identity: { id: stored.identity.id, externalId },
      ratelimits: [checked(stored.ratelimits[0], 9)],
    });
  });
  await check("getKey shows the credits that verifyKey left", async () => {
    assert.deepStrictEqual((await getKey(made.keyId)).credits, { remaining: 99, refill: { interval: "monthly", amount: 500, refillDay: 31 } });
  });
  await check("two keys of one externalId share the identity", async () => {
    const other = await createKey({ apiId, externalId });
    assert.deepStrictEqual((await verify(other.key)).identity, { id: stored.identity.id, externalId });
  });

  const bare = await createKey({ apiId });
  await check("the least key has 16 bytes and no prefix", () => assert.equal(base58Bytes(bare.key), 16));
  await check("getKey leaves out what the least key does not have", async () => {
    const answer = await data(unkey.keys.getKey({ keyId: bare.keyId }));
    isNow(answer.createdAt);
    assert.deepStrictEqual(answer, { keyId: bare.keyId, start: bare.key.slice(0, 4), enabled: true, createdAt: answer.createdAt });
  });
  await check("verifyKey leaves out what the least key does not have", async () => {
    assert.deepStrictEqual(await verify(bare.key), { valid: true, code: "VALID", keyId: bare.keyId, enabled: true });
  });
  await check("empty meta, roles, permissions and ratelimits are left out", async () => {
    const { keyId } = await createKey({ apiId, meta: {}, roles: [], permissions: [], ratelimits: [] });
    assert.deepStrictEqual(Object.keys(await getKey(keyId)).sort(), ["createdAt", "enabled", "keyId", "start"]);
  });
  await check("byteLength 255", async () => assert.equal(base58Bytes((await createKey({ apiId, byteLength: 255 })).key), 255));
  await check("a prefix of 16", async () => {
    const { key, keyId } = await createKey({ apiId, prefix: "p".repeat(16) });
    assert.equal(base58Bytes(key.slice(17)), 16);
    assert.equal((await getKey(keyId)).start, key.slice(0, 21));
  });
  await check("a daily refill has no day", async () => {
    const { keyId } = await createKey({ apiId, credits: { remaining: 0, refill: { interval: "daily", amount: 10 } } });
    assert.deepStrictEqual((await getKey(keyId)).credits, { remaining: 0, refill: { interval: "daily", amount: 10 } });
  });
  await check("credits.remaining null is an unlimited key", async () => {
    const { keyId, key } = await createKey({ apiId, credits: { remaining: null } });
    assert.ok(!("credits" in (await getKey(keyId))));
    assert.ok(!("credits" in (await verify(key))));
  });
  await check("of two limits of one name the last wins", async () => {
    const limit = (n) => ({ name: "twice", limit: n, duration: LONG, autoApply: n === 2 });
    const { keyId } = await createKey({ apiId, ratelimits: [limit(1), limit(2)] });
    const { ratelimits } = await getKey(keyId);
    assert.deepStrictEqual(ratelimits, [{ id: ratelimits[0].id, ...limit(2) }]);
  });
  await check("repeated roles and permissions are attached once", async () => {
    const { keyId } = await createKey({ apiId, roles: [role, role], permissions: [direct, direct] });
    const answer = await getKey(keyId);
    assert.deepStrictEqual([answer.roles, answer.permissions], [[role], permissions]);
  });

  await check("an unknown API is 404", () => raises(E.noApi, unkey.keys.createKey({ apiId: "api_doesnotexist0000" })));
  await check("a missing role is 404 and is named", async () => {
    const error = await raises(E.noRole, unkey.keys.createKey({ apiId, roles: [role, fresh("no-role-1"), fresh("no-role-2")] }));
    for (const missing of [fresh("no-role-1"), fresh("no-role-2")]) assert.ok(error.detail.includes(missing), error.detail);
    assert.ok(!error.detail.includes(role), error.detail);
  });
  await check("a missing permission is 404, is named, and is not created", async () => {
    const slugs = [fresh("no-perm-1"), fresh("no-perm-2")];
    const error = await raises(E.noPermission, unkey.keys.createKey({ apiId, permissions: [direct, ...slugs] }));
    for (const missing of slugs) assert.ok(error.detail.includes(missing), error.detail);
    for (const slug of slugs) await data(unkey.permissions.createPermission({ name: slug, slug }));
  });
  await check("a missing role with a missing permission is 404, and creates nothing", async () => {
    const slug = fresh("no-perm-3");
    await raises(E.notFound, unkey.keys.createKey({ apiId, roles: [fresh("no-role-3")], permissions: [slug] }));
    await data(unkey.permissions.createPermission({ name: slug, slug }));
  });
  await check("recoverable is 412", () => raises(E.precondition, unkey.keys.createKey({ apiId, recoverable: true })));
  await check("getKey with decrypt is 412", () => raises(E.precondition, unkey.keys.getKey({ keyId: bare.keyId, decrypt: true })));

  const limit = { name: "requests", limit: 1, duration: 1000 };
  const credits = (refill, remaining = 1) => ({ credits: { remaining, refill } });
  const many = (n, make) => Array.from({ length: n }, (_, i) => make(i));
  const bad = [
    ["a short apiId", { apiId: "ap" }, "/properties/apiId/minLength"],
    ["an ill-formed apiId", { apiId: "api-1" }, "/properties/apiId/pattern"],
    ["an empty prefix", { prefix: "" }, "/properties/prefix/minLength"],
    ["a prefix of 17", { prefix: "p".repeat(17) }, "/properties/prefix/maxLength"],
    ["an ill-formed prefix", { prefix: "a-b" }, "/properties/prefix/pattern"],
    ["an empty name", { name: "" }, "/properties/name/minLength"],
    ["a name of 256", { name: "n".repeat(256) }, "/properties/name/maxLength"],
    ["byteLength 15", { byteLength: 15 }, "/properties/byteLength/minimum"],
    ["byteLength 256", { byteLength: 256 }, "/properties/byteLength/maximum"],
    ["an empty externalId", { externalId: "" }, "/properties/externalId/minLength"],
    ["an externalId of 256", { externalId: "e".repeat(256) }, "/properties/externalId/maxLength"],
    ["an ill-formed externalId", { externalId: "a b" }, "/properties/externalId/pattern"],
    ["meta of 101 properties", { meta: Object.fromEntries(many(101, (i) => [`k${i}`, i])) }, "/properties/meta/maxProperties"],
    ["an empty role", { roles: [""] }, "/properties/roles/items/minLength"],
    ["a role of 129", { roles: ["r".repeat(129)] }, "/properties/roles/items/maxLength"],
    ["101 roles", { roles: many(101, (i) => `r${i}`) }, "/properties/roles/maxItems"],
    ["an ill-formed permission", { permissions: ["a b"] }, "/properties/permissions/items/pattern"],
    ["a permission of 129", { permissions: ["p".repeat(129)] }, "/properties/permissions/items/maxLength"],
    ["1001 permissions", { permissions: many(1001, (i) => `p${i}`) }, "/properties/permissions/maxItems"],
    ["a negative expires", { expires: -1 }, "/properties/expires/minimum"],
    ["an expires past the year 2100", { expires: 4_102_444_800_001 }, "/properties/expires/maximum"],
    ["negative credits", { credits: { remaining: -1 } }, "/properties/credits/properties/remaining/minimum"],
    ["a refill of 0", credits({ interval: "daily", amount: 0 }), "/properties/credits/properties/refill/properties/amount/minimum"],
    ["refillDay 0", credits({ interval: "monthly", amount: 1, refillDay: 0 }), "/properties/credits/properties/refill/properties/refillDay/minimum"],
    ["refillDay 32", credits({ interval: "monthly", amount: 1, refillDay: 32 }), "/properties/credits/properties/refill/properties/refillDay/maximum"],
    ["an unknown interval", credits({ interval: "weekly", amount: 1 }), "/properties/credits/properties/refill/properties/interval/enum"],
    ["a limit with a name of 2", { ratelimits: [{ ...limit, name: "ab" }] }, "/properties/ratelimits/items/properties/name/minLength"],
    ["a limit with a name of 129", { ratelimits: [{ ...limit, name: "n".repeat(129) }] }, "/properties/ratelimits/items/properties/name/maxLength"],
    ["a limit of 0", { ratelimits: [{ ...limit, limit: 0 }] }, "/properties/ratelimits/items/properties/limit/minimum"],
    ["a window under a second", { ratelimits: [{ ...limit, duration: 999 }] }, "/properties/ratelimits/items/properties/duration/minimum"],
    ["51 limits", { ratelimits: many(51, (i) => ({ ...limit, name: `lim${i}` })) }, "/properties/ratelimits/maxItems"],
  ];
  for (const [title, fields, location] of bad) {
    await check(`refuses ${title}`, () => rejects(location, unkey.keys.createKey({ apiId, ...fields })));
  }
  await check("refuses a monthly refill without a day", () => raises(E.invalid, unkey.keys.createKey({ apiId, ...credits({ interval: "monthly", amount: 1 }) })));
  await check("refuses a daily refill with a day", () => raises(E.invalid, unkey.keys.createKey({ apiId, ...credits({ interval: "daily", amount: 1, refillDay: 1 }) })));
  await check("refuses a refill of unlimited credits", () => raises(E.invalid, unkey.keys.createKey({ apiId, ...credits({ interval: "daily", amount: 1 }, null) })));
  await check("meta of 100 properties is accepted", async () => {
    const meta = Object.fromEntries(many(100, (i) => [`k${i}`, i]));
    assert.deepStrictEqual((await getKey((await createKey({ apiId, meta })).keyId)).meta, meta);
  });
});

await section("getKey and whoami", async (check) => {
  await check("getKey of an unknown id", () => raises(E.noKey, unkey.keys.getKey({ keyId: "key_doesnotexist0000" })));
  await check("getKey of a short id", () => rejects("/properties/keyId/minLength", unkey.keys.getKey({ keyId: "ke" })));
  await check("getKey of an ill-formed id", () => rejects("/properties/keyId/pattern", unkey.keys.getKey({ keyId: "key-1" })));
  await check("whoami of an unknown key", () => raises(E.noKey, unkey.keys.whoami({ key: "nobody_knows_this" })));
  await check("whoami of an empty key", () => rejects("/properties/key/minLength", unkey.keys.whoami({ key: "" })));
  await check("whoami of a key of 513", () => rejects("/properties/key/maxLength", unkey.keys.whoami({ key: "k".repeat(513) })));
  await check("whoami knows a disabled, expired key and spends nothing", async () => {
    const { key, keyId } = await createKey({ apiId, enabled: false, expires: 1, credits: { remaining: 3 } });
    const answer = await whoami(key);
    assert.deepStrictEqual(answer, { keyId, start: key.slice(0, 4), enabled: false, createdAt: answer.createdAt, expires: 1, credits: { remaining: 3 } });
    assert.deepStrictEqual(await getKey(keyId), answer);
  });
});

await section("updateKey", async (check) => {
  const [p1, p2, p3] = ["up1", "up2", "up3"].map(fresh);
  const [r1, r2] = ["ur1", "ur2"].map(fresh);
  await data(unkey.permissions.createPermission({ name: p1, slug: p1 }));
  await data(unkey.permissions.createRole({ name: r1, permissions: [p2] }));
  await data(unkey.permissions.createRole({ name: r2 }));
  const expires = Date.now() + 7_200_000;
  const refill = { interval: "monthly", amount: 40, refillDay: 15 };
  const { key, keyId } = await createKey({
    apiId, name: "before", externalId: fresh("owner-1"), meta: { a: 1, b: 2 }, expires,
    credits: { remaining: 10, refill }, roles: [r1], permissions: [p1],
    ratelimits: [{ name: "keep", limit: 100, duration: LONG, autoApply: true }, { name: "drop", limit: 5, duration: LONG, autoApply: false }],
  });
  let now = await getKey(keyId);
  // Each change is applied to what is known, so a field that an update must not touch is checked every time.
  const changes = async (title, fields, difference) => check(title, async () => {
    await updateKey(keyId, fields);
    const answer = await getKey(keyId);
    if (Object.keys(fields).length > 0) {
      isNow(answer.updatedAt);
      assert.ok(answer.updatedAt >= answer.createdAt);
    }
    const expected = { ...now, updatedAt: answer.updatedAt, ...(typeof difference === "function" ? difference(answer) : difference) };
    for (const [field, value] of Object.entries(expected)) if (value === undefined) delete expected[field];
    now = answer;
    assert.deepStrictEqual(answer, expected);
  });
  const firstIdentity = now.identity;

  await changes("no field at all changes nothing", {}, {});
  await changes("name to null", { name: null }, { name: undefined });
  await changes("name to a value", { name: "after" }, { name: "after" });
  await changes("externalId to null", { externalId: null }, { identity: undefined });
  await check("an unlinked key verifies without identity", async () => assert.ok(!("identity" in (await verify(key)))));
  now = await getKey(keyId);
  await changes("externalId to a new value makes the identity", { externalId: fresh("owner-2") }, (answer) => {
    assert.match(answer.identity.id, ID("id"));
    assert.notEqual(answer.identity.id, firstIdentity.id);
    return { identity: { id: answer.identity.id, externalId: fresh("owner-2") } };
  });
  await changes("externalId back to the old value finds the old identity", { externalId: fresh("owner-1") }, { identity: firstIdentity });
  await changes("meta to a value replaces it whole", { meta: { c: [null, 3] } }, { meta: { c: [null, 3] } });
  await changes("meta to null", { meta: null }, { meta: undefined });
  await changes("meta to an empty object", { meta: {} }, { meta: undefined });
  await changes("meta to a value again", { meta: { d: 4 } }, { meta: { d: 4 } });
  await changes("expires to null", { expires: null }, { expires: undefined });
  await changes("expires to a value", { expires: expires + 1 }, { expires: expires + 1 });

  await changes("credits.remaining to a value keeps the refill", { credits: { remaining: 7 } }, { credits: { remaining: 7, refill } });
  await check("verifyKey counts from the new balance", async () => assert.equal((await verify(key)).credits, 6));
  now = await getKey(keyId);
  await changes("credits.refill to null keeps the balance", { credits: { refill: null } }, { credits: { remaining: 6 } });
  await changes("credits.refill to a daily value", { credits: { refill: { interval: "daily", amount: 9 } } }, { credits: { remaining: 6, refill: { interval: "daily", amount: 9 } } });
  await changes("credits.refill to a monthly value", { credits: { refill } }, { credits: { remaining: 6, refill } });
  await changes("credits.remaining to null is unlimited, without refill", { credits: { remaining: null } }, { credits: undefined });
  await changes("credits.remaining to a value does not bring the refill back", { credits: { remaining: 5 } }, { credits: { remaining: 5 } });
  await changes("credits to remaining and refill at once", { credits: { remaining: 8, refill } }, { credits: { remaining: 8, refill } });
  await changes("credits to null", { credits: null }, { credits: undefined });
  await changes("credits of an unlimited key to 0", { credits: { remaining: 0 } }, { credits: { remaining: 0 } });
  await check("a balance of 0 is USAGE_EXCEEDED", async () => {
    const answer = await verify(key);
    assert.deepStrictEqual([answer.valid, answer.code, answer.credits], [false, "USAGE_EXCEEDED", 0]);
  });
  await changes("uses restored", { credits: { remaining: 50 } }, { credits: { remaining: 50 } });
  await check("a key with restored uses is VALID", async () => assert.deepStrictEqual((await verify(key)).credits, 49));
  now = await getKey(keyId);

  await changes("enabled to false", { enabled: false }, { enabled: false });
  await check("a disabled key is DISABLED", async () => assert.equal((await verify(key)).code, "DISABLED"));
  await changes("enabled to true", { enabled: true }, { enabled: true });
  await check("an enabled key is VALID again", async () => assert.equal((await verify(key)).code, "VALID"));
  now = await getKey(keyId);
  await changes("expires into the past", { expires: 1 }, { expires: 1 });
  await check("that key is EXPIRED", async () => assert.equal((await verify(key)).code, "EXPIRED"));
  await changes("expires moved back", { expires }, { expires });
  await check("that key is VALID again", async () => assert.equal((await verify(key)).code, "VALID"));
  now = await getKey(keyId);

  await changes("permissions replaced, and a missing one created", { permissions: [p3] }, { permissions: [p2, p3].sort() });
  await check("the missing one exists now", () => raises(E.permissionExists, unkey.permissions.createPermission({ name: p3, slug: p3 })));
  await changes("permissions to none leaves those of the role", { permissions: [] }, { permissions: [p2] });
  await changes("roles replaced", { roles: [r2] }, { roles: [r2], permissions: undefined });
  await changes("roles to none", { roles: [] }, { roles: undefined });
  await changes("roles and permissions, each given twice", { roles: [r1, r1], permissions: [p1, p1] }, { roles: [r1], permissions: [p1, p2].sort() });
  await check("verifyKey sees them at once", async () => {
    const answer = await verify(key, { permissions: `${p1} AND ${p2}` });
    assert.deepStrictEqual([answer.code, answer.roles, answer.permissions], ["VALID", [r1], [p1, p2].sort()]);
  });
  now = await getKey(keyId);

  const spent = (await verify(key, { credits: { cost: 0 } })).ratelimits[0];
  now = await getKey(keyId);
  await changes("ratelimits replaced by name, ids of the kept ones stay", {
    ratelimits: [{ name: "keep", limit: 500, duration: LONG, autoApply: true }, { name: "new", limit: 3, duration: 2000, autoApply: false }],
  }, (answer) => ({
    ratelimits: [
      { id: now.ratelimits.find((limit) => limit.name === "keep").id, name: "keep", limit: 500, duration: LONG, autoApply: true },
      { id: answer.ratelimits[1].id, name: "new", limit: 3, duration: 2000, autoApply: false },
    ],
  }));
  await check("a changed limit keeps its count", async () => {
    const [limit] = (await verify(key)).ratelimits;
    assert.equal(limit.remaining, 500 - (100 - spent.remaining) - 1);
  });
  now = await getKey(keyId);
  await changes("of two limits of one name the last wins", {
    ratelimits: [{ name: "new", limit: 1, duration: 2000, autoApply: false }, { name: "new", limit: 4, duration: 3000, autoApply: true }],
  }, { ratelimits: [{ id: now.ratelimits.find((limit) => limit.name === "new").id, name: "new", limit: 4, duration: 3000, autoApply: true }] });
  await changes("ratelimits to none", { ratelimits: [] }, { ratelimits: undefined });
  await check("verifyKey applies no limit any more", async () => assert.ok(!("ratelimits" in (await verify(key)))));
  now = await getKey(keyId);
  await changes("everything at once", {
    name: "all", externalId: fresh("owner-2"), meta: { e: 5 }, expires, credits: { remaining: 1, refill: { interval: "daily", amount: 2 } },
    ratelimits: [{ name: "last", limit: 1, duration: 1000 }], enabled: false, roles: [r2], permissions: [p3],
  }, (answer) => ({
    name: "all", identity: { id: answer.identity.id, externalId: fresh("owner-2") }, meta: { e: 5 }, expires,
    credits: { remaining: 1, refill: { interval: "daily", amount: 2 } },
    ratelimits: [{ id: answer.ratelimits[0].id, name: "last", limit: 1, duration: 1000, autoApply: false }],
    enabled: false, roles: [r2], permissions: [p3],
  }));

  const bad = [
    ["a short keyId", { keyId: "ke" }, "/properties/keyId/minLength"],
    ["an empty name", { name: "" }, "/properties/name/minLength"],
    ["a name of 256", { name: "n".repeat(256) }, "/properties/name/maxLength"],
    ["an ill-formed externalId", { externalId: "a b" }, "/properties/externalId/pattern"],
    ["a negative expires", { expires: -1 }, "/properties/expires/minimum"],
    ["an expires past the year 2100", { expires: 4_102_444_800_001 }, "/properties/expires/maximum"],
    ["negative credits", { credits: { remaining: -1 } }, "/properties/credits/properties/remaining/minimum"],
    ["a refill of 0", { credits: { refill: { interval: "daily", amount: 0 } } }, "/properties/credits/properties/refill/properties/amount/minimum"],
    ["a limit of 0", { ratelimits: [{ name: "bad", limit: 0, duration: 1000 }] }, "/properties/ratelimits/items/properties/limit/minimum"],
    ["an ill-formed permission", { permissions: ["a b"] }, "/properties/permissions/items/pattern"],
    ["an empty role", { roles: [""] }, "/properties/roles/items/minLength"],
  ];
  for (const [title, fields, location] of bad) {
    await check(`refuses ${title}`, () => rejects(location, unkey.keys.updateKey({ keyId, ...fields })));
  }
  await check("refuses a monthly refill without a day", () => raises(E.invalid, unkey.keys.updateKey({ keyId, credits: { refill: { interval: "monthly", amount: 1 } } })));
  await check("refuses a daily refill with a day", () => raises(E.invalid, unkey.keys.updateKey({ keyId, credits: { refill: { interval: "daily", amount: 1, refillDay: 1 } } })));
  await check("a missing role is 404", async () => {
    const error = await raises(E.noRole, unkey.keys.updateKey({ keyId, name: "half", credits: null, roles: [fresh("no-role-4")], permissions: [fresh("no-perm-4")] }));
    assert.ok(error.detail.includes(fresh("no-role-4")), error.detail);
  });
  await check("the refused calls change nothing", async () => {
    assert.deepStrictEqual(await getKey(keyId), now);
    await data(unkey.permissions.createPermission({ name: "free", slug: fresh("no-perm-4") }));
  });
  await check("an unknown key is 404", () => raises(E.noKey, unkey.keys.updateKey({ keyId: "key_doesnotexist0000", name: "x" })));
});

await section("deleteKey", async (check) => {
  for (const [how, request] of [["soft", {}], ["soft, said so", { permanent: false }], ["permanent", { permanent: true }]]) {
    const { key, keyId } = await createKey({ apiId, name: how, externalId: fresh("gone"), ratelimits: [{ name: "any", limit: 1, duration: 1000, autoApply: true }] });
    await check(`${how}: answers with an empty object`, async () => {
      assert.deepStrictEqual(await data(unkey.keys.deleteKey({ keyId, ...request })), {});
    });
    await check(`${how}: verifyKey is NOT_FOUND, with nothing else told`, async () => assert.deepStrictEqual(await verify(key), NOT_FOUND));
    await check(`${how}: getKey is 404`, () => raises(E.noKey, unkey.keys.getKey({ keyId })));
    await check(`${how}: whoami is 404`, () => raises(E.noKey, unkey.keys.whoami({ key })));
    await check(`${how}: updateKey is 404`, () => raises(E.noKey, unkey.keys.updateKey({ keyId, enabled: true })));
    await check(`${how}: deleteKey again is 404`, () => raises(E.noKey, unkey.keys.deleteKey({ keyId })));
    await check(`${how}: a permanent deleteKey afterwards is 404`, () => raises(E.noKey, unkey.keys.deleteKey({ keyId, permanent: true })));
  }
  await check("an unknown key is 404", () => raises(E.noKey, unkey.keys.deleteKey({ keyId: "key_doesnotexist0000" })));
  await check("a short id is 400", () => rejects("/properties/keyId/minLength", unkey.keys.deleteKey({ keyId: "ke" })));
});

await section("verifyKey", async (check) => {
  await check("an unknown key is NOT_FOUND, with nothing else told", async () => assert.deepStrictEqual(await verify("nobody_knows_this"), NOT_FOUND));
  await check("a key of 512 is looked up", async () => assert.deepStrictEqual(await verify("🔑".repeat(512)), NOT_FOUND));
  await check("an empty key is 400", () => rejects("/properties/key/minLength", unkey.keys.verifyKey({ key: "" })));
  await check("a key of 513 is 400", () => rejects("/properties/key/maxLength", unkey.keys.verifyKey({ key: "k".repeat(513) })));
  await check("the root key is no key of an API", async () => assert.deepStrictEqual(await verify(rootKey), NOT_FOUND));
  await check("a key with one letter changed is NOT_FOUND", async () => {
    const { key } = await createKey({ apiId });
    assert.deepStrictEqual(await verify(key.slice(0, -1) + (key.endsWith("x") ? "y" : "x")), NOT_FOUND);
    assert.deepStrictEqual(await verify(` ${key}`), NOT_FOUND);
    assert.equal((await verify(key)).code, "VALID");
  });
  await check("DISABLED tells the key, and comes before EXPIRED", async () => {
    const { key, keyId } = await createKey({ apiId, name: "off", enabled: false, expires: 1, meta: { a: 1 }, credits: { remaining: 0 } });
    assert.deepStrictEqual(await verify(key), { valid: false, code: "DISABLED", keyId, enabled: false, name: "off", expires: 1, meta: { a: 1 }, credits: 0 });
  });
  await check("EXPIRED tells the key, and comes before the permissions", async () => {
    const { key, keyId } = await createKey({ apiId, expires: 1, credits: { remaining: 4 } });
    assert.deepStrictEqual(await verify(key, { permissions: fresh("none") }), { valid: false, code: "EXPIRED", keyId, enabled: true, expires: 1, credits: 4 });
  });
  await check("a key expires when its time comes", async () => {
    const expires = Date.now() + 1500;
    const { key, keyId } = await createKey({ apiId, expires });
    assert.equal((await verify(key)).code, "VALID");
    await sleep(expires - Date.now() + 300);
    assert.deepStrictEqual(await verify(key), { valid: false, code: "EXPIRED", keyId, enabled: true, expires });
  });
  await check("20 tags of 512 do not change the outcome", async () => {
    const { key, keyId } = await createKey({ apiId });
    const tags = Array.from({ length: 20 }, (_, i) => `${i}=${"é".repeat(512)}`.slice(0, 512));
    assert.deepStrictEqual(await verify(key, { tags }), { valid: true, code: "VALID", keyId, enabled: true });
    await rejects("/properties/tags/maxItems", unkey.keys.verifyKey({ key, tags: [...tags, "one more"] }));
    await rejects("/properties/tags/items/maxLength", unkey.keys.verifyKey({ key, tags: ["t".repeat(513)] }));
    await rejects("/properties/tags/items/minLength", unkey.keys.verifyKey({ key, tags: [""] }));
  });
  await check("a migrationId does not matter to a key that is known", async () => {
    const { key } = await createKey({ apiId });
    assert.equal((await verify(key, { migrationId: "mig_unknown" })).code, "VALID");
    assert.deepStrictEqual(await verify("seam_short_long", { migrationId: "mig_unknown" }), NOT_FOUND);
    await rejects("/properties/migrationId/maxLength", unkey.keys.verifyKey({ key, migrationId: "m".repeat(257) }));
  });
});

await section("permission expressions", async (check) => {
  const [a, b, c, d] = ["a", "b", "c", "d"].map(fresh);
  const star = fresh("x.*");
  for (const slug of [a, b, star]) await data(unkey.permissions.createPermission({ name: slug, slug }));
  const role = fresh("expressions");
  await data(unkey.permissions.createRole({ name: role, permissions: [c] }));
  const { key, keyId } = await createKey({
    apiId, permissions: [a, b, star], roles: [role], credits: { remaining: 1000 },
    ratelimits: [{ name: "auto", limit: 1000, duration: LONG, autoApply: true }],
  });
  const cases = [
    [a, true], [c, true], [d, false],
    [`${a} AND ${b}`, true], [`${a} AND ${d}`, false], [`${a} OR ${d}`, true], [`${d} OR ${a}`, true], [`${d} OR ${d}`, false],
    [`${a} AND (${d} OR ${c})`, true], [`(${a} AND ${d}) OR ${c}`, true], [`${d} AND (${a} OR ${b})`, false],
    // These two tell whether AND binds tighter than OR.
    [`${b} OR ${a} AND ${d}`, true], [`${d} AND ${d} OR ${a}`, true],
    [`(${b} OR ${a}) AND ${d}`, false], [`${a} AND ${b} AND ${c}`, true], [`${a} AND ${b} AND ${d}`, false],
    [`${d} and ${a} or ${b}`, true], [`${a} And ${b}`, true], [` \t${a}\r\nAND\n${b} `, true],
    [a.toUpperCase(), false], [star, true], [fresh("x.read"), false], [`${run}.*`, false], [`${a}/${b}`, false],
    [`${"(".repeat(400)}${a}${")".repeat(400)}`, true],
  ];
  let valid = 0;
  for (const [query, holds] of cases) {
    const title = query.replaceAll(`${run}.`, "").replaceAll(run, "run").replace(/\(+/, (all) => (all.length > 9 ? "(…" : all)).replace(/\)+/, (all) => (all.length > 9 ? "…)" : all));
    await check(`${JSON.stringify(title)} is ${holds ? "VALID" : "INSUFFICIENT_PERMISSIONS"}`, async () => {
      const answer = await verify(key, { permissions: query });
      assert.deepStrictEqual([answer.valid, answer.code], [holds, holds ? "VALID" : "INSUFFICIENT_PERMISSIONS"]);
      if (holds) valid += 1;
    });
  }
  await check("INSUFFICIENT_PERMISSIONS tells the key and spends nothing", async () => {
    assert.deepStrictEqual(await verify(key, { permissions: d }), {
      valid: false, code: "INSUFFICIENT_PERMISSIONS", keyId, enabled: true,
      permissions: [a, b, c, star].sort(), roles: [role], credits: 1000 - valid,
    });
    const answer = await verify(key, { credits: { cost: 0 }, ratelimits: [{ name: "auto", cost: 0 }] });
    assert.deepStrictEqual([answer.credits, answer.ratelimits[0].remaining], [1000 - valid, 1000 - valid]);
  });
  for (const query of [" ", "AND", `${a} AND`, `OR ${a}`, `${a} AND OR ${b}`, `(${a}`, `${a})`, "()", `${a} ${b}`, `${a} & ${b}`, `"${a}"`, `${a} AND (${b}`, "é", "a\u0000b"]) {
    await check(`${JSON.stringify(query.replaceAll(`${run}.`, ""))} is a syntax error`, async () => {
      const error = await raises(E.query, unkey.keys.verifyKey({ key, permissions: query }));
      assert.deepStrictEqual(error.errors, []);
      assert.notEqual(error.detail, "");
    });
  }
  await check("a syntax error wins over DISABLED", async () => {
    const off = await createKey({ apiId, enabled: false });
    await raises(E.query, unkey.keys.verifyKey({ key: off.key, permissions: "(" }));
  });
  await check("an empty expression is 400", () => rejects("/properties/permissions/minLength", unkey.keys.verifyKey({ key, permissions: "" })));
  await check("an expression of 1001 is 400", () => rejects("/properties/permissions/maxLength", unkey.keys.verifyKey({ key, permissions: "p".repeat(1001) })));
});

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
    assert.deepStrictEqual(valid, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert.equal(answers.filter((answer) => answer.code === "USAGE_EXCEEDED").length, 10);
    assert.deepStrictEqual((await getKey(keyId)).credits, { remaining: 0 });
  });
});

await section("ratelimit", async (check) => {
  const namespace = fresh("email.send");
  const other = fresh("email.read");
  // A request may reach another replica than the one that made a change, which that one sees within a second.
  const seenByAll = () => sleep(1000);
  const limit = (identifier, more = {}) =>
    data(unkey.ratelimit.limit({ namespace, identifier, limit: 10, duration: LONG, ...more }));
  const answer = (remaining, more = {}) => ({ success: true, limit: 10, remaining, reset: windowEnd(LONG), ...more });
  const setOverride = async (identifier, max, duration = LONG) =>
    (await data(unkey.ratelimit.setOverride({ namespace, identifier, limit: max, duration }))).overrideId;
  const getOverride = (identifier) => data(unkey.ratelimit.getOverride({ namespace, identifier }));
  const deleteOverride = (identifier) => data(unkey.ratelimit.deleteOverride({ namespace, identifier }));
  const override = (overrideId, identifier, max, duration = LONG) => ({ overrideId, identifier, limit: max, duration });
  // The pages of the client's own iterator: how many each has, and all of them.
  const pages = async (size) => {
    const [sizes, all] = [[], []];
    for await (const { result } of await unkey.ratelimit.listOverrides({ namespace, limit: size })) {
      seen(result.meta);
      sizes.push(result.data.length);
      all.push(...result.data);
    }
    return [sizes, all];
  };

  await check("overrides do not make a namespace", async () => {
    await raises(E.noNamespace, unkey.ratelimit.setOverride({ namespace, identifier: "a", limit: 1, duration: 1000 }));
    await raises(E.noNamespace, getOverride("a"));
    await raises(E.noNamespace, deleteOverride("a"));
    await raises(E.noNamespace, unkey.ratelimit.listOverrides({ namespace }));
  });
  await check("limit makes the namespace and counts down", async () => {
    for (const remaining of [9, 8, 7]) assert.deepStrictEqual(await limit("counting"), answer(remaining));
  });
  await check("limit counts identifiers apart", async () => assert.deepStrictEqual(await limit("Counting"), answer(9)));
  await check("a cost that does not fit is refused, takes nothing and is no error", async () => {
    assert.deepStrictEqual(await limit("costs", { cost: 6 }), answer(4));
    assert.deepStrictEqual(await limit("costs", { cost: 5 }), answer(0, { success: false }));
    assert.deepStrictEqual(await limit("costs", { cost: 0 }), answer(4));
    assert.deepStrictEqual(await limit("costs", { cost: 4 }), answer(0));
    assert.deepStrictEqual(await limit("costs", { cost: 0 }), answer(0));
  });
  await check("20 checks at once admit exactly the limit", async () => {
    const answers = await Promise.all(Array.from({ length: 20 }, () => limit("crowd")));
    const left = answers.filter(({ success }) => success).map(({ remaining }) => remaining).sort((x, y) => x - y);
    assert.deepStrictEqual(left, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  });
  await check("refuses what is out of bounds", async () => {
    await rejects("/properties/namespace/minLength", limit("a", { namespace: "" }));
    await rejects("/properties/identifier/maxLength", limit("🔑".repeat(513)));
    await rejects("/properties/limit/minimum", limit("a", { limit: 0 }));
    await rejects("/properties/duration/minimum", limit("a", { duration: 999 }));
    await rejects("/properties/duration/maximum", limit("a", { duration: LONG + 1 }));
    await rejects("/properties/cost/minimum", limit("a", { cost: -1 }));
  });

  await check("multiLimit takes all or nothing and tells each in order", async () => {
    const multi = (cost) => data(unkey.ratelimit.multiLimit([
      { namespace, identifier: "both", limit: 10, duration: LONG },
      { namespace: other, identifier: "both", limit: 3, duration: LONG, cost },
    ]));
    const told = (max, left, passed, where) =>
      ({ namespace: where, identifier: "both", limit: max, remaining: left, reset: windowEnd(LONG), passed });
    assert.deepStrictEqual(await multi(4), { passed: false, limits: [told(10, 10, true, namespace), told(3, 0, false, other)] });
    assert.deepStrictEqual(await multi(3), { passed: true, limits: [told(10, 9, true, namespace), told(3, 0, true, other)] });
  });
  await check("multiLimit adds up members of one counter", async () => {
    const member = { namespace, identifier: "twice", limit: 10, duration: LONG, cost: 5 };
    const twice = await data(unkey.ratelimit.multiLimit([member, member]));
    assert.deepStrictEqual([twice.passed, twice.limits.map(({ remaining }) => remaining)], [true, [5, 0]]);
  });
  await check("multiLimit refuses an empty list, and a fault by its place", async () => {
    await rejects("/minItems", unkey.ratelimit.multiLimit([]));
    await rejects("/items/properties/limit/minimum", unkey.ratelimit.multiLimit([{ namespace, identifier: "a", limit: 0, duration: 1000 }]));
  });

  const exact = await setOverride("user_1", 2);
  const pattern = await setOverride("user_*", 5);
  const never = await setOverride("banned", 0);
  await check("setOverride answers with an id, and keeps it", async () => {
    for (const id of [exact, pattern, never]) assert.match(id, ID("rlor"));
    assert.equal(await setOverride("user_1", 3), exact);
  });
  await seenByAll();
  await check("the exact override precedes a pattern, and 0 always denies", async () => {
    assert.deepStrictEqual(await limit("user_1"), answer(2, { limit: 3, overrideId: exact }));
    assert.deepStrictEqual(await limit("user_2"), answer(4, { limit: 5, overrideId: pattern }));
    assert.deepStrictEqual(await limit("banned"), answer(0, { success: false, limit: 0, overrideId: never }));
    const { limits } = await data(unkey.ratelimit.multiLimit([{ namespace, identifier: "user_2", limit: 1, duration: 1000 }]));
    assert.deepStrictEqual([limits[0].limit, limits[0].remaining, limits[0].overrideId], [5, 3, pattern]);
  });
  await check("getOverride finds what a check would find", async () => {
    assert.deepStrictEqual(await getOverride("user_1"), override(exact, "user_1", 3));
    assert.deepStrictEqual(await getOverride("user_9"), override(pattern, "user_*", 5));
    await raises(E.noOverride, getOverride("somebody"));
  });
  await check("listOverrides goes through the pages by id", async () => {
    const all = [override(exact, "user_1", 3), override(pattern, "user_*", 5), override(never, "banned", 0)];
    all.sort((a, b) => (a.overrideId < b.overrideId ? -1 : 1));
    assert.deepStrictEqual(await pages(2), [[2, 1], all]);
    assert.deepStrictEqual(await pages(3), [[3], all]);
    assert.deepStrictEqual(await pages(undefined), [[3], all]);
    await rejects("/properties/limit/maximum", unkey.ratelimit.listOverrides({ namespace, limit: 101 }));
  });
  await check("deleteOverride takes the exact identifier, once", async () => {
    await raises(E.noOverride, deleteOverride("user_7"));
    assert.deepStrictEqual(await deleteOverride("user_1"), {});
    await raises(E.noOverride, deleteOverride("user_1"));
    await seenByAll();
    assert.deepStrictEqual(await limit("user_1"), answer(3, { limit: 5, overrideId: pattern }));
  });
  await check("what was deleted can be set anew", async () => {
    assert.notEqual(await setOverride("user_1", 7), exact);
    await seenByAll();
    assert.equal((await limit("user_1")).limit, 7);
  });
});

await check("every answer has its own request id", () => {
  assert.notEqual(requestIds.length, 0);
  assert.equal(new Set(requestIds).size, requestIds.length);
});

console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
