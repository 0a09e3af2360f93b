"""User data in several parts (cloud-init "MIME multi-part"): taken apart and put together."""

import email
import json
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from providers.ports import CloudRejected

NODE_CONFIG = "application/node.eks.aws"
SCRIPT = 'text/x-shellscript; charset="us-ascii"'
_OPENINGS = ("mime-version:", "content-type:")


class MimePart(NamedTuple):
    """One part; `kind` is its media type with parameters."""

    kind: str
    content: str


def is_mime(user_data: str) -> bool:
    """Whether user data says of itself that it is in parts."""
    return user_data.lstrip().lower().startswith(_OPENINGS)


def parts_of(user_data: str) -> list[MimePart]:
    """The parts of MIME user data, in order; raises `CloudRejected` where there are none to be found."""
    message = email.message_from_string(user_data.lstrip().replace("\r\n", "\n"))
    if message.is_multipart():
        found = [each for each in message.walk() if not each.is_multipart()]
    else:
        found = [] if message.get_content_maintype() == "multipart" else [message]
    if not found:
        raise CloudRejected("userData begins like MIME but has no parts: its boundary is missing or never used")
    parts = []
    for each in found:
        payload = each.get_payload(decode=True)
        content = payload.decode(errors="replace") if isinstance(payload, bytes) else ""
        parts.append(MimePart(str(each.get("Content-Type", "text/plain")).replace("\n", ""), content))
    return parts


def document(parts: Sequence[MimePart]) -> str:
    """Multi-part text; the boundary is a hash of the parts, so no part can contain it or forge another one."""
    boundary = "==" + sha256(json.dumps(parts).encode()).hexdigest()[:32] + "=="
    lines = ["MIME-Version: 1.0", f'Content-Type: multipart/mixed; boundary="{boundary}"', ""]
    for kind, content in parts:
        lines += [f"--{boundary}", f"Content-Type: {kind}", "", content]
    return "\n".join([*lines, f"--{boundary}--", ""])


def with_interpreter(script: str) -> str:
    """cloud-init runs a part only if it names its interpreter."""
    return script if script.startswith("#!") else "#!/bin/bash\n" + script
