"""The boto3 clients Muster uses, made once, with every time-out set and botocore's own retries off."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from boto3.session import Session
    from botocore.config import Config
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_pricing import PricingClient
    from mypy_boto3_sqs import SQSClient

_CONNECT_TIMEOUT_S = 5
_READ_TIMEOUT_S = 30
_POOL = 16

_PRICING_REGIONS = (("ap-", "ap-south-1"), ("cn-", "cn-northwest-1"), ("eu-", "eu-central-1"))


@dataclass(frozen=True, slots=True)
class Clients:
    """The clients of one region. The Pricing API is not offered in every region; `ssm` and `iam` have no type stubs."""

    region: str
    ec2: "EC2Client"
    ssm: Any
    pricing: "PricingClient | None"
    iam: Any


def connect(
    region: str, *, endpoint_url: str = "", pricing_endpoint_url: str = "", session: "Session | None" = None
) -> Clients:
    """Clients of `session`, or with credentials from the usual chain (environment, profile, web identity, role).

    `endpoint_url` sends EC2, SSM and IAM calls elsewhere, and then prices come from the package unless
    `pricing_endpoint_url` is given too: a fake of EC2 has no price list, and the real one must not be asked.
    """
    session = session or _session()
    endpoint = endpoint_url or None
    return Clients(
        region=region,
        ec2=session.client("ec2", region, endpoint_url=endpoint, config=_config()),
        ssm=session.client("ssm", region, endpoint_url=endpoint, config=_config()),
        pricing=session.client(
            "pricing",
            region_name=pricing_region(region),
            endpoint_url=pricing_endpoint_url or None,
            config=_config(),
        )
        if pricing_endpoint_url or not endpoint_url
        else None,
        iam=session.client("iam", region, endpoint_url=endpoint, config=_config()),
    )


def connect_queue(
    region: str, *, endpoint_url: str = "", longest_wait_s: int = 20, session: "Session | None" = None
) -> "SQSClient":
    """An SQS client whose read time-out leaves room for a long poll of `longest_wait_s`."""
    return (session or _session()).client(
        "sqs",
        region,
        endpoint_url=endpoint_url or None,
        config=_config(read_timeout_s=longest_wait_s + _READ_TIMEOUT_S),
    )


def pricing_region(region: str) -> str:
    """The region whose Pricing API to ask (the price list of a partition is the same everywhere)."""
    return next((home for prefix, home in _PRICING_REGIONS if region.startswith(prefix)), "us-east-1")


def _session() -> "Session":
    import boto3

    return boto3.session.Session()


def _config(read_timeout_s: int = _READ_TIMEOUT_S) -> "Config":
    from botocore.config import Config

    return Config(
        connect_timeout=_CONNECT_TIMEOUT_S,
        read_timeout=read_timeout_s,
        max_pool_connections=_POOL,
        retries={"mode": "standard", "total_max_attempts": 1},
        user_agent_extra="muster",
    )
