"""What the upstream kinds share: the envelope as the API server takes it, names, quantities and weights.

Manifests are often written by `kubectl get -o yaml`, so what the server itself fills in (`status`, the server's part of
`metadata`, keys without a value) is left aside, as `kubectl apply` leaves it aside. Everything else that would have no
effect here is an error that names the field: see `unsupported` of each class.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, ValidationInfo, model_validator
from pydantic.json_schema import WithJsonSchema

from model.kinds.base import Declaration, Metadata, Namespace, Spec
from model.quantity import MAX_AMOUNT, canonical_amount, parse_quantity

KUEUE_GROUP = "kueue.x-k8s.io"
VOLCANO_GROUP = "scheduling.volcano.sh"
KARPENTER_GROUP = "karpenter.sh"
KARPENTER_PROVIDER_GROUP = "karpenter.k8s.aws"
AUTOSCALING_GROUP = "autoscaling.x-k8s.io"
KUEUE_API_VERSION: Literal["kueue.x-k8s.io/v1beta2"] = "kueue.x-k8s.io/v1beta2"
"""Both served versions are read; this is the one that values carry."""

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SUBDOMAIN_LENGTH = 253
_LEAST_WEIGHT = Fraction(1, 10**9)


def _check_subdomain(value: str) -> str:
    if len(value) > _SUBDOMAIN_LENGTH or not _SUBDOMAIN.fullmatch(value):
        raise ValueError(
            "a name is at most 253 lower-case letters, digits, '-' or '.', and each part between dots starts and ends "
            "with a letter or digit"
        )
    return value


def _parse_amount(value: Any, info: ValidationInfo) -> int:
    """The canonical amount of the resource that the field `name` before this one says."""
    return canonical_amount(str(info.data.get("name", "")), value)


def _parse_weight(value: Any) -> float:
    exact = parse_quantity(value)
    if exact and exact <= _LEAST_WEIGHT:
        raise ValueError("a weight is 0 or more than 1e-9")
    return float(exact) if exact < MAX_AMOUNT else float(MAX_AMOUNT)


_QUANTITY_SCHEMA = WithJsonSchema({"type": ["string", "number"]})

Subdomain = Annotated[
    str,
    AfterValidator(_check_subdomain),
    WithJsonSchema({"type": "string", "pattern": f"^{_SUBDOMAIN.pattern}$", "maxLength": _SUBDOMAIN_LENGTH}),
]
"""A name as the API server takes it; longer ones than ours are fine."""
Amount = Annotated[int, BeforeValidator(_parse_amount), _QUANTITY_SCHEMA]
"""A quantity of the resource that the sibling field `name` names, held as a canonical integer."""
Weight = Annotated[float, BeforeValidator(_parse_weight), _QUANTITY_SCHEMA]
"""A quantity without a resource: `2`, `500m`."""
KueueVersion = Annotated[
    Literal["kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"], AfterValidator(lambda _: KUEUE_API_VERSION)
]
"""For kinds that are written alike in both versions, so that they are equal when read."""


class ClusterScopedMeta(Metadata):
    """`metadata` of an object that belongs to no namespace."""

    unsupported: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "generateName": "write metadata.name: a declaration needs the same name in every revision",
            "namespace": "remove it: objects of this kind belong to no namespace",
            "ownerReferences": "remove it: what the repository declares is owned by the repository",
        }
    )
    ignored: ClassVar[frozenset[str]] = frozenset(
        {
            "creationTimestamp",
            "deletionGracePeriodSeconds",
            "deletionTimestamp",
            "finalizers",
            "generation",
            "managedFields",
            "resourceVersion",
            "selfLink",
            "uid",
        }
    )

    name: Subdomain
    """Unique within the kind: at most 253 lower-case letters, digits, `-` and `.`."""

    @model_validator(mode="before")
    @classmethod
    def _without_server_fields(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        return {key: value for key, value in data.items() if key not in cls.ignored}


class NamespacedMeta(ClusterScopedMeta):
    """`metadata` of an object in a namespace."""

    unsupported: ClassVar[Mapping[str, str]] = MappingProxyType(
        {key: advice for key, advice in ClusterScopedMeta.unsupported.items() if key != "namespace"}
    )

    namespace: Namespace
    """The namespace it belongs to; a repository has no current one, so it must be said."""


def own_metadata(metadata: ClusterScopedMeta) -> Metadata:
    """The same metadata in a declaration of ours."""
    return Metadata.model_construct(**{name: getattr(metadata, name) for name in metadata.model_fields_set})


class UpstreamKind(Declaration):
    """The envelope of a manifest of another system. Subclasses narrow `api_version` and `kind` and add `spec`."""

    ignored: ClassVar[frozenset[str]] = frozenset({"status"})

    metadata: ClusterScopedMeta

    @model_validator(mode="before")
    @classmethod
    def _as_applied(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        return _without_nulls({key: value for key, value in data.items() if key not in cls.ignored})


def _without_nulls(data: Any) -> Any:
    """`data` without the keys that have no value: to the API server they are not there."""
    if isinstance(data, Mapping):
        return {key: _without_nulls(value) for key, value in data.items() if value is not None}
    return [_without_nulls(item) for item in data] if isinstance(data, list) else data


class FairSharing(Spec):
    """Place among the siblings when what is idle is shared out."""

    weight: Weight = 1.0
    """Share relative to the siblings; 0 = last as soon as it borrows, else more than 1e-9."""
