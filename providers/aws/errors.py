"""botocore's exceptions -> the four `CloudError`s that drive behaviour.

Codes: EC2 "Common client error codes" and "Server error codes"; `Throttling` families as in botocore's retry tables.
"""

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ResponseStreamingError,
    TokenRetrievalError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError
from botocore.parsers import ResponseParserError

from providers.ports import CloudDenied, CloudError, CloudRejected, CloudThrottled, CloudUnreachable

THROTTLED_CODES = frozenset(
    {
        "BandwidthLimitExceeded",
        "EC2ThrottledException",
        "LimitExceededException",
        "PriorRequestNotComplete",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "TooManyRequestsException",
        "TransactionInProgressException",
        "KmsThrottled",
    }
)
DENIED_CODES = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "AuthFailure",
        "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
        "Blocked",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSecurity",
        "KmsAccessDeniedException",
        "MissingAuthenticationToken",
        "OptInRequired",
        "PendingVerification",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnauthorizedOperation",
        "UnrecognizedClientException",
    }
)
UNREACHABLE_CODES = frozenset(
    {
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "InternalServiceError",
        "ServiceUnavailable",
        "Unavailable",
    }
)
_NO_ANSWER = (BotoConnectionError, HTTPClientError, IncompleteReadError, ResponseParserError, ResponseStreamingError)
"""The request may have reached the service: time-outs, resets, DNS, TLS, proxies, and answers cut short."""
_NO_CREDENTIALS = (CredentialRetrievalError, NoCredentialsError, PartialCredentialsError, TokenRetrievalError)


def translate(error: Exception) -> CloudError:
    """The `CloudError` that says what to do about a botocore exception; its cause is `error`."""
    translated = _kind(error)(f"{code_of(error)}: {message_of(error)}")
    translated.__cause__ = error
    return translated


def _kind(error: Exception) -> type[CloudError]:
    if isinstance(error, ClientError):
        return _client_kind(code_of(error), error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400))
    if isinstance(error, _NO_CREDENTIALS):
        return CloudDenied
    if isinstance(error, _NO_ANSWER):
        return CloudUnreachable
    return CloudRejected if isinstance(error, (BotoCoreError, NoRegionError)) else CloudUnreachable


def _client_kind(code: str, status: int) -> type[CloudError]:
    if code in THROTTLED_CODES or status == 429:
        return CloudThrottled
    if code in DENIED_CODES:
        return CloudDenied
    if code in UNREACHABLE_CODES or status >= 500:
        return CloudUnreachable
    return CloudDenied if status == 401 else CloudRejected


def code_of(error: BaseException | None) -> str:
    """The service's own code of a botocore exception or of the `CloudError` made from it; else the type's name."""
    if isinstance(error, CloudError):
        return code_of(error.__cause__) if error.__cause__ else type(error).__name__
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", "Unknown"))
    return type(error).__name__


def message_of(error: BaseException) -> str:
    """The service's sentence, for people."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Message", ""))
    return str(error)
