"""Drives a running Keyward server through the official Python client of version 1, unmodified.

As drive.py does: every check runs with the client's synchronous and with its asynchronous methods, and compares
answers with the v1 contract.
"""

import asyncio
import sys

from python_v1.analytics import analytics
from python_v1.apis import apis, keys_deleted, keys_listed
from python_v1.change_key import remaining, updating
from python_v1.identities import identities
from python_v1.key_access import key_permissions, key_roles
from python_v1.keys import creating, deleting
from python_v1.migrations import migrating, queueing
from python_v1.permissions import permissions, roles
from python_v1.ratelimits import limiter, overrides
from python_v1.refusals import authentication, liveness, retrying
from python_v1.support import Driver, count, equal, request_ids
from python_v1.verify_key import queries, verifying

SECTIONS = (liveness, authentication, retrying, apis, keys_listed, keys_deleted, permissions, roles, identities, creating, deleting,
            updating, remaining, key_permissions, key_roles, verifying, queries, limiter, overrides, migrating, queueing, analytics)


async def everything(kw):
    kw.api_id = (await kw.call("apis.create", name=kw.fresh("main")))["apiId"]
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
