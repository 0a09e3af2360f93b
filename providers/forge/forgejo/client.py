"""pyforgejo, bounded: one question to Forgejo, what it may cost, and what a refusal means.

It sends each request once. pyforgejo's own retries, which would write a comment twice, and its redirects are off. Its
answers are read a second time, by our structs: its models promise no field. Its rooms are taken one by one: the module
that has them all loads a file `.env` from wherever it is installed into the environment of the process.
"""

from typing import Any, Final, TypeVar

import httpx
import msgspec
from pydantic import ValidationError
from pyforgejo.core.api_error import ApiError
from pyforgejo.core.client_wrapper import SyncClientWrapper
from pyforgejo.issue.raw_client import RawIssueClient
from pyforgejo.organization.raw_client import RawOrganizationClient
from pyforgejo.repository.raw_client import RawRepositoryClient
from pyforgejo.user.raw_client import RawUserClient

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
from providers.forge.forgejo.answers import ForgejoRefusal
from providers.forge.forgejo.calls import ForgejoCall
from providers.forge.forgejo.sign_in import ForgejoToken
from providers.forge.httpx_bounds import ask_plainly, bound
from providers.forge.port import ForgeError, ForgeUnreachable
from providers.forge.reading import read, unreadable

_T = TypeVar("_T")

PAGE: Final = 50
"""How many items a page has, unless the forge is set to give fewer."""
_RESET: Final = "x-ratelimit-reset"
_OUR_FAULTS = (httpx.UnsupportedProtocol, httpx.LocalProtocolError)
_ONCE: Final = {"max_retries": 0}


class ForgejoClient:
    """Asks about one repository, for one thread. ForgeRateLimited, ForgeUnreachable or ForgeError is all it raises."""

    def __init__(self, repository: tuple[str, str], sign_in: ForgejoToken, url: str, clock: Clock) -> None:
        self._repository = repository
        self._secret = sign_in.secret
        self._url = url
        self._clock = clock
        self._held: httpx.Client | None = None
        self._last = httpx.Response(0)

    def hold(self) -> None:
        """Keeps connections open until `release`."""
        self._held = self._opened()

    def release(self) -> None:
        """Closes what `hold` keeps open."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def ask(self, call: ForgejoCall, answer: type[_T], *arguments: object, **parameters: object) -> _T:
        """Returns Forgejo's answer; where it is asked of the repository, arguments follow its name."""
        return read(self._send(call, arguments, parameters).content, answer, "Forgejo")

    def look(self, call: ForgejoCall, answer: type[_T], *arguments: object, **parameters: object) -> _T | None:
        """Returns something as it is now, None if there is no such thing (404)."""
        try:
            return self.ask(call, answer, *arguments, **parameters)
        except NotThere:
            return None

    def look_at_all(self, call: ForgejoCall, page_type: type[_T], *arguments: object, **parameters: object) -> list[_T]:
        """Returns all pages of a list as it is now."""

        def page(number: int) -> tuple[list[_T], int, bool]:
            response = self._send(call, arguments, {**parameters, "limit": PAGE, "page": number})
            found = read(response.content, page_type, "Forgejo")
            return [found], len(response.content), "next" in response.links

        return all_pages(f"{call.words} of {self._name}", page, most_bytes=MOST_LISTING_BYTES)

    @property
    def _name(self) -> str:
        return "/".join(self._repository)

    def _opened(self) -> httpx.Client:
        return httpx.Client(
            headers={"User-Agent": "muster"},
            follow_redirects=False,
            timeout=TIMEOUT_S,
            verify=httpx.create_ssl_context(),
            event_hooks={"request": [ask_plainly], "response": [self._keep]},
        )

    def _keep(self, response: httpx.Response) -> None:
        bound(response, "Forgejo", self._clock)
        self._last = response

    def _send(self, call: ForgejoCall, arguments: tuple[object, ...], parameters: dict[str, object]) -> httpx.Response:
        ours = self._repository if call.is_ours else ()
        client = self._held or self._opened()
        wrapper = SyncClientWrapper(api_key=self._secret, base_url=self._url, timeout=TIMEOUT_S, httpx_client=client)
        ask: Any = getattr(_ROOMS[call.room](client_wrapper=wrapper), call.method)
        try:
            ask(*ours, *arguments, request_options=_ONCE, **parameters)
        except ApiError as error:
            raise self._refused(call, error.status_code or 0) from None
        except _OUR_FAULTS as error:
            raise ForgeError(
                f"Forgejo could not be asked to {call.words} of {self._name}: {type(error).__name__}"
            ) from None
        except httpx.TransportError as error:
            what = plain(f"{type(error).__name__}: {error}"[:MOST_SAID])
            raise ForgeUnreachable(f"Forgejo cannot be reached to {call.words} of {self._name}: {what}") from error
        except (ValidationError, UnicodeDecodeError, RecursionError) as error:
            raise self._unread(call, error) from None
        finally:
            if client is not self._held:
                client.close()
        return self._last

    def _unread(self, call: ForgejoCall, error: Exception) -> ForgeError:
        """Returns what an answer means that pyforgejo could not read: a refusal, maybe, in no words."""
        status = self._last.status_code
        return unreadable(error, "Forgejo") if status < 400 else self._refused(call, status)

    def _refused(self, call: ForgejoCall, status: int) -> ForgeError:
        response = self._last
        if response.is_redirect:
            return ForgeError(f"{self._name} has moved on Forgejo: give its new name or address")
        if response.is_success:
            return ForgeError("Forgejo's answer cannot be read: it is no JSON")
        said = own_words(_words(response.content), response.reason_phrase)
        what = f"Forgejo refuses to {call.words} of {self._name}: {said} (HTTP {status})"
        if status == httpx.codes.TOO_MANY_REQUESTS:
            return limited(what, rest_s(response.headers, _RESET, self._clock), self._clock)
        return refused(what, status, remedy(status, call.needs))


_ROOMS: Final[dict[str, Any]] = {
    "issue": RawIssueClient,
    "organization": RawOrganizationClient,
    "repository": RawRepositoryClient,
    "user": RawUserClient,
}


def _words(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=ForgejoRefusal).words()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # a proxy's page
        return ""
