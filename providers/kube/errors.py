"""What the API refuses, as types by what a caller can do about it. `transient` says whether a retry can help."""

from typing import ClassVar, Final

from msgspec import Raw

from providers.kube import wire


class KubeError(Exception):
    """A request that did not succeed; `code` is the HTTP status, or 0 where none was received."""

    transient: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        code: int = 0,
        reason: str = "",
        causes: tuple[wire.Cause, ...] = (),
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.causes = causes
        self.retry_after_s = retry_after_s


class BadConnection(KubeError):
    """There is no usable connection configuration: no kubeconfig, unknown context, not in a cluster."""


class NotFound(KubeError):
    """404: the object, its namespace or the whole resource is absent."""


class AlreadyExists(KubeError):
    """409 on create: an object of this name is there."""


class Conflict(KubeError):
    """409: stale resourceVersion, unmet precondition, or a field owned by somebody else (`causes` names them)."""


class Expired(KubeError):
    """410: the resourceVersion or continue token is too old; list again."""


class Invalid(KubeError):
    """400 or 422: the request can never succeed as it is; `causes` says which fields."""


class Unauthorized(KubeError):
    """401: credentials are missing, wrong or out of date."""


class Forbidden(KubeError):
    """403: RBAC, an admission policy or a quota says no."""


class TooManyRequests(KubeError):
    """429: come back after `retry_after_s`. An eviction that would break a PodDisruptionBudget answers this as well."""

    transient = True

    def __init__(
        self,
        message: str,
        *,
        retry_after_s: float = 1.0,
        code: int = 429,
        reason: str = "TooManyRequests",
        causes: tuple[wire.Cause, ...] = (),
    ) -> None:
        super().__init__(message, code=code, reason=reason, causes=causes, retry_after_s=retry_after_s)

    @property
    def disruption_budget(self) -> bool:
        """Whether a PodDisruptionBudget refused, which seconds do not cure."""
        return any(cause.reason == "DisruptionBudget" for cause in self.causes)


class Unreachable(KubeError):
    """No answer, or 5xx. `maybe_applied` is False only when the request certainly never reached a server."""

    transient = True

    def __init__(
        self,
        message: str,
        *,
        maybe_applied: bool = True,
        code: int = 0,
        reason: str = "",
        causes: tuple[wire.Cause, ...] = (),
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, code=code, reason=reason, causes=causes, retry_after_s=retry_after_s)
        self.maybe_applied = maybe_applied


class ServerError(Unreachable):
    """5xx: a server answered that it failed, or that what it asked (a webhook) did."""


BARE_MOST: Final = 200
_BY_CODE: Final[dict[int, type[KubeError]]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    408: Unreachable,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: TooManyRequests,
}


def from_status(code: int, body: Raw | bytes, retry_after_s: float | None = None, context: str = "") -> KubeError:
    """The error for an HTTP status and a Status body (`code` 0: take it from the body, as in a watch's ERROR event).

    Classes follow the status code, which proxies speak too; only 409 needs the reason
    (apimachinery, api/errors: Conflict and AlreadyExists share the code).
    """
    status = wire.status(body)
    code = code or status.code
    details = status.details or wire.StatusDetails()
    wait_s = retry_after_s if retry_after_s is not None else (float(details.retry_after_s) or None)
    kind = _kind_of(code, status.reason)
    message = ": ".join(part for part in (context, status.message or _bare(code, body)) if part)
    causes = tuple(details.causes or ())
    if kind is TooManyRequests:
        reason = status.reason or "TooManyRequests"
        return TooManyRequests(message, reason=reason, causes=causes, retry_after_s=1.0 if wait_s is None else wait_s)
    return kind(message, code=code, reason=status.reason, causes=causes, retry_after_s=wait_s)


def _bare(code: int, body: Raw | bytes) -> str:
    """The words for an answer without a Status: priority and fairness, proxies and load balancers answer in plain text.

    Pages of HTML and anything else that is no short line of text stay away.
    """
    line = bytes(body[:BARE_MOST]).decode("utf-8", "replace").strip().partition("\n")[0]
    sentence = line[:1].isalpha() and " " in line and line.isprintable()
    return f"HTTP {code}: {line}" if sentence else f"HTTP {code}"


def _kind_of(code: int, reason: str) -> type[KubeError]:
    if code == 409 and reason == "AlreadyExists":
        return AlreadyExists
    if code >= 500:
        return ServerError
    return _BY_CODE.get(code, KubeError)
