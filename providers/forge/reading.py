"""How answers are read: as narrow structs of our own, checked as they are read; all else is left alone."""

from datetime import datetime
from typing import Annotated, TypeVar

import msgspec

from model.plain_text import plain
from providers.forge.port import ForgeError

_T = TypeVar("_T")
Number = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
CommitId = Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})\Z")]
Instant = Annotated[datetime, msgspec.Meta(tz=True)]
Login = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
Line = Annotated[str, msgspec.Meta(max_length=1024)]
Text = Annotated[str, msgspec.Meta(max_length=2_000_000)]


def read(body: bytes, answer: type[_T], forge: str) -> _T:
    """Returns an answer; ForgeError where it is not what the forge promises."""
    try:
        return msgspec.json.decode(body, type=answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # a ValidationError is a DecodeError
        raise unreadable(error, forge) from error


def unreadable(error: Exception, forge: str) -> ForgeError:
    """Returns the error of an answer that makes no sense."""
    return ForgeError(f"{forge}'s answer cannot be read: {plain(str(error)[:300])}")
