"""A server with its data in a directory or in Postgres, and a browser in which an owner is signed in."""

import http.client, json, os, re, secrets, signal, subprocess, threading, time, urllib.parse

from tables import WORKSPACE

START_SECONDS_MAX = 600


class Server:
    """The server process, which ends with the block."""

    def __init__(self, arguments, directory):
        self.port, self.binary = arguments.port, arguments.binary
        self.root_key = f"bench_{secrets.token_hex(24)}"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("KEYWARD_")},
            "KEYWARD_LISTEN": f"127.0.0.1:{arguments.port}",
            "KEYWARD_DATA_DIR": directory,
            "KEYWARD_PUBLIC_URL": f"http://127.0.0.1:{arguments.port}",
            "KEYWARD_ROOT_KEY": self.root_key,
            "KEYWARD_DRAIN_SECONDS": "0",
            "KEYWARD_LOG": "error",
        }
        if arguments.database_url:
            self.environment["KEYWARD_DATABASE_URL"] = arguments.database_url
            self.environment["KEYWARD_REDIS_URL"] = arguments.redis_url

    def __enter__(self):
        self.process = subprocess.Popen([self.binary, "serve"], env=self.environment, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            try:
                if self.request("GET", "/readyz")[0] == 200:
                    return self
            except OSError:
                pass
            if self.process.poll() is not None:
                raise SystemExit("the server ended")
            time.sleep(0.1)
        raise SystemExit("the server is not ready")

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)

    def command(self, *words):
        done = subprocess.run([self.binary, *words], env=self.environment, check=True, capture_output=True, text=True)
        return done.stdout

    def request(self, method, path, headers=None, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, body, headers or {})
        reply = connection.getresponse()
        return reply.status, reply.headers, reply.read().decode()

    def call(self, operation, fields):
        """Calls an operation and returns its whole reply."""
        headers = {"authorization": f"Bearer {self.root_key}", "content-type": "application/json"}
        status, _, body = self.request("POST", f"/v2/{operation}", headers, json.dumps(fields))
        if status != 200:
            raise SystemExit(f"{operation}: status {status}: {body}")
        return json.loads(body)


class Traffic:
    """Verifications of a key, twenty a second, while pages are measured: some events are always not rolled up yet."""

    def __init__(self, server, key):
        self.server, self.key, self.ended = server, key, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def run(self):
        while not self.ended.wait(0.05):
            self.server.call("keys.verifyKey", {"key": self.key})


class Browser:
    """A browser of a signed-in owner."""

    def __init__(self, server):
        self.server, self.cookies, self.csrf = server, {}, ""
        link = re.search(r"/dashboard/join/\S+", server.command("dashboard", "setup-link")).group()
        self.get(link)
        status, _ = self.post(link, {"email": "ada@example.com", "password": "correct horse battery"})
        if status != 303:
            raise SystemExit(f"the setup link was answered with status {status}")
        self.get(f"/dashboard/{WORKSPACE}")

    def send(self, method, path, headers, body=None):
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        headers = {"cookie": cookies, "sec-fetch-site": "same-origin", **headers}
        status, headers, text = self.server.request(method, path, headers, body)
        for cookie in headers.get_all("set-cookie") or []:
            name, value = cookie.split(";")[0].split("=", 1)
            self.cookies[name] = value
        found = re.search(r'name="csrf" value="([^"]*)"', text)
        self.csrf = found.group(1) if found else self.csrf
        return status, text

    def get(self, path):
        return self.send("GET", path, {})

    def post(self, path, fields):
        form = {"content-type": "application/x-www-form-urlencoded"}
        return self.send("POST", path, form, urllib.parse.urlencode({**fields, "csrf": self.csrf}))
