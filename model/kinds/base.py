"""What every kind shares: the envelope, strictness, and the scalar types that carry their own syntax."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    Strict,
    ValidationInfo,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import WithJsonSchema
from pydantic_core import PydanticCustomError

from model.quantity import Resources, canonical_amount, format_amount

API_VERSION: Literal["muster.dev/v1alpha1"] = "muster.dev/v1alpha1"
NEVER: float = float("inf")
"""The duration `Never`."""

FROM_YAML = {"from": "yaml"}
"""Validation context of the loader: a duration must be text there, while code may pass seconds."""

_DURATION = re.compile(r"(?:(?P<h>[0-9]{1,9})h)?(?:(?P<m>[0-9]{1,9})m)?(?:(?P<s>[0-9]{1,9})s)?")
_DURATION_SCHEMA = r"^([0-9]+h([0-9]+m)?([0-9]+s)?|[0-9]+m([0-9]+s)?|[0-9]+s|Never)$"
_DNS_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_LABEL_PART = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(rf"({_LABEL_PART.pattern})?")
_LABEL_PREFIX = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


DURATION_MAX_S: Final = 10 * 365 * 24 * 3600
"""Beyond this a duration is a slip of the keyboard; `Never` says that something has no end."""


def _parse_duration(value: Any, info: ValidationInfo) -> float:
    if isinstance(value, float) and value >= 0 and info.context is not FROM_YAML:
        return value
    if value == "Never":
        return NEVER
    match = _DURATION.fullmatch(value) if isinstance(value, str) and value else None
    if match is None:
        raise ValueError("a duration is written like 30s, 10m, 1h30m or Never")
    hours, minutes, seconds = (int(match[unit] or 0) for unit in "hms")
    total_s = hours * 3600 + minutes * 60 + seconds
    if total_s > DURATION_MAX_S:
        raise ValueError(f"a duration is {DURATION_MAX_S // 3600}h (ten years) at most, or Never")
    return float(total_s)


def format_duration(seconds: float) -> str:
    """The shortest text that reads back as `seconds`; `Never` for infinity."""
    if seconds == NEVER:
        return "Never"
    whole = int(seconds)
    parts = ((whole // 3600, "h"), (whole % 3600 // 60, "m"), (whole % 60, "s"))
    return "".join(f"{amount}{unit}" for amount, unit in parts if amount) or "0s"


def _check_name(value: str) -> str:
    if not _DNS_NAME.fullmatch(value):
        raise ValueError(
            "a name is at most 63 lower-case letters, digits, '-' or '.', and starts and ends with a letter or digit"
        )
    return value


def _check_namespace(value: str) -> str:
    if not _NAMESPACE.fullmatch(value):
        raise ValueError("a namespace is at most 63 lower-case letters, digits or '-'")
    return value


def _check_label_key(value: str) -> str:
    prefix, slash, name = value.rpartition("/")
    if not _LABEL_PART.fullmatch(name):
        raise ValueError(
            f"{value!r} is not a label key: the name is at most 63 letters, digits, '-', '_' or '.', "
            "and starts and ends with a letter or digit"
        )
    if slash and not (len(prefix) <= 253 and _LABEL_PREFIX.fullmatch(prefix)):
        raise ValueError(f"{value!r} is not a label key: what stands before the '/' must be a DNS name")
    return value


def _check_label_value(value: str) -> str:
    if not _LABEL_VALUE.fullmatch(value):
        raise ValueError(
            f"{value!r} is not a label value: at most 63 letters, digits, '-', '_' or '.', "
            "starting and ending with a letter or digit"
        )
    return value


def _parse_resources(value: Any) -> Any:
    """Canonical amounts; the error names the resource, so that the loader can point at its line."""
    if not isinstance(value, Mapping):
        return value
    amounts: dict[str, int] = {}
    for resource, quantity in value.items():
        try:
            amounts[_check_label_key(str(resource))] = canonical_amount(resource, quantity)
        except ValueError as error:
            context = {"resource": resource, "reason": str(error)}
            raise PydanticCustomError("quantity", "{reason}", context) from None
    return amounts


def _format_resources(value: Resources) -> dict[str, str]:
    return {name: format_amount(name, amount) for name, amount in sorted(value.items())}


def _text_schema(form: re.Pattern[str], longest: int) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{form.pattern}$", "maxLength": longest})


Bool = Annotated[bool, Strict()]
Name = Annotated[str, AfterValidator(_check_name), _text_schema(_DNS_NAME, 63)]
Duration = Annotated[
    float,
    BeforeValidator(_parse_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": _DURATION_SCHEMA, "examples": ["30s", "10m", "Never"]}),
]
"""Seconds; written `30s`, `10m`, `1h30m` or `Never`."""
Amounts = Annotated[
    dict[str, int],
    BeforeValidator(_parse_resources),
    PlainSerializer(_format_resources, return_type=dict[str, str]),
    WithJsonSchema({"type": "object", "additionalProperties": {"anyOf": [{"type": "string"}, {"type": "number"}]}}),
]
"""Resource name -> quantity, held as canonical integers (see `model.quantity.Resources`)."""
Usd = Annotated[float, Strict(), Field(ge=0, le=1e9, allow_inf_nan=False)]
NODES_MAX: Final = 100_000
"""More nodes than any Kubernetes cluster has: what counts nodes is bounded by it, so that three zeros too many show."""
NodeCount = Annotated[int, Strict(), Field(ge=0, le=NODES_MAX)]
Deletion = Literal["Delete", "Confirm"]
Unlimited = Literal["Unlimited"]
"""Lifts a bound on purpose, where one that is left out has a default (as `Never` does among durations)."""
Namespace = Annotated[str, AfterValidator(_check_namespace), _text_schema(_NAMESPACE, 63)]
LabelKey = Annotated[str, AfterValidator(_check_label_key), WithJsonSchema({"type": "string", "maxLength": 317})]
LabelValue = Annotated[str, AfterValidator(_check_label_value), _text_schema(_LABEL_VALUE, 63)]
Labels = dict[LabelKey, LabelValue]
Annotations = dict[LabelKey, str]
Tags = dict[str, str]
"""EC2 tags, which allow more characters than labels."""


class Spec(BaseModel):
    """A part of a declaration: immutable, camelCase in YAML, and an unknown key is an error."""

    unsupported: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Keys that others write here and that would change nothing -> what to do instead."""
    ignored: ClassVar[frozenset[str]] = frozenset()
    """Keys that stand here and that no declaration means."""
    ignored_as: ClassVar[str] = "the server writes it"
    """Why they are left aside."""

    model_config = ConfigDict(
        defer_build=True,  # half of the kinds are in no fleet, and a command is over before their turn would come
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
    )

    @classmethod
    def unsaid(cls) -> Self:
        """Returns the part of a declaration that says nothing of it: a default, for which no validator is built."""
        return cls.model_construct()

    @classmethod
    def known(cls, **values: Any) -> Self:
        """Returns a part with values that need no check, because code names them or a check has seen them.

        It takes them by the names of the fields. No validator is built for it, which few commands would use again.
        """
        return cls.model_construct(**values)


class Metadata(Spec):
    """Name and free-form labels of a declaration. Names are unique within a kind; there are no namespaces."""

    name: Name
    """Unique within the kind: lower-case letters, digits, `-` and `.`, at most 63."""
    labels: Labels = Field(default_factory=dict)
    """Free for your own use."""
    annotations: Annotations = Field(default_factory=dict)
    """Free for your own use."""


class Declaration(Spec):
    """The envelope of every declaration, ours and others'. Subclasses narrow `api_version` and `kind`."""

    api_version: str
    kind: str
    metadata: Metadata

    @property
    def name(self) -> str:
        """The declaration's name."""
        return self.metadata.name

    @property
    def key(self) -> str:
        """What tells it apart within its kind: the name, or `namespace/name` where names belong to namespaces."""
        return self.metadata.name


class Kind(Declaration):
    """The envelope of our own declarations. Subclasses narrow `kind` and add `spec`."""

    plural: ClassVar[str]

    api_version: Literal["muster.dev/v1alpha1"]


class Taint(Spec):
    """A node taint as in `core/v1`."""

    key: LabelKey
    """A label key."""
    value: LabelValue = ""
    """A label value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    """What happens to pods that do not tolerate it."""


class Toleration(Spec):
    """A pod toleration as in `core/v1`; an empty key with `Exists` tolerates everything."""

    key: str = ""
    """The taint's key; empty with `Exists` = every taint."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """Whether the value must be equal."""
    value: str = ""
    """The taint's value, for `Equal`."""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    """The taint's effect; empty = any."""
    toleration_seconds: Annotated[int, Strict(), Field(le=DURATION_MAX_S)] | None = None
    """How long a `NoExecute` taint is tolerated; unset = for ever."""

    def tolerates(self, taint: Taint) -> bool:
        """Whether this toleration matches `taint` (`core/v1 Toleration.ToleratesTaint`)."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


class RequirementTerm(Spec):
    """One node selector requirement with Karpenter's operators and `minValues`."""

    key: LabelKey
    """The node label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"]
    """`Gt`, `Gte`, `Lt` and `Lte` compare integers."""
    values: tuple[str, ...] = ()
    """At least one for `In` and `NotIn`, none for `Exists` and `DoesNotExist`, one integer for the comparisons."""
    min_values: Annotated[int, Strict(), Field(ge=1, le=50)] | None = None
    """At least this many distinct values of the key must stay possible when a machine is bought."""
