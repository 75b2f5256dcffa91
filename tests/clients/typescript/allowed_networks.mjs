// Keys that are good from some networks only.
import assert from "node:assert/strict";
import { Unkey } from "@unkey/api";
import { HTTPClient } from "@unkey/api/lib/http.js";
import { createKey, data, E, fresh, LONG, NOT_FOUND, raises, rootKey, section, serverURL, setApi, unkey, verify } from "./support.mjs";

// Where the server takes this machine for a proxy that it trusts, it believes what is said here of an address. Where it
// does not, the address is that of the connection, whatever is said.
const isBelieved = Boolean(process.env.KEYWARD_TRUSTED_PROXIES);

await section("allowed networks", async (check) => {
  const { apiId } = await data(unkey.apis.createApi({ name: fresh("networks") }));
  const { key, keyId } = await createKey({
    apiId, name: fresh("inside"), credits: { remaining: 20 }, ratelimits: [{ name: "auto", limit: 20, duration: LONG, autoApply: true }],
  });
  const off = await createKey({ apiId, enabled: false });
  let left = 20;
  const is = async (code, promise = unkey.keys.verifyKey({ key })) => {
    const answer = await data(promise);
    assert.equal(answer.code, code);
    if (answer.valid) left -= 1;
    assert.equal(answer.credits, left);
  };
  const forwarded = (addresses) => unkey.keys.verifyKey({ key }, { headers: { "X-Forwarded-For": addresses } });
  // The client has no field for it; its own hook adds it to the request.
  const usedAt = (ipAddress) => {
    const httpClient = new HTTPClient().addHook("beforeRequest", async (request) =>
      new Request(request, { body: JSON.stringify({ ...(await request.json()), ipAddress }) }));
    return new Unkey({ serverURL, rootKey, httpClient, retryConfig: { strategy: "none" } }).keys.verifyKey({ key });
  };

  await check("where none are named, a key is VALID from anywhere", () => is("VALID"));
  await setApi(apiId, "--allow", "127.0.0.0/8,::1");
  await check("from inside a key is VALID", () => is("VALID"));
  await setApi(apiId, "--allow", "10.0.0.0/8,2001:db8::/32");
  await check("from outside it is FORBIDDEN, is told, and spends nothing", async () => {
    assert.deepStrictEqual(await verify(key), { valid: false, code: "FORBIDDEN", keyId, enabled: true, name: fresh("inside"), credits: left });
  });
  await check("FORBIDDEN comes after DISABLED and before the permissions", async () => {
    assert.equal((await verify(off.key)).code, "DISABLED");
    await is("FORBIDDEN", unkey.keys.verifyKey({ key, permissions: fresh("none") }));
  });
  await check("an unknown key is NOT_FOUND from anywhere", async () => assert.deepStrictEqual(await verify(`${key}x`), NOT_FOUND));
  await check("root keys may do the rest from anywhere", async () => {
    assert.equal((await verify((await createKey({ apiId })).key)).code, "FORBIDDEN");
    assert.equal((await data(unkey.keys.whoami({ key }))).keyId, keyId);
  });
  for (const [addresses, expected] of [
    ["10.1.2.3", "VALID"], ["11.1.2.3", "FORBIDDEN"], ["2001:db8::1", "VALID"], ["2001:db9::1", "FORBIDDEN"],
    ["192.0.2.1, 10.1.2.3", "VALID"], ["10.1.2.3, 192.0.2.1", "FORBIDDEN"],
  ]) {
    const [code, who] = isBelieved ? [expected, "a trusted proxy"] : ["FORBIDDEN", "anybody else"];
    await check(`X-Forwarded-For: ${addresses} from ${who} is ${code}`, () => is(code, forwarded(addresses)));
  }
  for (const [address, code] of [["10.255.255.255", "VALID"], ["9.255.255.255", "FORBIDDEN"], ["::ffff:10.0.0.1", "VALID"], ["::1", "FORBIDDEN"]]) {
    await check(`ipAddress ${address} is ${code}`, () => is(code, usedAt(address)));
  }
  await check("an ipAddress that is none is 400", () => raises(E.invalid, usedAt("10.0.0.0/8")));
  await setApi(apiId, "--allow", "");
  await check("where none are named any more, a key is VALID from anywhere", () => is("VALID"));
  await check("no limit has counted what was FORBIDDEN", async () => {
    assert.equal((await verify(key, { ratelimits: [{ name: "auto", cost: 0 }], credits: { cost: 0 } })).ratelimits[0].remaining, left);
  });
});
