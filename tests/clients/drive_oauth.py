"""Drives OAuth resource servers, unmodified, that accept the keys of a running Keyward server by introspection.

It reads the KEYWARD_ variables that `run` exports, and it may run any number of times against the same server.
"""

import asyncio
import sys

from oauth.apache import protecting
from oauth.mcp_server import serving, verifying
from oauth.support import Keys, changed, check, count


async def main():
    keys = Keys()
    await changed()
    for section in (verifying, serving, protecting):
        try:
            await section(keys)
        except Exception as error:  # A server that does not start is one failed check.
            async def broken(error=error):
                raise error
            await check(f"{section.__name__}: set-up", broken)


asyncio.run(main())
print(f"{count['passed']} passed, {count['failed']} failed")
sys.exit(count["failed"] > 0)
