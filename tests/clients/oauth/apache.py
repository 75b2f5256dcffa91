"""Apache with mod_auth_openidc, which protects documents by the permissions of keys.

mod_auth_openidc accepts only https for the endpoint, so the same Apache offers Keyward over TLS, as a reverse proxy.
"""

import asyncio
import contextlib
import datetime
import ipaddress
import os
import subprocess
import tempfile
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from oauth.support import ROOT_KEY, URL, changed, check, equal, free_port, send, v2

APACHE = "/usr/sbin/apache2"
MODULES = ("mpm_event", "authn_core", "authz_core", "authz_user", "headers", "proxy", "proxy_http", "ssl", "auth_openidc")

CONFIGURATION = r"""
ServerRoot {folder}
DefaultRuntimeDir {folder}
PidFile apache.pid
ErrorLog error.log
ServerName 127.0.0.1
DocumentRoot {folder}/documents
{modules}
Listen 127.0.0.1:{port}
Listen 127.0.0.1:{tls_port}

<VirtualHost 127.0.0.1:{tls_port}>
    SSLEngine on
    SSLCertificateFile certificate.pem
    SSLCertificateKeyFile key.pem
    ProxyPass / {url}/
</VirtualHost>

<VirtualHost 127.0.0.1:{port}>
    OIDCOAuthClientID resource-server
    OIDCOAuthClientSecret {root_key}
    OIDCOAuthIntrospectionEndpoint https://127.0.0.1:{tls_port}/oauth2/introspect
    OIDCOAuthIntrospectionEndpointAuth client_secret_basic
    OIDCOAuthTokenExpiryClaim exp absolute optional
    OIDCOAuthTokenIntrospectionInterval -1
    OIDCCABundlePath {folder}/certificate.pem
    <Location />
        AuthType oauth20
        Require claim "scope~(^| )documents\.read( |$)"
    </Location>
    <Location /drafts>
        AuthType oauth20
        Require claim "scope~(^| )documents\.write( |$)"
    </Location>
</VirtualHost>
"""


@contextlib.asynccontextmanager
async def running_apache():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        port = write_configuration(folder)
        command = [APACHE, "-f", str(folder / "apache.conf"), "-DFOREGROUND"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        try:
            await wait_for(port, process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(10)


def write_configuration(folder):
    write_certificate(folder)
    for document in ("documents/a.txt", "documents/drafts/b.txt"):
        (folder / document).parent.mkdir(exist_ok=True)
        (folder / document).write_text(document)
    # Root starts Apache's workers as another user.
    os.chmod(folder, 0o755)
    modules = [f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so" for name in MODULES]
    if os.geteuid() == 0:
        modules.append("User nobody\nGroup nogroup")
    port, tls_port = free_port(), free_port()
    text = CONFIGURATION.format(folder=folder, modules="\n".join(modules), port=port, tls_port=tls_port, url=URL, root_key=ROOT_KEY)
    (folder / "apache.conf").write_text(text)
    return port


def write_certificate(folder):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.timezone.utc)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + datetime.timedelta(days=1))
    certificate = builder.add_extension(address, False).sign(key, hashes.SHA256())
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))


async def wait_for(port, process):
    for _ in range(200):
        assert process.poll() is None, f"Apache ended with {process.returncode}"
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0.05)
    raise AssertionError("Apache does not listen")


async def protecting(keys):
    async with running_apache() as url:
        async def get(path, key=None):
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            return await asyncio.to_thread(send, url + path, headers)

        async def accepted():
            for key in (keys.reader, keys.writer):
                status, _, body = await get("/a.txt", key)
                equal((status, body), (200, b"documents/a.txt"))
            equal((await get("/drafts/b.txt", keys.writer))[0], 200)

        async def refused():
            for key in (keys.plain, keys.disabled, "nobody_knows_this_key", None):
                equal((await get("/a.txt", key))[0], 401)
            equal((await get("/drafts/b.txt", keys.reader))[0], 401)

        async def revoked():
            key, key_id = keys.create(permissions=["documents.read"])
            equal((await get("/a.txt", key))[0], 200)
            v2("keys.updateKey", keyId=key_id, enabled=False)
            await changed()
            equal((await get("/a.txt", key))[0], 401)

        await check("Apache serves a document to a key with the permission", accepted)
        await check("Apache refuses other keys", refused)
        await check("Apache refuses a revoked key", revoked)
