"""Where the agent keeps its ledger, and how costs are told apart in it (`ledger` in the settings)."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import AwareDatetime, Field, model_validator

from agent.settings_section import SettingsSection
from model.labels import USER, CapacityType
from providers.kube.resources import GROUP
from providers.store.port import Ledger


class RateSettings(SettingsSection):
    """What machines cost whose price is not the list's: a savings plan, a private agreement."""

    instance_type: Annotated[str, Field(pattern=r"^[a-z0-9.*?\[\]-]+$", max_length=64)]
    """Or a pattern: `p5.*`."""
    capacity_type: CapacityType = "on-demand"
    usd_per_hour: Annotated[float, Field(ge=0, le=100_000)] | None = None
    percent_off: Annotated[float, Field(gt=0, le=100)] | None = None
    """Off the price of the catalogue, or that of the hour."""
    source: Annotated[str, Field(min_length=1, max_length=100)]
    """Where the rate comes from, for reports: `compute savings plan of 2026-03`."""

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.usd_per_hour is None) == (self.percent_off is None):
            raise ValueError("one of usdPerHour and percentOff says what it costs")
        return self


class CommitmentSettings(SettingsSection):
    """What is paid for machines of a reservation, used or not: a capacity block's fee, a reservation's hours."""

    reservation: Annotated[str, Field(pattern=r"^cr-[0-9a-f]{8,17}$")]
    """Id of the capacity block or reservation."""
    instance_type: Annotated[str, Field(pattern=r"^[a-z0-9.-]+$", max_length=64)]
    zone: Annotated[str, Field(pattern=r"^[a-z0-9-]+$", max_length=64)]
    machines: Annotated[int, Field(ge=1, le=100_000)]
    begin: AwareDatetime
    end: AwareDatetime
    upfront_usd: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    """For the whole term and all machines; it is spread over the term."""
    usd_per_hour: Annotated[float, Field(ge=0, le=100_000)] = 0.0
    """For each machine, beside the fee."""
    source: Annotated[str, Field(min_length=1, max_length=100)]
    """Where that comes from, for reports: `invoice of 2026-10`."""

    @model_validator(mode="after")
    def _a_fee_for_a_term(self) -> Self:
        if self.end <= self.begin:
            raise ValueError("end has to be later than begin")
        if not self.upfront_usd and not self.usd_per_hour:
            raise ValueError("upfrontUsd or usdPerHour says what is paid")
        return self


class S3Settings(SettingsSection):
    """Where in S3 a ledger is. Credentials come from AWS's usual chain."""

    bucket: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")]
    prefix: Annotated[str, Field(max_length=500, pattern=r"^[A-Za-z0-9!_.*'()/=-]*$")] = ""
    region: str = ""
    """Of the bucket; empty = the agent's."""
    endpoint_url: str = ""


class LedgerSettings(SettingsSection):
    """Where records of costs are kept."""

    path: Path | None = None
    """A file of SQLite, on a volume that outlives the pod."""
    s3: S3Settings | None = None
    """Or objects in S3, for clusters whose pods come and go, and for two agents (needs `muster[ledger-s3]`)."""
    most_mib: Annotated[int, Field(ge=16, le=1_000_000)] = 10_240
    """The most that a file takes. A full one is told of, and takes no more until it may be larger."""
    keep_months: Annotated[int, Field(ge=1, le=120)] = 25
    """Whole calendar months that records are kept beside the running one."""
    user_label: Annotated[str, Field(min_length=1, max_length=317)] = USER
    """Label of pods whose value is their user."""
    rates: Annotated[tuple[RateSettings, ...], Field(max_length=1000)] = ()
    """The first that fits counts."""
    commitments: Annotated[tuple[CommitmentSettings, ...], Field(max_length=1000)] = ()
    """What is paid for reservations, used or not; of their machines it counts before any of `rates`."""

    @model_validator(mode="after")
    def _no_label_of_ours(self) -> Self:
        if self.user_label.startswith(f"{GROUP}/") and self.user_label != USER:
            raise ValueError(f"userLabel {self.user_label!r} begins with {GROUP}/, where only {USER} names a user")
        return self

    @model_validator(mode="after")
    def _each_reservation_once(self) -> Self:
        names = [it.reservation for it in self.commitments]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"commitments name {', '.join(twice)} more than once")
        return self

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.path is None) == (self.s3 is None):
            raise ValueError("one of path and s3 says where the ledger is")
        if self.s3 is not None and "most_mib" in self.model_fields_set:
            raise ValueError("mostMib bounds a file: take it out, nothing bounds a ledger in s3 but keepMonths")
        return self


def open_ledger(settings: LedgerSettings, region: str = "", *, read_only: bool = False) -> Ledger:
    """The ledger that the settings name, in S3 in this region where they say none; raises `LedgerError`."""
    if settings.s3 is not None:
        from providers.store.parquet import s3_ledger

        place = settings.s3
        return s3_ledger(place.bucket, place.prefix, place.region or region, place.endpoint_url)
    from providers.store.sqlite import SqliteLedger

    return SqliteLedger(settings.path or Path(), settings.most_mib, read_only=read_only)
