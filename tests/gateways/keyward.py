"""Keyward: the servers, and the objects of the cases."""

import itertools
import json
import os
import random
import secrets
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import closing

POLICY = "edge"
LIMIT = {"name": "each", "limit": 2, "duration": 3_600_000}
RULES = [
    {"methods": ["GET", "HEAD"], "path": "/documents/**", "permissions": "documents.read"},
    {"path": "/limited", "ratelimits": [LIMIT]},
    {"path": "/open/**"},
]


# Below the range of ephemeral ports: the system gives none of them to a connection.
ports = itertools.count(random.randrange(10_000, 19_000))


def free_port():
    for port in ports:
        with closing(socket.socket()) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def wait_until(done, what, seconds=60):
    ends = time.monotonic() + seconds
    while not done():
        if time.monotonic() > ends:
            raise TimeoutError(f"{what} after {seconds} s")
        time.sleep(0.05)


class Embedded:
    """An embedded server, which the cases stop and start."""

    replicas = 1

    def __init__(self, binary, folder, certificate=None):
        """`certificate` has the files of its certificate and key, if it listens with TLS."""
        self.binary, self.log = binary, open(folder / "keyward.log", "ab")
        self.url_start = "https://" if certificate else "http://"
        self.address = f"127.0.0.1:{free_port()}"
        self.addresses = [self.address]
        self.grpc_addresses = [f"127.0.0.1:{free_port()}"]
        self.root_key = f"test_{secrets.token_hex(24)}"
        self.settings = {"KEYWARD_DATA_DIR": str(folder / "data"), "KEYWARD_ROOT_KEY": self.root_key,
                         "KEYWARD_LISTEN": self.address, "KEYWARD_GRPC_LISTEN": self.grpc_addresses[0],
                         "KEYWARD_TRUSTED_PROXIES": "127.0.0.1",
                         "KEYWARD_DRAIN_SECONDS": "0"}
        if certificate:
            self.settings |= dict(zip(("KEYWARD_TLS_CERT", "KEYWARD_TLS_KEY"), certificate))
        self.start()

    def start(self):
        self.process = subprocess.Popen([self.binary, "serve"], env={**os.environ, **self.settings},
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        wait_until(lambda: is_ready(self.url_start + self.address), "Keyward did not start")

    def stop(self):
        self.process.terminate()
        self.process.wait(30)

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)


class Replicas:
    """The two replicas of deploy/local-stack."""

    replicas = 2
    url_start = "http://"

    def __init__(self, binary, stack):
        self.binary = binary
        self.addresses = [url.removeprefix("http://") for url in stack["replicas"]]
        self.address = self.addresses[0]
        self.grpc_addresses = stack["grpc"]
        self.root_key = stack["rootKey"]
        self.pids = stack["pids"]["replicas"]
        self.settings = {"KEYWARD_DATABASE_URL": stack["databaseUrl"], "KEYWARD_REDIS_URL": stack["redisUrl"]}
        self.parent = next(parent for pid, parent, _ in processes() if pid == self.pids[0])

    def restart(self, replica):
        """Restarts a replica as an operator would: it drains, ends, and local-stack starts it again."""
        self.end(replica, signal.SIGTERM)
        self.await_start(replica)

    def end(self, replica, kind):
        os.kill(self.pids[replica], kind)
        wait_until(lambda: not is_running(self.pids[replica]), "a replica did not end")

    def await_start(self, replica):
        wait_until(lambda: is_ready(f"http://{self.addresses[replica]}"), "a replica did not start")
        servers = [pid for pid, parent, command in processes() if parent == self.parent and command.endswith("keyward serve")]
        self.pids[replica] = next(pid for pid in servers if pid not in self.pids)

    def pause(self):
        for pid in self.pids:
            os.kill(pid, signal.SIGSTOP)

    def resume(self):
        for pid in self.pids:
            os.kill(pid, signal.SIGCONT)


# Only the gateways verify certificates.
UNVERIFIED = ssl._create_unverified_context()


def is_ready(url):
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=2, context=UNVERIFIED) as reply:
            return json.load(reply)["status"] == "ready"
    except OSError:
        return False


def processes():
    """Returns the id, the parent's id and the command of each process."""
    lines = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    return [(int(pid), int(parent), command.strip()) for pid, parent, command in
            (line.split(None, 2) for line in lines.splitlines() if len(line.split(None, 2)) == 3)]


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Scene:
    """A policy, and the keys that each gateway uses."""

    def __init__(self, stack):
        self.stack = stack
        self.api = self.call("apis.createApi", name="main")["apiId"]
        # Keys of this one are valid only from an address that no gateway has.
        self.local_api = self.call("apis.createApi", name="local")["apiId"]
        subprocess.run([stack.binary, "api", "update", self.local_api, "--allow", "127.0.0.2", "--json"],
                       env={**os.environ, **stack.settings}, stdout=subprocess.DEVNULL, check=True)
        self.call("permissions.createPermission", name="documents.read", slug="documents.read")
        self.call("permissions.createRole", name="reader", permissions=["documents.read"])
        policy = self.call("gateways.createPolicy", name=POLICY, apiIds=[self.api, self.local_api], rules=RULES,
                           identityHeaders={"meta": ["plan"]})
        self.policy, self.secret = policy["policyId"], policy["secret"]

    def call(self, operation, **request):
        sent = urllib.request.Request(f"{self.stack.url_start}{self.stack.address}/v2/{operation}", json.dumps(request).encode(),
                                      {"Authorization": f"Bearer {self.stack.root_key}",
                                       "Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(sent, timeout=30, context=UNVERIFIED) as reply:
                return json.load(reply).get("data")
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{operation}: {error.read().decode()}") from error

    def keys(self, gateway):
        """Returns new keys for the cases of a gateway, by name, and the identity headers of the valid one."""
        identity = self.call("identities.createIdentity", externalId=f"user_{gateway}")["identityId"]
        plain = {"apiId": self.api}
        requests = {
            "valid": {**plain, "externalId": f"user_{gateway}", "roles": ["reader"], "meta": {"plan": "pro, é"}},
            # Their names fill most of the 4 KiB of a header.
            "detailed": {**plain, "permissions": ["documents.read", *(f"documents.section_{n:03}.read_and_write" for n in range(110))]},
            "plain": plain,
            "limited": plain,
            "told": plain,
            "spent": {**plain, "credits": {"remaining": 1}},
            "revoked": plain,
            "local": {"apiId": self.local_api},
        }
        created = {name: self.call("keys.createKey", **request) for name, request in requests.items()}
        created["detailed"]["permissions"] = ",".join(sorted(requests["detailed"]["permissions"]))
        expected = {"keyward-key-id": created["valid"]["keyId"], "keyward-api-id": self.api,
                    "keyward-external-id": f"user_{gateway}", "keyward-identity-id": identity,
                    "keyward-permissions": "documents.read", "keyward-roles": "reader",
                    "keyward-environment": "", "keyward-omitted": "", "keyward-meta-plan": "pro, %C3%A9"}
        return created, expected
