"""Request bodies: JSON, YAML or (for some kinds) protobuf in, JSON values out."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

import msgspec
import yaml

from model.plain_text import plain
from providers.sim.apiserver import protobuf
from providers.sim.store import StoreBadRequest, StoreUnsupportedMediaType

_JSON = frozenset({"", "application/json", "application/x-www-form-urlencoded", "text/plain"})
_YAML = frozenset({"application/yaml", "application/apply-patch+yaml"})
_decode = msgspec.json.Decoder().decode


def decoded(body: bytes, content_type: str) -> Any:
    """The value in `body`; an empty one is {}. BadRequest when it does not parse, UnsupportedMediaType when unknown."""
    if not body.strip():
        return {}
    if content_type in _JSON or content_type.endswith("+json"):
        return _json(body)
    if content_type == protobuf.MEDIA_TYPE:
        return protobuf.decoded_object(body)
    if content_type in _YAML:
        return _json(body) if body.lstrip()[:1] == b"{" else _yaml(body)
    raise StoreUnsupportedMediaType(
        f'the body of the request was in an unknown format: "{content_type}" - accepted media types include: '
        "application/json, application/yaml"
    )


def _json(body: bytes) -> Any:
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreBadRequest(f"the object provided is unrecognized: {error}") from error


def _yaml(body: bytes) -> Any:
    """YAML read as JSON values: no dates, no tags, no aliases (which can multiply without bound)."""
    try:
        if b"*" in body and any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(body, yaml.CSafeLoader)):
            raise StoreBadRequest("YAML aliases are not accepted")
        return yaml.load(body, Loader=_JsonLoader)  # noqa: S506 - a subclass of the safe loader
    except (yaml.YAMLError, RecursionError) as error:
        raise StoreBadRequest(f"error converting YAML to JSON: {error}") from error


_WARNINGS_MOST: Final = 4 * 1024
_WARNING_MOST: Final = 256


def warning_headers(texts: Sequence[str]) -> list[str]:
    """The headers `Warning` for these texts, each once; if they are too long together each is cut.

    A text is quoted as RFC 7234 says; a control character, for which the API server leaves the whole warning out, is
    written out. Source: apiserver `pkg/endpoints/filters/warning.go`, apimachinery `pkg/util/net` (`NewWarningHeader`).
    """
    told = [plain(text) for text in dict.fromkeys(texts) if text]
    if sum(map(len, told)) > _WARNINGS_MOST:
        cut = [text[:_WARNING_MOST] for text in told]
        told = [
            text
            for text, before in zip(cut, accumulate(map(len, cut), initial=0), strict=False)
            if before < _WARNINGS_MOST
        ]
    return ['299 - "' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' for text in told]


class _JsonLoader(yaml.CSafeLoader):
    """The safe loader without timestamps, which JSON does not have."""


_JsonLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
