"""Which names, label keys and label values are allowed, in the words of the server.

Source: apimachinery `pkg/util/validation/validation.go`, `pkg/apis/meta/v1/validation`.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

from providers.sim.store.errors import cause

_SUBDOMAIN_FORM: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LABEL_FORM: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME_FORM: Final = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE_FORM: Final = rf"({_NAME_FORM})?"
_SUBDOMAIN, _LABEL = re.compile(_SUBDOMAIN_FORM), re.compile(_LABEL_FORM)
_NAME, _VALUE = re.compile(_NAME_FORM), re.compile(_VALUE_FORM)
_ENV: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f=]+")
_EDGES: Final = "and must start and end with an alphanumeric character"
NOT_A_SUBDOMAIN: Final = (
    f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', {_EDGES} "
    f"(e.g. 'example.com', regex used for validation is '{_SUBDOMAIN_FORM}')"
)
NOT_A_LABEL: Final = (
    f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_EDGES} "
    f"(e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL_FORM}')"
)
_NOT_A_NAME: Final = (
    f"must consist of alphanumeric characters, '-', '_' or '.', {_EDGES} "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME_FORM}')"
)
NOT_A_VALUE: Final = (
    f"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', {_EDGES} "
    f"(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '{_VALUE_FORM}')"
)
_NOT_TEXT: Final = ("must be a string",)
_ANNOTATION_BYTES: Final = 256 * 1024

Fault = dict[str, str]


def dns_subdomain(text: str) -> tuple[str, ...]:
    """What keeps `text` from being the name of most objects."""
    too_long = ("must be no more than 253 bytes",) if len(text) > 253 else ()
    return (*too_long, *(() if _SUBDOMAIN.fullmatch(text) else (NOT_A_SUBDOMAIN,)))


def dns_label(text: str) -> tuple[str, ...]:
    """What keeps `text` from being one label of a DNS name, as containers and namespaces are."""
    too_long = ("must be no more than 63 bytes",) if len(text) > 63 else ()
    return (*too_long, *(() if _LABEL.fullmatch(text) else (NOT_A_LABEL,)))


@lru_cache(maxsize=65536)
def qualified_name(text: str) -> tuple[str, ...]:
    """What keeps `text` from being the key of a label, an annotation, a taint or a resource."""
    parts = text.split("/")
    if len(parts) > 2:
        prefixed = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return (f"a valid label key {_NOT_A_NAME} {prefixed}",)
    found: list[str] = []
    if len(parts) == 2:
        if not parts[0]:
            found.append("prefix part must be non-empty")
        else:
            found += (f"prefix part {why}" for why in dns_subdomain(parts[0]))
    name = parts[-1]
    if not name:
        found.append("name part must be non-empty")
    elif len(name) > 63:
        found.append("name part must be no more than 63 bytes")
    if not _NAME.fullmatch(name):
        found.append(f"name part {_NOT_A_NAME}")
    return tuple(found)


@lru_cache(maxsize=65536)
def label_value(text: str) -> tuple[str, ...]:
    """What keeps `text` from being the value of a label or a taint."""
    too_long = ("must be no more than 63 bytes",) if len(text) > 63 else ()
    return (*too_long, *(() if _VALUE.fullmatch(text) else (NOT_A_VALUE,)))


def env_name(text: str) -> tuple[str, ...]:
    """What keeps `text` from being the name of an environment variable (since 1.34 nearly nothing)."""
    if _ENV.fullmatch(text):
        return ()
    return ("a valid environment variable name must consist only of printable ASCII characters other than '='",)


def invalid_value(path: str, value: Any, reasons: Iterable[str]) -> Iterator[Fault]:
    """The faults of one value."""
    for why in reasons:
        yield cause(path, f'Invalid value: "{value}": {why}')


def label_faults(labels: dict[str, Any], path: str) -> Iterator[Fault]:
    """What is wrong with labels: their keys, then their values."""
    for key, value in labels.items():
        if reasons := qualified_name(key):
            yield from invalid_value(path, key, reasons)
        if reasons := label_value(value) if isinstance(value, str) else _NOT_TEXT:
            yield from invalid_value(path, value, reasons)


def annotation_faults(annotations: dict[str, Any], path: str) -> Iterator[Fault]:
    """What is wrong with annotations: their keys, whatever case they are in, and their size together."""
    for key, value in annotations.items():
        yield from invalid_value(path, key, qualified_name(key.lower()))
        yield from invalid_value(path, value, () if isinstance(value, str) else _NOT_TEXT)
    if sum(len(key) + len(str(value).encode()) for key, value in annotations.items()) > _ANNOTATION_BYTES:
        yield cause(path, f"Too long: may not be more than {_ANNOTATION_BYTES} bytes", "FieldValueTooLong")
