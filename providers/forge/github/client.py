"""githubkit, bounded: one question to GitHub, what it may cost, and what a refusal means.

It sends each request once. githubkit's own retries, its redirects and its HTTP cache are off: who asks orders the
retries, a redirect could lead a secret to another host, and the cache has no bound.
"""

import math
import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import httpx
import msgspec
from githubkit import AppInstallationAuthStrategy, GitHub, TokenAuthStrategy
from githubkit.cache import MemCacheStrategy
from githubkit.exception import GitHubException, RequestError, RequestFailed

from model.plain_text import plain
from providers.clock import Clock
from providers.forge.github.answers import GitHubRefusal, read
from providers.forge.github.calls import GitHubCall
from providers.forge.github.sign_in import GitHubApp, GitHubRepository, GitHubToken
from providers.forge.port import ForgeError, ForgeRateLimited, ForgeUnreachable

_T = TypeVar("_T")

API_VERSION: Final = "2022-11-28"
TIMEOUT_S: Final = 10.0
"""The longest silence: to connect, for a part of the answer, to send one."""
MOST_ANSWER_S: Final = 30.0
MOST_ANSWER_BYTES: Final = 16 * 1024 * 1024
PAGE: Final = 100
"""How many items a page has; GitHub gives no more."""
MOST_PAGES: Final = 100
MOST_LISTING_BYTES: Final = 64 * 1024 * 1024
MOST_KEPT_BYTES: Final = 32 * 1024 * 1024
_MOST_SAID = 300
_REST_UNSAID_S = 60
"""How long to rest where GitHub does not say it."""
MOST_REST_S: Final = 2 * 3600.0
"""A primary limit is one of an hour; nobody can make us rest for a year."""
_OUR_FAULTS = (httpx.UnsupportedProtocol, httpx.LocalProtocolError)
_SECONDS = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """What GitHub answered last, by its entity tag."""

    tag: str
    value: Any
    size: int
    """Bytes of the answer."""
    more: bool
    """Whether GitHub named a page after it."""


class GitHubClient:
    """Asks about one repository, for one thread. What did not change since the last time costs nothing of the rate.

    ForgeRateLimited, ForgeUnreachable or ForgeError is all that its methods raise.
    """

    def __init__(self, repository: GitHubRepository, sign_in: GitHubToken | GitHubApp, url: str, clock: Clock) -> None:
        self._repository = repository
        self._clock = clock
        # One of its own: that of the module keeps an App's tokens by the App's number, whatever the host.
        self._tokens = MemCacheStrategy()
        self._kept: OrderedDict[tuple[object, ...], KeptAnswer] = OrderedDict()
        self._kept_bytes = 0
        self._github = GitHub(
            _strategy(sign_in, repository),
            base_url=url,
            user_agent="muster",
            follow_redirects=False,
            timeout=TIMEOUT_S,
            ssl_verify=httpx.create_ssl_context(),
            event_hooks={"request": [_ask_plainly], "response": [self._bound]},
            cache_strategy=self._tokens,
            http_cache=False,
            auto_retry=False,
            rest_api_validate_body=False,
        )
        self._rest: Any = self._github.rest(API_VERSION)

    def hold(self) -> None:
        """Keeps connections open for this thread until `release`."""
        self._github.__enter__()

    def release(self) -> None:
        """Closes what `hold` keeps open."""
        self._github.__exit__()

    def ask(self, call: GitHubCall, answer: type[_T], *arguments: object, **parameters: object) -> _T:
        """Returns GitHub's answer to a write to the repository."""
        return read(self._send(call, *self._ours(*arguments), **parameters).content, answer)

    def ask_of_none(self, call: GitHubCall, answer: type[_T]) -> _T:
        """Returns GitHub's answer to what is no question about a repository."""
        return read(self._send(call).content, answer)

    def look(self, call: GitHubCall, answer: type[_T], *arguments: object) -> _T | None:
        """Returns something of the repository as it is now, None if there is no such thing (404)."""
        try:
            found: _T = self._fresh(call, answer, *arguments).value
        except NotThere:
            return None
        return found

    def look_at_all(self, call: GitHubCall, item: type[_T], *arguments: object, **parameters: object) -> list[_T]:
        """Returns all items of a list of the repository as it is now."""
        found: list[_T] = []
        size = 0
        for number in range(1, MOST_PAGES + 1):
            page = self._fresh(call, list[item], *arguments, per_page=PAGE, page=number, **parameters)  # type: ignore[valid-type]
            found += page.value
            size += page.size
            if size > MOST_LISTING_BYTES:
                break
            # A full page says nothing of the next one, which may come to be while this one keeps its tag.
            if len(page.value) < PAGE and not page.more:
                return found
        raise ForgeError(
            f"to {call.words} of {self._repository} takes more than {MOST_PAGES} pages"
            f" or {MOST_LISTING_BYTES // 1024**2} MiB of answers"
        )

    def _fresh(self, call: GitHubCall, answer: Any, *arguments: object, **parameters: object) -> KeptAnswer:
        key = (call, arguments, *sorted(parameters.items()))
        kept = self._kept.get(key)
        headers = {"If-None-Match": kept.tag} if kept else {}
        response = self._send(call, *self._ours(*arguments), headers=headers, **parameters)
        if response.status_code == httpx.codes.NOT_MODIFIED:
            if kept is None:
                raise ForgeError("GitHub says that nothing changed of what was never asked for")
            self._kept.move_to_end(key)
            return kept
        body, tag = response.content, response.headers.get("etag", "")
        new = KeptAnswer(tag, read(body, answer), len(body), "next" in response.links)
        self._keep(key, new)
        return new

    def _keep(self, key: tuple[object, ...], answer: KeptAnswer) -> None:
        if before := self._kept.pop(key, None):
            self._kept_bytes -= before.size
        if not answer.tag:
            return
        self._kept[key] = answer
        self._kept_bytes += answer.size
        while self._kept_bytes > MOST_KEPT_BYTES:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= oldest.size

    def _ours(self, *arguments: object) -> tuple[object, ...]:
        return (self._repository.owner, self._repository.name, *arguments)

    def _send(self, call: GitHubCall, *arguments: object, **parameters: object) -> httpx.Response:
        endpoint = getattr(getattr(self._rest, call.room), call.method)
        try:
            response: httpx.Response = endpoint(*arguments, **parameters).raw_response
        except GitHubException as error:
            # Not from it: what pydantic and h11 say of a token that is none has the token in it.
            raise self._translated(call, error) from None
        if response.is_redirect and response.status_code != httpx.codes.NOT_MODIFIED:
            raise ForgeError(f"{self._repository} has moved on GitHub: give its new name")
        return response

    def _translated(self, call: GitHubCall, error: GitHubException) -> ForgeError:
        """Returns an error in the words of the port. githubkit wraps what went wrong, while signing in twice."""
        cause: BaseException = error
        while isinstance(cause, RequestError) and not isinstance(cause, RequestFailed):
            cause = cause.exc
        if isinstance(cause, RequestFailed):
            return self._refused(call, cause.response.raw_response)
        if isinstance(cause, ForgeError):
            return cause
        if isinstance(cause, httpx.TransportError) and not isinstance(cause, _OUR_FAULTS):
            what = plain(f"{type(cause).__name__}: {cause}"[:_MOST_SAID])
            return ForgeUnreachable(f"GitHub cannot be reached to {call.words} of {self._repository}: {what}")
        return ForgeError(
            f"GitHub could not be asked to {call.words} of {self._repository}: the key or token, or the answer to"
            f" signing in by it, is none ({type(cause).__name__})"
        )

    def _refused(self, call: GitHubCall, response: httpx.Response) -> ForgeError:
        status, said = response.status_code, _said(response)
        what = f"GitHub refuses to {call.words} of {self._repository}: {said} (HTTP {status})"
        if _is_limit(status, response.headers, said):
            return ForgeRateLimited(what, self._limited_until_s(response.headers))
        if status >= httpx.codes.INTERNAL_SERVER_ERROR:
            return ForgeUnreachable(what)
        if status == httpx.codes.UNAUTHORIZED:
            self._tokens.cleanup()  # an App's token that is revoked would be sent for the rest of its hour
        kind = NotThere if status == httpx.codes.NOT_FOUND else ForgeError
        return kind(f"{what}. {_remedy(status, call)}".rstrip())

    def _limited_until_s(self, headers: httpx.Headers) -> float:
        rest_s = float(headers.get("retry-after", _REST_UNSAID_S))
        return self._clock.now() + min(max(rest_s, 1.0), MOST_REST_S)

    def _bound(self, response: httpx.Response) -> None:
        """Is called with every answer before its body is read, those to signing in as well."""
        headers = response.headers
        if headers.get("content-encoding", "identity") != "identity":
            raise ForgeError("GitHub's answer is packed, which nobody asked for: its size could not be bounded")
        # githubkit reads these after us and breaks on what is no number; where the first is, it looks no further.
        if "retry-after" in headers or headers.get("x-ratelimit-remaining") == "0":
            headers["retry-after"] = str(self._rest_s(headers))
        response.stream = BoundedBody(response.stream, self._clock)

    def _rest_s(self, headers: httpx.Headers) -> int:
        """Returns for how long GitHub asks to be left alone."""
        if _SECONDS.fullmatch(headers.get("retry-after", "")):
            return int(headers["retry-after"])
        if "retry-after" not in headers and _SECONDS.fullmatch(headers.get("x-ratelimit-reset", "")):
            return max(0, math.ceil(int(headers["x-ratelimit-reset"]) - self._clock.now()))
        return _REST_UNSAID_S


class NotThere(ForgeError):
    """404: there is no such thing, or it is hidden from us."""


class BoundedBody(httpx.SyncByteStream):
    """The body of an answer, which ends after so many bytes and so long, however slowly it drips."""

    def __init__(self, stream: Any, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock

    def __iter__(self) -> Iterator[bytes]:
        began_s, size = self._clock.monotonic(), 0
        for part in self._stream:
            size += len(part)
            if size > MOST_ANSWER_BYTES:
                raise ForgeError(f"GitHub's answer is longer than {MOST_ANSWER_BYTES // 1024**2} MiB")
            if self._clock.monotonic() - began_s > MOST_ANSWER_S:
                raise ForgeUnreachable(f"GitHub's answer takes longer than {MOST_ANSWER_S:.0f} s")
            yield part

    def close(self) -> None:
        """Gives the connection back."""
        self._stream.close()


def _strategy(sign_in: GitHubToken | GitHubApp, repository: GitHubRepository) -> Any:
    """Returns how githubkit signs in; an App's token is one for this repository alone."""
    if isinstance(sign_in, GitHubToken):
        return TokenAuthStrategy(sign_in.secret)
    return AppInstallationAuthStrategy(
        sign_in.id, sign_in.private_key, sign_in.installation, repositories=[repository.name]
    )


def _ask_plainly(request: httpx.Request) -> None:
    request.headers["Accept-Encoding"] = "identity"


def _said(response: httpx.Response) -> str:
    """Returns GitHub's own message, on one line and short, without a full stop."""
    try:
        words = msgspec.json.decode(response.content, type=GitHubRefusal).words()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # a proxy's page
        words = ""
    return plain(words[:_MOST_SAID]).rstrip(". ") or plain(response.reason_phrase[:_MOST_SAID]) or "it does not say why"


def _is_limit(status: int, headers: httpx.Headers, said: str) -> bool:
    """Returns whether it is for the rate (docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api)."""
    if status == httpx.codes.TOO_MANY_REQUESTS:
        return True
    return status == httpx.codes.FORBIDDEN and ("retry-after" in headers or "rate limit" in said.lower())


def _remedy(status: int, call: GitHubCall) -> str:
    if status == httpx.codes.UNAUTHORIZED:
        return "The token or the App's key is wrong, expired or revoked."
    if status == httpx.codes.FORBIDDEN:
        return f"This takes the repository permission {call.needs}."
    if status == httpx.codes.NOT_FOUND:
        return f"It is not there, or hidden from who lacks the repository permission {call.needs}."
    return ""
