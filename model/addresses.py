"""Addresses without what is secret in them: the one function for every log line, error and status."""

import re

_USER_INFO = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^/?#\s@'\"]*(?:@[^/?#\s@'\"]*)*@")
_QUERY = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^?#\s'\"]*)[?#][^\s'\"]*")


def without_secrets(text: str) -> str:
    """Returns the text with every address in it shorn of user, password, query and fragment.

    The short form `git@host:path` stays: it has no place for a secret.
    """
    return _QUERY.sub(r"\1", _USER_INFO.sub(r"\1", text))
