"""Plain YAML scalars: the core schema of YAML 1.2, minus every form that another YAML reader takes differently.

`NO`, `012`, `12:30`, `1e3`, `0x1f`, `1_000` and `2026-01-31` stay the text that was written. Where text is wanted that
is what was meant; where a number or a truth value is wanted, the error says how to write it.
"""

import re

Scalar = None | bool | int | float | str

_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBER_START = frozenset("+-.0123456789")
_INTEGER = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[+-]?(?:0|[1-9][0-9]*)?\.[0-9]+|[+-]?(?:0|[1-9][0-9]*)\.")
_EXACT_DIGITS = 15
"""Decimal digits that a float always holds exactly."""

_YES_NO = re.compile(r"y|yes|n|no|on|off", re.IGNORECASE)
_TIME_OR_DATE = re.compile(r"[0-9]{1,2}(:[0-9]{1,2}){1,2}|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*")
_OTHER_NUMBERS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"[+-]?0[0-9]+"), "some YAML readers take a leading 0 for octal; write the number without it"),
    (re.compile(r"[+-]?0[xob][0-9a-fA-F_]+"), "write the number in decimal digits"),
    (re.compile(r"[+-]?[0-9][0-9_]*_[0-9_.]*"), "write the number without underscores"),
    (re.compile(r"[+-]?[0-9.]+[eE][+-]?[0-9]+"), "write the number without an exponent"),
    (re.compile(r"[+-]?\.(inf|nan)", re.IGNORECASE), "write an ordinary number"),
    (re.compile(r"[+-]?[0-9]+\.?[0-9]*|[+-]?\.[0-9]+"), "the number has too many digits to be read exactly"),
)


def resolve(text: str) -> Scalar:
    """The value of a plain scalar."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in _NUMBER_START:
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text) and sum(map(str.isdigit, text)) <= _EXACT_DIGITS:
        return float(text)
    return text


def explain_text(text: str) -> str:
    """How to write the number or truth value that plain `text` looks like but is not; empty for ordinary text."""
    if _YES_NO.fullmatch(text):
        return f"{text} is read as text, not as a truth value; write true or false"
    if _TIME_OR_DATE.fullmatch(text):
        return f"{text} is read as text, never as a time or a number; quote it to say so"
    for pattern, advice in _OTHER_NUMBERS:
        if pattern.fullmatch(text):
            return f"{text} is read as text; {advice}"
    return ""
