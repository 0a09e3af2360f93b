"""githubkit, bounded: one question to GitHub, what it may cost, and what a refusal means.

It sends each request once. githubkit's own retries, its redirects and its HTTP cache are off: who asks orders the
retries, a redirect could lead a secret to another host, and the cache has no bound.
"""

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
_REST_UNSAID_S = 60.0
"""How long to rest where GitHub does not say it (docs.github.com/rest/using-the-rest-api/best-practices)."""
MOST_REST_S: Final = 2 * 3600.0
"""A primary limit is one of an hour; nobody can make us rest for a year."""
_SECONDS = re.compile(r"\d{1,9}")
_EPOCH = re.compile(r"\d{1,10}")


@dataclass(frozen=True, slots=True)
class KeptPage:
    """A page of a list as GitHub gave it last, by its entity tag."""

    tag: str
    items: tuple[Any, ...]
    size: int
    """Bytes of the answer."""
    more: bool
    """Whether there may be a page after it."""


class GitHubClient:
    """Asks about one repository. Pages of lists are asked for anew only if they changed; for one thread.

    ForgeRateLimited, ForgeUnreachable or ForgeError is all that its methods raise.
    """

    def __init__(self, repository: GitHubRepository, sign_in: GitHubToken | GitHubApp, url: str, clock: Clock) -> None:
        self._repository = repository
        self._clock = clock
        # One of its own: that of the module keeps an App's tokens by the App's number, whatever the host.
        self._tokens = MemCacheStrategy()
        self._pages: OrderedDict[tuple[object, ...], KeptPage] = OrderedDict()
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
        """Returns GitHub's answer about the repository."""
        return read(self._send(call, *self._ours(*arguments), **parameters).content, answer)

    def ask_of_none(self, call: GitHubCall, answer: type[_T]) -> _T:
        """Returns GitHub's answer to what is no question about a repository."""
        return read(self._send(call).content, answer)

    def ask_for_one(self, call: GitHubCall, answer: type[_T], *arguments: object, **parameters: object) -> _T | None:
        """Returns GitHub's answer about the repository, None if there is no such thing (404)."""
        try:
            return self.ask(call, answer, *arguments, **parameters)
        except NotThere:
            return None

    def list(self, call: GitHubCall, item: type[_T], *arguments: object, **parameters: object) -> list[_T]:
        """Returns all items of a list of the repository; a page that did not change costs nothing of the rate limit."""
        found: list[_T] = []
        size = 0
        for number in range(1, MOST_PAGES + 1):
            page = self._page(call, item, number, *arguments, **parameters)
            found += page.items
            size += page.size
            if size > MOST_LISTING_BYTES:
                break
            if not page.more:
                return found
        raise ForgeError(
            f"to {call.words} of {self._repository} takes more than {MOST_PAGES} pages"
            f" or {MOST_LISTING_BYTES // 1024**2} MiB of answers"
        )

    def _page(
        self, call: GitHubCall, item: type[_T], number: int, *arguments: object, **parameters: object
    ) -> KeptPage:
        key = (call.words, arguments, *sorted(parameters.items()), number)
        kept = self._pages.get(key)
        headers = {"If-None-Match": kept.tag} if kept else {}
        response = self._send(call, *self._ours(*arguments), headers=headers, per_page=PAGE, page=number, **parameters)
        if response.status_code == httpx.codes.NOT_MODIFIED:
            if kept is None:
                raise ForgeError("GitHub says that nothing changed of what was never asked for")
            self._pages.move_to_end(key)
            return kept
        items = tuple(read(response.content, list[item]))  # type: ignore[valid-type]
        # A full page says nothing of the next one, which may come to be while this one keeps its tag.
        more = len(items) >= PAGE or "next" in response.links
        page = KeptPage(response.headers.get("etag", ""), items, len(response.content), more)
        self._keep(key, page)
        return page

    def _keep(self, key: tuple[object, ...], page: KeptPage) -> None:
        if before := self._pages.pop(key, None):
            self._kept_bytes -= before.size
        if not page.tag:
            return
        self._pages[key] = page
        self._kept_bytes += page.size
        while self._kept_bytes > MOST_KEPT_BYTES:
            _, oldest = self._pages.popitem(last=False)
            self._kept_bytes -= oldest.size

    def _ours(self, *arguments: object) -> tuple[object, ...]:
        return (self._repository.owner, self._repository.name, *arguments)

    def _send(self, call: GitHubCall, *arguments: object, **parameters: object) -> httpx.Response:
        endpoint = getattr(getattr(self._rest, call.room), call.method)
        try:
            response: httpx.Response = endpoint(*arguments, **parameters).raw_response
        except GitHubException as error:
            raise self._translated(call, error) from error
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
        what = plain(f"{type(cause).__name__}: {cause}"[:_MOST_SAID])
        if isinstance(cause, httpx.TransportError) and not isinstance(cause, httpx.UnsupportedProtocol):
            return ForgeUnreachable(f"GitHub cannot be reached to {call.words} of {self._repository}: {what}")
        return ForgeError(f"GitHub could not be asked to {call.words} of {self._repository}: {what}")

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
        now_s = self._clock.now()
        until_s = now_s + _REST_UNSAID_S
        if "retry-after" in headers:
            until_s = now_s + float(headers["retry-after"])
        elif headers.get("x-ratelimit-remaining") == "0" and "x-ratelimit-reset" in headers:
            until_s = float(headers["x-ratelimit-reset"])
        return min(max(until_s, now_s + 1.0), now_s + MOST_REST_S)

    def _bound(self, response: httpx.Response) -> None:
        """Is called with every answer before its body is read, those to signing in as well."""
        if response.headers.get("content-encoding", "identity") != "identity":
            raise ForgeError("GitHub's answer is packed, which nobody asked for: its size could not be bounded")
        # githubkit reads both as numbers when it has the answer, and does not expect that they are none.
        if not _SECONDS.fullmatch(response.headers.get("retry-after", "0")):
            response.headers["retry-after"] = str(int(_REST_UNSAID_S))
        if not _EPOCH.fullmatch(response.headers.get("x-ratelimit-reset", "0")):
            del response.headers["x-ratelimit-reset"]
        response.stream = BoundedBody(response.stream, self._clock)


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
    except (msgspec.DecodeError, UnicodeDecodeError):  # a proxy's page
        words = ""
    return plain(words[:_MOST_SAID]).rstrip(". ") or plain(response.reason_phrase[:_MOST_SAID]) or "it does not say why"


def _is_limit(status: int, headers: httpx.Headers, said: str) -> bool:
    """Returns whether it is for the rate (docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api)."""
    if status == httpx.codes.TOO_MANY_REQUESTS:
        return True
    asked_to_wait = "retry-after" in headers or headers.get("x-ratelimit-remaining") == "0"
    return status == httpx.codes.FORBIDDEN and (asked_to_wait or "rate limit" in said.lower())


def _remedy(status: int, call: GitHubCall) -> str:
    if status == httpx.codes.UNAUTHORIZED:
        return "The token or the App's key is wrong, expired or revoked."
    if status == httpx.codes.FORBIDDEN:
        return f"This takes the repository permission {call.needs}."
    if status == httpx.codes.NOT_FOUND:
        return f"It is not there, or hidden from who lacks the repository permission {call.needs}."
    return ""
