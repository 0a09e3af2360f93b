"""An OpenAPI v2 document as protobuf: the part of gnostic's OpenAPIv2.proto that schemas need.

Source: google/gnostic-models `openapiv2/OpenAPIv2.proto` (field numbers of Document, Schema and what they hold).
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import yaml

Schema = Mapping[str, Any]
_EXTENSIONS: Final = "x-kubernetes-"
# Fields of Schema that are text: name -> number.
_TEXTS: Final = {"$ref": 1, "format": 2, "description": 4}


def gnostic_document(document: Schema) -> bytes:
    """`Document`: 1 is the version, 2 the `Info` (1 title, 2 version), 8 the paths, 9 the definitions."""
    info = _text(1, document["info"]["title"]) + _text(2, document["info"]["version"])
    held = b"".join(_field(1, _named(name, _schema(it))) for name, it in document["definitions"].items())
    return _text(1, document["swagger"]) + _field(2, info) + _field(8, b"") + _field(9, held)


def _schema(schema: Schema) -> bytes:
    parts = [_text(number, str(schema[word])) for word, number in _TEXTS.items() if word in schema]
    parts += (_text(19, name) for name in schema.get("required") or ())
    if isinstance(schema.get("additionalProperties"), dict):
        parts.append(_field(21, _field(1, _schema(schema["additionalProperties"]))))
    if "type" in schema:
        parts.append(_field(22, _text(1, schema["type"])))
    if "items" in schema:
        parts.append(_field(23, _field(1, _schema(schema["items"]))))
    if "properties" in schema:
        below = b"".join(_field(1, _named(name, _schema(it))) for name, it in schema["properties"].items())
        parts.append(_field(25, below))
    parts += _extensions(schema)
    return b"".join(parts)


def _extensions(schema: Schema) -> Iterable[bytes]:
    """`NamedAny`: 1 the name, 2 an `Any` whose 2 is YAML."""
    for word, value in schema.items():
        if word.startswith(_EXTENSIONS):
            text = yaml.safe_dump(value, default_flow_style=False)
            yield _field(31, _named(word, _text(2, text)))


def _named(name: str, value: bytes) -> bytes:
    return _text(1, name) + _field(2, value)


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _field(number: int, value: bytes) -> bytes:
    """A length-delimited field."""
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
