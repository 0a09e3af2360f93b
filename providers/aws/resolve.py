"""Names in a `LaunchRequest` -> the ids EC2 wants: image, subnet, security groups, launch template."""

from collections import OrderedDict
from collections.abc import Callable

from fleet.snapshot import LaunchRequest
from model import labels
from model.kinds.node_template import SecurityGroupTerm, SubnetTerm
from providers.aws.fleet_request import FleetPlan
from providers.aws.images import Images
from providers.aws.launch_template import LaunchTemplates, TemplateParams
from providers.aws.network import Network
from providers.aws.profiles import Profiles
from providers.aws.user_data import ClusterAccess, node_user_data

_REMEMBERED = 1000


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
        self._images.forget(plan.request)

    def exhausted(self, plan: FleetPlan) -> None:
        """The subnet of `plan` has no addresses left."""
        self._network.exhausted(plan.subnet)

    def _resolve(self, request: LaunchRequest) -> FleetPlan:
        template = request.template
        own = {labels.CLUSTER: self._access.name}
        user_data = node_user_data(self._access, template, request.labels, request.taints)
        image_id = self._images.resolve(request)
        subnets = template.subnets or (SubnetTerm(tags=own),)
        groups = template.security_groups or (SecurityGroupTerm(tags=own),)
        subnet = self._network.subnet(subnets, request.pool.zone, request.count)
        params = TemplateParams(
            image_id=image_id,
            security_groups=self._network.security_groups(groups, subnet.vpc),
            user_data=user_data,
            template=template,
            instance_profile=self._profiles.ensure(template.role) if template.role else template.instance_profile,
            placement_group=request.placement_group,
            efa_interfaces=request.efa_interfaces,
            efa_card=self._efa_card(request.pool.instance_type),
            reservation=request.pool.reservation,
            market=request.market,
            closed=request.closed,
        )
        return FleetPlan(request, self._templates.ensure(params), subnet.id)
