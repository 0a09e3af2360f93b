"""What a kubelet asks of claims before it makes the containers of a pod.

Source: `pkg/kubelet/cm/dra/manager.go` (prepareResources).
"""

from providers.sim.controllers.dra.compute_domains import ComputeDomains
from providers.sim.controllers.dra.nvidia_driver import NvidiaDraDriver
from providers.sim.controllers.dra.podclaims import ClaimsNotReady, claim_keys, claims_devices, is_for, is_reserved_for
from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.objects import Key, Obj, key_of, node_of, status_of


class ClaimPreparation:
    """Has the claims of pods prepared by their drivers."""

    def __init__(self, cluster: MirroredCluster, driver: NvidiaDraDriver, domains: ComputeDomains) -> None:
        self._claims = cluster.mirror("ResourceClaim", "resource.k8s.io")
        self._driver, self._domains = driver, domains

    def why_not(self, pod: Obj) -> str | None:
        """What is missing before a pod may start, in the words of the kubelet; None where nothing is."""
        if not claims_devices(pod):
            return None
        try:
            found = (self._why_not(pod, key, own=own) for key, own in claim_keys(pod))
            return next((why for why in found if why is not None), None)
        except ClaimsNotReady as error:
            return str(error)

    def _why_not(self, pod: Obj, key: Key, *, own: bool) -> str | None:
        claim, name, meta = self._claims.get(key), key[1], pod["metadata"]
        if claim is None:
            return f'fetch ResourceClaim {name}: resourceclaims.resource.k8s.io "{name}" not found'
        if own and not is_for(pod, claim):
            return f"ResourceClaim {'/'.join(key)} was not created for pod {'/'.join(key_of(pod))} (pod is not owner)"
        uid = claim["metadata"]["uid"]
        if not is_reserved_for(claim, pod):
            return f"pod {meta['name']} ({meta['uid']}) is not allowed to use ResourceClaim {name} ({uid})"
        if status_of(claim).get("allocation") is None:
            return f"ResourceClaim {name}: claim {'/'.join(key)} not allocated"
        node = node_of(pod)
        return self._driver.why_not_prepared(node, claim) or self._domains.why_not_prepared(node, claim)
