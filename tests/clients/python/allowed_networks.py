"""Keys that are good from some networks only."""

import os

from python.support import equal, LONG, NOT_FOUND, set_api

# Where the server takes this machine for a proxy that it trusts, it believes what is said here of an address. Where it
# does not, the address is that of the connection, whatever is said.
IS_BELIEVED = "KEYWARD_TRUSTED_PROXIES" in os.environ


async def networks(kw, section):
    api_id = (await kw.call("apis.create_api", name=kw.fresh("networks")))["apiId"]
    limit = {"name": "auto", "limit": 20, "duration": LONG, "auto_apply": True}
    made = await kw.create_key(api_id=api_id, name="inside", credits={"remaining": 20}, ratelimits=[limit])
    off = await kw.create_key(api_id=api_id, enabled=False)
    key, left = made["key"], 20

    async def answers(code, **more):
        nonlocal left
        answer = await kw.verify(key, **more)
        left -= answer["valid"]
        equal((answer["code"], answer["credits"]), (code, left))

    await kw.check(f"{section}: where none are named, a key is VALID from anywhere", lambda: answers("VALID"))
    await set_api(api_id, "--allow", "127.0.0.0/8,::1")
    await kw.check(f"{section}: from inside a key is VALID", lambda: answers("VALID"))
    await set_api(api_id, "--allow", "10.0.0.0/8,2001:db8::/32")

    async def outside():
        equal(await kw.verify(key), {"valid": False, "code": "FORBIDDEN", "keyId": made["keyId"], "enabled": True, "name": "inside", "credits": left})
        equal(await kw.code(off["key"]), "DISABLED")
        await answers("FORBIDDEN", permissions=kw.fresh("none"))
        equal(await kw.verify(f"{key}x"), NOT_FOUND)
        equal((await kw.whoami(key))["keyId"], made["keyId"])
    await kw.check(f"{section}: from outside it is FORBIDDEN, after DISABLED and before the permissions, is told, and spends nothing", outside)

    for addresses, expected in (
        ("10.1.2.3", "VALID"), ("11.1.2.3", "FORBIDDEN"), ("2001:db8::1", "VALID"), ("2001:db9::1", "FORBIDDEN"),
        ("192.0.2.1, 10.1.2.3", "VALID"), ("10.1.2.3, 192.0.2.1", "FORBIDDEN"),
    ):
        code, who = (expected, "a trusted proxy") if IS_BELIEVED else ("FORBIDDEN", "anybody else")
        await kw.check(f"{section}: X-Forwarded-For: {addresses} from {who} is {code}", lambda: answers(code, http_headers={"X-Forwarded-For": addresses}))

    await set_api(api_id, "--allow", "")
    await kw.check(f"{section}: where none are named any more, a key is VALID from anywhere", lambda: answers("VALID"))

    async def uncounted():
        answer = await kw.verify(key, credits={"cost": 0}, ratelimits=[{"name": "auto", "cost": 0}])
        equal(answer["ratelimits"][0]["remaining"], left)
    await kw.check(f"{section}: no limit has counted what was FORBIDDEN", uncounted)
