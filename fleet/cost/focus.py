"""Records as rows of FOCUS 1.0, the FinOps Open Cost and Usage Specification, for tools that read bills of all clouds.

What it is not: an invoice. `BilledCost`, `EffectiveCost`, `ListCost` and `ContractedCost` are all what the ledger says.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from fleet.cost.machine_use import NOBODY
from fleet.cost.records import HOUR_S, LedgerRecord
from fleet.cost.statement import NO_TEAM, Month
from model.plain_text import instant

_PRICING: Final[Mapping[str, str]] = {"on-demand": "Standard", "spot": "Dynamic", "reserved": "Standard"}
"""`Committed` is for commitment discounts, and a capacity reservation is none."""
FOCUS_COLUMNS: Final = (
    *("AvailabilityZone", "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency"),
    *("BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription"),
    *("ChargeFrequency", "ChargePeriodEnd", "ChargePeriodStart", "CommitmentDiscountCategory"),
    *("CommitmentDiscountId", "CommitmentDiscountName", "CommitmentDiscountStatus", "CommitmentDiscountType"),
    *("ConsumedQuantity", "ConsumedUnit", "ContractedCost", "ContractedUnitPrice", "EffectiveCost"),
    *("InvoiceIssuerName", "ListCost", "ListUnitPrice", "PricingCategory", "PricingQuantity", "PricingUnit"),
    *("ProviderName", "PublisherName", "RegionId", "RegionName", "ResourceId", "ResourceName", "ResourceType"),
    *("ServiceCategory", "ServiceName", "SkuId", "SkuPriceId", "SubAccountId", "SubAccountName", "Tags"),
    *("x_Borrowed", "x_GpuHours", "x_LostCost", "x_PricedAt", "x_PriceSource", "x_Subject"),
)
"""All columns of FOCUS 1.0, in their order, and ours behind them (`x_`)."""


class Seller(NamedTuple):
    """A `Seller` is who sells the machines, as FOCUS names it."""

    provider: str
    service: str
    region: str
    """Empty where it is not known."""


FOCUS_FIELDS: Final = (
    *("machine", "subject", "team", "name", "namespace", "queue", "user", "node_pool", "instance_type", "zone"),
    *("capacity_type", "reservation", "gpu", "devices", "usd_h"),
)
"""Fields of records that stay apart where the records of a day become one row, beside those that always do."""


def focus_rows(
    records: Iterable[LedgerRecord], seller: Seller, period_s: float = HOUR_S
) -> Iterator[Mapping[str, str]]:
    """Yields a row for each record, by column; empty = null. `period_s` is how long a charge period is."""
    words: dict[float, BillingTimes] = {}
    for record in records:
        times = words.get(record.hour_s) or words.setdefault(record.hour_s, _times(record.hour_s, period_s))
        yield dict(zip(FOCUS_COLUMNS, _row(record, seller, times), strict=True))


class BillingTimes(NamedTuple):
    """`BillingTimes` are the instants of an hour's rows, as they are written."""

    month_end: str
    month_begin: str
    end: str
    begin: str


def _times(hour_s: float, period_s: float) -> BillingTimes:
    month, begin_s = Month.of(hour_s), hour_s // period_s * period_s
    return BillingTimes(*map(instant, (month.end_s, month.begin_s, begin_s + period_s, begin_s)))


def _row(record: LedgerRecord, seller: Seller, times: BillingTimes) -> Iterator[str]:
    cost, unit_price = _decimal(record.cost_micro_usd / 1e6, 6), _decimal(record.usd_h, 6)
    hours = _decimal(record.cost_micro_usd / 1e6 / record.usd_h if record.usd_h else record.held_s / 3600, 9)
    team = record.subject if record.subject in NOBODY else record.team or NO_TEAM
    name = record.subject if record.subject in NOBODY else f"{record.namespace}/{record.name}"
    yield from (record.zone, cost, record.cluster, record.cluster, "USD")
    yield from (times.month_end, times.month_begin, "Usage", "")
    yield f"{record.instance_type} ({record.capacity_type}): {name}"
    yield from ("Usage-Based", times.end, times.begin, "", "", "", "", "")
    if record.gpu_s:
        yield from (_decimal(record.gpu_s / 3600, 9), "GPU-Hours")
    else:
        yield from (hours, "Hours")
    yield from (cost, unit_price, cost, seller.provider, cost, unit_price)
    yield from (_PRICING.get(record.capacity_type, "Other"), hours, "Hours", seller.provider, seller.provider)
    yield from (seller.region, seller.region, record.machine, record.machine, "Instance", "Compute", seller.service)
    yield from (record.instance_type, f"{record.instance_type}/{record.capacity_type}/{record.zone}", team, team)
    yield json.dumps(_tags(record), sort_keys=True)
    yield from (str(record.borrowed).lower(), _decimal(record.gpu_s / 3600, 9))
    yield from (
        _decimal(record.lost_micro_usd / 1e6, 6),
        instant(record.priced_at_s),
        record.price_source,
        record.subject,
    )


def _tags(record: LedgerRecord) -> Mapping[str, str]:
    tags = {
        "namespace": record.namespace,
        "queue": record.queue,
        "user": record.user,
        "name": "" if record.subject in NOBODY else record.name,
        "node-pool": record.node_pool,
        "gpu": record.gpu,
        "devices": record.devices,
        "reservation": record.reservation,
    }
    return {f"muster.dev/{name}": value for name, value in tags.items() if value}


def _decimal(value: float, digits: int) -> str:
    """Returns a number without an exponent (FOCUS, Numeric Format), with a point, by which readers know its type."""
    text = f"{value:.{digits}f}".rstrip("0")
    return f"{text}0" if text.endswith(".") else text
