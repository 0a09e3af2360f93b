"""Webhooks of GitHub, GitLab and anybody with an HMAC: verified, then reduced to "something changed, go and look".

The payload is untrusted and not even parsed: a trigger only makes the poller fetch, so a replayed or forged-by-insider
delivery costs one round trip and changes nothing (Argo CD, operator-manual/webhook.md, says so in words).
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

MAX_BODY_BYTES = 3 * 1024 * 1024


class WebhookEvent(Enum):
    """What happened, as far as it matters: refs moved, a review moved, a test delivery, or nothing of ours."""

    PUSH = "push"
    REVIEW = "review"
    PING = "ping"
    OTHER = "other"


@dataclass(frozen=True)
class Trigger:
    """A verified delivery: who sent it, what for, and the sender's id of it (empty if none), for the log."""

    sender: str
    event: WebhookEvent
    delivery: str


class WebhookRejected(Exception):
    """The delivery is refused; answer with `http_status` (401, 403, 413 or 503) and nothing that helps to guess."""

    def __init__(self, http_status: int, reason: str) -> None:
        super().__init__(reason)
        self.http_status = http_status
        self.reason = reason


@dataclass(frozen=True)
class _Sender:
    """How one kind of sender signs, names events and numbers deliveries. Header names in lower case."""

    name: str
    proof: str
    holds: Callable[[str, bytes, bytes], bool]
    event: str
    delivery: str
    events: Mapping[str, WebhookEvent]
    default: WebhookEvent = WebhookEvent.OTHER


def _hmac_sha256(proof: str, body: bytes, secret: bytes) -> bool:
    expected = "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(_octets(proof.lower()), expected.encode())


def _token(proof: str, _body: bytes, secret: bytes) -> bool:
    # Hashing first hides the token's length too.
    return hmac.compare_digest(hashlib.sha256(_octets(proof)).digest(), hashlib.sha256(secret).digest())


def _octets(text: str) -> bytes:
    """compare_digest wants ASCII text or bytes; a header may hold anything."""
    return text.encode("utf-8", "surrogateescape")


_GITHUB = {
    "push": WebhookEvent.PUSH,
    "create": WebhookEvent.PUSH,
    "delete": WebhookEvent.PUSH,
    "pull_request": WebhookEvent.REVIEW,
    "ping": WebhookEvent.PING,
}
_GITLAB = {
    "Push Hook": WebhookEvent.PUSH,
    "Tag Push Hook": WebhookEvent.PUSH,
    "Merge Request Hook": WebhookEvent.REVIEW,
}
_GENERIC = {"push": WebhookEvent.PUSH, "review": WebhookEvent.REVIEW, "ping": WebhookEvent.PING}

# The first whose proof is present judges; a wrong proof is never made good by another header.
_SENDERS = (
    _Sender("github", "x-hub-signature-256", _hmac_sha256, "x-github-event", "x-github-delivery", _GITHUB),
    _Sender("gitlab", "x-gitlab-token", _token, "x-gitlab-event", "x-gitlab-event-uuid", _GITLAB),
    _Sender(
        "generic",
        "x-muster-signature",
        _hmac_sha256,
        "x-muster-event",
        "x-muster-delivery",
        _GENERIC,
        WebhookEvent.PUSH,
    ),
    _Sender("generic", "x-signature", _hmac_sha256, "x-muster-event", "x-muster-delivery", _GENERIC, WebhookEvent.PUSH),
)


def verify(headers: Mapping[str, str], body: bytes, secret: str | bytes) -> Trigger:
    """The trigger of an authentic delivery. Header names are compared without case.

    Errors: WebhookRejected with 413 for a body beyond 3 MiB, 503 without a secret (an empty one would let anybody
    sign), 401 without a proof, 403 with a wrong one.
    """
    if len(body) > MAX_BODY_BYTES:
        raise WebhookRejected(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
    key = secret.encode() if isinstance(secret, str) else secret
    if not key:
        raise WebhookRejected(503, "no webhook secret is configured")
    given = {name.lower(): value for name, value in headers.items()}
    sender = next((one for one in _SENDERS if one.proof in given), None)
    if sender is None:
        raise WebhookRejected(401, "the delivery is not signed")
    if not sender.holds(given[sender.proof].strip(), body, key):
        raise WebhookRejected(403, "the signature does not match")
    return Trigger(sender.name, _event(sender, given), _printable(given.get(sender.delivery, "")))


def _event(sender: _Sender, given: Mapping[str, str]) -> WebhookEvent:
    named = given.get(sender.event)
    return sender.default if named is None else sender.events.get(named, WebhookEvent.OTHER)


def _printable(text: str) -> str:
    """Fit for a log line: the header is not covered by the signature."""
    return "".join(sign for sign in text if sign.isprintable())[:100]
