// What every file of checks of version 1 uses besides what version 2 has: its client, and the ways to check an answer.
import assert from "node:assert/strict";
import { Unkey } from "unkey-api-v1";
import { keyward, requestIds, rootKey, seenByAll, serverURL } from "../typescript/support.mjs";

export { apiId, base58Bytes, check, count, fresh, ID, isNow, LONG, requestIds, rootKey, section, seenByAll, serverURL, setApi, windowEnd } from "../typescript/support.mjs";

// Retries are off, so that one 5xx answer is a failure here and not a slow success.
export const client = (key, more = {}) => new Unkey({ rootKey: key, baseUrl: serverURL, retry: { attempts: 0 }, ...more });
export const clientFor = (...permissions) =>
  client(keyward("root-key", "create", ...permissions.map((one) => `--permission=${one}`)).key);
export const unkey = client(rootKey);

export function seen(requestId) {
  assert.match(requestId, /^req_[A-Za-z0-9]{9,}$/);
  requestIds.push(requestId);
}
export async function result(promise) {
  const response = await promise;
  assert.deepEqual(Object.keys(response), ["result"], JSON.stringify(response));
  return response.result;
}
// The message of a refusal.
export async function refused(code, promise) {
  const response = await promise;
  assert.deepEqual(Object.keys(response), ["error"], JSON.stringify(response));
  const { error } = response;
  assert.deepEqual(Object.keys(error), ["code", "docs", "message", "requestId"]);
  assert.equal(error.code, code, error.message);
  assert.match(error.docs, /^https?:\/\/.+\/errors\/[a-z_]+$/);
  seen(error.requestId);
  return error.message;
}
export const refusedWith = async (code, message, promise) => assert.equal(await refused(code, promise), message);
// Refused by a message that names each of these.
export async function names(code, parts, promise) {
  const message = await refused(code, promise);
  for (const part of parts) assert.ok(message.includes(part), message);
}

// Lists whose order the contract leaves open are sorted before they are compared.
export const sorted = (key) => ({ ...key, permissions: [...key.permissions].sort(), roles: [...key.roles].sort() });
export async function verify(key, more = {}) {
  const { requestId, ...answer } = await result(unkey.keys.verify({ key, ...more }));
  seen(requestId);
  assert.equal(answer.valid, answer.code === "VALID");
  return "permissions" in answer ? sorted(answer) : answer;
}
export const code = async (key, more) => (await verify(key, more)).code;
export const verifiesEverywhere = async (key, expected, more = {}) => {
  await seenByAll();
  const answer = await verify(key, more);
  for (const [field, value] of Object.entries(expected)) assert.deepStrictEqual(answer[field], value, field);
};
export const createKey = (fields) => result(unkey.keys.create(fields));
export const getKey = async (keyId, more = {}) => sorted(await result(unkey.keys.get({ keyId, ...more })));
export const updateKey = async (keyId, fields) => assert.deepStrictEqual(await result(unkey.keys.update({ keyId, ...fields })), {});
export const NOT_FOUND = { valid: false, code: "NOT_FOUND" };
// What a verification tells of a key that has nothing.
export const bare = (keyId) => ({ valid: true, code: "VALID", keyId, enabled: true, permissions: [], roles: [] });
// The pages that a caller fetches one after the other: how many each has, and all of them.
export async function pages(list, field) {
  const [sizes, all] = [[], []];
  for (let cursor; ; ) {
    const page = await result(list(cursor));
    sizes.push(page[field].length);
    all.push(...page[field]);
    if (!("cursor" in page)) return [sizes, all];
    cursor = page.cursor;
  }
}
