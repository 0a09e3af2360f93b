"""Paths, bodies and protobuf: what comes in."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.sim.apiserver.bodies import decoded
from providers.sim.apiserver.protobuf import MEDIA_TYPE, decoded_object
from providers.sim.apiserver.routes import Route, flag, parse_query, parse_route
from providers.sim.apiserver.tables import NotAcceptable, accepted_form
from providers.sim.store import ApiError, StoreBadRequest, StoreUnsupportedMediaType


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/api/v1/pods", Route("", "v1", "pods")),
        ("/api/v1/namespaces/n/pods", Route("", "v1", "pods", "n")),
        ("/api/v1/namespaces/n/pods/p", Route("", "v1", "pods", "n", "p")),
        ("/api/v1/namespaces/n/pods/p/status", Route("", "v1", "pods", "n", "p", "status")),
        ("/api/v1/namespaces/n", Route("", "v1", "namespaces", "", "n")),
        ("/api/v1/namespaces/n/status", Route("", "v1", "namespaces", "", "n", "status")),
        ("/api/v1/nodes/a%2Fb", Route("", "v1", "nodes", "", "a/b")),
        ("/apis/batch/v1/jobs", Route("batch", "v1", "jobs")),
        ("/apis/batch/v1/namespaces/n/jobs/j", Route("batch", "v1", "jobs", "n", "j")),
        ("/api/v1", None),
        ("/apis/batch/v1", None),
        ("/api/v1/namespaces/n/pods/p/status/x", None),
        ("/api/v1/namespaces/n//p", None),
        ("/healthz", None),
        ("/", None),
    ],
)
def test_routes(path: str, route: Route | None) -> None:
    assert parse_route(path) == route


@pytest.mark.parametrize(
    ("method", "path", "query", "verb"),
    [
        ("GET", "/api/v1/pods", "", "list"),
        ("GET", "/api/v1/pods", "watch=true", "watch"),
        ("GET", "/api/v1/pods", "watch=false", "list"),
        ("GET", "/api/v1/pods", "watch", "watch"),
        ("GET", "/api/v1/nodes/n", "watch=1", "get"),
        ("GET", "/api/v1/nodes/n", "", "get"),
        ("POST", "/api/v1/pods", "", "create"),
        ("PUT", "/api/v1/pods", "", ""),
        ("PUT", "/api/v1/nodes/n", "", "update"),
        ("PATCH", "/api/v1/nodes/n", "", "patch"),
        ("DELETE", "/api/v1/nodes/n", "", "delete"),
        ("DELETE", "/api/v1/nodes", "", "deletecollection"),
        ("OPTIONS", "/api/v1/nodes", "", ""),
    ],
)
def test_verbs(method: str, path: str, query: str, verb: str) -> None:
    route = parse_route(path)
    assert route is not None
    assert route.verb(method, parse_query(query)) == verb


def test_flags() -> None:
    query = parse_query("a=true&b=false&c&d=1&e=yes")
    assert [flag(query, name) for name in "abcdef"] == [True, False, True, True, False, False]


@pytest.mark.parametrize(
    ("body", "media", "value"),
    [
        (b'{"a":1}', "application/json", {"a": 1}),
        (b"", "application/json", {}),
        (b"a: 2026-01-02\nb: 'x'", "application/yaml", {"a": "2026-01-02", "b": "x"}),
        (b'{"a":1}', "application/apply-patch+yaml", {"a": 1}),
        (b"[1]", "application/json-patch+json", [1]),
    ],
)
def test_bodies(body: bytes, media: str, value: Any) -> None:
    assert decoded(body, media) == value


@pytest.mark.parametrize(
    ("body", "media", "error"),
    [
        (b"{", "application/json", StoreBadRequest),
        (b"\xff", "application/json", StoreBadRequest),
        (b"a: [", "application/yaml", StoreBadRequest),
        (b"!!python/object/apply:os.system ['x']", "application/yaml", StoreBadRequest),
        (b"a: &x [1]\nb: *x", "application/yaml", StoreBadRequest),
        (b"[" * 100_000, "application/json", StoreBadRequest),
        (b"x", "application/cbor", StoreUnsupportedMediaType),
        (b"nonsense", MEDIA_TYPE, StoreBadRequest),
    ],
)
@pytest.mark.usefixtures("deep_texts")
def test_bad_bodies(body: bytes, media: str, error: type[ApiError]) -> None:
    with pytest.raises(error):
        decoded(body, media)


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", "object"),
        ("*/*", "object"),
        ("application/json", "object"),
        ("application/vnd.kubernetes.protobuf, */*", "object"),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "table"),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", "object"),
        ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "metadata"),
    ],
)
def test_accept(accept: str, form: str) -> None:
    assert accepted_form(accept) == form


def test_nothing_acceptable() -> None:
    with pytest.raises(NotAcceptable):
        accepted_form("application/vnd.kubernetes.protobuf")


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return bytes([number << 3]) + varint(value)
    return bytes([number << 3 | 2]) + varint(len(value)) + value


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def envelope(kind: bytes, raw: bytes) -> bytes:
    return b"k8s\x00" + field(1, field(1, b"v1") + field(2, kind)) + field(2, raw)


def test_protobuf_objects() -> None:
    labels = field(1, b"a") + field(2, b"b")
    meta = field(1, b"name") + field(3, b"") + field(8, b"") + field(11, labels)
    data = field(1, b"k") + field(2, b"v" * 200)
    assert decoded_object(envelope(b"ConfigMap", field(1, meta) + field(2, data) + field(4, 1))) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "name", "labels": {"a": "b"}},
        "data": {"k": "v" * 200},
        "immutable": True,
    }
    budget = field(2, field(1, field(1, 1) + field(3, b"50%")) + field(3, field(1, 0) + field(2, 3)))
    assert decoded_object(envelope(b"PodDisruptionBudget", budget))["spec"] == {
        "minAvailable": "50%",
        "maxUnavailable": 3,
    }


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", StoreBadRequest),
        (b"k8s\x00\x0a", StoreBadRequest),
        (b"k8s\x00" + b"\xff" * 20, StoreBadRequest),
        (envelope(b"Node", b""), StoreUnsupportedMediaType),
        (envelope(b"ConfigMap", field(15, b"x")), StoreUnsupportedMediaType),
        (envelope(b"ConfigMap", field(1, 5)), StoreBadRequest),
        (envelope(b"ConfigMap", field(1, field(1, b"\xff"))), StoreBadRequest),
    ],
)
def test_bad_protobuf(body: bytes, error: type[ApiError]) -> None:
    with pytest.raises(error):
        decoded_object(body)


@given(st.binary(max_size=60), st.sampled_from([b"", b"ConfigMap", b"Job", b"Service"]))
def test_hostile_protobuf_is_refused_and_never_breaks_the_server(noise: bytes, kind: bytes) -> None:
    for body in (b"k8s\x00" + noise, envelope(kind, noise)):
        with contextlib.suppress(ApiError):
            assert isinstance(decoded_object(body), dict)
