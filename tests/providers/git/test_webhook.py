"""Webhooks: every sender's proof, and every way to get it wrong."""

import hashlib
import hmac

import pytest

from providers.git.webhook import MAX_BODY_BYTES, Trigger, WebhookEvent, WebhookRejected, verify

BODY = b'{"ref": "refs/heads/main"}'
SECRET = "test"
# The example of GitHub's documentation, "Validating webhook deliveries".
GITHUB_EXAMPLE = (
    "It's a Secret to Everybody",
    b"Hello, World!",
    "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
)


def sign(body: bytes = BODY, secret: str = SECRET) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def test_the_documented_example_of_github() -> None:
    secret, body, signature = GITHUB_EXAMPLE
    headers = {"X-Hub-Signature-256": signature, "X-GitHub-Event": "push"}
    assert verify(headers, body, secret).sender == "github"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (
            {"X-Hub-Signature-256": sign(), "X-GitHub-Event": "push", "X-GitHub-Delivery": "1-2"},
            Trigger("github", WebhookEvent.PUSH, "1-2"),
        ),
        ({"x-hub-signature-256": sign(), "x-github-event": "ping"}, Trigger("github", WebhookEvent.PING, "")),
        ({"X-HUB-SIGNATURE-256": sign(), "X-GITHUB-EVENT": "pull_request"}, Trigger("github", WebhookEvent.REVIEW, "")),
        ({"X-Hub-Signature-256": sign(), "X-GitHub-Event": "star"}, Trigger("github", WebhookEvent.OTHER, "")),
        (
            {"X-Gitlab-Token": SECRET, "X-Gitlab-Event": "Push Hook", "X-Gitlab-Event-UUID": "u"},
            Trigger("gitlab", WebhookEvent.PUSH, "u"),
        ),
        (
            {"X-Gitlab-Token": SECRET, "X-Gitlab-Event": "Merge Request Hook"},
            Trigger("gitlab", WebhookEvent.REVIEW, ""),
        ),
        ({"X-Gitlab-Token": SECRET, "X-Gitlab-Event": "Job Hook"}, Trigger("gitlab", WebhookEvent.OTHER, "")),
        ({"X-Gitlab-Token": SECRET, "X-Gitlab-Event": "Note Hook"}, Trigger("gitlab", WebhookEvent.REVIEW, "")),
        (
            {"X-Hub-Signature-256": sign(), "X-GitHub-Event": "pull_request_review"},
            Trigger("github", WebhookEvent.REVIEW, ""),
        ),
        (
            {"X-Gitea-Signature": sign()[7:], "X-Gitea-Event": "push", "X-Gitea-Delivery": "9"},
            Trigger("gitea", WebhookEvent.PUSH, "9"),
        ),
        (
            {
                "X-Hub-Signature-256": sign(),
                "X-GitHub-Event": "pull_request_approved",
                "X-Gitea-Signature": sign()[7:],
                "X-Gitea-Event": "pull_request_approved",
            },
            Trigger("gitea", WebhookEvent.REVIEW, ""),
        ),
        ({"X-Gitea-Signature": sign()[7:], "X-Gitea-Event": "wiki"}, Trigger("gitea", WebhookEvent.OTHER, "")),
        ({"X-Signature": sign()}, Trigger("generic", WebhookEvent.PUSH, "")),
        ({"X-Muster-Signature": sign(), "X-Muster-Event": "ping"}, Trigger("generic", WebhookEvent.PING, "")),
        ({"X-Muster-Signature": sign(), "X-Muster-Event": "odd"}, Trigger("generic", WebhookEvent.OTHER, "")),
        ({"X-Signature": sign().upper().replace("SHA", "sha")}, Trigger("generic", WebhookEvent.PUSH, "")),
        (
            {"X-Signature": sign(), "X-Muster-Delivery": "a\nb\x1b[31m"},
            Trigger("generic", WebhookEvent.PUSH, r"a\nb\x1b[31m"),
        ),
    ],
)
def test_authentic(headers: dict[str, str], expected: Trigger) -> None:
    assert verify(headers, BODY, SECRET) == expected
    assert verify(headers, BODY, SECRET.encode()) == expected


@pytest.mark.parametrize(
    ("headers", "body", "secret", "status"),
    [
        ({}, BODY, SECRET, 401),
        ({"X-GitHub-Event": "push"}, BODY, SECRET, 401),
        ({"X-Hub-Signature": "sha1=00"}, BODY, SECRET, 401),
        ({"X-Hub-Signature-256": sign(secret="other")}, BODY, SECRET, 403),
        ({"X-Hub-Signature-256": sign()}, BODY + b" ", SECRET, 403),
        ({"X-Hub-Signature-256": sign().removeprefix("sha256=")}, BODY, SECRET, 403),
        ({"X-Hub-Signature-256": ""}, BODY, SECRET, 403),
        ({"X-Gitea-Signature": sign()}, BODY, SECRET, 403),
        ({"X-Gitea-Signature": sign()[7:]}, BODY + b" ", SECRET, 403),
        ({"X-Gitea-Signature": "", "X-Hub-Signature-256": sign()}, BODY, SECRET, 403),
        ({"X-Hub-Signature-256": "sha256=ä"}, BODY, SECRET, 403),
        ({"X-Hub-Signature-256": "\udcff"}, BODY, SECRET, 403),
        ({"X-Gitlab-Token": "Test"}, BODY, SECRET, 403),
        ({"X-Gitlab-Token": ""}, BODY, SECRET, 403),
        ({"X-Gitlab-Token": "tést"}, BODY, SECRET, 403),
        ({"X-Hub-Signature-256": "sha256=00", "X-Gitlab-Token": SECRET}, BODY, SECRET, 403),
        ({"X-Signature": sign(secret="")}, BODY, "", 503),
        ({"X-Gitlab-Token": ""}, BODY, b"", 503),
        ({"X-Signature": sign(b"x" * (MAX_BODY_BYTES + 1))}, b"x" * (MAX_BODY_BYTES + 1), SECRET, 413),
    ],
)
def test_refused(headers: dict[str, str], body: bytes, secret: str | bytes, status: int) -> None:
    with pytest.raises(WebhookRejected) as caught:
        verify(headers, body, secret)
    assert caught.value.http_status == status
    assert SECRET not in caught.value.reason


def test_the_largest_body_is_accepted() -> None:
    body = b"x" * MAX_BODY_BYTES
    assert verify({"X-Signature": sign(body)}, body, SECRET).event is WebhookEvent.PUSH
