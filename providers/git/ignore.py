"""`.musterignore`: gitignore(5) rules, matched in time linear in the path so that no pattern can stall the agent."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from providers.git.errors import RepositoryTooLarge

IGNORE_FILE = ".musterignore"
MAX_RULES = 1_000
_MAX_PATTERN = 1_024
_NEVER = re.compile(r"(?!)")
_ANY = re.compile(r"(?s:.+)")
_CLASSES = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z", "space": r"\s",
    "blank": r" \t", "punct": r"!-/:-@\[-`{-~", "xdigit": "0-9A-Fa-f", "cntrl": r"\x00-\x1f\x7f", "print": r"\x20-\x7e",
    "graph": r"\x21-\x7e",
}  # fmt: skip


@dataclass(frozen=True)
class IgnoreRule:
    """One line: path segments as patterns, None for `**`; relative to the folder that holds the file."""

    segments: tuple[re.Pattern[str] | None, ...]
    negated: bool
    folders_only: bool

    def matches(self, parts: Sequence[str], *, folder: bool) -> bool:
        """Whether the path `parts` (relative to the rule's folder, UTF-8 as Latin-1) is what this line names."""
        return (folder or not self.folders_only) and _match(self.segments, parts)


@dataclass(frozen=True)
class IgnoreFile:
    """The rules of one file, which apply to what is below its folder: `depth` path segments from the root."""

    depth: int
    rules: tuple[IgnoreRule, ...]


def ignored(files: Sequence[IgnoreFile], parts: Sequence[str], *, folder: bool) -> bool:
    """Whether the path is ignored, given the ignore files from the root down to its folder.

    The last matching line of the deepest file decides. As in git, nothing below an ignored folder can be taken back
    in: the caller does not go down there.
    """
    for file in reversed(files):
        below = [os.fsencode(part).decode("latin-1") for part in parts[file.depth :]]
        for rule in reversed(file.rules):
            if rule.matches(below, folder=folder):
                return not rule.negated
    return False


def parse_ignore(content: bytes) -> tuple[IgnoreRule, ...]:
    """The rules of an ignore file. Errors: RepositoryTooLarge beyond 1,000 rules or 1,024 characters a line."""
    # git matches bytes, so one character of a pattern is one byte: Latin-1 gives both sides that.
    lines = content.removeprefix(b"\xef\xbb\xbf").decode("latin-1").split("\n")
    rules = tuple(rule for rule in map(_rule, lines) if rule is not None)
    if len(rules) > MAX_RULES:
        raise RepositoryTooLarge(f"{IGNORE_FILE} has {len(rules)} rules; {MAX_RULES} are allowed")
    return rules


def _rule(line: str) -> IgnoreRule | None:
    text = _trimmed(line.removesuffix("\r"))
    if not text or text.startswith("#"):
        return None
    if len(text) > _MAX_PATTERN:
        raise RepositoryTooLarge(f"{IGNORE_FILE} has a line of more than {_MAX_PATTERN} characters")
    negated = text.startswith("!")
    text = text.removeprefix("!")
    folders_only = text.endswith("/")
    text = text.removesuffix("/")
    if not text:
        return None
    return IgnoreRule(_segments(text), negated, folders_only)


def _trimmed(line: str) -> str:
    """Without trailing blanks, except a blank behind a backslash."""
    bare = line.rstrip(" ")
    slashes = len(bare) - len(bare.rstrip("\\"))
    return bare + " " if slashes % 2 and len(bare) < len(line) else bare


def _segments(text: str) -> tuple[re.Pattern[str] | None, ...]:
    parts = _split(text.removeprefix("/"))
    if parts is None:
        return (_NEVER,)
    if "/" not in text:
        return None, _pattern(text)
    segments = [None if len(part) > 1 and not part.strip("*") else _pattern(part) for part in parts]
    if segments[-1] is None:
        segments.insert(-1, _ANY)  # `a/**` is what is in `a`, not `a`
    return tuple(segments)


def _split(text: str) -> list[str] | None:
    """The pattern at its slashes, also escaped ones, but not at those in brackets; None where a bracket is open."""
    parts = [""]
    at = 0
    while at < len(text):
        end = at + 1
        if text[at] == "[":
            found = _class(text, at)
            if found is None:
                return None
            end = found[1]
        elif text[at] == "\\":
            end = at + 2
        if text[at:end] in {"/", "\\/"}:
            parts.append("")
        else:
            parts[-1] += text[at:end]
        at = end
    return parts


def _match(segments: Sequence[re.Pattern[str] | None], parts: Sequence[str]) -> bool:
    """Glob over segments. Going back to the last `**` alone is enough: an earlier one gains nothing by taking more."""
    at, part, star, resume = 0, 0, -1, 0
    while part < len(parts):
        if at < len(segments) and segments[at] is None:
            star, resume, at = at, part, at + 1
        elif at < len(segments) and _fits(segments[at], parts[part]):
            at, part = at + 1, part + 1
        elif star >= 0:
            resume += 1
            at, part = star + 1, resume
        else:
            return False
    return all(segment is None for segment in segments[at:])


def _fits(segment: re.Pattern[str] | None, name: str) -> bool:
    return segment is not None and segment.fullmatch(name) is not None


def _pattern(text: str) -> re.Pattern[str]:
    """One segment as a regular expression that cannot blow up.

    Every `*` but the last takes the leftmost place its literal run fits and never reconsiders (an atomic group): runs
    have a fixed length, so an earlier place is never worse.
    """
    runs = _runs(text)
    if runs is None:
        return _NEVER
    first, *rest = runs
    middle = "".join(f"(?>.*?{run})" for run in rest[:-1])
    last = f".*{rest[-1]}" if rest else ""
    return re.compile(f"(?s:{first}{middle}{last})", re.ASCII)


def _runs(text: str) -> list[str] | None:
    """The literal runs between the stars, as regular expressions; None where the pattern is broken."""
    runs = [""]
    at = 0
    while at < len(text):
        sign = text[at]
        if sign == "*":
            runs += [""] if runs[-1] or len(runs) == 1 else []
            at += 1
        elif sign == "?":
            runs[-1] += "."
            at += 1
        elif sign == "[":
            found = _class(text, at)
            if found is None:
                return None
            runs[-1] += found[0]
            at = found[1]
        elif sign == "\\":
            if at + 1 == len(text):
                return None
            runs[-1] += re.escape(text[at + 1])
            at += 2
        else:
            runs[-1] += re.escape(sign)
            at += 1
    return runs


def _class(text: str, start: int) -> tuple[str, int] | None:
    """A bracket expression from `start` as a regular expression, and where it ends; None where it does not."""
    at = start + 1
    negated = text[at : at + 1] in {"!", "^"}
    at += negated
    items: list[str] = []
    first = True
    while at < len(text) and (text[at] != "]" or first):
        first = False
        if text.startswith("[:", at):
            name, close, _ = text[at + 2 :].partition(":]")
            if not close or name not in _CLASSES:
                return None
            items.append(_CLASSES[name])
            at += len(name) + 4
            continue
        low, at = _sign(text, at)
        if text[at : at + 1] == "-" and text[at + 1 : at + 2] not in {"", "]"}:
            high, at = _sign(text, at + 1)
            items += [f"{re.escape(low)}-{re.escape(high)}"] if low <= high else [re.escape(low)]
        else:
            items.append(re.escape(low))
    if at >= len(text):
        return None
    if not items:
        return ("." if negated else "(?!)"), at + 1
    return f"[{'^' if negated else ''}{''.join(items)}]", at + 1


def _sign(text: str, at: int) -> tuple[str, int]:
    """One character of a bracket expression, unescaped, and the place behind it."""
    if text[at] == "\\" and at + 1 < len(text):
        return text[at + 1], at + 2
    return text[at], at + 1
