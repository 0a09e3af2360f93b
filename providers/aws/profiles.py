"""Instance profiles: what lets machines act in a role. For a role that a pool names one is kept."""

from hashlib import sha256
from typing import Any

from model import labels
from providers.aws.buckets import RateLimitGroup
from providers.aws.errors import code_of
from providers.aws.retry import Caller
from providers.ports import CloudRejected

_SETTLES_S = 10.0
"""IAM says it is eventually consistent; EC2 has mostly heard of a new profile by then, and is asked again if not."""
_ABSENT = "NoSuchEntity"
_EXISTS = "EntityAlreadyExists"
_FULL = "LimitExceeded"


class Profiles:
    """Makes the profile of a role on first use, and remembers it. Its name follows from cluster, region and role."""

    def __init__(self, caller: Caller, client: Any, cluster: str, region: str) -> None:
        self._caller = caller
        self._client = client
        self._cluster = cluster
        self._region = region
        self._ready: dict[str, str] = {}

    def ensure(self, role: str) -> str:
        """The name of a profile with `role` (a name or an ARN) in it, which exists now; raises `CloudError`."""
        if role not in self._ready:
            name = profile_name(self._cluster, self._region, role)
            short = role.rpartition("/")[2]
            if self._lacks_role(name, short):
                self._fill(name, short)
            self._ready[role] = name
        return self._ready[role]

    def _lacks_role(self, name: str, role: str) -> bool:
        """Whether the profile has no role yet. It is made where there is none."""
        found = self._found(name)
        if found is None:
            self._make(name)
            return True
        roles = [str(each["RoleName"]) for each in found["InstanceProfile"]["Roles"]]
        if roles and roles != [role]:
            raise CloudRejected(f"the instance profile {name} holds the role {roles[0]}, not {role}")
        return not roles

    def _found(self, name: str) -> Any:
        try:
            return self._caller.idempotent(
                RateLimitGroup.IAM, lambda: self._client.get_instance_profile(InstanceProfileName=name)
            )
        except CloudRejected as error:
            if code_of(error) != _ABSENT:
                raise
            return None

    def _make(self, name: str) -> None:
        tags: Any = [{"Key": labels.CLUSTER, "Value": self._cluster}]
        try:
            self._caller.idempotent(
                RateLimitGroup.IAM, lambda: self._client.create_instance_profile(InstanceProfileName=name, Tags=tags)
            )
        except CloudRejected as error:
            if code_of(error) != _EXISTS:
                raise

    def _fill(self, name: str, role: str) -> None:
        try:
            self._caller.idempotent(
                RateLimitGroup.IAM,
                lambda: self._client.add_role_to_instance_profile(InstanceProfileName=name, RoleName=role),
            )
        except CloudRejected as error:
            if code_of(error) != _FULL:  # somebody else has put one in meanwhile
                raise
        self._caller.pause(_SETTLES_S)


def profile_name(cluster: str, region: str, role: str) -> str:
    """`muster_<cluster>_<hash>`; IAM knows no regions, so the region is part of it."""
    return f"muster_{cluster}_{sha256(f'{region}/{role}'.encode()).hexdigest()[:12]}"
