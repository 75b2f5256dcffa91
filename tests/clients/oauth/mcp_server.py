"""A FastMCP server that accepts keys as access tokens, called by the client of FastMCP."""

import asyncio
import contextlib
import json
import time

import uvicorn
from fastmcp import Client, FastMCP
from fastmcp.server.auth.providers.introspection import IntrospectionTokenVerifier
from fastmcp.server.dependencies import get_access_token

from oauth.support import ROOT_KEY, URL, changed, check, equal, send, v2


def verifier(root_key=ROOT_KEY, scopes=("documents.read",)):
    return IntrospectionTokenVerifier(
        introspection_url=f"{URL}/oauth2/introspect",
        client_id="mcp-server",
        client_secret=root_key,
        required_scopes=list(scopes),
    )


async def verifying(keys):
    async def described():
        token = await verifier().verify_token(keys.reader)
        equal((token.client_id, token.subject, token.scopes), (keys.api_id, "user_1", ["documents.read"]))
        equal((token.expires_at, token.claims["jti"]), (None, keys.reader_id))

    async def refused():
        for key in (keys.plain, keys.disabled, "nobody_knows_this_key"):
            equal(await verifier().verify_token(key), None)
        equal(await verifier(scopes=("documents.write",)).verify_token(keys.reader), None)
        equal(await verifier(root_key="nobody_knows_this_key").verify_token(keys.reader), None)

    async def expiring():
        expires = int(time.time() * 1000) + 3_600_000
        key, _ = keys.create(permissions=["documents.read"], expires=expires)
        equal((await verifier().verify_token(key)).expires_at, expires // 1000)

    async def revoked():
        key, key_id = keys.create(permissions=["documents.read"])
        equal((await verifier().verify_token(key)).client_id, keys.api_id)
        v2("keys.updateKey", keyId=key_id, enabled=False)
        await changed()
        equal(await verifier().verify_token(key), None)

    await check("FastMCP's verifier describes an active key", described)
    await check("FastMCP's verifier refuses other keys", refused)
    await check("FastMCP's verifier learns when a key expires", expiring)
    await check("FastMCP's verifier refuses a revoked key", revoked)


@contextlib.asynccontextmanager
async def running_server():
    server = FastMCP("documents", auth=verifier())

    @server.tool
    def whoami() -> str:
        return get_access_token().claims["sub"]

    http = uvicorn.Server(uvicorn.Config(server.http_app(), host="127.0.0.1", port=0, log_level="error"))
    task = asyncio.create_task(http.serve())
    while not http.started:
        assert not task.done(), "the MCP server does not start"
        await asyncio.sleep(0.05)
    try:
        port = http.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        http.should_exit = True
        await task


async def serving(keys):
    async with running_server() as url:
        async def called():
            async with Client(url, auth=keys.reader) as client:
                equal((await client.call_tool("whoami")).data, "user_1")

        async def refused():
            for key in (keys.plain, keys.disabled, "nobody_knows_this_key"):
                headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
                body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
                equal((await asyncio.to_thread(send, url, headers, body))[0], 401)

        await check("an MCP server accepts a key and knows its user", called)
        await check("an MCP server refuses other keys", refused)
