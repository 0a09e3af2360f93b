"""Injected misbehaviour, seen from a client."""

import http.client
import json
import random
from typing import Any

import pytest

from providers.sim.apiserver import (
    WRITES,
    ApiServer,
    Compact,
    CutWatch,
    Delay,
    Effect,
    FaultRule,
    FaultRules,
    GoneStatus,
    Hang,
    LoseAnswer,
    PriorityReject,
    Refuse,
    Trickle,
    WebhookDenies,
    WebhookFails,
)
from providers.sim.store import Store
from tests.support.api_faults import every, first, nth, rate

CMS = "/api/v1/namespaces/default/configmaps"


@pytest.mark.parametrize(("code", "reason"), [(409, "Conflict"), (429, "TooManyRequests"), (500, "InternalError")])
def test_refusals_leave_the_store_alone(
    http_client: Any, server: ApiServer, config: Any, code: Any, reason: str
) -> None:
    server.faults.add(FaultRule(Refuse(code, retry_after_s=7), verbs=frozenset({"create"}), when=first(1)))
    response = http_client.send("POST", CMS, config())
    assert (response.status, json.loads(response.read())["reason"]) == (code, reason)
    assert response.headers.get("Retry-After") == ("7" if code == 429 else None)
    assert http_client("GET", f"{CMS}/cm")[0] == 404
    assert http_client("POST", CMS, config())[0] == 201


def test_rules_strike_where_and_when_they_say() -> None:
    def hits(rule: FaultRule, *requests: tuple[str, str]) -> list[bool]:
        faults = FaultRules(rule)
        return [bool(faults.effects(*request)) for request in requests]

    four = [("get", "pods")] * 4
    assert hits(FaultRule(Hang(), when=every(2)), *four) == [False, True, False, True]
    assert hits(FaultRule(Hang(), when=first(1)), *four) == [True, False, False, False]
    assert hits(FaultRule(Hang(), when=nth(2, 3)), *four) == [False, True, True, False]
    mixed = [("get", "pods"), ("list", "pods"), ("get", "jobs.batch")]
    assert hits(FaultRule(Hang(), verbs=frozenset({"get"})), *mixed) == [True, False, True]
    assert hits(FaultRule(Hang(), resources=frozenset({"pods"})), *mixed) == [True, True, False]


def test_a_rate_is_the_same_for_the_same_seed() -> None:
    def run(seed: int) -> list[bool]:
        faults = FaultRules(FaultRule(Refuse(500), when=rate(0.3, random.Random(seed))))
        return [bool(faults.effects("get", "pods")) for _ in range(200)]

    assert run(1) == run(1)
    assert run(1) != run(2)
    assert 30 < sum(run(1)) < 90


def test_rules_count_and_can_be_taken_back() -> None:
    faults = FaultRules()
    rule = faults.add(FaultRule(Delay(0), when=first(1)))
    for _ in range(3):
        faults.effects("get", "pods")
    assert (rule.seen, rule.hits) == (3, 1)
    faults.remove(rule)
    assert faults.effects("get", "pods") == ()
    faults.add(rule)
    faults.clear()
    assert faults.effects("get", "pods") == ()


def test_half_open_never_answers(http_client: Any, server: ApiServer) -> None:
    server.faults.add(FaultRule(Hang(), when=first(1)))
    with pytest.raises(TimeoutError):
        http_client("GET", CMS, timeout_s=0.2)
    assert http_client("GET", CMS)[0] == 200


def test_a_delay_only_delays(http_client: Any, server: ApiServer) -> None:
    server.faults.add(FaultRule(Delay(0.3), when=first(2)))
    with pytest.raises(TimeoutError):
        http_client("GET", CMS, timeout_s=0.1)
    assert http_client("GET", CMS)[0] == 200


def test_a_lost_answer_was_still_obeyed(http_client: Any, server: ApiServer, config: Any) -> None:
    server.faults.add(FaultRule(LoseAnswer(), verbs=frozenset({"create"})))
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        http_client("POST", CMS, config())
    assert http_client("GET", f"{CMS}/cm")[0] == 200


def test_a_trickle_arrives_whole(http_client: Any, server: ApiServer, config: Any) -> None:
    http_client("POST", CMS, config(a="1"))
    server.faults.add(FaultRule(Trickle(piece_bytes=50, pause_s=0.001), verbs=frozenset({"get"})))
    assert http_client.get(f"{CMS}/cm")["data"] == {"a": "1"}


def fill(store: Store, count: int) -> int:
    version = store.resource_version
    for i in range(count):
        store.create(store.resource("cm"), {"metadata": {"name": f"n{i}", "namespace": "default"}})
    return version


def watch(http_client: Any, version: int, timeout_s: float) -> bytes:
    response = http_client.send("GET", f"{CMS}?watch=1&resourceVersion={version}", timeout_s=timeout_s)
    body = bytearray()
    while True:
        try:
            piece = response.read1(1 << 16)
        except (http.client.IncompleteRead, ConnectionError):
            return bytes(body) + b"<cut>"
        except TimeoutError:
            return bytes(body) + b"<silence>"
        if not piece:
            return bytes(body) + b"<end>"
        body += piece


@pytest.mark.parametrize(("how", "ending"), [("close", b"<end>"), ("mid-line", b"<cut>"), ("silence", b"<silence>")])
def test_a_watch_is_cut(http_client: Any, server: ApiServer, store: Store, how: Any, ending: bytes) -> None:
    version = fill(store, 5)
    server.faults.add(FaultRule(CutWatch(3, how), verbs=frozenset({"watch"}), when=first(1)))
    received = watch(http_client, version, timeout_s=2 if how == "silence" else 10)
    assert received.endswith(ending)
    *whole, rest = received.removesuffix(ending).split(b"\n")
    assert [json.loads(line)["object"]["metadata"]["name"] for line in whole] == ["n0", "n1", "n2"]
    assert (rest == b"") is (how != "mid-line")
    lines = http_client.watch(f"{CMS}?watch=1&resourceVersion={version}")
    assert [next(lines)["object"]["metadata"]["name"] for _ in range(5)][-1] == "n4"


@pytest.mark.parametrize(("effects", "code"), [([Compact()], 200), ([Compact(), GoneStatus()], 410)])
def test_history_is_lost_under_a_client(
    http_client: Any, server: ApiServer, store: Store, effects: list[Effect], code: int
) -> None:
    version = fill(store, 2)
    for effect in effects:
        server.faults.add(FaultRule(effect, verbs=frozenset({"watch"})))
    status, body = http_client("GET", f"{CMS}?watch=1&resourceVersion={version}")
    assert status == code
    assert (body["object"] if code == 200 else body)["code"] == 410


def test_connections_can_be_dropped(http_client: Any, server: ApiServer, store: Store) -> None:
    lines = http_client.watch(f"{CMS}?watch=1&resourceVersion={store.resource_version}")
    fill(store, 1)
    next(lines)
    server.drop_connections()
    with pytest.raises((ConnectionError, http.client.IncompleteRead, StopIteration)):
        next(lines)
    assert http_client("GET", CMS)[0] == 200


def test_priority_and_fairness_says_no_in_plain_text(http_client: Any, server: ApiServer, config: Any) -> None:
    server.faults.add(FaultRule(PriorityReject(3), when=first(2)))
    for method, path, body in (("POST", CMS, config()), ("GET", CMS, None)):
        response = http_client.send(method, path, body)
        assert (response.status, response.headers["Retry-After"]) == (429, "3")
        assert response.headers["Content-Type"].startswith("text/plain")
        assert response.read().strip() == b"Too many requests, please try again later."
    assert http_client("GET", f"{CMS}/cm")[0] == 404


@pytest.mark.parametrize(
    ("effect", "code", "reason", "said"),
    [
        pytest.param(
            WebhookFails("w.example.com", "no route"),
            500,
            "InternalError",
            'Internal error occurred: failed calling webhook "w.example.com": failed to call webhook: no route',
            id="it does not answer",
        ),
        pytest.param(
            WebhookDenies("w.example.com", "closed today"),
            403,
            "Forbidden",
            'admission webhook "w.example.com" denied the request: closed today',
            id="it says why",
        ),
        pytest.param(
            WebhookDenies("w.example.com"),
            403,
            "Forbidden",
            'admission webhook "w.example.com" denied the request without explanation',
            id="it does not say why",
        ),
    ],
)
def test_a_webhook_refuses_writes_of_one_kind(
    http_client: Any, server: ApiServer, config: Any, effect: Effect, code: int, reason: str, said: str
) -> None:
    rule = server.faults.add(FaultRule(effect, verbs=WRITES, resources=frozenset({"configmaps"})))
    answer, status = http_client("POST", CMS, config())
    assert (answer, status["reason"], status["message"]) == (code, reason, said)
    assert http_client("GET", CMS)[0] == 200
    assert http_client("POST", "/api/v1/namespaces", {"metadata": {"name": "other"}})[0] == 201
    server.faults.remove(rule)
    assert http_client("POST", CMS, config())[0] == 201
