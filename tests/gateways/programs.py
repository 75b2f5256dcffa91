"""The gateways. Each runs the files of deploy/gateways as they are shipped; only addresses, ports, paths and the secret are
filled in, and the lines that the files say to change."""

import os
import re
import socket
import subprocess
from pathlib import Path

from cases import send
from keyward import free_port, wait_until

SHIPPED = Path(__file__).resolve().parents[2] / "deploy" / "gateways"
PROGRAMS = Path(__file__).resolve().parent / ".venv"


class Gateway:
    name = None
    # The directory of its files, if it has another name.
    directory = None
    # Whether the body of a refusal is that of Keyward, and whether a client is told its limits and credits when a request
    # passes.
    passes_bodies = True
    tells_limits = True
    # Whether a client is told to try again while Keyward is away.
    tells_retry = True
    # Whether headers are removed that no policy lists.
    strips_unlisted = True

    def __init__(self, folder, stack, service, secret, name=None, fails_open=False, tls=None):
        """`tls` is the name that certificates of Keyward must have, and the file of the authority that issues them."""
        self.folder = folder / (name or self.name)
        self.folder.mkdir()
        self.fails_open, self.tls = fails_open, tls
        self.stack, self.service, self.secret = stack, service, secret
        self.address = f"127.0.0.1:{free_port()}"
        self.environment = {}
        self.keys, self.identity = {}, {}
        self.process = None

    def start(self):
        command = self.command()
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, env={**os.environ, **self.environment},
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            wait_until(self.is_listening, f"{self.name} did not start")
        except TimeoutError as error:
            raise RuntimeError(f"{error}: {self.log()}") from error

    def is_listening(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.name} ended: {self.log()}")
        host, port = self.address.split(":")
        try:
            socket.create_connection((host, int(port)), 1).close()
            return True
        except OSError:
            return False

    def log(self):
        file = self.folder / "log"
        return file.read_text(errors="replace")[-2000:] if file.exists() else ""

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def fill(self, file, **own):
        """Writes a shipped file into the folder. `own` has texts of the file and what replaces them."""
        text = (SHIPPED / (self.directory or self.name) / file).read_text()
        if self.fails_open:
            # As the comment at the beginning of each file says.
            text = re.sub(r"(?m)^([ \t]*)#open ", r"\1", text)
            text = re.sub(r"(?m)^.*#closed\n", "", text)
        if self.tls:
            text = re.sub(r"(?m)^([ \t]*)#tls ", r"\1", text)
            text = re.sub(r"(?m)^.*#plain\n", "", text)
            server_name, authority = self.tls
            text = text.replace("keyward.example", server_name).replace("/etc/ssl/certs/ca-certificates.crt", str(authority))
        if self.stack.replicas == 1:
            text = re.sub(r"(?m)^.*keyward-2.*\n", lambda line: line[0] if line[0].lstrip().startswith("#") else "", text)
        host, port = self.service.split(":")
        for before, after in {
            "keyward-1:3000": self.stack.addresses[0],
            "keyward-2:3000": self.stack.addresses[-1],
            "address: keyward-1, port_value: 3000": "address: {}, port_value: {}".format(*self.stack.addresses[0].split(":")),
            "address: keyward-2, port_value: 3000": "address: {}, port_value: {}".format(*self.stack.addresses[-1].split(":")),
            "address: keyward-1, port_value: 3001": "address: {}, port_value: {}".format(*self.stack.grpc_addresses[0].split(":")),
            "address: keyward-2, port_value: 3001": "address: {}, port_value: {}".format(*self.stack.grpc_addresses[-1].split(":")),
            "service:8080": self.service,
            "address: service, port_value: 8080": f"address: {host}, port_value: {port}",
        }.items():
            text = text.replace(before, after)
        for before, after in own.items():
            assert before in text, f"{before!r} is not in {file}"
            text = text.replace(before, after)
        (self.folder / file).write_text(text)
        return self.folder / file

    def secret_file(self, name, text):
        file = self.folder / name
        file.touch(0o600)
        file.write_text(text)
        return file


class Nginx(Gateway):
    name = "nginx"
    passes_bodies = False
    strips_unlisted = False

    def command(self):
        secret = self.secret_file("secret.conf", f'proxy_set_header Keyward-Gateway-Secret "{self.secret}";\n')
        own = {"listen 8080;": f"listen {self.address};", "/etc/nginx/keyward-secret.conf": str(secret)}
        shipped = self.fill("keyward.conf", **own)
        # The part of nginx.conf that every installation has.
        paths = "".join(f"{kind}_temp_path {self.folder}/{kind};" for kind in
                        ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        main = self.folder / "nginx.conf"
        main.write_text(f"daemon off; pid {self.folder}/pid; error_log {self.folder}/log;\n"
                        f"events {{}} http {{ access_log off; {paths} include {shipped}; }}\n")
        os.chmod(self.folder, 0o755)
        return ["nginx", "-c", str(main), "-p", str(self.folder), "-e", str(self.folder / "log")]


class Traefik(Gateway):
    name = "traefik"
    tells_retry = False
    tells_limits = False

    def command(self):
        # The entry point that ForwardAuth asks.
        inner = f"127.0.0.1:{free_port()}"
        shipped = self.fill("keyward.yml", **{"127.0.0.1:9080": inner})
        main = self.fill("traefik.yml", **{'":8080"': f'"{self.address}"', "127.0.0.1:9080": inner,
                                           "/etc/traefik/keyward.yml": str(shipped)})
        self.environment = {"KEYWARD_GATEWAY_SECRET": self.secret}
        return [str(PROGRAMS / "bin/traefik"), f"--configfile={main}"]

    def is_listening(self):
        # Until it has read its routers, Traefik replies 404.
        return super().is_listening() and send(self).status != 404


class TraefikWithBodies(Traefik):
    """It sends bodies to Keyward, as its option says."""
    name = "traefik-bodies"
    directory = "traefik"

    def fill(self, file, **own):
        if file == "keyward.yml":
            own["maxResponseBodySize: 65536"] = "maxResponseBodySize: 65536\n        forwardBody: true"
        return super().fill(file, **own)


class Caddy(Gateway):
    name = "caddy"

    def command(self):
        shipped = self.fill("Caddyfile", **{"\n:8080 {": f"\nhttp://{self.address} {{"})
        # Caddy stores its state in the home directory.
        self.environment = {"KEYWARD_GATEWAY_SECRET": self.secret, "HOME": str(self.folder), "XDG_CONFIG_HOME": "",
                            "XDG_DATA_HOME": ""}
        return [str(PROGRAMS / "bin/caddy"), "run", "--adapter", "caddyfile", "--config", str(shipped)]


class Envoy(Gateway):
    name = "envoy"
    file = "envoy.yaml"

    def command(self):
        host, port = self.address.split(":")
        own = {"address: 0.0.0.0, port_value: 8080": f"address: {host}, port_value: {port}"}
        shipped = self.fill(self.file, **own)
        self.environment = {"KEYWARD_GATEWAY_SECRET": self.secret}
        # Without a base id of its own, a second Envoy of the same user does not start.
        return [envoy_program(), "--config-path", str(shipped), "--use-dynamic-base-id", "--concurrency", "2"]


class EnvoyOverGrpc(Envoy):
    name = "envoy-grpc"
    directory = "envoy"
    file = "envoy-grpc.yaml"


class EnvoyWithBodies(Envoy):
    """It sends the beginning of bodies to Keyward, as its option says."""
    name = "envoy-bodies"
    directory = "envoy"

    def fill(self, file, **own):
        option = "with_request_body: { max_request_bytes: 65536, allow_partial_message: true }"
        own["transport_api_version: V3\n"] = f"transport_api_version: V3\n                      {option}\n"
        return super().fill(file, **own)


def envoy_program():
    return str(next(PROGRAMS.glob("lib/python3*/site-packages/envoy/_bin/envoy")))


class Haproxy(Gateway):
    name = "haproxy"

    def command(self):
        script = self.fill("keyward.lua", **{"abns@keyward": f"abns@keyward-{self.address}"})
        shipped = self.fill("haproxy.cfg", **{"bind :8080": f"bind {self.address}", "/etc/haproxy/keyward.lua": str(script),
                                              "abns@keyward": f"abns@keyward-{self.address}"})
        self.environment = {"KEYWARD_GATEWAY_SECRET": self.secret}
        return ["haproxy", "-db", "-f", str(shipped)]


ALL = [Nginx, Haproxy, Caddy, Traefik, Envoy, EnvoyOverGrpc]
# What is wrong with these shows only when connections to Keyward are used again.
WITH_BODIES = {Traefik: TraefikWithBodies, Envoy: EnvoyWithBodies}
