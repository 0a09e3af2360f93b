"""Text that others wrote, made fit to be shown: in a terminal, a condition, an event, a log line, Slack or markdown.

Names of files, descriptions, annotations and answers of servers may hold anything. Whoever shows them calls one of
these at the last step before the outlet. Each is a pure function; `plain` applied twice is `plain` applied once, so
that an outlet need not know whether an earlier one has been passed.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache

_RUNS_OF_BACKTICKS = re.compile(r"`+")
_FENCE_LEAST = 3
_SLACK = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+!|~$-])")
_LINKED = re.compile(r"(@|(?:[#!~$%]|&amp;)(?=\w)|\bwww(?=\.)|\bgh(?=\\-))", re.IGNORECASE)
"""Where forges begin to see a mention, an issue or an address, also behind a backslash."""
_UNBREAKABLE = "\u200b"


def plain(text: str) -> str:
    r"""Returns the text as one line in which every sign is visible and stands where it was written.

    Control characters (ESC, newline, tab), bidirectional overrides, zero-width signs, private and unassigned code
    points and lone surrogates are written out as in a Python literal (`\x1b`, `\n`, `\u202e`); other spaces become a
    space.
    """
    if text.isprintable():
        return text
    return "".join(map(_visible, text))


@lru_cache(4096)  # a text of a hostile repository may be long
def _visible(sign: str) -> str:
    if sign.isprintable():
        return sign
    if sign not in "\u2028\u2029\t\n\r\v\f\x1c\x1d\x1e\x1f\x85" and sign.isspace():
        return " "
    return sign.encode("unicode_escape").decode("ascii")


def bracket_depth(text: str) -> int:
    """Returns how many parentheses, brackets and braces are in one another, also within quotes: a bound for parsers."""
    depth = most = 0
    for sign in text:
        depth += (sign in "([{") - (sign in ")]}")
        most = max(most, depth)
    return most


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun: `1 pod`, `2 pods`."""
    return f"{number} {number_of(number, noun, noun + 's')}"


def number_of(number: float, one: str, several: str) -> str:
    """Returns the word for that many: `is` or `are`."""
    return one if number == 1 else several


def plain_lines(lines: Iterable[str]) -> str:
    """Returns lines of our making joined by newlines; what others wrote in them cannot add a line."""
    return "\n".join(map(plain, lines))


def plain_block(text: str) -> str:
    """Returns text of several lines (an excerpt, a traceback) with its lines kept and tabs as four spaces."""
    return plain_lines(line.replace("\t", "    ") for line in text.split("\n"))


def slack(text: str) -> str:
    """Returns the text for a Slack message: no link, no mention of people or channels, no markup of its own.

    Slack reads only `&`, `<` and `>` as the beginning of links and mentions; servers that take the same messages
    (Mattermost, Rocket.Chat) also read a bare `@channel` and asterisks, which a zero-width space disarms.
    """
    escaped = plain(text).translate(_SLACK)
    return re.sub(r"([@*_~`])", rf"\1{_UNBREAKABLE}", escaped)


def markdown(text: str) -> str:
    """Returns the text for a paragraph or a table's cell of markdown: no markup, no HTML, no mention, no link."""
    escaped = _MARKDOWN.sub(r"\\\1", plain(text)).translate(_SLACK)
    return _LINKED.sub(rf"\1{_UNBREAKABLE}", escaped).replace("://", f":{_UNBREAKABLE}//")


def fenced(text: str, language: str = "") -> str:
    """Returns lines as a fenced code block of markdown, with a fence longer than any run of backticks among them."""
    fence = "`" * max(_FENCE_LEAST, 1 + _longest_run(text))
    return f"{fence}{language}\n{plain_block(text)}\n{fence}"


def code_span(text: str) -> str:
    """Returns the text as inline code of markdown, between runs of backticks longer than any within it."""
    shown = plain(text)
    fence = "`" * (1 + _longest_run(shown))
    padded = f" {shown} " if shown.startswith("`") or shown.endswith("`") else shown
    return f"{fence}{padded}{fence}" if shown else ""


def _longest_run(text: str) -> int:
    return max(map(len, _RUNS_OF_BACKTICKS.findall(text)), default=0)


def instant(epoch_s: float) -> str:
    """Returns an instant as Kubernetes writes one (RFC 3339, UTC): true whenever it is read, as no age is."""
    return datetime.fromtimestamp(int(epoch_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def age(seconds: float) -> str:
    """Returns an age as kubectl shows it: `42s`, `7m`, `5h`, `5d`."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole}s"
    if whole < 3 * 3600:
        return f"{whole // 60}m"
    return f"{whole // 3600}h" if whole < 48 * 3600 else f"{whole // 86400}d"
