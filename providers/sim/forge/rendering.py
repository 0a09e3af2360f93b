"""HTML of the pretended forge's pages. Templates escape whatever they are given; of markdown, raw HTML is text."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.token import Token

from model.plain_text import plain, plain_block
from providers.sim.forge.github.documents import stamp

_TEMPLATES: Final = Path(__file__).parent / "templates"
_OPENS: Final = re.compile(r"<details><summary>([^<>]{1,200})</summary>")
_CLOSES: Final = "</details>"
_HIDDEN: Final = re.compile(r"<!--(?:(?!-->).)*-->")
_SIGNS: Final = {"+": "added", "-": "removed", "~": "changed", "!": "changed", "@": "hunk"}


def _folds(state: StateBlock, first: int, _last: int, silent: bool) -> bool:  # noqa: FBT001 - the library calls it
    """Reads what forges let through of HTML and a plan's comment uses, where it is a line of its own.

    That is `<details><summary>words</summary>`, `</details>` and comments, which nobody sees. Of the first two there
    are as many of each: one that closes nothing is left out, and what is open at the end is closed there.
    """
    if state.level or state.is_code_block(first):
        return False
    line = state.getLines(first, first + 1, 0, keepLastLF=False).strip()
    opens, depth = _OPENS.fullmatch(line), state.env.setdefault("depth", 0)
    if not (opens or line == _CLOSES or _HIDDEN.fullmatch(line)):
        return False
    if silent:
        return True
    state.line = first + 1
    if opens:
        state.env["depth"] += 1
        state.push("details_open", "details", 0).content = opens[1]
    elif line == _CLOSES and depth:
        state.env["depth"] -= 1
        state.push("details_close", "details", 0)
    return True


def _details_open(_self: RendererHTML, tokens: Sequence[Token], at: int, _options: Any, _env: Any) -> str:
    return f"<details><summary>{escapeHtml(tokens[at].content)}</summary>\n"


def _details_close(_self: RendererHTML, _tokens: Sequence[Token], _at: int, _options: Any, _env: Any) -> str:
    return "</details>\n"


def _fence(_self: RendererHTML, tokens: Sequence[Token], at: int, _options: Any, _env: Any) -> str:
    """A block of code; the lines of a diff are told apart."""
    is_diff = tokens[at].info.strip() == "diff"
    lines = tokens[at].content.removesuffix("\n").split("\n")
    shown = [
        f'<span class="{_SIGNS[line[0]]}">{escapeHtml(line)}</span>'
        if is_diff and line[:1] in _SIGNS
        else escapeHtml(line)
        for line in lines
    ]
    return "<pre><code>" + "\n".join(shown) + "</code></pre>\n"


def _reader() -> MarkdownIt:
    """CommonMark with tables, without HTML and pictures. The library takes no address but those of http and mail."""
    made = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["html_block", "html_inline", "image"])
    made.block.ruler.before("fence", "folds", _folds, {"alt": ["paragraph"]})
    for name, rule in (("details_open", _details_open), ("details_close", _details_close), ("fence", _fence)):
        made.add_render_rule(name, rule)
    return made


_READER: Final = _reader()


def markdown_page(text: str) -> str:
    """Returns the HTML of a comment: no tag is in it that the comment's author wrote, but those of `_folds`."""
    env: dict[str, int] = {}
    html: str = _READER.render(text, env)
    return html + _CLOSES * env.get("depth", 0)


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"plain": plain, "block": plain_block, "markdown": markdown_page, "stamp": stamp}
    made.globals |= {"signs": _SIGNS}
    return made


_ENVIRONMENT: Final = _environment()


def page(template: str, **values: Any) -> str:
    """Returns a page: a template of this package with these values."""
    return _ENVIRONMENT.get_template(f"{template}.html").render(values)


STYLE: Final = (_TEMPLATES / "style.css").read_text(encoding="utf-8")
