"""Semantic versions and ranges of them (semver.org 2.0.0; range grammar of node-semver and Masterminds/semver).

Kept here rather than imported: it is a page of rules, and which tag runs the fleet hangs on every one of them.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import total_ordering

from providers.git.errors import InvalidSelector

_PRE_PART = r"(?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)"
_SUFFIX = rf"(?:-(?P<pre>{_PRE_PART}(?:\.{_PRE_PART})*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
_NUMBER = r"(?:0|[1-9]\d{0,8})"
_WILD = rf"(?:{_NUMBER}|[xX*])"
_VERSION = re.compile(rf"v?(?P<major>{_NUMBER})\.(?P<minor>{_NUMBER})\.(?P<patch>{_NUMBER}){_SUFFIX}", re.ASCII)
_PARTIAL = re.compile(
    rf"v?(?P<major>{_WILD})(?:\.(?P<minor>{_WILD})(?:\.(?P<patch>{_WILD}){_SUFFIX})?)?",
    re.ASCII,
)
_TERM = re.compile(r"[\s,]*(?P<op>>=|<=|!=|=>|=<|~>|[~^<>=])?\s*(?P<rest>[^\s,]+)")
_LONGEST = 256


@total_ordering
@dataclass(frozen=True)
class Version:
    """`major.minor.patch` with an optional pre-release; build metadata neither orders nor distinguishes."""

    major: int
    minor: int
    patch: int
    pre: tuple[int | str, ...] = ()

    @property
    def core(self) -> tuple[int, int, int]:
        """The three numbers."""
        return self.major, self.minor, self.patch

    def _key(self) -> tuple[object, ...]:
        # Rule 11: a pre-release sorts below its release; numbers below words; more parts above fewer.
        parts = tuple((0, part, "") if isinstance(part, int) else (1, 0, part) for part in self.pre)
        return (*self.core, not self.pre, parts)

    def __lt__(self, other: "Version") -> bool:
        return self._key() < other._key()


def parse_version(text: str) -> Version | None:
    """The version written in a tag name (`v1.2.3` or `1.2.3`), or None: a tag that is no version is no error."""
    match = _VERSION.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        return None
    return Version(int(match["major"]), int(match["minor"]), int(match["patch"]), _pre(match["pre"]))


def _pre(text: str | None) -> tuple[int | str, ...]:
    return tuple(int(part) if part.isdigit() else part for part in text.split(".")) if text else ()


@dataclass(frozen=True)
class _Bound:
    """One comparison with one version; `asked` keeps the version whose pre-release the author wrote, if any."""

    holds: Callable[[Version], bool]
    asked: Version | None = None


@dataclass(frozen=True)
class Range:
    """A set of versions: alternatives of comparisons that must all hold. Made by `parse_range`."""

    text: str
    alternatives: tuple[tuple[_Bound, ...], ...]

    def __contains__(self, version: Version) -> bool:
        """Whether `version` is in the range; a pre-release only where the range names one of the same core."""
        return any(_admits(bounds, version) for bounds in self.alternatives)


def _admits(bounds: tuple[_Bound, ...], version: Version) -> bool:
    if not all(bound.holds(version) for bound in bounds):
        return False
    asked = (bound.asked for bound in bounds if bound.asked is not None)
    return not version.pre or any(one.pre and one.core == version.core for one in asked)


def parse_range(text: str) -> Range:
    """Read a range: `^1.2`, `~1.2.3`, `1.x`, `>=1.0 <2.0`, `1.2 - 1.9`, `1.x || >=3.0.0-rc.1`; `*` or empty is all.

    Errors: InvalidSelector where it is not a range.
    """
    if len(text) > _LONGEST:
        raise InvalidSelector(f"version range is longer than {_LONGEST} characters")
    return Range(text, tuple(_alternative(part.strip(), text) for part in text.split("||")))


def _alternative(part: str, whole: str) -> tuple[_Bound, ...]:
    if " - " in part:
        low, _, high = part.partition(" - ")
        return _at_least(*_partial(low.strip(), whole)) + _at_most(*_partial(high.strip(), whole))
    if not part and whole.strip():
        raise InvalidSelector(f"{whole!r} has an empty alternative, which would admit every version")
    bounds: tuple[_Bound, ...] = ()
    for term in _TERM.finditer(part):
        bounds += _OPERATORS[term["op"] or "="](*_partial(term["rest"], whole))
    return bounds


def _partial(text: str, whole: str) -> tuple[Version, int]:
    """A version with missing or wild parts as zero, and how many of its parts were given (0 to 3)."""
    match = _PARTIAL.fullmatch(text)
    if match is None:
        raise InvalidSelector(f"{whole!r} is not a version range: cannot read {text!r}")
    numbers: list[int] = []
    for name in ("major", "minor", "patch"):
        if match[name] is None or match[name] in "xX*":
            break
        numbers.append(int(match[name]))
    given = len(numbers)
    padded = (*numbers, 0, 0, 0)
    return Version(padded[0], padded[1], padded[2], _pre(match["pre"]) if given == 3 else ()), given


def _above(version: Version, position: int) -> Version:
    """The least version (its own pre-releases included) beyond every one that shares the first `position` parts."""
    numbers = list(version.core)
    numbers[position - 1] += 1
    numbers[position:] = [0] * (3 - position)
    return Version(numbers[0], numbers[1], numbers[2], (0,))


def _at_least(low: Version, _given: int) -> tuple[_Bound, ...]:
    return (_Bound(lambda version: version >= low, low),)


def _below(high: Version, _given: int) -> tuple[_Bound, ...]:
    return (_Bound(lambda version: version < high, high),)


def _at_most(high: Version, given: int) -> tuple[_Bound, ...]:
    if given == 3:
        return (_Bound(lambda version: version <= high, high),)
    return _under(high, given)


def _more(low: Version, given: int) -> tuple[_Bound, ...]:
    if given == 3:
        return (_Bound(lambda version: version > low, low),)
    if given == 0:
        return (_Bound(lambda _version: False),)
    beyond = _above(low, given)
    return (_Bound(lambda version: version >= beyond),)


def _under(version: Version, given: int) -> tuple[_Bound, ...]:
    """Everything that does not go beyond the given parts."""
    if given == 0:
        return ()
    limit = _above(version, given)
    return (_Bound(lambda other: other < limit),)


def _same(version: Version, given: int) -> tuple[_Bound, ...]:
    if given == 3:
        return (_Bound(lambda other: other == version, version),)
    return _at_least(version, given) + _under(version, given)


def _other(version: Version, given: int) -> tuple[_Bound, ...]:
    same = _same(version, given)
    return (_Bound(lambda other: not all(bound.holds(other) for bound in same)),)


def _tilde(version: Version, given: int) -> tuple[_Bound, ...]:
    return _at_least(version, given) + _under(version, min(given, 2))


def _caret(version: Version, given: int) -> tuple[_Bound, ...]:
    first = next((index for index, number in enumerate(version.core[:given], start=1) if number), given)
    return _at_least(version, given) + _under(version, first)


_OPERATORS: dict[str, Callable[[Version, int], tuple[_Bound, ...]]] = {
    "=": _same,
    "!=": _other,
    ">": _more,
    ">=": _at_least,
    "=>": _at_least,
    "<": _below,
    "<=": _at_most,
    "=<": _at_most,
    "~": _tilde,
    "~>": _tilde,
    "^": _caret,
}
