"""Webhooks of GitHub, GitLab and anybody with an HMAC: verified, then reduced to "something changed, go and look".

The payload is untrusted and not even parsed: a trigger only makes the poller fetch, so a replayed or forged-by-insider
delivery costs one round trip and changes nothing (Argo CD, operator-manual/webhook.md, says so in words).
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from model.plain_text import plain

MAX_BODY_BYTES = 1024 * 1024
"""The largest body unless the agent's settings allow more; a push of hundreds of commits has a tenth of it."""
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_SIGNATURE = re.compile(r"sha256=[0-9a-fA-F]{64}")
_TOKEN_MOST = 4096


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
    """The delivery is refused; answer with `http_status` (400, 401, 403, 413, 503) and nothing that helps to guess."""

    def __init__(self, http_status: int, reason: str) -> None:
        super().__init__(reason)
        self.http_status = http_status
        self.reason = reason


@dataclass(frozen=True)
class _WebhookSender:
    """How one kind of sender signs, names events and numbers deliveries. Header names in lower case."""

    name: str
    proof: str
    plausible: Callable[[str, bytes], bool]
    """(proof, secret): whether the header can be right, as far as that can be told without the body."""
    holds: Callable[[str, bytes, bytes], bool]
    event: str
    delivery: str
    events: Mapping[str, WebhookEvent]
    unnamed: WebhookEvent | None = None
    """What a delivery is that names no event; None: it is none that such a sender has made."""


def _signature_form(proof: str, _secret: bytes) -> bool:
    return _SIGNATURE.fullmatch(proof) is not None


def _digest_form(proof: str, _secret: bytes) -> bool:
    return _DIGEST.fullmatch(proof) is not None


def _token_matches(proof: str, secret: bytes) -> bool:
    return len(proof) <= _TOKEN_MOST and _token(proof, b"", secret)


def _bare_hmac_sha256(proof: str, body: bytes, secret: bytes) -> bool:
    return _hmac_sha256(f"sha256={proof}", body, secret)


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
    "pull_request_review": WebhookEvent.REVIEW,
    "issue_comment": WebhookEvent.REVIEW,
    "ping": WebhookEvent.PING,
}
_GITEA = {
    "push": WebhookEvent.PUSH,
    "create": WebhookEvent.PUSH,
    "delete": WebhookEvent.PUSH,
    "pull_request": WebhookEvent.REVIEW,
    "pull_request_approved": WebhookEvent.REVIEW,
    "pull_request_rejected": WebhookEvent.REVIEW,
    "pull_request_comment": WebhookEvent.REVIEW,
    "issue_comment": WebhookEvent.REVIEW,
}
_GITLAB = {
    "Push Hook": WebhookEvent.PUSH,
    "Tag Push Hook": WebhookEvent.PUSH,
    "Merge Request Hook": WebhookEvent.REVIEW,
    "Note Hook": WebhookEvent.REVIEW,
    "Confidential Note Hook": WebhookEvent.REVIEW,
}
_GENERIC = {"push": WebhookEvent.PUSH, "review": WebhookEvent.REVIEW, "ping": WebhookEvent.PING}

# The first whose proof is present judges; a wrong proof is never made good by another header.
_SENDERS = (
    # Before GitHub: Gitea and Forgejo sign as it does, too, and name the event in its way.
    _WebhookSender(
        "gitea", "x-gitea-signature", _digest_form, _bare_hmac_sha256, "x-gitea-event", "x-gitea-delivery", _GITEA
    ),
    _WebhookSender(
        "github", "x-hub-signature-256", _signature_form, _hmac_sha256, "x-github-event", "x-github-delivery", _GITHUB
    ),
    _WebhookSender(
        "gitlab", "x-gitlab-token", _token_matches, _token, "x-gitlab-event", "x-gitlab-event-uuid", _GITLAB
    ),
    _WebhookSender(
        "generic",
        "x-muster-signature",
        _signature_form,
        _hmac_sha256,
        "x-muster-event",
        "x-muster-delivery",
        _GENERIC,
        unnamed=WebhookEvent.PUSH,
    ),
    _WebhookSender(
        "generic",
        "x-signature",
        _signature_form,
        _hmac_sha256,
        "x-muster-event",
        "x-muster-delivery",
        _GENERIC,
        unnamed=WebhookEvent.PUSH,
    ),
)


def check_proof(headers: Mapping[str, str], secret: str | bytes) -> None:
    """Returns when a delivery may be authentic as far as its header tells; the body need not have come.

    Errors: WebhookRejected with 503 without a secret (an empty one would let anybody sign), 401 without a proof, 403
    with one of the wrong form, or a wrong token.
    """
    _proven(headers, secret)


def _proven(headers: Mapping[str, str], secret: str | bytes) -> tuple[_WebhookSender, Mapping[str, str], bytes]:
    key = secret.encode() if isinstance(secret, str) else secret
    if not key:
        raise WebhookRejected(503, "no webhook secret is configured")
    given = {name.lower(): value for name, value in headers.items()}
    sender = next((one for one in _SENDERS if one.proof in given), None)
    if sender is None:
        raise WebhookRejected(401, "the delivery is not signed")
    if not sender.plausible(given[sender.proof].strip(), key):
        raise WebhookRejected(403, "the signature does not match")
    return sender, given, key


def verify(headers: Mapping[str, str], body: bytes, secret: str | bytes, *, most: int = MAX_BODY_BYTES) -> Trigger:
    """Returns the trigger of an authentic delivery. Header names are compared without case.

    Errors: WebhookRejected as of `check_proof`, 413 for a body of more than `most` bytes, 403 with a wrong signature,
    400 for one of a forge without an event or a body.
    """
    sender, given, key = _proven(headers, secret)
    if len(body) > most:
        raise WebhookRejected(413, f"the body is larger than {most} bytes")
    if not sender.holds(given[sender.proof].strip(), body, key):
        raise WebhookRejected(403, "the signature does not match")
    return Trigger(sender.name, _event(sender, given, body), plain(given.get(sender.delivery, ""))[:100])


def _event(sender: _WebhookSender, given: Mapping[str, str], body: bytes) -> WebhookEvent:
    """What happened; an empty name is one of a kind that the forge has no name for (Gitea's `status`)."""
    named = given.get(sender.event)
    if sender.unnamed is None and (named is None or not body.strip()):
        raise WebhookRejected(400, "the delivery has no event or no body")
    return sender.unnamed or WebhookEvent.OTHER if named is None else sender.events.get(named, WebhookEvent.OTHER)
