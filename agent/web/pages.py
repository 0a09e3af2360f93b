"""Which address shows what, rendered in a thread of its own and kept for all viewers until something changes."""

import gzip
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from math import ceil, inf
from typing import Final
from urllib.parse import urlencode

from agent.review.world import LastPass
from agent.web.api import JSON, ApiQuestion
from agent.web.rendering import Assets, PageRenderer, RenderedPage, compile_templates
from agent.web.seen import PageNews, PageWatcher, Scope
from agent.web.time_share import SHARE, TimeShare
from agent.web.view import Looking, PageView, View, notice
from agent.web.views_machines import machine, machines, market, money
from agent.web.views_work import gang, gangs, journal, overview, plan, queue, queues
from model.fleet import Fleet
from model.index import Index, derived

_NAME: Final = r"([A-Za-z0-9][A-Za-z0-9._:-]{0,252})"
ROUTES: Final[tuple[tuple[re.Pattern[str], View], ...]] = tuple(
    (re.compile(pattern), view)
    for pattern, view in (
        (r"/", overview),
        (r"/queues", queues),
        (rf"/queues/{_NAME}", queue),
        (r"/gangs", gangs),
        (rf"/gangs/{_NAME}/{_NAME}", gang),
        (r"/machines", machines),
        (rf"/machines/{_NAME}", machine),
        (r"/money", money),
        (r"/market", market),
        (r"/plan", plan),
        (r"/journal", journal),
    )
)
QUERY_WORDS: Final = frozenset({"by", "event", "month", "page", "pool", "q", "queue", "state", "team"})
KEPT_PAGES: Final = 128
KEPT_BYTES: Final = 64 * 2**20
"""The most that pages kept for other viewers take; the longest unread go first."""
PATIENCE: Final = 1.5
FRESH_S: Final = 1.0
"""A picture is shown at least this long: nobody sees more than one a second."""


STANDBY: Final = (
    "An agent shows what it decides on. One that has just started has not looked yet; one of several shows it "
    "only while it leads, so with two of them ask the other pod."
)


class Busy(Exception):
    """The page has taken its part of the process's time; `after_s` says when to come again."""

    def __init__(self, after_s: float) -> None:
        self.after_s = ceil(after_s)
        super().__init__(f"the page has used up its share of time; come again in {self.after_s} s")


@dataclass(slots=True)
class PageAnswer:
    """A page in parts, and as a whole where somebody has asked for that."""

    page: RenderedPage
    html: bytes = b""
    packed: bytes = b""
    """The same, compressed (gzip)."""

    @property
    def size(self) -> int:
        """Returns what it takes in memory, about."""
        return sum(len(part.html) for part in self.page.parts) + len(self.html) + len(self.packed)


def root_of(path: str) -> str:
    """Returns the way from a page to the first one, so that a proxy may put all of them below any address."""
    return "../" * (path.count("/") - 1) or "./"


class Pages:
    """Makes pages of what the watcher keeps. `find` is called by one thread only; `current` by any."""

    def __init__(self, watcher: PageWatcher, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.assets = Assets()
        self.renderer = PageRenderer(self.assets)
        self.executor = ThreadPoolExecutor(1, thread_name_prefix="page")
        self.executor.submit(compile_templates)
        self._watcher = watcher
        self._monotonic = monotonic
        self._share = TimeShare(monotonic)
        self._seen = watcher.now()
        self._taken_at_s, self._saved_s, self._spent_s = -inf, 0.0, 0.0
        """When the picture was taken, what could be spent at once then, and what has been spent on it (CPU seconds)."""
        self._kept: OrderedDict[tuple[str, str, Scope, str], PageAnswer] = OrderedDict()
        self._kept_bytes = 0
        watcher.at_first(lambda: self.executor.submit(self.prepare))

    def prepare(self) -> None:
        """Makes the first page before anybody asks: of ten thousand machines that is half a second, later a tenth."""
        with suppress(Busy):
            self.find("/", {}, Scope(), whole=False)

    def current(self) -> PageNews:
        """Returns the picture that is shown at present: another at most once a second, later where it was costly.

        It stays for half as long again as its cost takes to be saved up: whoever was told to come again has their turn
        before others see the next one.
        """
        now_s = self._monotonic()
        costly_s = PATIENCE * max(0.0, self._spent_s - self._saved_s) / SHARE
        if now_s >= self._taken_at_s + max(FRESH_S, costly_s):
            self._seen = self._watcher.now()
            self._taken_at_s, self._saved_s, self._spent_s = now_s, self._share.saved_s(), 0.0
        return self._seen

    def namespaces(self) -> frozenset[str]:
        """Returns the namespaces of teams and local queues, which a viewer may see or not."""
        last = self.current().last
        return _namespaces(last.fleet.index, last.fleet) if last is not None else frozenset()

    def find(
        self, path: str, query: Mapping[str, str], scope: Scope, who: str = "", *, whole: bool = True
    ) -> PageAnswer | None:
        """Returns the page at an address; None where there is none. Errors: `Busy`.

        Without `whole` only its parts, for a viewer who has the page already.
        """
        seen = self.current()
        words = {name: query[name] for name in sorted(QUERY_WORDS & query.keys())}
        key = (path, urlencode(words), scope, who)
        held = self._kept.get(key)
        fresh = held is not None and held.page.version == seen.version
        if held is not None and fresh and (held.html or not whole):
            self._kept.move_to_end(key)
            return held
        if (wait_s := self._share.wait_s()) > 0:
            if held is not None and (held.html or not whole):
                return held
            raise Busy(wait_s)
        began_s = time.thread_time()
        try:
            made = held if held is not None and fresh else self._made(seen, path, words, scope)
            if made is not None:
                if whole:
                    made = self._whole(made, path, who)
                self._keep(key, made)
        finally:
            took_s = time.thread_time() - began_s
            self._share.spend(took_s)
            self._spent_s += took_s
        return made

    def _made(self, seen: PageNews, path: str, query: Mapping[str, str], scope: Scope) -> PageAnswer | None:
        found = next(((view, match) for pattern, view in ROUTES if (match := pattern.fullmatch(path))), None)
        if found is None:
            return None
        view, match = found
        if seen.last is None:
            shown: PageView | None = notice("Nothing to show yet", [seen.state.standing[1], STANDBY])
        else:
            shown = view(_looking(seen, seen.last, scope, query, match.groups()))
        if shown is None:
            return None
        parts = self.renderer.parts(shown, f"{path}?{urlencode(query)} {scope}", root_of(path))
        return PageAnswer(RenderedPage(shown.title, seen.version, parts))

    def answer(
        self, question: ApiQuestion, names: Sequence[str], query: Mapping[str, str], scope: Scope, kind: str = JSON
    ) -> bytes:
        """Returns what is known, as JSON or in words.

        Errors: `Busy`, `NothingSeen`, `NothingSo` for what is not there or not to be seen, and `ValueError` for a
        question that makes no sense.
        """
        seen = self.current()
        if seen.last is None:
            raise NothingSeen(seen.state.standing[1])
        if (wait_s := self._share.wait_s()) > 0:
            raise Busy(wait_s)
        began_s = time.thread_time()
        try:
            return question.told(_looking(seen, seen.last, scope, query, names), kind)
        finally:
            self._share.spend(time.thread_time() - began_s)

    def _whole(self, made: PageAnswer, path: str, who: str) -> PageAnswer:
        html = self.renderer.document(made.page, root_of(path), path.split("/")[1], who=who).encode()
        return PageAnswer(made.page, html, gzip.compress(html, 1, mtime=0))

    def _keep(self, key: tuple[str, str, Scope, str], made: PageAnswer) -> None:
        before = self._kept.pop(key, None)
        self._kept_bytes += made.size - (before.size if before is not None else 0)
        self._kept[key] = made
        while len(self._kept) > KEPT_PAGES or self._kept_bytes > KEPT_BYTES:
            _, gone = self._kept.popitem(last=False)
            self._kept_bytes -= gone.size


class NothingSeen(Exception):
    """The agent has not looked yet, or does not lead; the message says which."""


def _looking(seen: PageNews, last: LastPass, scope: Scope, query: Mapping[str, str], names: Sequence[str]) -> Looking:
    terms, explain, months = seen.terms, seen.explain, seen.months
    return Looking(*last, seen.state, seen.journal, seen.events, scope, query, names, terms, explain, months)


@derived()
def _namespaces(_index: Index, fleet: Fleet) -> frozenset[str]:
    local = (it.metadata.namespace for it in fleet.local_queues.values())
    return frozenset(local).union(*(team.spec.namespaces for team in fleet.teams.values()))
