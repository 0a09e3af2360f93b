"""Whether an answer is the recorded one: placeholders, what the recorder left out, long texts cut in the middle."""

import re
from typing import Any, Final

_LEFT_OUT: Final = frozenset(
    {
        "uid",
        "creationTimestamp",
        "managedFields",
        "lastTransitionTime",
        "lastProbeTime",
        "lastUpdateTime",
        "lastHeartbeatTime",
        "storageVersionHash",
        "serverAddressByClientCIDRs",
        "gitCommit",
        "gitTreeState",
        "buildDate",
        "goVersion",
        "compiler",
        "platform",
        "time",
        "description",
    }
)
_NAMED = re.compile(r"\{(rv|uid|cont)(\d+)\}")
_ANY = re.compile(r"\{(new|newest|time|uid)\}")
_CUT = " ... "


class RecordedNames:
    """What `{rv3}`, `{uid3}` and `{cont3}` stand for: the first answer that shows one gives it its value."""

    def __init__(self, **fixed: str) -> None:
        self._held: dict[str, str] = {f"{{{name}}}": value for name, value in fixed.items()}

    def fill(self, text: str) -> str:
        """`text` with everything known put in; what is not stays as it is."""
        for name, value in self._held.items():
            text = text.replace(name, value)
        return text

    def learn(self, name: str, value: str) -> None:
        """`name` stands for `value` from here on, unless it stands for something already."""
        self._held.setdefault(name, value)

    def same_text(self, expected: str, got: str) -> bool:
        """Whether `got` is `expected`; names not seen before are learnt."""
        expected = self.fill(expected)
        if expected == got:
            return True
        pattern, names = "", []
        for piece in re.split(r"(\{[a-z]+\d*\}| \.\.\. )", expected):
            if _NAMED.fullmatch(piece):
                names.append(piece)
                pattern += r"(\S+)"
            elif _ANY.fullmatch(piece) or piece == _CUT:
                pattern += r".*"
            else:
                pattern += re.escape(piece)
        found = re.fullmatch(pattern, got, re.DOTALL)
        if found is None:
            return False
        for name, value in zip(names, found.groups(), strict=True):
            self.learn(name, value)
        return True


def difference(expected: Any, got: Any, names: RecordedNames, path: str = "") -> str:
    """Where and how `got` is another answer than `expected`; empty when it is the same."""
    if isinstance(expected, dict) and isinstance(got, dict):
        return _of_maps(expected, got, names, path)
    if isinstance(expected, list) and isinstance(got, list):
        if len(expected) != len(got):
            return f"{path}: {len(got)} items instead of {len(expected)}"
        found = (
            difference(one, two, names, f"{path}[{i}]") for i, (one, two) in enumerate(zip(expected, got, strict=True))
        )
        return next(filter(None, found), "")
    if isinstance(expected, str) and isinstance(got, str):
        return "" if names.same_text(expected, got) else f"{path}: {got!r} instead of {expected!r}"
    return "" if expected == got and type(expected) is type(got) else f"{path}: {got!r} instead of {expected!r}"


def _of_maps(expected: dict[str, Any], got: dict[str, Any], names: RecordedNames, path: str) -> str:
    listed = path.endswith("]") and path.startswith(".items[")
    more = [key for key in got if key not in expected and key not in _LEFT_OUT and not listed]
    if more:
        return f"{path}: also {', '.join(f'{key}={got[key]!r}' for key in more)}"
    missing = [key for key in expected if key not in got and key not in _LEFT_OUT]
    if missing:
        return f"{path}: without {', '.join(f'{key}={expected[key]!r}' for key in missing)}"
    found = (difference(expected[key], got[key], names, f"{path}.{key}") for key in expected if key in got)
    return next(filter(None, found), "")
