"""Reads the scenarios of a replay: axes of variants, of which every combination is played."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from fleet.replay.variants import Grid, PriceFactor, QuotaFactor, Variant
from fleet.replay.virtual_world import Shortage
from model.kinds.base import Duration
from model.loader import unreadable_in
from providers.traces import TraceError

MOST_COMBINATIONS: Final = 10_000
"""Each of them is a replay of its own, of seconds at least."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class PriceVariant(_Part):
    """Prices of some offers, multiplied; what is not said means any."""

    factor: Annotated[float, Field(gt=0, le=1000)]
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""


class ShortageVariant(_Part):
    """A time in which some capacity pools have nothing to sell; what is not said means any."""

    after: Duration
    """From the beginning of the replay."""
    lasts: Duration
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""


class QuotaVariant(_Part):
    """What a team is guaranteed, may borrow and lends, multiplied."""

    team: str
    factor: Annotated[float, Field(ge=0, le=1000)]


class ScenarioVariant(_Part):
    """One way things could be; one that says nothing but its name is the world as it is."""

    name: str
    prices: tuple[PriceVariant, ...] = ()
    shortages: tuple[ShortageVariant, ...] = ()
    quotas: tuple[QuotaVariant, ...] = ()

    def variant(self) -> Variant:
        """Returns it as the replay takes it."""
        return Variant(
            self.name,
            tuple(PriceFactor(it.factor, it.instance_type, it.zone, it.capacity_type) for it in self.prices),
            tuple(
                Shortage(it.after, it.after + it.lasts, it.instance_type, it.zone, it.capacity_type)
                for it in self.shortages
            ),
            tuple(QuotaFactor(it.team, it.factor) for it in self.quotas),
        )


_AXES = TypeAdapter(dict[str, Annotated[list[ScenarioVariant], Field(min_length=1)]])


def read_grid(path: Path) -> Grid:
    """Reads a file of axes. Errors: OSError, `TraceError`."""
    try:
        text = path.read_bytes()
        if refused := unreadable_in(str(path), text):
            raise TraceError("\n".join(refused))
        axes = _AXES.validate_python(yaml.safe_load(text.decode()))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: not YAML: {error}") from error
    except ValidationError as error:
        lines = [f"{path}: {'.'.join(map(str, it['loc'])) or 'document'}: {it['msg']}" for it in error.errors()]
        raise TraceError("\n".join(lines)) from error
    for axis, variants in axes.items():
        if twice := [name for name, times in Counter(it.name for it in variants).items() if times > 1]:
            raise TraceError(f"{path}: {axis}: two variants are named {twice[0]!r}, and results go by these names")
    grid = Grid(tuple(tuple(it.variant() for it in variants) for variants in axes.values()))
    if grid.count > MOST_COMBINATIONS:
        raise TraceError(f"{path}: {grid.count:,} combinations of its axes, of at most {MOST_COMBINATIONS:,}")
    return grid
