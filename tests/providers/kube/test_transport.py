"""Each verb as it appears on the wire, and each way an answer can fail to come."""

import msgspec
import pytest

from providers.kube import errors
from providers.kube.config import Connection, from_url
from providers.kube.resources import PODS, ResourcePath
from providers.kube.transport import KubeTransport
from providers.kube.wire import ListPage
from tests.providers.kube.scripted import Asked, Peer, Scripted, die, page, pod, reply, scripted, silence, status

NODES = ResourcePath("", "v1", "nodes", namespaced=False)
POD = "/api/v1/namespaces/default/pods/p"


def transport(server: Scripted, **options) -> KubeTransport:
    return KubeTransport(from_url(server.url, **options))


@pytest.mark.parametrize(
    ("call", "method", "path", "query", "content_type", "body"),
    [
        (lambda t: t.get("/version"), "GET", "/version", {}, None, None),
        (lambda t: t.read(PODS, "p", "default"), "GET", POD, {}, None, None),
        (
            lambda t: t.create(PODS, {"a": 1}, "default"),
            "POST",
            "/api/v1/namespaces/default/pods",
            {"fieldManager": "muster"},
            "application/json",
            {"a": 1},
        ),
        (
            lambda t: t.replace(PODS, "p", {"a": 1}, "default"),
            "PUT",
            POD,
            {"fieldManager": "muster"},
            "application/json",
            {"a": 1},
        ),
        (
            lambda t: t.apply(NODES, "n", {"a": 1}),
            "PATCH",
            "/api/v1/nodes/n",
            {"fieldManager": "muster", "force": "false"},
            "application/apply-patch+yaml",
            {"a": 1},
        ),
        (
            lambda t: t.apply(PODS, "p", {"a": 1}, "default", "status", force=True),
            "PATCH",
            f"{POD}/status",
            {"fieldManager": "muster", "force": "true"},
            "application/apply-patch+yaml",
            {"a": 1},
        ),
        (
            lambda t: t.patch_json(PODS, "p", [{"op": "test", "path": "/a", "value": 1}], "default"),
            "PATCH",
            POD,
            {"fieldManager": "muster"},
            "application/json-patch+json",
            [{"op": "test", "path": "/a", "value": 1}],
        ),
        (
            lambda t: t.patch_strategic(PODS, "p", b'{"a":null}', "default"),
            "PATCH",
            POD,
            {"fieldManager": "muster"},
            "application/strategic-merge-patch+json",
            {"a": None},
        ),
        (
            lambda t: t.patch_strategic(PODS, "p", {"status": {}}, "default", "status"),
            "PATCH",
            f"{POD}/status",
            {"fieldManager": "muster"},
            "application/strategic-merge-patch+json",
            {"status": {}},
        ),
        (
            lambda t: t.delete(PODS, "p", "default"),
            "DELETE",
            POD,
            {},
            "application/json",
            {"apiVersion": "v1", "kind": "DeleteOptions"},
        ),
        (
            lambda t: t.delete(
                PODS, "p", "default", uid="u", resource_version="7", grace_s=0, propagation="Foreground"
            ),
            "DELETE",
            POD,
            {},
            "application/json",
            {
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "preconditions": {"uid": "u", "resourceVersion": "7"},
                "gracePeriodSeconds": 0,
                "propagationPolicy": "Foreground",
            },
        ),
        (
            lambda t: t.bind("p", "default", "node-1", uid="u"),
            "POST",
            f"{POD}/binding",
            {},
            "application/json",
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": "p", "namespace": "default", "uid": "u"},
                "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
            },
        ),
        (
            lambda t: t.evict("p", "default", uid="u", grace_s=30),
            "POST",
            f"{POD}/eviction",
            {},
            "application/json",
            {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": "p", "namespace": "default"},
                "deleteOptions": {
                    "apiVersion": "v1",
                    "kind": "DeleteOptions",
                    "preconditions": {"uid": "u"},
                    "gracePeriodSeconds": 30,
                },
            },
        ),
    ],
)
def test_verbs(call, method, path, query, content_type, body) -> None:
    with scripted(reply({"ok": True})) as server:
        assert call(transport(server)) == b'{"ok": true}'
        (asked,) = server.asked
    assert (asked.method, asked.path, dict(asked.query)) == (method, path, query)
    assert asked.headers.get("content-type") == content_type
    assert (asked.json() if asked.body else None) == body
    assert asked.headers["user-agent"] == "muster"
    assert asked.headers["accept"] == "application/json"


def test_structs_are_encoded() -> None:
    class Patch(msgspec.Struct):
        replicas: int

    with scripted(reply()) as server:
        transport(server).patch_strategic(PODS, "p", Patch(3), "default")
        assert server.asked[0].json() == {"replicas": 3}


def test_connections_are_kept_also_after_refusals() -> None:
    with scripted(reply(), status(404, "NotFound"), reply()) as server:
        client = transport(server)
        client.get("/a")
        with pytest.raises(errors.NotFound):
            client.get("/b")
        client.get("/c")
        assert {asked.connection for asked in server.asked} == {1}


def test_the_token_is_asked_for_each_request_and_never_follows_a_redirect() -> None:
    with (
        scripted(reply()) as elsewhere,
        scripted(reply(), reply({}, 302, {"Location": f"{elsewhere.url}/stolen"})) as server,
    ):
        tokens = iter(["one", "two"])
        plain = from_url(server.url)
        client = KubeTransport(
            Connection(plain.pool, plain.base_url, lambda: {"Authorization": f"Bearer {next(tokens)}"}, plain.new_pool)
        )
        client.get("/a")
        with pytest.raises(errors.KubeError) as refused:
            client.get("/b")
        assert refused.value.code == 302
        assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer one", "Bearer two"]
        assert elsewhere.asked == []


@pytest.mark.parametrize(
    ("header", "expected"), [("7", 7.0), ("0", 0.0), ("", 1.0), ("Fri, 20 Nov 2026 10:00:00 GMT", 1.0), ("-3", 1.0)]
)
def test_retry_after(header: str, expected: float) -> None:
    with scripted(status(429, "TooManyRequests", headers={"Retry-After": header})) as server:
        with pytest.raises(errors.TooManyRequests) as busy:
            transport(server).get("/a")
        assert busy.value.retry_after_s == expected


def test_a_refused_connection_proves_that_nothing_happened() -> None:
    with scripted(reply()) as server:
        url = server.url
    with pytest.raises(errors.Unreachable) as down:
        KubeTransport(from_url(url)).create(PODS, {}, "default")
    assert not down.value.maybe_applied


@pytest.mark.parametrize("step", [die, silence])
def test_a_lost_answer_may_hide_a_success(step) -> None:
    with scripted(step) as server:
        with pytest.raises(errors.Unreachable) as lost:
            transport(server).create(PODS, {}, "default", read_s=0.2)
        assert lost.value.maybe_applied
        assert len(server.asked) == 1  # and nobody tried again behind our back


def test_a_body_that_breaks_off_is_no_answer() -> None:
    def step(peer: Peer, asked: Asked) -> bool:
        peer.head(200, {"Content-Length": "100"})
        peer.send(b'{"items":')
        return False

    with scripted(step) as server, pytest.raises(errors.Unreachable, match="broke off"):
        transport(server).get("/a")


# -- lists ------------------------------------------------------------------------------------------------------------


def test_pages_follow_the_token_with_all_selectors() -> None:
    with scripted(reply(page(pod("a", 1), token="t1")), reply(page(pod("b", 2)))) as server:
        pages = list(transport(server).list_pages(PODS, "ns", "app=x,y!=z", "spec.nodeName=", limit=2))
        first, second = server.asked
    assert [len(page.items or ()) for page in pages] == [1, 1]
    selectors = {"labelSelector": "app=x,y!=z", "fieldSelector": "spec.nodeName=", "limit": "2"}
    assert dict(first.query) == selectors
    assert dict(second.query) == {**selectors, "continue": "t1"}
    assert "resourceVersion" not in first.query  # a consistent read, not whatever a cache holds


def test_an_expired_page_token_begins_again_in_one_page() -> None:
    script = (
        reply(page(pod("gone", 1), token="t1")),
        status(410, "Expired"),
        reply(page(pod("a", 2), pod("b", 3), version=200)),
    )
    with scripted(*script) as server:
        pages: list[ListPage] = []
        for page_read in transport(server).list_pages(PODS, limit=2, on_restart=pages.clear):
            pages.append(page_read)
        assert [dict(asked.query) for asked in server.asked][2] == {}
    (only,) = pages
    assert [msgspec.json.decode(raw)["metadata"]["name"] for raw in only.items or ()] == ["a", "b"]


def test_without_a_way_to_restart_expiry_is_the_callers() -> None:
    with scripted(reply(page(pod("a", 1), token="t1")), status(410, "Expired")) as server:
        pages = transport(server).list_pages(PODS)
        next(pages)
        with pytest.raises(errors.Expired):
            next(pages)


def test_a_list_that_is_gone_from_the_start_is_no_restart() -> None:
    with scripted(status(410, "Expired")) as server, pytest.raises(errors.Expired):
        list(transport(server).list_pages(PODS, on_restart=list[ListPage]().clear))


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"items": 3}', b'{"items": [{]}'])
def test_what_is_no_list_is_unreachable(body: bytes) -> None:
    with scripted(reply(body)) as server, pytest.raises(errors.Unreachable):
        list(transport(server).list_pages(PODS))


@pytest.mark.parametrize("body", [{"metadata": None, "items": None}, {}, {"kind": "PodList", "items": []}])
def test_nulls_are_an_empty_list(body: dict) -> None:
    with scripted(reply(body)) as server:
        (envelope,) = transport(server).list_pages(PODS)
        assert not envelope.items


def test_metadata_may_come_last_as_in_custom_resources() -> None:
    body = b'{"apiVersion":"x/v1","items":[{"metadata":{"name":"a"}}],"metadata":{"resourceVersion":"9"}}'
    with scripted(reply(body)) as server:
        (envelope,) = transport(server).list_pages(PODS)
        assert (envelope.resource_version, len(envelope.items or ())) == ("9", 1)


# -- watches ----------------------------------------------------------------------------------------------------------


def test_a_watch_asks_for_bookmarks_and_an_end() -> None:
    with scripted(reply(b"")) as server, transport(server).watch(PODS, "42", 300, namespace="ns", label_selector="a=b"):
        (asked,) = server.asked
    assert asked.path == "/api/v1/namespaces/ns/pods"
    assert dict(asked.query) == {
        "watch": "true",
        "resourceVersion": "42",
        "timeoutSeconds": "300",
        "allowWatchBookmarks": "true",
        "labelSelector": "a=b",
    }


def test_a_watch_refused_is_an_error_at_once() -> None:
    with scripted(status(410, "Expired", "too old")) as server, pytest.raises(errors.Expired, match="too old"):
        transport(server).watch(PODS, "1", 300)
