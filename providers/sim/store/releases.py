"""What differs between releases of Kubernetes as far as the store shows it: which group versions are served.

Source: the release notes of 1.32 to 1.36 and `DefaultAPIResourceConfigSource` (`pkg/controlplane/instance.go`): what is
stable is served, a beta API only where `--runtime-config` names it.
"""

from dataclasses import dataclass, replace
from typing import Final

_FOR_EVER: Final = 99
_MUTATING = ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings")
_CLAIMS = ("deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices")

# Group and version, resources, first and last minor release that has them. What is not here is in every release.
_SERVED: Final[tuple[tuple[str, tuple[str, ...], int, int], ...]] = (
    ("admissionregistration.k8s.io/v1beta1", _MUTATING, 34, 35),
    ("admissionregistration.k8s.io/v1", _MUTATING, 36, _FOR_EVER),
    ("resource.k8s.io/v1beta1", _CLAIMS, 32, 32),
    ("resource.k8s.io/v1beta2", _CLAIMS, 33, 33),
    ("resource.k8s.io/v1", _CLAIMS, 34, _FOR_EVER),
    ("resource.k8s.io/v1beta2", ("devicetaintrules",), 36, _FOR_EVER),
)
# Subresources that came with a release.
_SUBRESOURCES: Final[dict[tuple[str, str], int]] = {("pods", "resize"): 33}


@dataclass(frozen=True, slots=True)
class Release:
    """A minor release of Kubernetes 1 as an API server is started in: `Store(clock, release=RELEASES["1.34"])`.

    `switched_on` are the beta group versions that `--runtime-config` names.
    """

    minor: int
    patch: int = 0
    switched_on: frozenset[str] = frozenset()

    @property
    def git_version(self) -> str:
        """`v1.36.2`, as `/version` says it."""
        return f"v1.{self.minor}.{self.patch}"

    def with_betas(self, *group_versions: str) -> "Release":
        """The release with beta APIs switched on, such as `admissionregistration.k8s.io/v1beta1`."""
        return replace(self, switched_on=self.switched_on | set(group_versions))

    def serves(self, group_version: str, plural: str) -> bool:
        """Whether the release has this resource in this version."""
        if "beta" in group_version and group_version not in self.switched_on:
            return False
        return all(
            first <= self.minor <= last
            for version, resources, first, last in _SERVED
            if version == group_version and plural in resources
        )

    def has_subresource(self, plural: str, subresource: str) -> bool:
        """Whether the release has this part of a resource."""
        return self.minor >= _SUBRESOURCES.get((plural, subresource), 0)


RELEASES: Final[dict[str, Release]] = {
    "1.32": Release(32, 4),
    "1.33": Release(33, 1),
    "1.34": Release(34, 1),
    "1.35": Release(35, 0),
    "1.36": Release(36, 2),
}
"""The profiles, by name."""
LATEST: Final = RELEASES["1.36"]
