"""What the files of checks use: calls to the server, and the ways to check an answer."""

import asyncio
import json
import os
import secrets
import socket
import sys
import urllib.error
import urllib.request
from collections import Counter


def given(name):
    return os.environ.get(name) or sys.exit(f"{name} must be set.")


URL = given("KEYWARD_URL")
ROOT_KEY = given("KEYWARD_ROOT_KEY")
# After so long a change is seen by another replica than the one that made it.
SEEN_AFTER_SECONDS = float(given("KEYWARD_SEEN_AFTER_SECONDS"))

count = Counter()


def send(url, headers, body=None):
    """Returns the status, the headers and the body of a response."""
    request = urllib.request.Request(url, headers=headers, data=body)
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return response.status, response.headers, response.read()
    except urllib.error.HTTPError as response:
        return response.code, response.headers, response.read()


def v2(operation, **fields):
    headers = {"Authorization": f"Bearer {ROOT_KEY}", "Content-Type": "application/json"}
    status, _, body = send(f"{URL}/v2/{operation}", headers, json.dumps(fields).encode())
    assert status == 200, body
    return json.loads(body).get("data")


class Keys:
    """Keys of one API: what a resource server must accept, and what it must refuse."""

    def __init__(self):
        self.api_id = v2("apis.createApi", name=f"oauth.{secrets.token_hex(6)}")["apiId"]
        self.reader, self.reader_id = self.create(permissions=["documents.read"], externalId="user_1")
        self.writer, _ = self.create(permissions=["documents.read", "documents.write"])
        self.plain, self.plain_id = self.create()
        self.disabled, _ = self.create(permissions=["documents.read"], enabled=False)

    def create(self, **fields):
        created = v2("keys.createKey", apiId=self.api_id, **fields)
        return created["key"], created["keyId"]


async def changed():
    """Waits until every replica has seen a change."""
    await asyncio.sleep(SEEN_AFTER_SECONDS)


async def check(name, body):
    try:
        await body()
        count["passed"] += 1
        print(f"ok - {name}", flush=True)
    except Exception as error:
        count["failed"] += 1
        reason = " | ".join(f"{type(error).__name__}: {error}".split("\n"))
        print(f"NOT OK - {name}: {reason[:1500]}", flush=True)


def equal(got, wanted):
    assert got == wanted, f"{got!r} is not {wanted!r}"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
