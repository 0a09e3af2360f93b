"""Names in a `LaunchRequest` -> the ids EC2 wants: image, subnet, security groups, launch template.

What a pool's names stand for now is told from the same caches that launches go by: a machine that was launched before
they were asked was born with nothing newer than the answer.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import structlog

from fleet.snapshot import LaunchConfiguration, LaunchRequest, Resolved
from model import labels
from model.kinds import NodeTemplate
from model.kinds.aws import SecurityGroupTerm, SubnetTerm
from providers.aws.capacity_blocks import market_of
from providers.aws.fleet_request import FleetPlan
from providers.aws.images import Images
from providers.aws.launch_template import LaunchTemplates, TemplateParams
from providers.aws.network import Network
from providers.aws.profiles import Profiles
from providers.aws.user_data import ClusterAccess, node_user_data
from providers.ports import CloudError

T = TypeVar("T")

_REMEMBERED = 1000

_log = structlog.get_logger(__name__)


class Resolver:
    """Makes plans and keeps them: asked again, a token must carry the very same parameters.

    `efa_card` tells the first network card of an instance type that can carry EFA.
    """

    def __init__(
        self,
        access: ClusterAccess,
        network: Network,
        images: Images,
        templates: LaunchTemplates,
        profiles: Profiles,
        *,
        efa_card: Callable[[str], int],
    ) -> None:
        self._access = access
        self._network = network
        self._images = images
        self._templates = templates
        self._profiles = profiles
        self._efa_card = efa_card
        self._plans: OrderedDict[str, FleetPlan] = OrderedDict()

    def plan(self, request: LaunchRequest) -> FleetPlan:
        """The plan for `request`, the same as before for the same token; raises `CloudError`."""
        known = self._plans.get(request.token)
        if known is not None and known.request == request:
            return known
        plan = self._resolve(request)
        self._plans[request.token] = plan
        while len(self._plans) > _REMEMBERED:
            self._plans.popitem(last=False)
        return plan

    def forget(self, plan: FleetPlan) -> None:
        """EC2 does not know the template or the image: find out anew."""
        self._plans.pop(plan.request.token, None)
        self._templates.forget(plan.template)
        self._images.forget(plan.request.template.amis, plan.request.image_kind)

    def elsewhere(self, plan: FleetPlan) -> bool:
        """The subnet of `plan` is full: whether another one of the zone seems to have room, which is planned with next.

        Every subnet that was full counts as full until subnets are read again, so that this ends.
        """
        request = plan.request
        self._network.exhausted(plan.subnet)
        self._plans.pop(request.token, None)
        subnets, _ = self._network_terms(request.template)
        return self._network.free(subnets, request.pool.zone) >= request.count

    def resolved(self, birth: LaunchConfiguration) -> Resolved:
        """What the names of a template stand for now; what cannot be found out is said in the log and left out."""
        subnet_terms, group_terms = self._network_terms(birth.template)
        subnets = _known(birth, partial(self._network.subnets, subnet_terms)) or {}
        vpcs = sorted(set(subnets.values()))
        groups = {vpc: _known(birth, partial(self._network.security_groups, group_terms, vpc)) or () for vpc in vpcs}
        found = {kind: _known(birth, partial(self._images.resolve, birth.template.amis, kind)) for kind in birth.kinds}
        images = {kind: image for kind, image in found.items() if image}
        newest, pinned = None, birth.template.pinned
        if birth.template.images == "ProposeChange" and pinned is not None:
            newest = _known(birth, partial(self._images.newest_release, pinned.family, birth.kinds))
        return Resolved(images, {subnet: groups[vpc] for subnet, vpc in sorted(subnets.items())}, newest or "")

    def _network_terms(self, template: NodeTemplate) -> tuple[Sequence[SubnetTerm], Sequence[SecurityGroupTerm]]:
        own = {labels.CLUSTER: self._access.name}
        return template.subnets or (SubnetTerm(tags=own),), template.security_groups or (SecurityGroupTerm(tags=own),)

    def _resolve(self, request: LaunchRequest) -> FleetPlan:
        template = request.template
        user_data = node_user_data(self._access, template, request.labels, request.taints)
        image_id = self._images.resolve(template.amis, request.image_kind)
        subnets, groups = self._network_terms(template)
        subnet = self._network.subnet(subnets, request.pool.zone, request.count)
        params = TemplateParams(
            image_id=image_id,
            security_groups=self._network.security_groups(groups, subnet.vpc),
            user_data=user_data,
            template=template,
            instance_profile=self._profiles.ensure(template.role) if template.role else template.instance_profile,
            placement_group=request.placement_group,
            efa_interfaces=request.fabric_interfaces,
            efa_card=self._efa_card(request.pool.instance_type),
            reservation=request.pool.reservation,
            market=market_of(request),
            closed=request.closed,
        )
        return FleetPlan(request, self._templates.ensure(params), subnet.id)


def _known(birth: LaunchConfiguration, read: Callable[[], T]) -> T | None:
    """None where it cannot be read, or where nothing is found."""
    try:
        return read()
    except CloudError as error:
        _log.warning("not resolved", template=birth.pool_hash, error=str(error))
        return None
