"""Deliveries as the forges send them, replayed on the webhook's port: understood, ignored for a reason, or refused."""

import hashlib
import hmac
import http.client
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.connection_limits import ConnectionLimits
from agent.http import Webhook, webhook_listener

SECRET = "of the webhook"
DATA = Path(__file__).parents[1] / "data"
FORGES = ("github", "gitlab", "gitea")
NOTHING = "heard; nothing follows from an event of this kind\n"
CALLS_FOR_A_LOOK: Mapping[str, frozenset[str]] = {
    "github": frozenset({"push", "create", "delete", "pull_request", "pull_request_review", "issue_comment"}),
    "gitlab": frozenset(
        {"Push Hook", "Tag Push Hook", "Merge Request Hook", "Note Hook", "Confidential Note Hook"}
    ),
    "gitea": frozenset(
        {
            "push", "create", "delete", "pull_request", "issue_comment",
            "pull_request_approved", "pull_request_rejected", "pull_request_comment",
        }
    ),
}  # fmt: skip


def deliveries(forge: str) -> list[dict[str, Any]]:
    found = json.loads((DATA / f"{forge}-webhooks.json").read_text(encoding="utf-8"))
    assert found["source"]
    return list(found["deliveries"])


def headers_of(forge: str, delivery: Mapping[str, Any], body: bytes, secret: str = SECRET) -> dict[str, str]:
    """The headers with which a forge sends a delivery, signed in its way."""
    digest, event = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest(), str(delivery["event"])
    if forge == "github":
        return {"X-GitHub-Event": event, "X-GitHub-Delivery": "72d3162e", "X-Hub-Signature-256": f"sha256={digest}"}
    if forge == "gitlab":
        return {"X-Gitlab-Event": event, "X-Gitlab-Event-UUID": "13792a34", "X-Gitlab-Token": secret}
    said = {f"X-{who}-Event": event for who in ("Gitea", "Forgejo", "Gogs", "GitHub")}
    kind = {"X-Gitea-Event-Type": str(delivery["type"]), "X-Gitea-Delivery": "f6266f16"}
    return {**said, **kind, "X-Gitea-Signature": digest, "X-Hub-Signature-256": f"sha256={digest}"}


class Port:
    """The webhook on a port of its own, and how often it called for a look."""

    def __init__(self) -> None:
        self.rung = 0
        self.told: list[tuple[str, int]] = []
        hook = Webhook(lambda: SECRET, self._ring, lambda *told: self.told.append(told))
        self.listener = webhook_listener(hook, "127.0.0.1", 0, limits=ConnectionLimits())
        self.listener.start()

    def _ring(self) -> bool:
        self.rung += 1
        return True

    def post(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.listener.port, timeout=10)
        try:
            connection.request("POST", "/webhook", body, {"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def running() -> Iterator[Port]:
    made = Port()
    yield made
    made.listener.stop()


@pytest.fixture
def port(running: Port) -> Port:
    running.rung = 0
    running.told.clear()
    return running


@pytest.mark.parametrize("forge", FORGES)
def test_each_of_a_forge_s_deliveries_calls_for_a_look_or_is_heard_with_the_reason(port: Port, forge: str) -> None:
    for delivery in deliveries(forge):
        body = json.dumps(delivery["payload"]).encode()
        before = port.rung
        status, words = port.post(body, headers_of(forge, delivery, body))
        looks = delivery["event"] in CALLS_FOR_A_LOOK[forge]
        expected = "fetching\n" if looks else "heard\n" if delivery["event"] == "ping" else NOTHING
        assert (status, words, port.rung - before) == (202, expected, int(looks)), delivery
    assert set(port.told) == {(forge, 202)}, "each is known as the forge's"
    assert port.rung


def test_all_that_a_review_listens_to_is_among_the_examples() -> None:
    for forge in FORGES:
        assert CALLS_FOR_A_LOOK[forge] <= {it["event"] for it in deliveries(forge)}
    actions = {it["payload"].get("action") for it in deliveries("github") if it["event"] == "pull_request"}
    assert {"opened", "synchronize", "closed", "reopened"} <= actions


def without(headers: Mapping[str, str], *words: str) -> dict[str, str]:
    return {name: value for name, value in headers.items() if not name.endswith(words)}


@pytest.mark.parametrize("forge", FORGES)
def test_what_is_malformed_is_refused_and_calls_for_nothing(port: Port, forge: str) -> None:
    delivery = next(it for it in deliveries(forge) if it["event"] in CALLS_FOR_A_LOOK[forge])
    body = json.dumps(delivery["payload"]).encode()
    good, forged = headers_of(forge, delivery, body), headers_of(forge, delivery, body, "another secret")
    large = body + b" " * 10 * 2**20
    proofs = ("Signature", "Signature-256", "Token")
    tried = {
        "not signed": (body, without(good, *proofs), 401),
        "signed with another secret": (body, forged, 403),
        "a proof of no form": (body, {name: "x" if name.endswith(proofs) else it for name, it in good.items()}, 403),
        "an empty proof": (body, {name: "" if name.endswith(proofs) else it for name, it in good.items()}, 403),
        "no event": (body, without(good, "-Event"), 400),
        "no body": (b"", headers_of(forge, delivery, b""), 400),
        "10 MiB": (large, headers_of(forge, delivery, large), 413),
    }
    if forge != "gitlab":  # whose token says nothing of the body
        tried["another body than was signed"] = (body + b" ", good, 403)
    found = {words: port.post(sent, headers)[0] for words, (sent, headers, _) in tried.items()}
    assert found == {words: status for words, (_, _, status) in tried.items()}
    assert port.rung == 0
