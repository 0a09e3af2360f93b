"""githubkit, bounded: one question to GitHub, what it may cost, and what a refusal means.

It sends each request once. githubkit's own retries, its redirects and its HTTP cache are off: who asks orders the
retries, a redirect could lead a secret to another host, and the cache has no bound.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import httpx
import msgspec
from githubkit import AppInstallationAuthStrategy, GitHub, TokenAuthStrategy
from githubkit.cache import MemCacheStrategy
from githubkit.exception import GitHubException, RequestError, RequestFailed

from model.plain_text import plain
from providers.clock import Clock
from providers.forge.bounds import (
    MOST_LISTING_BYTES,
    MOST_SAID,
    TIMEOUT_S,
    NotThere,
    all_pages,
    limited,
    own_words,
    refused,
    remedy,
    rest_s,
)
from providers.forge.github.answers import GitHubRefusal
from providers.forge.github.calls import GitHubCall
from providers.forge.github.sign_in import GitHubApp, GitHubRepository, GitHubToken
from providers.forge.httpx_bounds import ask_plainly, bound
from providers.forge.port import CommitUnknown, ForgeError, ForgeUnreachable
from providers.forge.reading import read

_T = TypeVar("_T")

API_VERSION: Final = "2022-11-28"
PAGE: Final = 100
"""How many items a page has; GitHub gives no more."""
MOST_KEPT_BYTES: Final = 32 * 1024 * 1024
_RESET = "x-ratelimit-reset"
_UNKNOWN = ("no commit found", "no ref found")
"""How GitHub begins where it does not know a commit, with 422: its interface lags behind its git."""
_OUR_FAULTS = (httpx.UnsupportedProtocol, httpx.LocalProtocolError)


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
            event_hooks={"request": [ask_plainly], "response": [self._bound]},
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
        """Returns GitHub's answer to a write, or to what is asked once."""
        return read(self._send(call, *arguments, **parameters).content, answer, "GitHub")

    def look(self, call: GitHubCall, answer: type[_T], *arguments: object, **parameters: object) -> _T | None:
        """Returns something as it is now, None if there is no such thing (404)."""
        try:
            found: _T = self._fresh(call, answer, *arguments, **parameters).value
        except NotThere:
            return None
        return found

    def look_at_all(self, call: GitHubCall, item: type[_T], *arguments: object, **parameters: object) -> list[_T]:
        """Returns all items of a list of the repository as it is now."""

        def page(number: int) -> tuple[list[_T], int, bool]:
            kept = self._fresh(call, list[item], *arguments, per_page=PAGE, page=number, **parameters)  # type: ignore[valid-type]
            # A full page says nothing of the next one, which may come to be while this one keeps its tag.
            return kept.value, kept.size, kept.more or len(kept.value) >= PAGE

        return all_pages(f"{call.words} of {self._repository}", page, most_bytes=MOST_LISTING_BYTES)

    def _fresh(self, call: GitHubCall, answer: Any, *arguments: object, **parameters: object) -> KeptAnswer:
        key = (call, arguments, *sorted(parameters.items()))
        kept = self._kept.get(key)
        headers = {"If-None-Match": kept.tag} if kept else {}
        response = self._send(call, *arguments, headers=headers, **parameters)
        if response.status_code == httpx.codes.NOT_MODIFIED:
            if kept is None:
                raise ForgeError("GitHub says that nothing changed of what was never asked for")
            self._kept.move_to_end(key)
            return kept
        body, tag = response.content, response.headers.get("etag", "")
        new = KeptAnswer(tag, read(body, answer, "GitHub"), len(body), "next" in response.links)
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

    def _send(self, call: GitHubCall, *arguments: object, **parameters: object) -> httpx.Response:
        endpoint = getattr(getattr(self._rest, call.room), call.method)
        ours = (self._repository.owner, self._repository.name) if call.is_ours else ()
        try:
            response: httpx.Response = endpoint(*ours, *arguments, **parameters).raw_response
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
            what = plain(f"{type(cause).__name__}: {cause}"[:MOST_SAID])
            return ForgeUnreachable(f"GitHub cannot be reached to {call.words} of {self._repository}: {what}")
        return ForgeError(
            f"GitHub could not be asked to {call.words} of {self._repository}: the key or token, or the answer to"
            f" signing in by it, is none ({type(cause).__name__})"
        )

    def _refused(self, call: GitHubCall, response: httpx.Response) -> ForgeError:
        status, said = response.status_code, _said(response)
        what = f"GitHub refuses to {call.words} of {self._repository}: {said} (HTTP {status})"
        if _is_limit(status, response.headers, said):
            return limited(what, rest_s(response.headers, _RESET, self._clock), self._clock)
        if status == httpx.codes.UNPROCESSABLE_ENTITY and said.lower().startswith(_UNKNOWN):
            return CommitUnknown(what)
        if status == httpx.codes.UNAUTHORIZED:
            self._tokens.cleanup()  # an App's token that is revoked would be sent for the rest of its hour
        return refused(what, status, remedy(status, f"the {call.needs}", proof="token or the App's key"))

    def _bound(self, response: httpx.Response) -> None:
        """Is called with every answer before its body is read, those to signing in as well."""
        headers = response.headers
        # githubkit reads these after us and breaks on what is no number; where the first is, it looks no further.
        if "retry-after" in headers or headers.get("x-ratelimit-remaining") == "0":
            headers["retry-after"] = str(rest_s(headers, _RESET, self._clock))
        bound(response, "GitHub", self._clock)


def _strategy(sign_in: GitHubToken | GitHubApp, repository: GitHubRepository) -> Any:
    """Returns how githubkit signs in; an App's token is one for this repository alone."""
    if isinstance(sign_in, GitHubToken):
        return TokenAuthStrategy(sign_in.secret)
    return AppInstallationAuthStrategy(
        sign_in.id, sign_in.private_key, sign_in.installation, repositories=[repository.name]
    )


def _said(response: httpx.Response) -> str:
    """Returns GitHub's own message, on one line and short, without a full stop."""
    try:
        words = msgspec.json.decode(response.content, type=GitHubRefusal).words()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # a proxy's page
        words = ""
    return own_words(words, response.reason_phrase)


def _is_limit(status: int, headers: httpx.Headers, said: str) -> bool:
    """Returns whether it is for the rate (docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api)."""
    if status == httpx.codes.TOO_MANY_REQUESTS:
        return True
    return status == httpx.codes.FORBIDDEN and ("retry-after" in headers or "rate limit" in said.lower())
