"""What the pretended forges have in common: how a request finds its rule, and how lists are cut into pages."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar
from urllib.parse import unquote

from yarl import URL

from providers.sim.forge.contents import ForgeErrorAnswer
from providers.sim.forge.state import ForgeAccount, ForgeState, StoredComment, StoredRequest

Document = dict[str, Any]
_Documents = TypeVar("_Documents")
_Stored = TypeVar("_Stored")


@dataclass(frozen=True, slots=True)
class ForgeAsked:
    """A request as it came in; `path` is as on the wire, without the server's prefix."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    address: str
    api: str
    """Where the API is."""
    web: str
    """Where the pages are."""


@dataclass(frozen=True, slots=True)
class ForgeReply:
    """What goes back."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class ForgeAnswer:
    """A status and a document; a list is cut into pages unless it is `whole`."""

    status: int
    document: Document | Sequence[Document]
    whole: bool = False


@dataclass(frozen=True, slots=True)
class ForgeQuestion(Generic[_Documents]):
    """A request that is understood. `account` is None where an App asks as itself."""

    state: ForgeState
    documents: _Documents
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any]
    account: ForgeAccount | None

    def number(self, name: str) -> int:
        """Returns a number of the path."""
        return int(self.path[name])

    def request(self) -> StoredRequest:
        """Returns the request of the path's number."""
        return _there(self.state.requests.get(self.number("number")))

    def comment(self) -> StoredComment:
        """Returns the comment that the path names."""
        return _there(self.state.comments.get(self.number("comment")))

    @property
    def asker(self) -> ForgeAccount:
        """Who asks; an App itself may not ask this."""
        if self.account is None:
            raise ForgeErrorAnswer(403, "Resource not accessible by integration")
        return self.account


Rules = Sequence[tuple[str, str, Callable[[ForgeQuestion[Any]], ForgeAnswer]]]
"""(method, pattern of the path, what answers)."""


@dataclass(frozen=True, slots=True)
class PageRule:
    """How a forge is asked for a page."""

    size: str
    """The parameter with the size."""
    usual: int
    most: int


def _there(found: _Stored | None) -> _Stored:
    if found is None:
        raise ForgeErrorAnswer(404, "Not Found")
    return found


class ForgeDialect(ABC, Generic[_Documents]):
    """How one kind of forge tells and takes a state."""

    rules: ClassVar[Rules]
    pages: ClassVar[PageRule]

    def __init__(self, state: ForgeState) -> None:
        self.state = state
        self._rules = [(method, re.compile(pattern), answer) for method, pattern, answer in self.rules]

    @abstractmethod
    def documents(self, asked: ForgeAsked) -> _Documents:
        """Returns who writes documents."""

    @abstractmethod
    def signed_in(self, asked: ForgeAsked) -> ForgeAccount | None:
        """Returns who asks. ForgeErrorAnswer where that is not proven."""

    def is_here(self, named: Mapping[str, str]) -> bool:
        """Returns whether a path is of the one repository."""
        here = self.state.owner.login, self.state.name
        return (named.get("owner", here[0]), named.get("name", here[1])) == here

    @abstractmethod
    def error(self, status: int, message: str) -> Document:
        """Returns an error's document."""

    def admit(self, asked: ForgeAsked) -> None:
        """ForgeErrorAnswer for what is refused whatever it asks for."""

    def finish(self, _asked: ForgeAsked, reply: ForgeReply) -> ForgeReply:
        """Returns what is sent."""
        return reply

    def reply(self, asked: ForgeAsked) -> ForgeReply:
        """Carries a request out."""
        headers = {"Content-Type": "application/json; charset=utf-8"}
        try:
            account = self.signed_in(asked)
            self.admit(asked)
            answer = self._paged(asked, self._answer(asked, account), headers)
            status, document = answer.status, answer.document
        except ForgeErrorAnswer as error:
            status, document = error.status, self.error(error.status, error.message)
        return self.finish(asked, ForgeReply(status, headers, json.dumps(document).encode()))

    def _answer(self, asked: ForgeAsked, account: ForgeAccount | None) -> ForgeAnswer:
        for method, pattern, answer in self._rules:
            if method == asked.method and (match := pattern.fullmatch(asked.path)):
                named = {name: unquote(text) for name, text in match.groupdict().items()}
                if not self.is_here(named):
                    break
                body = json.loads(asked.body) if asked.body else {}
                return answer(ForgeQuestion(self.state, self.documents(asked), named, asked.query, body, account))
        raise ForgeErrorAnswer(404, "Not Found")

    def _paged(self, asked: ForgeAsked, answer: ForgeAnswer, headers: dict[str, str]) -> ForgeAnswer:
        """Returns a page of a list, and says by links which others there are."""
        if not isinstance(answer.document, list) or answer.whole:
            return answer
        size = min(self.pages.most, int(asked.query.get(self.pages.size, str(self.pages.usual))))
        page = int(asked.query.get("page", "1"))
        last = max(1, -(-len(answer.document) // size))
        address = URL(asked.address)
        numbers = {"prev": page - 1, "next": page + 1, "last": last, "first": 1}
        shown = {"prev": page > 1, "next": page < last, "last": page < last, "first": page > 1}
        links = [
            f'<{address.update_query(page=str(number))}>; rel="{name}"'
            for name, number in numbers.items()
            if shown[name]
        ]
        if links:
            headers["Link"] = ", ".join(links)
        return ForgeAnswer(answer.status, answer.document[(page - 1) * size : page * size])
