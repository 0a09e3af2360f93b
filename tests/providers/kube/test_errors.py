import json

import pytest

from providers.kube import errors
from providers.kube.errors import from_status


@pytest.mark.parametrize(
    ("code", "reason", "kind", "transient"),
    [
        (400, "BadRequest", errors.Invalid, False),
        (401, "Unauthorized", errors.Unauthorized, False),
        (403, "Forbidden", errors.Forbidden, False),
        (404, "NotFound", errors.NotFound, False),
        (405, "MethodNotAllowed", errors.KubeError, False),
        (408, "Timeout", errors.Unreachable, True),
        (409, "AlreadyExists", errors.AlreadyExists, False),
        (409, "Conflict", errors.Conflict, False),
        (409, "", errors.Conflict, False),
        (410, "Expired", errors.Expired, False),
        (410, "Gone", errors.Expired, False),
        (422, "Invalid", errors.Invalid, False),
        (429, "TooManyRequests", errors.TooManyRequests, True),
        (500, "InternalError", errors.ServerError, True),
        (503, "ServiceUnavailable", errors.ServerError, True),
        (504, "Timeout", errors.ServerError, True),
        (302, "", errors.KubeError, False),
    ],
)
def test_each_status_is_a_type(code: int, reason: str, kind: type, transient: bool) -> None:
    error = from_status(code, json.dumps({"reason": reason, "message": "why"}).encode())
    assert type(error) is kind
    assert (error.code, error.transient) == (code, transient)
    assert "why" in str(error)


@pytest.mark.parametrize("body", [b"", b"<html>gateway</html>", b"null", b"[]", b"\xff\xfe", b'{"details":null}'])
def test_a_body_that_is_no_status_still_makes_an_error(body: bytes) -> None:
    error = from_status(503, body, context="GET /x")
    assert isinstance(error, errors.Unreachable)
    assert str(error) == "GET /x: HTTP 503"


def test_causes_name_fields() -> None:
    body = {
        "reason": "Invalid",
        "details": {"causes": [{"reason": "FieldValueInvalid", "message": "bad", "field": "spec.replicas"}]},
    }
    (cause,) = from_status(422, json.dumps(body).encode()).causes
    assert (cause.reason, cause.field) == ("FieldValueInvalid", "spec.replicas")


@pytest.mark.parametrize(
    ("header", "in_body", "expected"), [(7.0, 3, 7.0), (None, 3, 3.0), (None, 0, 1.0), (0.0, 3, 0.0)]
)
def test_retry_after_from_header_then_body_then_a_second(header: float | None, in_body: int, expected: float) -> None:
    body = json.dumps({"details": {"retryAfterSeconds": in_body}}).encode()
    assert from_status(429, body, header).retry_after_s == expected


def test_a_disruption_budget_is_told_from_overload() -> None:
    blocked = from_status(429, b'{"details":{"causes":[{"reason":"DisruptionBudget"}]}}')
    busy = from_status(429, b"{}")
    assert isinstance(blocked, errors.TooManyRequests)
    assert blocked.disruption_budget
    assert isinstance(busy, errors.TooManyRequests)
    assert not busy.disruption_budget


def test_the_code_of_an_error_event_is_in_its_body() -> None:
    assert isinstance(from_status(0, b'{"code":410,"reason":"Expired"}'), errors.Expired)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"Too many requests, please try again later.\n", "HTTP 429: Too many requests, please try again later."),
        (b"<html><body>busy</body></html>", "HTTP 429"),
        (b"", "HTTP 429"),
        (b"\x1b[31mred", "HTTP 429"),
        (b"{}", "HTTP 429"),
    ],
)
def test_what_is_no_status_says_its_line_of_text(body: bytes, words: str) -> None:
    assert str(from_status(429, body)) == words
