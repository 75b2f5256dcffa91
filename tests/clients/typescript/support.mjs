// What every file of checks uses: the clients, the ways to check an answer, and the API in which keys are made.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { Unkey } from "@unkey/api";
import * as errors from "@unkey/api/models/errors";

const given = (name) => {
  if (process.env[name]) return process.env[name];
  console.error(`${name} must be set.`);
  process.exit(2);
};
export const serverURL = given("KEYWARD_URL");
export const rootKey = given("KEYWARD_ROOT_KEY");
// The client falls back to this variable, which would hide the checks of a missing root key.
delete process.env.UNKEY_ROOT_KEY;

// Retries are off, so that one 5xx answer is a failure here and not a slow success.
export const client = (key) => new Unkey({ serverURL, rootKey: key, retryConfig: { strategy: "none" } });
export const unkey = client(rootKey);

// What the operator does beside the server, on the same data.
const binary = given("KEYWARD_BINARY");
export const keyward = (...args) =>
  JSON.parse(execFileSync(binary, [...args, "--json"], { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] }));
// Every server sees within a second what the operator has changed.
export async function setApi(apiId, ...options) {
  keyward("api", "update", apiId, ...options);
  await sleep(1000);
}
const rootKeyFor = (...permissions) => keyward("root-key", "create", ...permissions.map((one) => `--permission=${one}`)).key;
export const clientFor = (...permissions) => client(rootKeyFor(...permissions));
// A root key that may make APIs and do nothing else, and one that may attach permissions and roles but not make them.
export const weakRootKey = rootKeyFor("api.*.create_api");
export const weak = client(weakRootKey);
export const attacher = clientFor(
  "api.*.update_key", "rbac.*.add_permission_to_key", "rbac.*.remove_permission_from_key",
  "rbac.*.add_permission_to_role", "rbac.*.remove_permission_from_role", "rbac.*.add_role_to_key",
);

export const run = randomBytes(6).toString("hex");
export const fresh = (name) => `${run}.${name}`;
export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

export const count = { passed: 0, failed: 0 };
export async function check(name, body) {
  try {
    await body();
    count.passed += 1;
    console.log(`ok - ${name}`);
  } catch (error) {
    count.failed += 1;
    const reason = error?.message ?? String(error);
    console.log(`NOT OK - ${name}: ${reason.replace(/\s*\n\s*/g, " | ").slice(0, 1500)}`);
  }
}
// A section that cannot even set its scene counts as one failed check, and the next one still runs.
export async function section(name, body) {
  try {
    await body((title, inner) => check(`${name}: ${title}`, inner));
  } catch (error) {
    await check(`${name}: set-up`, () => Promise.reject(error));
  }
}

export const requestIds = [];
export function seen(meta) {
  assert.match(meta.requestId, /^req_[A-Za-z0-9]{16,}$/);
  requestIds.push(meta.requestId);
}
export async function data(promise) {
  const response = await promise;
  seen(response.meta);
  return response.data;
}
// The pages of the client's own iterator: how many each has, and all of them.
export async function pages(firstPage) {
  const [sizes, all] = [[], []];
  for await (const { result } of await firstPage) {
    seen(result.meta);
    assert.equal(result.pagination.hasMore, "cursor" in result.pagination);
    sizes.push(result.data.length);
    all.push(...result.data);
  }
  return [sizes, all];
}

// Each kind of failure: the class that the client throws, status, title and the error name that ends `type`. The media
// type is JSON, but for the errors of one operation.
export const E = {
  invalid: [errors.BadRequestErrorResponse, 400, "Bad Request", "invalid_input"],
  query: [errors.BadRequestErrorResponse, 400, "Bad Request", "permissions_query_syntax_error"],
  badRequest: [errors.BadRequestErrorResponse, 400, "Bad Request", ""],
  unauthorized: [errors.UnauthorizedErrorResponse, 401, "Unauthorized", ""],
  forbidden: [errors.ForbiddenErrorResponse, 403, "Forbidden", "insufficient_permissions"],
  noApi: [errors.NotFoundErrorResponse, 404, "Not Found", "api_not_found"],
  noKey: [errors.NotFoundErrorResponse, 404, "Not Found", "key_not_found"],
  noRole: [errors.NotFoundErrorResponse, 404, "Not Found", "role_not_found"],
  noPermission: [errors.NotFoundErrorResponse, 404, "Not Found", "permission_not_found"],
  noIdentity: [errors.NotFoundErrorResponse, 404, "Not Found", "identity_not_found"],
  noNamespace: [errors.NotFoundErrorResponse, 404, "Not Found", "ratelimit_namespace_not_found"],
  noMigration: [errors.NotFoundErrorResponse, 404, "Not Found", "migration_not_found"],
  noOverride: [errors.NotFoundErrorResponse, 404, "Not Found", "ratelimit_override_not_found"],
  notFound: [errors.NotFoundErrorResponse, 404, "Not Found", ""],
  permissionExists: [errors.ConflictErrorResponse, 409, "Conflicting Resource", "permission_already_exists"],
  roleExists: [errors.ConflictErrorResponse, 409, "Conflicting Resource", "role_already_exists"],
  identityExists: [errors.ConflictErrorResponse, 409, "Conflicting Resource", "identity_already_exists"],
  // The client declares no 404 for deleteRole, so its generic class is the right one.
  noRoleToDelete: [errors.APIError, 404, "Not Found", "role_not_found"],
  // The client declares no 412 for the key operations, so its generic class is the right one.
  precondition: [errors.APIError, 412, "Precondition Failed", "precondition_failed"],
};
export const problem = (kind) => [...kind, "application/problem+json"];
export async function raises([type, status, title, name, media = "application/json"], promise) {
  let error;
  try {
    await promise;
  } catch (thrown) {
    error = thrown;
  }
  assert.ok(error, `expected status ${status}, but the call succeeded`);
  assert.ok(error instanceof type, `expected ${type.name}, got ${error.name}: ${error.body ?? error.message}`);
  assert.equal(error.statusCode, status);
  assert.equal(error.contentType.split(";")[0], media);
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
// Refused by an error that names each permission.
export async function lacks(permissions, promise, kind = E.forbidden) {
  const { detail } = await raises(kind, promise);
  for (const permission of permissions) assert.ok(detail.includes(permission), detail);
}
export async function rejects(location, promise, kind = E.invalid) {
  const error = await raises(kind, promise);
  const locations = error.errors.map((item) => item.location);
  assert.ok(locations.includes(location), `expected an error at ${location}, got ${JSON.stringify(error.errors)}`);
  assert.ok(error.errors.every((item) => item.message.length > 0));
}

// Lists whose order the contract leaves open are sorted before they are compared.
const byName = (a, b) => (a.name < b.name ? -1 : 1);
export function sorted(answer) {
  const copy = { ...answer };
  for (const field of ["permissions", "roles"]) if (copy[field]) copy[field] = [...copy[field]].sort();
  if (copy.ratelimits) copy.ratelimits = [...copy.ratelimits].sort(byName);
  return copy;
}
// `lastUsedAt` may lag behind by minutes, so it is judged by itself and then left out of the comparison.
export function settled({ lastUsedAt, ...answer }) {
  if (lastUsedAt !== undefined) isNow(lastUsedAt);
  return sorted(answer);
}
export const getKey = async (keyId) => settled(await data(unkey.keys.getKey({ keyId })));
export const whoami = async (key) => settled(await data(unkey.keys.whoami({ key })));
export const verify = async (key, more = {}) => sorted(await data(unkey.keys.verifyKey({ key, ...more })));
export const createKey = (fields) => data(unkey.keys.createKey(fields));
export const updateKey = async (keyId, fields) => assert.deepStrictEqual(await data(unkey.keys.updateKey({ keyId, ...fields })), {});
export const isNow = (ms) => assert.ok(Math.abs(ms - Date.now()) < 300_000, `${ms} is not a recent unix time in ms`);

// A window of 30 days starts no new window while the checks run, so counts and `reset` are exact.
export const LONG = 2_592_000_000;
export const windowEnd = (duration) => (Math.floor(Date.now() / duration) + 1) * duration;
export const checked = (stored, remaining, exceeded = false) =>
  ({ ...stored, reset: windowEnd(stored.duration), remaining, exceeded });
export const adhoc = (name, limit, remaining, exceeded = false) =>
  ({ id: "", name, limit, duration: LONG, autoApply: false, reset: windowEnd(LONG), remaining, exceeded });

const BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
export function base58Bytes(text) {
  let number = 0n;
  for (const letter of text) {
    const digit = BASE58.indexOf(letter);
    assert.notEqual(digit, -1, `${letter} is not a Base58 letter`);
    number = number * 58n + BigInt(digit);
  }
  const zeros = text.match(/^1*/)[0].length;
  return zeros + (number === 0n ? 0 : Math.ceil(number.toString(16).length / 2));
}
export const ID = (prefix) => new RegExp(`^${prefix}_[A-Za-z0-9]{16,}$`);
export const NOT_FOUND = { valid: false, code: "NOT_FOUND" };

/** Waits for the next minute if this one ends within 15 seconds, and what ends with it could be gone too soon. */
export const avoidMinuteEnd = async () => {
  const left = 60_000 - (Date.now() % 60_000);
  if (left < 15_000) await sleep(left);
};

// A request may reach another replica than the one that made a change.
const seenAfterMs = Number(given("KEYWARD_SEEN_AFTER_SECONDS")) * 1000;
export const seenByAll = () => sleep(seenAfterMs);
export const verifiesEverywhere = async (key, expected, more = {}) => {
  await seenByAll();
  const answer = await verify(key, more);
  for (const [field, value] of Object.entries(expected)) assert.deepStrictEqual(answer[field], value, field);
};

// A list of things that a search finds, told by its own pages: `all` has five of them.
export async function checkList(check, name, list, search, all) {
  all = [...all].sort((a, b) => (a.id < b.id ? -1 : 1));
  for (const [title, fields, sizes] of [
    ["pages of 2", { search, limit: 2 }, [2, 2, 1]],
    ["a page of 5", { search, limit: 5 }, [5]],
    ["a page of 100, where no size is asked for", { search }, [5]],
    ["a search in capitals and between blanks", { search: ` ${search.toUpperCase()}\t` }, [5]],
    ["pages from a cursor on", { search, limit: 2, cursor: all[2].id }, [2, 1]],
    ["what nothing holds", { search: `${search}?` }, [0]],
  ]) {
    await check(`${name}: ${title}`, async () => {
      const found = sizes.reduce((sum, size) => sum + size, 0);
      assert.deepStrictEqual(await pages(list(fields)), [sizes, all.slice(5 - found).slice(0, found)]);
    });
  }
  for (const [title, fields, location] of [
    ["a page of 0", { limit: 0 }, "/properties/limit/minimum"],
    ["a page of 101", { limit: 101 }, "/properties/limit/maximum"],
    ["a search of 257", { search: "s".repeat(257) }, "/properties/search/maxLength"],
    ["a cursor of 1025", { cursor: "c".repeat(1025) }, "/properties/cursor/maxLength"],
  ]) {
    await check(`${name} refuses ${title}`, () => rejects(location, list(fields)));
  }
}

// The checks make their keys in one API. Without it nothing can be checked.
export const { apiId } = await data(unkey.apis.createApi({ name: fresh("main") }));
