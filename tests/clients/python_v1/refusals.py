import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

from python_v1.support import (
    answers, BackoffStrategy, BAD_REQUEST, client, client_for, equal, FORBIDDEN, NOT_FOUND, RetryConfig, ROOT_KEY, UNAUTHORIZED, URL,
)


async def liveness(kw, section):
    async def alive():
        told = await kw.call("liveness.check")
        assert isinstance(told["status"], str) and told["status"]
        equal(sorted(told["services"]), ["logger", "metrics", "ratelimit", "usagelimit"])
        assert all(isinstance(service, str) for service in told["services"].values())
    await kw.check(f"{section}: each service is told", alive)


async def authentication(kw, section):
    for title, root_key in (("an unknown root key", "nobody_knows_this_key"), ("the word public", "public")):
        async def refused():
            stranger = client(root_key)
            await kw.raises(UNAUTHORIZED, "apis.get", sdk=stranger, api_id=kw.api_id)
            await kw.raises(UNAUTHORIZED, "apis.create", sdk=stranger, name="")
            await kw.raises(UNAUTHORIZED, "keys.get", sdk=stranger, key_id="key_doesnotexist0000")
            await kw.raises(UNAUTHORIZED, "migrations.create_keys", sdk=stranger, request=[])
        await kw.check(f"{section}: {title} is UNAUTHORIZED", refused)

    async def openly():
        made = await kw.create_key()
        equal((await kw.verify(made["key"], sdk=client("public")))["keyId"], made["keyId"])
        await kw.raises(UNAUTHORIZED, "apis.get", sdk=client(made["key"]), api_id=kw.api_id)
    await kw.check(f"{section}: verify takes whatever root key there is, and a key of an api is none", openly)

    async def lacking():
        weak = client_for("api.*.create_api")
        await kw.raises(FORBIDDEN, "apis.get", "api.*.read_api", sdk=weak, api_id=kw.api_id)
        await kw.raises(FORBIDDEN, "identities.create", "identity.*.create_identity", sdk=weak, external_id=kw.fresh("weak"))
        await kw.raises(NOT_FOUND, "keys.create", sdk=weak, api_id=kw.api_id)
        await kw.raises(NOT_FOUND, "apis.list_keys", sdk=weak, api_id=kw.api_id)
    await kw.check(f"{section}: what a root key lacks is named", lacking)

    async def faults():
        await kw.rejects("name: String must contain at least 3 character(s)", "apis.create", name="ab")
        await kw.rejects("limit: Number must be less than or equal to 100", "apis.list_keys", api_id=kw.api_id, limit=101)
        await kw.rejects("byteLength: Number must be greater than or equal to 16", "keys.create", api_id=kw.api_id, byte_length=15)
        await kw.raises(BAD_REQUEST, "identities.get", "Provide either identityId or externalId")
    await kw.check(f"{section}: faults are worded as programs know them", faults)


async def retrying(kw, section):
    asked = []

    class Balancer(BaseHTTPRequestHandler):
        """Has no server for the first two requests, and asks the server from then on."""

        def do_GET(self):
            asked.append(self.path)
            answer = httpx.Response(503, text="no server")
            if len(asked) > 2:
                answer = httpx.get(URL + self.path, headers={"authorization": self.headers["authorization"]})
            self.send_response(answer.status_code)
            for name in ("content-type", "unkey-request-id"):
                self.send_header(name, answer.headers.get(name, "text/plain"))
            self.send_header("content-length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, *_):
            pass

    balancer = ThreadingHTTPServer(("127.0.0.1", 0), Balancer)
    threading.Thread(target=balancer.serve_forever, daemon=True).start()
    sdk = client(ROOT_KEY, f"http://127.0.0.1:{balancer.server_port}", RetryConfig("backoff", BackoffStrategy(1, 10, 1.5, 30_000), True))

    async def again():
        equal((await kw.call("apis.get", sdk=sdk, api_id=kw.api_id))["id"], kw.api_id)
        equal(len(asked), 3)
    await kw.check(f"{section}: what no server answers is asked again until one does", again)

    async def once():
        answers.clear()
        await kw.raises(NOT_FOUND, "apis.get", sdk=sdk, api_id="api_doesnotexist0000")
        equal(len(asked), 4)
    await kw.check(f"{section}: a refusal is an answer and is not asked again", once)
    balancer.shutdown()
    balancer.server_close()
