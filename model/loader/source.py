"""`SourceFile`: the text of one file, its lines, and excerpts of it."""

import re
from dataclasses import dataclass
from functools import cached_property

from model.problem import Code, Problem, Severity

_LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""What libyaml counts as the end of a line."""
_FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)
"""Control characters, and the bidirectional overrides that make text read differently from what it says."""
_SECRET = re.compile(r"""["']?\bkind["']?\s*:\s*(?:&\S+\s+)?["']?Secret\b""")
_EXCERPT_WIDTH = 120
_BOMS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


@dataclass(frozen=True)
class SourceFile:
    """A file that could be decoded."""

    file: str
    text: str

    @cached_property
    def lines(self) -> list[str]:
        """The lines without their ends."""
        return _LINE_BREAK.split(self.text)

    @cached_property
    def secret(self) -> bool:
        """Whether a Secret stands in the file, of which no line is shown then."""
        return _SECRET.search(self.text) is not None

    def problem(
        self,
        line: int,
        column: int,
        message: str,
        code: Code,
        *,
        path: str = "",
        hint: str = "",
        severity: Severity = "error",
    ) -> Problem:
        """A problem at a place of this file, with its excerpt."""
        return Problem(
            self.file,
            line,
            column,
            path,
            printable(message),
            code,
            printable(hint),
            severity,
            self.excerpt(line, column),
        )

    def excerpt(self, line: int, column: int) -> str:
        """Line `line` between its neighbours, with a caret under `column`; empty where it might show a secret."""
        if self.secret:
            return ""
        first, last = max(1, line - 1), min(len(self.lines), line + 1)
        offset = max(0, column - _EXCERPT_WIDTH + 20)
        width = len(str(last))
        out = []
        for number in range(first, last + 1):
            text = printable(self.lines[number - 1].replace("\t", " "))[offset : offset + _EXCERPT_WIDTH]
            out.append(f"{number:>{width}} | {text}".rstrip())
            if number == line:
                out.append(f"{'':>{width}} | {' ' * (column - 1 - offset)}^")
        return "\n".join(out)


def line_starts(text: str) -> list[int]:
    """Where each line begins, in characters, as libyaml counts lines."""
    return [0, *(found.end() for found in _LINE_BREAK.finditer(text))]


def printable(text: str) -> str:
    """`text` with everything a terminal might act on replaced."""
    return _FORBIDDEN.sub("\ufffd", text)


def decode(file: str, content: bytes) -> SourceFile | Problem:
    """The text of a file, or why it is none that people can review."""
    if encoding := _BOMS.get(content[:2]):
        return SourceFile(file, "").problem(1, 1, f"the file is {encoding}; save it as UTF-8", Code.ENCODING)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        source = SourceFile(file, content.decode("utf-8-sig", "replace"))
        line, column = _place(content[: error.start].decode("utf-8-sig", "replace"))
        byte = content[error.start]
        return source.problem(line, column, f"byte 0x{byte:02x} is not UTF-8; save the file as UTF-8", Code.ENCODING)
    source = SourceFile(file, text)
    if match := _FORBIDDEN.search(text):
        line, column = _place(text[: match.start()])
        shown = f"U+{ord(match[0]):04X}"
        return source.problem(line, column, f"the invisible or control character {shown} is not allowed", Code.ENCODING)
    return source


def _place(before: str) -> tuple[int, int]:
    """Line and column, from 1, of what follows `before`."""
    lines = _LINE_BREAK.split(before)
    return len(lines), len(lines[-1]) + 1
