"""Checks of the manifests in deploy/gateways/kubernetes, for which there is no cluster: each field is one of its kind, Envoy
accepts the filter for Istio, and Traefik accepts its middlewares."""

import subprocess

import yaml

from cases import equal, send
from keyward import wait_until
from programs import PROGRAMS, SHIPPED, Traefik, envoy_program

FOLDER = SHIPPED / "kubernetes"
ANY = object()
METADATA = {"name": ANY, "namespace": ANY, "annotations": ANY}
TARGET = [{"group": ANY, "kind": ANY, "name": ANY, "sectionName": ANY}]

# The fields that each kind may have, of the references of Envoy Gateway 1.9, Istio 1.32, Traefik 3.7 and Kubernetes 1.37, as
# far as the manifests use them. The lists of a level are complete where a wrong name is likely.
KINDS = {
    "gateway.envoyproxy.io/v1alpha1 SecurityPolicy": {"targetRefs": TARGET, "extAuth": {
        "grpc": ANY, "headersToExtAuth": ANY, "bodyToExtAuth": ANY, "timeout": ANY, "failOpen": ANY, "recomputeRoute": ANY,
        "includeRouteMetadata": ANY, "contextExtensions": ANY, "statusOnError": ANY, "http": {
            "path": ANY, "pathOverride": ANY, "headersToBackend": ANY, "backendRefs": [{"name": ANY, "namespace": ANY, "port": ANY}],
            "backendSettings": {"timeout": {"tcp": {"connectTimeout": ANY}, "http": ANY},
                                "retry": {"numRetries": ANY, "retryOn": {"triggers": ANY, "httpStatusCodes": ANY}}}}}},
    "gateway.envoyproxy.io/v1alpha1 ClientTrafficPolicy": {"targetRefs": TARGET, "headers": {
        "withUnderscoresAction": ANY, "earlyRequestHeaders": {
            "add": ANY, "set": ANY, "remove": ANY, "removeOnMatch": [{"type": ANY, "value": ANY}]}},
        "path": {"escapedSlashesAction": ANY, "disableMergeSlashes": ANY}},
    "gateway.networking.k8s.io/v1beta1 ReferenceGrant": {
        "from": [{"group": ANY, "kind": ANY, "namespace": ANY}], "to": [{"group": ANY, "kind": ANY, "name": ANY}]},
    "security.istio.io/v1 AuthorizationPolicy": {"selector": {"matchLabels": ANY}, "action": ANY, "provider": {"name": ANY},
                                                 "rules": [{"to": [{"operation": {"paths": ANY}}]}]},
    "networking.istio.io/v1alpha3 EnvoyFilter": {"workloadSelector": {"labels": ANY}, "configPatches": [{
        "applyTo": ANY, "match": {"context": ANY, "listener": {"filterChain": {"filter": {"name": ANY}}}},
        "patch": {"operation": ANY, "value": ANY}}]},
    "traefik.io/v1alpha1 Middleware": {"forwardAuth": ANY, "headers": ANY, "errors": ANY, "retry": ANY},
    "traefik.io/v1alpha1 IngressRoute": {"entryPoints": ANY, "routes": [{
        "kind": ANY, "match": ANY, "middlewares": [{"name": ANY, "namespace": ANY}], "services": [{"name": ANY, "port": ANY}]}]},
    "networking.k8s.io/v1 Ingress": {"ingressClassName": ANY, "rules": [{"host": ANY, "http": {"paths": [{
        "path": ANY, "pathType": ANY, "backend": {"service": {"name": ANY, "port": {"number": ANY}}}}]}}]},
    "networking.k8s.io/v1 NetworkPolicy": {"podSelector": {"matchLabels": ANY}, "policyTypes": ANY, "ingress": [{
        "from": [{"namespaceSelector": {"matchLabels": ANY}}], "ports": [{"protocol": ANY, "port": ANY}]}]},
}
MESH_PROVIDER = {"name": ANY, "envoyExtAuthzHttp": {
    "service": ANY, "port": ANY, "timeout": ANY, "pathPrefix": ANY, "failOpen": ANY, "clearRouteCache": ANY, "statusOnError": ANY,
    "includeRequestHeadersInCheck": ANY, "includeAdditionalHeadersInCheck": ANY, "includeRequestBodyInCheck": ANY,
    "headersToUpstreamOnAllow": ANY, "headersToDownstreamOnAllow": ANY, "headersToDownstreamOnDeny": ANY}}
INGRESS_ANNOTATIONS = {f"nginx.ingress.kubernetes.io/auth-{name}" for name in (
    "url", "method", "keepalive", "keepalive-requests", "keepalive-timeout", "response-headers", "proxy-set-headers", "snippet",
    "cache-key", "cache-duration", "signin", "request-redirect", "always-set-cookie")} | {"nginx.ingress.kubernetes.io/proxy-buffer-size"}


def checks(folder, stack, service, secret):
    """Returns the checks by name."""
    return {
        "fields of the manifests": check_fields,
        "filter for Istio in Envoy": lambda: check_istio_filter(folder),
        "middlewares in Traefik": lambda: check_traefik(folder, stack, service, secret),
    }


def documents(name):
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def check_fields():
    files = sorted(FOLDER.glob("*.yaml"))
    assert len(files) >= 6, files
    for file in files:
        for document in documents(file.name):
            if "kind" not in document:
                check_level(document, {"extensionProviders": [MESH_PROVIDER]}, file.name)
                continue
            kind = f"{document['apiVersion']} {document['kind']}"
            assert kind in KINDS, f"{file.name}: unknown kind {kind}"
            schema = {"apiVersion": ANY, "kind": ANY, "metadata": METADATA, "spec": KINDS[kind]}
            check_level(document, schema, f"{file.name} {document['kind']}")
            unknown = set(document["metadata"].get("annotations", {})) - INGRESS_ANNOTATIONS
            assert not unknown, f"{file.name}: annotations {unknown}"


def check_level(value, schema, place):
    if schema is ANY:
        return
    assert type(value) is type(schema), f"{place}: {type(value).__name__} instead of {type(schema).__name__}"
    if isinstance(schema, list):
        for index, item in enumerate(value):
            check_level(item, schema[0], f"{place}[{index}]")
        return
    for name, inner in value.items():
        assert name in schema, f"{place}: unknown field {name}"
        check_level(inner, schema[name], f"{place}.{name}")


def check_istio_filter(folder):
    """Puts the filter before those of the configuration of Envoy, as INSERT_FIRST does."""
    config = yaml.safe_load((SHIPPED / "envoy" / "envoy.yaml").read_text())
    manager = config["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    patches = [document for document in documents("istio.yaml") if document["kind"] == "EnvoyFilter"][0]["spec"]["configPatches"]
    manager["http_filters"][:0] = [patch["patch"]["value"] for patch in patches]
    file = folder / "istio.yaml"
    file.write_text(yaml.safe_dump(config))
    done = subprocess.run([envoy_program(), "--mode", "validate", "--config-path", str(file)], capture_output=True, text=True)
    equal(done.returncode, 0, done.stderr[-2000:])


class TraefikOfKubernetes(Traefik):
    """Traefik with the middlewares of the manifest, whose fields are those of the file."""

    def fill(self, file, **own):
        filled = super().fill(file, **own)
        if file == "keyward.yml":
            config = yaml.safe_load(filled.read_text())
            for document in documents("traefik.yaml"):
                if document["kind"] == "Middleware":
                    config["http"]["middlewares"][document["metadata"]["name"]] = document["spec"]
            filled.write_text(yaml.safe_dump(config))
        return filled


def check_traefik(folder, stack, service, secret):
    gateway = TraefikOfKubernetes(folder, stack, service, secret, name="traefik-of-kubernetes")
    try:
        gateway.start()
        # The name of the Service does not exist here, so there is no decision. A field that Traefik does not know would be
        # 404: it would have no routers.
        wait_until(lambda: send(gateway, "unknown").status == 500, "Traefik accepted the middlewares")
    finally:
        gateway.stop()
