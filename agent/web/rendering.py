"""HTML of the page. Templates escape whatever they are given, and show every sign of it where it was written."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from agent.web.view import PageView, Part
from agent.web.views_machines import draw
from agent.web.views_work import gpus_asked, short_resource
from model.plain_text import age, counted, plain
from model.quantity import format_amount

_HERE: Final = Path(__file__).parent
ASSETS: Final = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
_HASH_SIGNS: Final = 10
_COMMIT: Final = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{28}\b")
"""The first signs of a commit are enough to tell it from others."""
NAVIGATION: Final = (
    ("", "Overview"),
    ("queues", "Queues"),
    ("gangs", "Gangs"),
    ("machines", "Machines"),
    ("money", "Money"),
    ("market", "Prices"),
    ("plan", "Plan"),
    ("journal", "Journal"),
)


@dataclass(frozen=True, slots=True)
class RenderedPart:
    """A part as HTML; another hash is other HTML."""

    id: str
    hash: str
    html: str


@dataclass(frozen=True, slots=True)
class RenderedPage:
    """A page whose parts can be sent one by one."""

    title: str
    version: int
    parts: tuple[RenderedPart, ...]


def stamp(at_s: float) -> str:
    """Returns an instant (epoch seconds) as `2026-11-27 04:40:53 UTC`; `-` for none."""
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S} UTC" if at_s else "-"


def _when(at_s: float, now_s: float) -> Markup:
    """Returns how long ago an instant was, with the instant itself for machines and for whoever points at it."""
    if not at_s:
        return Markup("-")
    iso = f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%M:%SZ}"
    ahead = at_s > now_s + 1
    words = f"in {age(at_s - now_s)}" if ahead else f"{age(now_s - at_s)} ago"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        iso, stamp(at_s), words
    )  # escapes what it is given


class Assets:
    """Style, script and icon: read once, served under an address that changes with what they hold."""

    def __init__(self) -> None:
        self.content = {name: (_HERE / "static" / name).read_bytes() for name in ASSETS}
        self._hashes = {name: hashlib.sha256(body).hexdigest()[:_HASH_SIGNS] for name, body in self.content.items()}

    def address(self, name: str) -> str:
        """Returns where it is, relative to the root of the page."""
        return f"static/{name}?v={self._hashes[name]}"


@cache
def _templates() -> Environment:
    """Returns the templates, which are part of the package and compiled once a process."""
    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "commit": lambda revision: _COMMIT.sub(r"\1", revision),
        "p": lambda text: plain(str(text)),
        "usd": lambda amount: f"{amount:,.2f}",
        "age": age,
        "counted": counted,
        "short": short_resource,
        "stamp": stamp,
    }
    made.globals |= {"when": _when, "amount": format_amount, "asks": gpus_asked, "navigation": NAVIGATION, "draw": draw}
    return made


def compile_templates() -> None:
    """Read all templates, so that the first who looks does not wait for it."""
    for name in _templates().list_templates():
        _templates().get_template(name)


class PageRenderer:
    """Fills templates. Blocks of a large page that have not changed since the last time are not filled again."""

    def __init__(self, assets: Assets) -> None:
        self._assets = assets
        self._last: dict[tuple[str, str], tuple[Any, RenderedPart]] = {}

    def parts(self, view: PageView, key: str, root: str) -> tuple[RenderedPart, ...]:
        """Returns the parts of a page as HTML; `key` tells pages apart, `root` leads from the page to the first one."""
        return tuple(self._part(part, key, root) for part in view.parts)

    def _part(self, part: Part, key: str, root: str) -> RenderedPart:
        block = part.template == "map_block.html"  # values that are compared quickly and change seldom
        held = self._last.get((key, part.id)) if block else None
        if held is not None and held[0] == part.values:
            return held[1]
        html = _templates().get_template(part.template).render(part.values, root=root)
        found = RenderedPart(part.id, hashlib.sha256(html.encode()).hexdigest()[:_HASH_SIGNS], html)
        if block:
            if len(self._last) > _BLOCKS_MOST:
                self._last.clear()
            self._last[key, part.id] = part.values, found
        return found

    def document(self, page: RenderedPage, root: str, active: str, *, who: str = "", live: bool = True) -> str:
        """Returns the whole page; `active` is where the navigation stands."""
        shell = _templates().get_template("base.html")
        return shell.render(page=page, root=root, active=active, who=who, live=live, asset=self._assets.address)

    def notice(self, title: str, paragraphs: Sequence[str], root: str, *, login: bool = False) -> str:
        """Returns a page that says why there is no other."""
        words = _templates().get_template("notice.html")
        values = {"title": title, "paragraphs": paragraphs, "login": login}
        page = RenderedPage(title, 0, (RenderedPart("notice", "", words.render(values, root=root)),))
        return self.document(page, root, "", live=False)


_BLOCKS_MOST: Final = 1_000
