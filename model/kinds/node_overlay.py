"""`NodeOverlay`: what is known better than the price list and the cloud's data: prices, and resources of machines.

Karpenter's kind of the same name says the same; both are read into this one.
"""

import re
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, Strict, model_validator
from pydantic.json_schema import WithJsonSchema

from model.kinds.base import Amounts, Kind, RequirementTerm, Spec
from model.kinds.errors import misplaced

_PRICE = re.compile(r"[0-9]+(\.[0-9]+)?")
_ADJUSTMENT = re.compile(r"[+-][0-9]*\.?[0-9]+|\+[0-9]*\.?[0-9]+%|-([0-9]{1,2}(\.[0-9]+)?|100)%")
_KNOWN_OF_MACHINES = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})


def _as_text(value: Any) -> Any:
    """A price is written as text by Karpenter, as a number by people."""
    return repr(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _check_price(value: str) -> str:
    if value and not _PRICE.fullmatch(value):
        raise ValueError(f"{value!r} is not a price; write a plain decimal such as 3.14")
    return value


def _check_adjustment(value: str) -> str:
    if value and not _ADJUSTMENT.fullmatch(value):
        raise ValueError(f"{value!r} is not an adjustment; write +1.5, -1.5, +10% or -10%, not below -100%")
    return value


def _check_capacity(amounts: dict[str, int]) -> dict[str, int]:
    if known := sorted(amounts.keys() & _KNOWN_OF_MACHINES):
        raise ValueError(f"{known[0]!r} is known of every machine; an overlay tells of other resources")
    return amounts


class NodeOverlaySpec(Spec):
    """Which offers it is about, and what is known of them."""

    requirements: Annotated[tuple[RequirementTerm, ...], Field(max_length=100)]
    """Conditions on the labels of a machine, its zone, capacity type and pool (`muster.dev/node-pool`); all hold at
    once. `minValues` is not for overlays."""
    price: Annotated[
        str,
        BeforeValidator(_as_text),
        AfterValidator(_check_price),
        WithJsonSchema({"anyOf": [{"type": "string", "pattern": f"^({_PRICE.pattern})?$"}, {"type": "number"}]}),
    ] = ""
    """USD an hour, instead of the listed price."""
    price_adjustment: Annotated[
        str,
        AfterValidator(_check_adjustment),
        WithJsonSchema({"type": "string", "pattern": f"^({_ADJUSTMENT.pattern})?$"}),
    ] = ""
    """Change of the listed price, which never falls below 0: `+1.5` and `-1.5` in USD an hour, `+10%`, `-10%`."""
    capacity: Annotated[Amounts, AfterValidator(_check_capacity)] = Field(default_factory=dict)
    """Further resources that a machine has, such as those of a device plugin."""
    weight: Annotated[int, Strict(), Field(ge=0, le=10_000)] = 0
    """Of overlays that say different things of an offer, the heaviest counts."""

    @model_validator(mode="after")
    def _one_price(self) -> Self:
        if self.price and self.price_adjustment:
            raise misplaced(("priceAdjustment",), "give one of price and priceAdjustment")
        for index, term in enumerate(self.requirements):
            if term.min_values is not None:
                raise misplaced(("requirements", index, "minValues"), "an overlay chooses nothing: remove minValues")
        return self


class NodeOverlay(Kind):
    """Prices and resources of machines, as they are known better than from the cloud."""

    plural: ClassVar[str] = "nodeoverlays"

    kind: Literal["NodeOverlay"] = "NodeOverlay"
    spec: NodeOverlaySpec
