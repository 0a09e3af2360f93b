"""Who may look, at whose work, and how the API server is asked."""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from agent.config import Settings, WebSettings
from agent.web import access
from agent.web.access import DenialReason, Gate, KubeGate, NotAllowed, OpenGate, PageCaller, ProxyGate, gate_of
from providers.clock import VirtualClock
from providers.kube.config import from_url
from providers.kube.errors import Unreachable
from providers.kube.resources import ResourcePath
from providers.kube.reviews import KubeUser, may, user_of
from providers.kube.transport import KubeTransport
from providers.sim.apiserver import ApiServer
from providers.sim.apiserver.access import Access
from providers.sim.store import Store
from tests.agent.web.stage import HandClock

NAMESPACES = frozenset({"red", "blue"})


class FakeReviews:
    """An API server that knows tokens, and who may list Workloads where; `""` = everywhere."""

    def __init__(self, tokens: Mapping[str, str], lists: Mapping[str, Collection[str]]) -> None:
        self.tokens, self.lists = dict(tokens), dict(lists)
        self.asked: Counter[str] = Counter()
        self.bodies: list[Any] = []
        self.down = False

    def create(self, path: ResourcePath, body: Any, namespace: str = "", *, read_s: float = 0) -> bytes:
        if self.down:
            raise Unreachable("nobody is there")
        self.asked[path.plural] += 1
        self.bodies.append(body)
        spec = body["spec"]
        if path.plural == "tokenreviews":
            name = self.tokens.get(spec["token"])
            status: dict[str, Any] = {"authenticated": bool(name)}
            status |= {"user": {"username": name, "groups": ["g"], "uid": "1", "extra": {"k": ["v"]}}} if name else {}
        else:
            asked = spec["resourceAttributes"]
            held = self.lists.get(spec["user"], ())
            status = {"allowed": asked["verb"] == "list" and asked["namespace"] in held}
        return json.dumps({**body, "status": status}).encode()


def caller(token: str = "", peer: str = "10.0.0.9", host: str = "muster:8080", **headers: str) -> PageCaller:
    return PageCaller(peer, host, {name.replace("_", "-"): value for name, value in headers.items()}, token)


def api(**lists: Sequence[str]) -> Any:
    return FakeReviews({f"token-of-{name}": name for name in ("ann", "bob", "eve")}, lists)


# -- the API server is asked ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "lists", "sees"),
    [
        ("ann", {"ann": ["", "red"]}, None),
        ("ann", {"ann": ["red"]}, {"red"}),
        ("ann", {"ann": ["red", "blue", "kube-system"]}, {"red", "blue"}),
    ],
)
def test_a_viewer_sees_where_they_may_list(name: str, lists: dict[str, list[str]], sees: set[str] | None) -> None:
    viewer = KubeGate(api(**lists), HandClock()).admit(caller(f"token-of-{name}"), NAMESPACES)
    assert (viewer.name, viewer.scope.namespaces) == (name, sees)


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ("", DenialReason.UNKNOWN),
        ("made-up", DenialReason.UNKNOWN),
        ("token-of-eve", DenialReason.FORBIDDEN),
    ],
)
def test_who_is_not_known_or_may_see_nothing_stays_out(token: str, reason: DenialReason) -> None:
    gate = KubeGate(api(ann=[""]), HandClock())
    for _ in range(2):  # the second time from what is kept
        with pytest.raises(NotAllowed) as denied:
            gate.admit(caller(token), NAMESPACES)
        assert denied.value.reason is reason


def test_an_answer_holds_for_a_minute_and_no_longer() -> None:
    clock, server = HandClock(), api(ann=["red"])
    gate = KubeGate(server, clock)
    for _ in range(5):
        gate.admit(caller("token-of-ann"), NAMESPACES)
    assert server.asked == {"tokenreviews": 1, "subjectaccessreviews": 3}
    del server.lists["ann"]
    clock.now_s += access.KEPT_S
    with pytest.raises(NotAllowed):
        gate.admit(caller("token-of-ann"), NAMESPACES)


def test_a_namespace_that_a_team_gets_is_asked_about_at_once() -> None:
    gate = KubeGate(api(ann=["red", "green"]), HandClock())
    assert gate.admit(caller("token-of-ann"), NAMESPACES).scope.namespaces == {"red"}
    assert gate.admit(caller("token-of-ann"), NAMESPACES | {"green"}).scope.namespaces == {"red", "green"}


def test_a_server_that_is_down_keeps_out_and_is_asked_again() -> None:
    server = api(ann=[""])
    gate = KubeGate(server, HandClock())
    server.down = True
    with pytest.raises(NotAllowed) as denied:
        gate.admit(caller("token-of-ann"), NAMESPACES)
    assert denied.value.reason is DenialReason.UNAVAILABLE
    server.down = False
    assert gate.admit(caller("token-of-ann"), NAMESPACES).scope.whole


def test_made_up_tokens_do_not_busy_the_server() -> None:
    clock, server = HandClock(), api(ann=[""])
    gate, refused = KubeGate(server, clock), Counter[DenialReason]()
    for number in range(500):
        with pytest.raises(NotAllowed) as denied:
            gate.admit(caller(f"made-up-{number}"), NAMESPACES)
        refused[denied.value.reason] += 1
    assert server.asked["tokenreviews"] < 60
    assert refused[DenialReason.UNAVAILABLE] > 400
    clock.now_s += 100
    assert gate.admit(caller("token-of-ann"), NAMESPACES).scope.whole


def test_what_is_kept_is_bounded_and_holds_no_token() -> None:
    clock = HandClock()
    gate = KubeGate(api(), clock)
    for number in range(access.KEPT_MOST + 50):
        clock.now_s += 1
        with pytest.raises(NotAllowed):
            gate.admit(caller(f"made-up-{number}"), NAMESPACES)
    kept = gate._rights._kept
    assert len(kept) == access.KEPT_MOST
    assert not any("made-up" in repr(it) for it in kept.items())


@pytest.fixture
def served() -> Iterator[KubeTransport]:
    """An API server with three tokens and RBAC: ann may list everywhere, bob in red, eve nowhere."""
    store = Store(VirtualClock())
    group = "rbac.authorization.k8s.io"
    rule = {"apiGroups": ["muster.dev"], "resources": ["workloads"], "verbs": ["get", "list"]}
    store.create(store.resource("namespaces", ""), {"metadata": {"name": "red"}})
    store.create(store.resource("clusterroles", group), {"metadata": {"name": "muster-view"}, "rules": [rule]})
    for plural, user, namespace in (("clusterrolebindings", "ann", ""), ("rolebindings", "bob", "red")):
        binding = {
            "metadata": {"name": user},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "muster-view"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        }
        store.create(store.resource(plural, group), binding, namespace=namespace)
    tokens = {f"token-of-{name}": name for name in ("ann", "bob", "eve")}
    with ApiServer(store, access=Access(store, tokens)) as server:
        yield KubeTransport(from_url(server.url))
        server.drop_connections()


def test_the_simulated_api_server_says_who_sees_what(served: KubeTransport) -> None:
    """Over HTTP, by TokenReview and SubjectAccessReview, against the roles that it holds."""
    gate = KubeGate(served, HandClock())
    assert gate.admit(caller("token-of-ann"), NAMESPACES).scope.namespaces is None
    assert gate.admit(caller("token-of-bob"), NAMESPACES).scope.namespaces == {"red"}
    for token in ("token-of-eve", "made-up"):
        with pytest.raises(NotAllowed):
            gate.admit(caller(token), NAMESPACES)
    assert user_of(served, "token-of-bob") == KubeUser("bob", ("system:authenticated",))


def test_the_reviews_say_what_kubernetes_wants_to_know() -> None:
    server = api(ann=["red"])
    user = user_of(server, "token-of-ann")
    assert user == KubeUser("ann", ("g",), "1", {"k": ["v"]})
    assert may(server, user, "list", access.WORKLOADS, "red")
    assert server.bodies == [
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "token-of-ann"}},
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": "ann",
                "groups": ["g"],
                "uid": "1",
                "extra": {"k": ["v"]},
                "resourceAttributes": {
                    "group": "muster.dev",
                    "resource": "workloads",
                    "verb": "list",
                    "namespace": "red",
                },
            },
        },
    ]


# -- a proxy tells ----------------------------------------------------------------------------------------------------


def proxied(server: Any) -> ProxyGate:
    return ProxyGate(server, HandClock(), ["10.0.0.0/24", "fd00::/64"], ("X-Forwarded-User", "X-Forwarded-Groups"))


def test_a_proxy_is_believed_where_it_stands() -> None:
    server = api(ann=["red"])
    asked = caller(X_Forwarded_User="ann", X_Forwarded_Groups="devs, ops,")
    assert proxied(server).admit(asked, NAMESPACES).scope.namespaces == {"red"}
    assert server.asked["tokenreviews"] == 0
    assert server.bodies[0]["spec"]["groups"] == ["devs", "ops", "system:authenticated"]


@pytest.mark.parametrize(
    ("peer", "user", "reason"),
    [
        ("10.0.1.9", "ann", DenialReason.ADDRESS),
        ("127.0.0.1", "ann", DenialReason.ADDRESS),
        ("10.0.0.9", "", DenialReason.UNKNOWN),
        ("fd00::9", "eve", DenialReason.FORBIDDEN),
    ],
)
def test_nobody_else_is(peer: str, user: str, reason: DenialReason) -> None:
    with pytest.raises(NotAllowed) as denied:
        proxied(api(ann=[""])).admit(caller("token-of-ann", peer, X_Forwarded_User=user), NAMESPACES)
    assert denied.value.reason is reason


# -- everybody --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "answered"),
    [
        ("localhost:8080", True),
        ("127.0.0.1:8080", True),
        ("[::1]:8080", True),
        ("10.2.3.4", True),
        ("evil.example.com:8080", False),
        ("localhost.evil.example", False),
        ("", False),
    ],
)
def test_the_open_page_has_no_name(host: str, answered: bool) -> None:
    if answered:
        assert OpenGate().admit(caller(host=host), NAMESPACES).scope.whole
        return
    with pytest.raises(NotAllowed) as denied:
        OpenGate().admit(caller(host=host), NAMESPACES)
    assert denied.value.reason is DenialReason.ADDRESS


# -- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ({}, KubeGate),
        ({"access": "Anonymous"}, OpenGate),
        ({"access": "TrustedProxy", "proxy": {"addresses": ["10.0.0.0/8"]}}, ProxyGate),
        ({"access": "Off"}, type(None)),
    ],
)
def test_settings_choose_the_gate(said: dict[str, Any], kind: type[Gate]) -> None:
    assert isinstance(gate_of(WebSettings.model_validate(said), api(), HandClock()), kind)


@pytest.mark.parametrize(
    "said",
    [
        {"access": "TrustedProxy"},
        {"proxy": {"addresses": ["10.0.0.0/8"]}},
        {"access": "TrustedProxy", "proxy": {"addresses": []}},
        {"access": "TrustedProxy", "proxy": {"addresses": ["10.0.0.1/8"]}},
        {"access": "Everybody"},
    ],
)
def test_settings_that_do_not_fit_are_errors(said: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        WebSettings.model_validate(said)


def test_by_default_nobody_is_anonymous() -> None:
    assert Settings.model_fields["web"].default == WebSettings()
    assert WebSettings().access == "TokenReview"
