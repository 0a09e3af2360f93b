"""What the API refuses, as types: each carries the HTTP code and the `reason` word clients branch on.

Source: apimachinery `pkg/api/errors` and the `Status` object of meta/v1.
"""

from typing import Any, ClassVar


class ApiError(Exception):
    """A refused request; `status()` is the v1 `Status` body a client receives."""

    code: ClassVar[int] = 500
    reason: ClassVar[str] = "InternalError"
    text: ClassVar[str] = ""
    """The whole answer where it is plain text and no Status, as of filters in front of the API."""

    def __init__(self, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details or {}

    def status(self) -> dict[str, Any]:
        """The v1 `Status` object of this refusal."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if not self.reason:
            del body["reason"]
        if self.details:
            body["details"] = self.details
        return body


class StoreBadRequest(ApiError):
    """The request makes no sense whatever the state of the cluster."""

    code = 400
    reason = "BadRequest"


class StoreUnauthorized(ApiError):
    """Nobody knows who asks."""

    code = 401
    reason = "Unauthorized"


class StoreForbidden(ApiError):
    """Understood and refused, for example creation in a namespace that is being deleted."""

    code = 403
    reason = "Forbidden"


class StorePolicyDenied(StoreForbidden):
    """An admission policy that fails and may not: 403, with the reason of what is invalid."""

    reason = "Invalid"


class StoreNotFound(ApiError):
    """No such object, or no such resource."""

    code = 404
    reason = "NotFound"


class StoreNoSuchPage(StoreNotFound):
    """A path that nobody has registered."""

    text = "404 page not found\n"

    def __init__(self) -> None:
        super().__init__(self.text.strip())


class StoreMethodNotAllowed(ApiError):
    """The resource exists but does not know this verb."""

    code = 405
    reason = "MethodNotAllowed"


class StoreNotAcceptable(ApiError):
    """None of the representations that a client accepts is spoken here."""

    code = 406
    reason = "NotAcceptable"


class StoreAlreadyExists(ApiError):
    """Creation of a name that is taken."""

    code = 409
    reason = "AlreadyExists"


class StoreConflict(ApiError):
    """The object moved since it was read, or another manager owns a field; `details["causes"]` says which."""

    code = 409
    reason = "Conflict"


class StoreExpired(ApiError):
    """The asked resource version is no longer kept: list again (410 Gone)."""

    code = 410
    reason = "Expired"


class StoreRequestTooLarge(ApiError):
    """A body beyond the limit of the server."""

    code = 413
    reason = "RequestEntityTooLarge"


class StoreUnsupportedMediaType(ApiError):
    """A patch type this resource does not take (strategic merge on a custom resource)."""

    code = 415
    reason = "UnsupportedMediaType"


class StoreInvalid(ApiError):
    """The object does not validate; `details["causes"]` has one entry a field."""

    code = 422
    reason = "Invalid"


class StoreTooManyRequests(ApiError):
    """Try again after `retry_after_s` (0: nobody knows when), as an eviction that a budget does not allow now."""

    code = 429
    reason = "TooManyRequests"

    def __init__(self, message: str, details: dict[str, Any] | None = None, *, retry_after_s: int = 1) -> None:
        wait = {"retryAfterSeconds": retry_after_s} if retry_after_s else {}
        super().__init__(message, {**(details or {}), **wait})
        self.retry_after_s = retry_after_s


class StoreOverloaded(ApiError):
    """Priority and fairness turned the request away: 429 with plain text, before anybody looked at what it asks.

    Source: apiserver `pkg/server/filters/priority-and-fairness.go` (`tooManyRequests`).
    """

    code = 429
    reason = "TooManyRequests"
    text = "Too many requests, please try again later.\n"

    def __init__(self, retry_after_s: int = 1) -> None:
        super().__init__(self.text.strip(), {"retryAfterSeconds": retry_after_s})
        self.retry_after_s = retry_after_s


class StoreUnknownError(ApiError):
    """An error that the server gave no kind: 500 without a reason, in the words of the code that failed."""

    reason = ""


class StoreInternalError(ApiError):
    """A fault of the server."""


class StoreTimeout(ApiError):
    """The server does not know the asked resource version yet (504)."""

    code = 504
    reason = "Timeout"


def cause(field: str, problem: str, kind: str = "FieldValueInvalid") -> dict[str, str]:
    """One entry of `Status.details.causes`."""
    return {"reason": kind, "message": problem, "field": field}
