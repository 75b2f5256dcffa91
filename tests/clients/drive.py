"""Drives a running Keyward server through the official Python client, unmodified.

Every check runs twice, with the client's synchronous and with its asynchronous methods, and
compares answers with the v2 contract. It reads the KEYWARD_ variables that `run` exports, and it
may run any number of times against the same server: every name it makes is new.
"""

import asyncio
import sys

from python.allowed_networks import networks
from python.apis import apis, keys_listed
from python.authentication import authentication, authorization
from python.change_key import rerolling, updating, updating_credits
from python.grants import granted_apis, granted_identities, granted_namespaces
from python.identities import identities
from python.key_access import key_permissions, key_roles, through_a_role
from python.keys import creating, deleting, reading
from python.limits_and_credits import credits, ratelimits
from python.migrations import migrating, prefixed
from python.permissions import permissions, permissions_listed, role_permissions, roles_listed
from python.ratelimit import limiter
from python.recoverable_keys import recoverable
from python.support import Driver, count, equal, request_ids
from python.verify_key import expressions, verifying

SECTIONS = (authentication, authorization, apis, keys_listed, permissions, permissions_listed, roles_listed, role_permissions, identities,
            creating, reading, deleting, updating, updating_credits, rerolling, key_permissions, key_roles, through_a_role,
            verifying, expressions, ratelimits, credits, migrating, prefixed, recoverable, networks,
            granted_apis, granted_identities, granted_namespaces, limiter)


async def everything(kw):
    kw.api_id = (await kw.call("apis.create_api", name=kw.fresh("main")))["apiId"]
    for section in SECTIONS:
        try:
            await section(kw, section.__name__)
        except Exception as error:  # A section that cannot set its scene is one failed check.
            await broken(kw, section.__name__, error)


async def broken(kw, what, error):
    async def body():
        raise error
    await kw.check(f"{what}: set-up", body)


async def main():
    for mode in ("sync", "async"):
        kw = Driver(mode)
        try:
            await everything(kw)
        except Exception as error:
            await broken(kw, "everything", error)
    await kw.check("every answer has its own request id", lambda: equal((len(set(request_ids)), bool(request_ids)), (len(request_ids), True)))
    print(f"{count['passed']} passed, {count['failed']} failed")
    sys.exit(count["failed"] > 0)


asyncio.run(main())
