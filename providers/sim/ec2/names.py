"""What images, subnets and security groups stand for in a cloud without a wire, and the means to let it change."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from fleet.catalog import ImageKind
from fleet.snapshot import LaunchConfiguration, LaunchRequest, Resolved
from model.kinds import NodeTemplate
from model.kinds.aws import AmiTerm

LATEST = "@latest"


class Names:
    """Tells one subnet a zone and one set of security groups, whatever a pool selects; an image for each name and kind.

    `subnets` (zone -> id), `security_groups` and `newest_release` (as of `Resolved`) may be set anew.
    """

    def __init__(self, zones: Iterable[str]) -> None:
        self.subnets = {zone: f"subnet-{zone}" for zone in sorted(zones)}
        self.security_groups: tuple[str, ...] = ("sg-nodes",)
        self.newest_release = ""
        self._published = 0

    def publish(self) -> None:
        """Puts a new image behind every name; images that are named by id or by version stay."""
        self._published += 1

    def born(self, request: LaunchRequest) -> Mapping[str, object]:
        """What EC2 would show of a machine that is launched now (`MachineSpec.details`)."""
        return {
            "image_id": self._image(request.template, request.image_kind),
            "subnet_id": self.subnets.get(request.pool.zone, ""),
            "security_groups": self.security_groups,
        }

    def resolved(self, births: Sequence[LaunchConfiguration]) -> Mapping[str, Resolved]:
        """What names stand for now."""
        subnets = dict.fromkeys(self.subnets.values(), self.security_groups)
        return {birth.pool_hash: self._resolved(birth, subnets) for birth in births}

    def _resolved(self, birth: LaunchConfiguration, subnets: Mapping[str, tuple[str, ...]]) -> Resolved:
        newest = self.newest_release if birth.template.images == "ProposeChange" else ""
        return Resolved({kind: self._image(birth.template, kind) for kind in birth.kinds}, subnets, newest)

    def _image(self, template: NodeTemplate, kind: ImageKind) -> str:
        if len(template.amis) == 1 and template.amis[0].id:
            return template.amis[0].id
        age = self._published if any(map(_follows, template.amis)) else 0
        text = repr((template.amis, kind, age))
        return f"ami-{hashlib.blake2b(text.encode(), digest_size=9).hexdigest()[:17]}"


def _follows(term: AmiTerm) -> bool:
    """Whether an image published later may be found by the term."""
    return not term.id and (not term.alias or term.alias.endswith(LATEST))
