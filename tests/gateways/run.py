"""Runs the table of cases through every gateway, then the outages and restarts of Keyward, which all gateways see at once."""

import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import kubernetes
import programs
import trustme
from cases import CASES, EXCESSIVE, UNLISTED, SPOOFED, anonymous, equal, identified, older_limits_told, send
from keyward import Embedded, Replicas, Scene, wait_until
from service import start_service

# A paused Keyward is noticed after the timeouts of the configurations, which are at most 2 s, and a second attempt.
AWAY_SECONDS_MAX = 5
REVOKED_SECONDS_MAX = 1
LOADERS_PER_GATEWAY = 2

# Its checks are no rows of the table.
KUBERNETES = SimpleNamespace(name="kubernetes")

results = {}
lock = threading.Lock()


def check(gateway, name, body):
    """Runs a case and records its result."""
    try:
        body()
        error = None
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}"
    with lock:
        results[gateway.name, name] = error is None
        if error:
            print(f"NOT OK {gateway.name}: {name}\n    {error[:2000]}", flush=True)
            if gateway is not KUBERNETES:
                print(f"    The end of its log:\n{gateway.log()}", flush=True)


def at_the_same_time(gateways, body):
    with ThreadPoolExecutor(len(gateways)) as pool:
        list(pool.map(body, gateways))


def run_table(scene, gateway):
    for case in CASES:
        check(gateway, case.name, lambda: case.run(gateway))
    if gateway.strips_unlisted:
        spoofed = lambda: identified(gateway, send(gateway, "valid", headers={**SPOOFED, **UNLISTED}))
        check(gateway, "spoofed identity headers that no policy lists", spoofed)
    check(gateway, "revoked key", lambda: revoke(scene, gateway))


def revoke(scene, gateway):
    # Every replica has cached the key.
    for _ in range(10):
        equal(send(gateway, "revoked", "/open/1").status, 200, "status")
    scene.call("keys.deleteKey", keyId=gateway.keys["revoked"]["keyId"])
    deleted = time.monotonic()
    accepted = deleted
    while time.monotonic() < deleted + REVOKED_SECONDS_MAX + 1:
        sent = time.monotonic()
        if send(gateway, "revoked", "/open/1").status == 200:
            accepted = sent
    assert accepted - deleted <= REVOKED_SECONDS_MAX, f"accepted {accepted - deleted:.2f} s after its deletion"


def expect_away(gateway):
    for key in ("valid", "unknown", None):
        reply = send(gateway, key)
        equal(reply.status, 503, f"status with the key {key}")
        equal(reply.value("retry-after"), "1" if gateway.tells_retry else None, "retry-after")
        assert reply.seconds <= AWAY_SECONDS_MAX, f"{reply.seconds:.1f} s"


def expect_open(gateway):
    for key in ("valid", "unknown", None):
        reply = send(gateway, key, "/other", headers=SPOOFED)
        equal(reply.status, 200, f"status with the key {key}")
        equal(reply.seen()["target"], "/other", "target")
        anonymous(gateway, reply)


def expect_decisions(gateway):
    """Waits until a gateway has found Keyward again."""
    wait_until(lambda: send(gateway, "unknown").status == 401, "no decision")
    equal(send(gateway, "valid").status, 200, "status")


def run_pause(stack, gateways):
    stack.pause()
    try:
        at_the_same_time(gateways, lambda gateway: check(gateway, "Keyward is paused", lambda: expect_away(gateway)))
    finally:
        stack.resume()
    at_the_same_time(gateways, lambda gateway: check(gateway, "Keyward continues", lambda: expect_decisions(gateway)))


def run_outage(stack, gateways, open_gateways):
    stack.stop()
    at_the_same_time(gateways, lambda gateway: check(gateway, "Keyward is stopped", lambda: expect_away(gateway)))
    for gateway in open_gateways:
        check(gateway, "Keyward is stopped, gateway fails open", lambda: (gateway.start(), expect_open(gateway)))
    stack.settings["KEYWARD_RATELIMIT_HEADERS"] = "legacy"
    stack.start()
    at_the_same_time(gateways, lambda gateway: check(gateway, "Keyward starts", lambda: expect_decisions(gateway)))
    at_the_same_time(gateways, lambda gateway: check(gateway, "limits in the older headers", lambda: older_limits_told(gateway)))
    for gateway in open_gateways:
        check(gateway, "Keyward starts, gateway fails open", lambda: expect_decisions(gateway))
        for case in EXCESSIVE:
            check(gateway, f"{case.name}, gateway fails open", lambda: case.run(gateway))


def run_crash(stack, gateways):
    """A replica is killed. No request is on its way at that moment, so each can still be sent to the other one."""
    at_the_same_time(gateways, use_connections)
    stack.end(0, signal.SIGKILL)
    # A request that is sent before the gateway has read that its connection was closed cannot be sent again.
    time.sleep(0.5)
    at_the_same_time(gateways, lambda gateway: check(gateway, "replica is killed", lambda: use_connections(gateway)))
    stack.await_start(0)


def use_connections(gateway):
    for _ in range(20):
        equal((send(gateway, "valid").status, send(gateway, "unknown").status), (200, 401), "status")


def send_bodies(gateway, keys):
    """A gateway that also sends bodies to Keyward. Every connection to Keyward is used again and again."""
    gateway.keys = keys
    try:
        gateway.start()
        for size in (5_000, 60_000, 400_000):
            body = os.urandom(size)
            with ThreadPoolExecutor(6) as pool:
                sent = [pool.submit(send, gateway, "valid", "/open/1", "POST", body=body) for _ in range(120)]
            equal(Counter(reply.result().status for reply in sent), Counter({200: 120}), f"statuses with {size} bytes")
    finally:
        gateway.stop()


def run_rolling_restart(stack, gateways):
    done = threading.Event()
    wrong = {gateway.name: [] for gateway in gateways}
    right = Counter()
    loaders = [threading.Thread(target=load, args=(gateway, done, wrong[gateway.name], right))
               for gateway in gateways for _ in range(LOADERS_PER_GATEWAY)]
    for loader in loaders:
        loader.start()
    try:
        for replica in (0, 1):
            stack.restart(replica)
            # As the documentation of rolling restarts says, the next one waits until the gateways use this one again.
            time.sleep(2)
    finally:
        done.set()
        for loader in loaders:
            loader.join()
    for gateway in gateways:
        check(gateway, "rolling restart under load", lambda: equal(
            (wrong[gateway.name][:5], right[gateway.name] > 100), ([], True), "wrong answers, enough right ones"))
        print(f"{gateway.name}: {right[gateway.name]} right and {len(wrong[gateway.name])} wrong answers in a rolling restart")


def load(gateway, done, wrong, right):
    expected = [("valid", "/documents/1", 200), ("unknown", "/documents/1", 401), ("valid", "/other", 403)]
    while not done.is_set():
        for key, target, status in expected:
            try:
                found = send(gateway, key, target).status
            except OSError as error:
                found = repr(error)
            with lock:
                if found == status:
                    right[gateway.name] += 1
                else:
                    wrong.append((key, target, found))
            time.sleep(0.02)


def print_table(gateways):
    names = list(dict.fromkeys(name for _, name in results))
    width = max(map(len, names))
    print(" ".join([" " * width, *(f"{gateway.name:>8}" for gateway in gateways)]))
    words = {True: "ok", False: "NOT OK", None: "-"}
    for name in names:
        if (KUBERNETES.name, name) in results:
            print(f"{name:{width}} {words[results[KUBERNETES.name, name]]:>8} (Kubernetes)")
            continue
        print(" ".join([f"{name:{width}}", *(f"{words[results.get((gateway.name, name))]:>8}" for gateway in gateways)]))


def run(folder, binary, stack_file, chosen):
    stack = Replicas(binary, json.loads(Path(stack_file).read_text())) if stack_file else Embedded(binary, folder)
    gateways, open_gateways = [], []
    try:
        service = start_service()
        scene = Scene(stack)
        classes = [known for known in programs.ALL if not chosen or known.name in chosen]
        gateways += [known(folder, stack, service, scene.secret) for known in classes]
        open_gateways += [known(folder, stack, service, scene.secret, f"{known.name}-open", fails_open=True) for known in classes]
        for gateway in gateways:
            gateway.keys, gateway.identity = scene.keys(gateway.name)
        for gateway in open_gateways:
            gateway.keys = gateways[open_gateways.index(gateway)].keys
        started = [gateway for gateway in gateways if start(gateway)]
        at_the_same_time(started, lambda gateway: run_table(scene, gateway))
        for gateway, sender in zip(gateways, map(programs.WITH_BODIES.get, classes)):
            if sender:
                sender = sender(folder, stack, service, scene.secret)
                check(gateway, "bodies are sent to Keyward, too", lambda: send_bodies(sender, gateway.keys))
        run_pause(stack, started)
        if stack.replicas == 1:
            run_outage(stack, started, open_gateways)
            for name, body in kubernetes.checks(folder, stack, service, scene.secret).items():
                check(KUBERNETES, name, body)
            run_with_tls(folder / "tls", binary, classes)
        else:
            run_crash(stack, started)
            run_rolling_restart(stack, started)
        print_table(gateways)
    finally:
        for gateway in gateways + open_gateways:
            gateway.stop()
        if stack.replicas == 1:
            stack.stop()


def run_with_tls(folder, binary, classes):
    """Keyward listens with TLS. A gateway that does not trust its certificate has no decision."""
    folder.mkdir()
    authority, other = trustme.CA(), trustme.CA()
    for name, known in {"authority": authority, "other": other}.items():
        known.cert_pem.write_to_path(folder / f"{name}.pem")
    certificate = authority.issue_cert("keyward.test")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    for blob in certificate.cert_chain_pems:
        blob.write_to_path(folder / "certificate.pem", append=True)
    os.chmod(folder, 0o755)
    stack = Embedded(binary, folder, (str(folder / "certificate.pem"), str(folder / "key.pem")))
    try:
        service = start_service()
        scene = Scene(stack)

        def run_gateway(known):
            for kind, tls, body in [
                ("", ("keyward.test", folder / "authority.pem"), decide_over_tls),
                ("-other-name", ("other.test", folder / "authority.pem"), expect_away),
                ("-other-authority", ("keyward.test", folder / "other.pem"), expect_away),
            ]:
                gateway = known(folder, stack, service, scene.secret, f"{known.name}{kind}", tls=tls)
                gateway.keys, gateway.identity = scene.keys(gateway.folder.name)
                try:
                    check(gateway, f"Keyward has TLS{kind.replace('-', ', ', 1).replace('-', ' ')}", lambda: (gateway.start(), body(gateway)))
                finally:
                    gateway.stop()
        at_the_same_time(classes, run_gateway)
    finally:
        stack.stop()


def decide_over_tls(gateway):
    expect_decisions(gateway)
    identified(gateway, send(gateway, "valid", headers=SPOOFED))
    equal(send(gateway, "plain").status, 403, "status")
    equal([send(gateway, "limited", "/limited").status for _ in range(3)], [200, 200, 429], "statuses")
    use_connections(gateway)


def start(gateway):
    check(gateway, "starts", gateway.start)
    return results[gateway.name, "starts"]


def main():
    binary, stack_file, *chosen = [*sys.argv[1:], *([""] if len(sys.argv) == 2 else [])]
    with tempfile.TemporaryDirectory() as folder:
        # The worker processes of nginx are of another user.
        os.chmod(folder, 0o755)
        try:
            run(Path(folder), binary, stack_file, chosen)
        finally:
            passed = sum(results.values())
            print(f"{passed} passed, {len(results) - passed} failed")
    sys.exit(passed == 0 or passed < len(results))


main()
