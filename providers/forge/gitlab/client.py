"""python-gitlab, bounded: one question to GitLab, what it may cost, and what a refusal means.

It sends each request once. python-gitlab's own retries, and the redirects of requests, are off: who asks orders the
retries, and a redirect would take the token to another host.
"""

import io
import ssl
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec
import requests
from gitlab import Gitlab
from gitlab.exceptions import GitlabAuthenticationError, GitlabError, GitlabHttpError
from requests.adapters import HTTPAdapter
from requests.exceptions import InvalidHeader, InvalidSchema, InvalidURL, RequestException, TooManyRedirects
from urllib3.exceptions import HTTPError

from model.plain_text import plain
from providers.clock import Clock
from providers.forge.bounds import (
    MOST_LISTING_BYTES,
    MOST_SAID,
    TIMEOUT_S,
    NotThere,
    all_pages,
    bounded,
    check_unpacked,
    limited,
    own_words,
    refused,
    remedy,
    rest_s,
)
from providers.forge.gitlab.answers import GitLabRefusal
from providers.forge.gitlab.calls import SET_STATUS, GitLabCall
from providers.forge.gitlab.sign_in import GitLabToken
from providers.forge.port import CommitUnknown, ForgeError, ForgeUnreachable
from providers.forge.reading import read, unreadable

_T = TypeVar("_T")

PAGE: Final = 100
"""How many items a page has; GitLab gives no more."""
_PART_BYTES: Final = 64 * 1024
_RESET: Final = "ratelimit-reset"
_OUR_FAULTS = (InvalidHeader, InvalidSchema, InvalidURL)


_UNKNOWN: Final = ((404, "404 commit not found"), (400, "the commit does not exist"))
"""How GitLab says that it knows no such commit: of a status and a merge, and of a deployment."""


class GitLabClient:
    """Asks about one project, for one thread. ForgeRateLimited, ForgeUnreachable or ForgeError is all it raises."""

    def __init__(self, project: str, sign_in: GitLabToken, url: str, clock: Clock) -> None:
        self._project = project
        self._clock = clock
        self._answered = BoundedAdapter(clock)
        session = requests.Session()
        session.headers["Accept-Encoding"] = "identity"
        session.max_redirects = 0
        session.mount("https://", self._answered)
        session.mount("http://", self._answered)
        self._session = session
        self._held = False
        # The certificate authorities that httpx and git take as well; with none said, those of requests.
        authorities = ssl.get_default_verify_paths().cafile
        self._gitlab = Gitlab(
            url,
            private_token=sign_in.secret,
            session=session,
            ssl_verify=authorities or True,
            timeout=TIMEOUT_S,
            user_agent="muster",
        )

    def hold(self) -> None:
        """Keeps connections open until `release`."""
        self._held = True

    def release(self) -> None:
        """Closes what `hold` keeps open."""
        self._held = False
        self._session.close()

    def ask(self, call: GitLabCall, answer: type[_T], *arguments: object, **parameters: object) -> _T:
        """Returns GitLab's answer; arguments fill the path after the project."""
        return read(self._send(call, arguments, parameters).content, answer, "GitLab")

    def look(self, call: GitLabCall, answer: type[_T], *arguments: object, **parameters: object) -> _T | None:
        """Returns something as it is now, None if there is no such thing (404)."""
        try:
            return self.ask(call, answer, *arguments, **parameters)
        except NotThere:
            return None

    def look_at_all(self, call: GitLabCall, item: type[_T], *arguments: object, **parameters: str) -> list[_T]:
        """Returns all items of a list as it is now."""

        def page(number: int) -> tuple[list[_T], int, bool]:
            response = self._send(call, arguments, {**parameters, "per_page": PAGE, "page": number})
            items: list[_T] = read(response.content, list[item], "GitLab")  # type: ignore[valid-type]
            return items, len(response.content), "next" in response.links

        return all_pages(f"{call.words} of {self._project}", page, most_bytes=MOST_LISTING_BYTES)

    def _send(
        self, call: GitLabCall, arguments: tuple[object, ...], parameters: Mapping[str, object]
    ) -> requests.Response:
        ours = (self._project,) if call.path.startswith("/projects/") else ()
        path = call.path.format(*(quote(str(each), safe="") for each in (*ours, *arguments)))
        given: dict[str, Any] = {"query_data" if call.method == "get" else "post_data": dict(parameters)}
        try:
            return self._gitlab.http_request(
                call.method, path, obey_rate_limit=False, retry_transient_errors=False, max_retries=0, **given
            )
        except (GitlabAuthenticationError, GitlabHttpError) as error:
            raise self._refused(call, error.response_code or 0) from None
        except TooManyRedirects:
            raise ForgeError(f"{self._project} has moved on GitLab: give its new path or address") from None
        except _OUR_FAULTS as error:
            raise ForgeError(
                f"GitLab could not be asked to {call.words} of {self._project}: {type(error).__name__}"
            ) from None
        except RequestException as error:
            what = plain(f"{type(error).__name__}: {error}"[:MOST_SAID])
            raise ForgeUnreachable(f"GitLab cannot be reached to {call.words} of {self._project}: {what}") from None
        except (GitlabError, RecursionError) as error:  # python-gitlab reads what a refusal says
            status = self._answered.status
            raise (self._refused(call, status) if status >= 400 else unreadable(error, "GitLab")) from None
        finally:
            if not self._held:
                self._session.close()

    def _refused(self, call: GitLabCall, status: int) -> ForgeError:
        headers = self._answered.headers
        said = own_words(_words(self._answered.body), self._answered.reason)
        what = f"GitLab refuses to {call.words} of {self._project}: {said} (HTTP {status})"
        if status == requests.codes.too_many_requests:
            return limited(what, rest_s(headers, _RESET, self._clock), self._clock)
        if status == requests.codes.conflict and call == SET_STATUS:  # it waits for who else sets one, and gives up
            return ForgeUnreachable(what)
        if any(status == at and words in said.lower() for at, words in _UNKNOWN):
            return CommitUnknown(what)
        return refused(what, status, remedy(status, call.needs))


class BoundedAdapter(HTTPAdapter):
    """Reads each answer within the bounds before anybody else does, and keeps what python-gitlab's errors leave out."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self.status = 0
        self.reason = ""
        self.headers: Mapping[str, str] = {}
        self.body = b""

    def send(self, request: requests.PreparedRequest, *arguments: Any, **options: Any) -> requests.Response:
        """Sends a request, once."""
        response = super().send(request, *arguments, **{**options, "stream": True})
        raw = response.raw
        try:
            check_unpacked(response.headers, "GitLab")
            body = b"".join(bounded(_parts(raw), "GitLab", self._clock))
        except HTTPError as error:
            raise requests.ConnectionError(f"{type(error).__name__}: the answer ends early") from error
        finally:
            raw.close()
        response.raw = io.BytesIO(body)
        self.status, self.reason = response.status_code, response.reason or ""
        self.headers, self.body = response.headers, body
        return response


def _parts(raw: Any) -> Iterator[bytes]:
    """Yields what has come: to wait for a part of full size would be to wait for whoever drips."""
    while part := raw.read1(_PART_BYTES):
        yield part


def _words(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=GitLabRefusal).words()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # a proxy's page
        return ""
