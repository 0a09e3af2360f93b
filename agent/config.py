"""The agent's own settings (`muster.yaml`). What the fleet looks like is never here: that is what git is for."""

import os
import re
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal, Self

import yaml
from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator

from agent.clouds import DEFAULT, NAMES
from agent.connection_limits import TlsFiles
from agent.ledger_settings import LedgerSettings
from agent.settings_section import SettingsSection
from model.addresses import without_secrets
from model.loader import unreadable_in

NAMESPACE = "muster-system"
LEASE = "muster"
"""The Lease that agents of one namespace elect their leader by. Roles name it, so it is the same everywhere."""
BOOKS = "muster-books"
"""The ConfigMap in which the agent keeps its books; roles name it as well."""
_SECRET_MOST = 4096


class InvalidConfiguration(Exception):
    """The configuration file cannot be used; the message names file, key and remedy."""


class RefSettings(SettingsSection):
    """Which revision to follow; the most specific one that is given wins (branch < tag < semver < name < commit)."""

    branch: str = ""
    tag: str = ""
    semver: str = ""
    name: str = ""
    commit: str = ""

    @property
    def shown(self) -> str:
        """Returns the one that wins."""
        return self.commit or self.name or self.semver or self.tag or self.branch


class AuthSettings(SettingsSection):
    """How to reach the repository. Secrets come from files or the environment, never from this file."""

    username: str = ""
    password_env: str = ""
    """Environment variable with the password, or a forge's token."""
    password_file: Path | None = None
    """The same in a file, read again before each poll: a Secret that changes counts without a restart."""
    bearer_env: str = ""
    bearer_file: Path | None = None
    ssh_key_file: Path | None = None
    ssh_passphrase_env: str = ""
    ssh_passphrase_file: Path | None = None

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        ways = {
            "passwordEnv": self.password_env,
            "passwordFile": self.password_file,
            "bearerEnv": self.bearer_env,
            "bearerFile": self.bearer_file,
            "sshKeyFile": self.ssh_key_file,
        }
        given = [name for name, value in ways.items() if value]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} are given; one of them is the way in")
        if (self.ssh_passphrase_env or self.ssh_passphrase_file) and not self.ssh_key_file:
            raise ValueError("a passphrase needs sshKeyFile, the key that it opens")
        return self


class ReadingLimits(SettingsSection):
    """The most that fetching and reading the repository may take. Far above any fleet's."""

    memory_mib: Annotated[int, Field(ge=256, le=65_536)] = 768
    """Memory (address space) of the process that reads."""
    cpu_s: Annotated[float, Field(ge=1, le=3600)] = 120.0
    """CPU time for one look at the repository."""
    transfer_s: Annotated[float, Field(ge=1, le=3600)] = 300.0
    """One transfer; a whole look may take twice that."""
    transfer_mib: Annotated[int, Field(ge=1, le=65_536)] = 500
    """One transfer, as it is sent."""
    object_mib: Annotated[int, Field(ge=1, le=4096)] = 64
    """One object of the history (a file, whatever its name), inflated."""


class SourceSettings(SettingsSection):
    """The fleet repository."""

    url: str
    ref: RefSettings = RefSettings.model_construct(branch="main")
    path: str = ""
    """Folder inside the repository; empty = all of it."""
    poll_interval_s: Annotated[float, Field(ge=0.2)] = 60.0
    auth: AuthSettings = AuthSettings.unsaid()
    trust: Annotated[tuple[Literal["ssh", "pgp", "forgeApproval"], ...], Field(min_length=1)] = ("ssh",)
    """Which signatures count, where `allowedSigners` or `pgpKeys` asks for any."""
    allowed_signers: Path | None = None
    """An OpenSSH `allowed_signers` file outside the repository; with it, signatures are verified."""
    pgp_keys: Path | None = None
    """Armored OpenPGP public keys outside the repository (that of the forge, for merges made in its web page)."""
    signature_mode: Annotated[str, Field(pattern="^(HEAD|Tag|TagAndHEAD)$")] = "HEAD"
    """What must be signed: the commit, the tag that names it, or both."""
    history: Literal["FastForward", "Any"] = "FastForward"
    """Whether a revision must have the one in force in its history."""
    allow_rewind: tuple[Annotated[str, Field(pattern="^[0-9a-f]{40}$")], ...] = ()
    """Commits that may be left behind all the same, each once it is in force."""
    known_hosts: Path | None = None
    ca_file: Path | None = None
    """Certificate authorities (PEM) beside the system's, for https."""
    proxy: str = ""
    """HTTP proxy, for https."""
    proxy_env: str = ""
    """Environment variable with the proxy's address, where that carries a password."""
    limits: ReadingLimits = ReadingLimits.unsaid()
    cache_dir: Path = Path("/var/lib/muster/git")

    @field_validator("url")
    @classmethod
    def _no_secret_in_url(cls, url: str) -> str:
        if without_secrets(url) != url and not re.fullmatch(r"ssh://[^@:/?#]+@[^@?#]+", url):
            raise ValueError(
                "the address carries a user, a password or a query, which would end in logs and in the cluster; put "
                "the user into auth.username, the token into a Secret that auth.passwordEnv or auth.passwordFile names"
            )
        return url

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.proxy and self.proxy_env:
            raise ValueError("proxy and proxyEnv are given; one of them names the proxy")
        if without_secrets(self.proxy) != self.proxy:
            raise ValueError("the proxy's address carries a password; name a variable that holds it in proxyEnv")
        if (self.proxy or self.proxy_env) and not self.url.startswith("https://"):
            raise ValueError("a proxy is used for https only; take proxy and proxyEnv out, or give an https address")
        if self.ca_file and not self.url.startswith("https://"):
            raise ValueError("caFile is used for https only; for ssh give knownHosts")
        return self


class KubeSettings(SettingsSection):
    """The cluster; nothing given = the pod's own service account."""

    kubeconfig: Path | None = None
    context: str | None = None
    url: str = ""


def _known_cloud(name: str) -> str:
    if name not in NAMES:
        raise ValueError(f"there is no cloud {name!r}: {', '.join(NAMES)}")
    return name


class CloudSettings(SettingsSection):
    """How a cloud is reached and how often it is asked. Credentials come from its usual chain."""

    endpoint_url: str = ""
    interruption_queue_url: str = ""
    instance_health: Annotated[str, Field(pattern="^(Act|Report|Off)$")] = "Act"
    """Machines that fail the cloud's own checks: replace them, only count them, or do not ask."""
    cluster_endpoint: str = ""
    """API server address that new nodes join by; empty where the machine image brings its own."""
    certificate_authority: str = ""
    """base64 of the cluster's certificate authority (PEM), for new nodes."""
    service_cidr: str = ""
    poll_interval_s: Annotated[float, Field(ge=0.2)] = 30.0
    """How often instances are listed by tag."""
    refresh_interval_s: Annotated[float, Field(ge=60)] = 3600.0
    """How often types, zones and prices are read again."""


def _network(text: str) -> str:
    ip_network(text)  # a ValueError says what is wrong
    return text


class TlsSettings(SettingsSection):
    """A server's certificate and key; with both its port speaks TLS only."""

    tls_certificate_file: Path | None = None
    """Certificate chain (PEM); with the key, the port speaks TLS only. Both are read again when they change."""
    tls_key_file: Path | None = None

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.tls_certificate_file is None) != (self.tls_key_file is None):
            raise ValueError("tlsCertificateFile and tlsKeyFile go together")
        return self

    def tls(self) -> TlsFiles | None:
        """Returns the files; None where the port speaks plain HTTP."""
        if self.tls_certificate_file is None or self.tls_key_file is None:
            return None
        return TlsFiles(self.tls_certificate_file, self.tls_key_file)


class HttpSettings(TlsSettings):
    """Health, readiness and metrics, and the page. They tell what teams spend: keep this port inside the cluster."""

    host: str = "0.0.0.0"  # noqa: S104 - probes come from outside the pod
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    max_connections: Annotated[int, Field(ge=16, le=10_000)] = 256
    """In all; of one address a quarter, so that one caller cannot keep the kubelet's probes out."""


class ProxySettings(SettingsSection):
    """A proxy that knows who asks (by OIDC, say) and tells the page in headers."""

    addresses: Annotated[tuple[Annotated[str, AfterValidator(_network)], ...], Field(min_length=1)]
    """Networks (CIDR) that it asks from; nobody else is believed, or answered."""
    user_header: str = "X-Forwarded-User"
    groups_header: str = "X-Forwarded-Groups"
    """Names with commas between them, as RBAC knows the groups."""


class WebSettings(SettingsSection):
    """The page at `/` of the port of `http`: who may look, and at whose work."""

    access: Literal["TokenReview", "TrustedProxy", "Anonymous", "Off"] = "TokenReview"
    """TokenReview: whoever the cluster knows by a bearer token sees the namespaces whose Workloads they may list.
    TrustedProxy: the same, by the word of a proxy. Anonymous: everybody sees everything. Off: there is no page."""
    proxy: ProxySettings | None = None

    @model_validator(mode="after")
    def _proxy_where_it_counts(self) -> Self:
        if (self.proxy is not None) != (self.access == "TrustedProxy"):
            raise ValueError("access: TrustedProxy and proxy go together")
        return self


class WebhookSettings(TlsSettings):
    """Where deliveries of the forge come in; nothing listens unless `secretFile` or `secretEnv` is given."""

    host: str = "0.0.0.0"  # noqa: S104 - deliveries come from outside the pod
    port: Annotated[int, Field(ge=0, le=65535)] = 8081
    secret_file: Path | None = None
    """Read anew for every delivery, so that a secret can be changed without a restart."""
    secret_env: str = ""
    max_body_bytes: Annotated[int, Field(ge=1024, le=25 * 1024 * 1024)] = 1024 * 1024
    header_timeout_s: Annotated[float, Field(gt=0, le=60)] = 5.0
    """From the connection to the end of the header, TLS included."""
    request_timeout_s: Annotated[float, Field(gt=0, le=300)] = 15.0
    """From the connection to its end."""
    max_connections: Annotated[int, Field(ge=1, le=10_000)] = 64
    max_connections_per_address: Annotated[int, Field(ge=1, le=10_000)] = 16
    requests_per_minute: Annotated[float, Field(ge=0, le=100_000)] = 60.0
    """Of one address (a proxy before the agent is one address); 0 = any number."""

    @property
    def listens(self) -> bool:
        """Whether a secret is named; without one nobody could deliver anything."""
        return self.secret_file is not None or bool(self.secret_env)

    def secret(self) -> str:
        """Reads the secret as it is now; empty where there is none, and then every delivery is refused."""
        if self.secret_file is None:
            return os.environ.get(self.secret_env, "")
        try:
            with self.secret_file.open(encoding="utf-8") as file:
                return file.read(_SECRET_MOST).strip()
        except (OSError, UnicodeDecodeError):
            return ""


class NotificationSettings(SettingsSection):
    """Where the addresses of the FleetPolicy's sinks come from."""

    address_folder: Path | None = None
    """Holds a file for each `addressEnv` and `secretEnv`, read anew for every attempt; without it they are environment
    variables."""
    commit_link: Annotated[str, Field(pattern=r"^(https?://[^\s{}]+\{commit\}[^\s{}]*)?$", max_length=500)] = ""
    """Page of a commit, such as `https://github.com/OWNER/NAME/commit/{commit}`; news links to it."""


class GitHubAppSettings(SettingsSection):
    """A GitHub App that is installed where the repository is."""

    id: Annotated[int, Field(ge=1)]
    installation: Annotated[int, Field(ge=1)]
    private_key_file: Path
    """PEM, as GitHub hands it out."""


class ForecastSettings(SettingsSection):
    """The forecast in the comment of a pull request: recorded work under the fleet in force and the proposed one."""

    days: Annotated[float, Field(ge=0, le=366)] = 7.0
    """How much of the record is played; 0 = none. Without `record` there is none either."""
    within_s: Annotated[float, Field(ge=1, le=86_400)] = 600.0
    """The most that one may take, of time and of CPU; the comment tells of one that took longer."""
    memory_mib: Annotated[int, Field(ge=256, le=65_536)] = 1024
    """The most memory that its process may take."""


class ReviewSettings(SettingsSection):
    """Where pull requests of the fleet repository are reviewed: planned, and answered in one comment and a status."""

    forge: Literal["GitHub", "GitLab", "Forgejo", "Gitea"] = "GitHub"
    repository: Annotated[str, Field(pattern="^[^/]+(/[^/]+)+$")]
    """OWNER/NAME; on GitLab GROUP/NAME, with subgroups."""
    url: str = ""
    """Address of the API of a GitHub Enterprise Server (`https://HOST/api/v3`), or of a GitLab, Forgejo or Gitea
    (`https://HOST`); empty = that of github.com or gitlab.com."""
    token_env: str = ""
    token_file: Path | None = None
    """Read again before each look, so that a Secret that changes counts without a restart."""
    app: GitHubAppSettings | None = None
    poll_interval_s: Annotated[float, Field(ge=1)] = 60.0
    """Between two looks; a delivery to the webhook calls for one at once."""
    forecast: ForecastSettings = ForecastSettings.unsaid()

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        given = [name for name in ("token_env", "token_file", "app") if getattr(self, name)]
        if len(given) != 1:
            raise ValueError("one of tokenEnv, tokenFile and app says who the agent is to the forge")
        return self

    @model_validator(mode="after")
    def _of_the_forge(self) -> Self:
        if self.app is not None and self.forge != "GitHub":
            raise ValueError(f"app is of GitHub; with forge: {self.forge} tokenEnv or tokenFile says who the agent is")
        if self.forge != "GitLab" and self.repository.count("/") > 1:
            raise ValueError(f"repository is written OWNER/NAME with forge: {self.forge}; only GitLab has subgroups")
        if self.forge in {"Forgejo", "Gitea"} and not self.url:
            raise ValueError(f"url says where the forge is (https://HOST): forge: {self.forge} has no usual one")
        return self


class MigSettings(SettingsSection):
    """Where mig-manager and the device plugin read their configurations."""

    namespace: str = "gpu-operator"
    config_map: str = "muster-mig-config"
    device_plugin_config_map: str = "muster-device-plugin-config"


class DcgmSettings(SettingsSection):
    """NVIDIA's dcgm-exporter: its pods are asked what GPUs do, for whom, and what is wrong with them."""

    namespace: str = "gpu-operator"
    pod_selector: Annotated[str, Field(min_length=1, max_length=500)] = "app=nvidia-dcgm-exporter"
    """Labels of its pods, here those of the GPU operator; its own chart has `app.kubernetes.io/name=dcgm-exporter`."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Where they answer; unset = their container port `metrics`, else 9400."""
    interval_s: Annotated[float, Field(ge=1, le=60)] = 30.0
    """Between two readings; longer where reading would take more than a tenth of a processor."""
    timeout_s: Annotated[float, Field(ge=0.1, le=10)] = 3.0
    """For one answer."""
    window_hours: Annotated[float, Field(ge=1, le=24 * 31)] = 24.0
    """How far back what pods use is remembered, in memory: an agent that starts begins anew."""


class Settings(SettingsSection):
    """Everything the process needs to know beside the fleet."""

    cluster: Annotated[str, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9-]{0,62}$")]
    region: str
    namespace: str = NAMESPACE
    """Where the lease, the books and the agent's events live."""
    source: SourceSettings
    kube: KubeSettings = KubeSettings.unsaid()
    cloud: Annotated[str, AfterValidator(_known_cloud)] = DEFAULT
    """Where machines are bought; the section of that name is its own."""
    aws: CloudSettings = CloudSettings.unsaid()
    http: HttpSettings = HttpSettings.unsaid()
    web: WebSettings = WebSettings.unsaid()
    webhook: WebhookSettings = WebhookSettings.unsaid()
    notifications: NotificationSettings = NotificationSettings.unsaid()
    review: ReviewSettings | None = None
    """Nothing is reviewed unless it is given."""
    mig: MigSettings = MigSettings.unsaid()
    dcgm: DcgmSettings | None = None
    """No readings of GPUs are taken unless it is given (`dcgm: {}` for a GPU operator as it comes)."""
    ledger: LedgerSettings | None = None
    """No records of costs are kept unless it is given; books and budgets do not need them."""
    leader_election: bool = True
    install_crds: bool = False
    """Apply Muster's CRDs at start (the sandbox does; on a cluster they come with the deployment)."""
    journal: Path | None = None
    """A file that gets one JSON line for every decision acted on."""
    record: Path | None = None
    """A file that gets one JSON line when a gang comes and one when it ends, for `muster replay --recorded`."""
    record_mib: Annotated[int, Field(ge=1, le=10_000)] = 64
    """The most that the record takes, with the earlier half beside it (`.1`): of the oldest work nothing is kept."""
    log_format: Annotated[str, Field(pattern="^(json|console)$")] = "json"

    @model_validator(mode="after")
    def _reviews_a_branch(self) -> Self:
        ref = self.source.ref
        if self.review is not None and (ref.tag or ref.semver or ref.name or ref.commit or not ref.branch):
            raise ValueError("review needs source.ref.branch, and no other ref: requests are merged into a branch")
        if self.least_approvals and (self.review is None or self.source.pgp_keys is None):
            raise ValueError(
                "source.trust forgeApproval needs review, the forge that is asked who approved what was merged, and "
                "source.pgpKeys, the key that it signs merges with"
            )
        return self

    @property
    def least_approvals(self) -> int:
        """Approvals that the pull request of each revision but the first needs, whatever a FleetPolicy says."""
        return int("forgeApproval" in self.source.trust)

    @property
    def of_cloud(self) -> CloudSettings:
        """The section of the cloud that machines are bought from."""
        return {"aws": self.aws}[self.cloud]


def load_settings(path: Path) -> Settings:
    """Read and check a configuration file; raises `InvalidConfiguration`."""
    try:
        text = path.read_bytes()
        if refused := unreadable_in(str(path), text):
            raise InvalidConfiguration("\n".join(refused))
        content = yaml.safe_load(text.decode())
    except OSError as error:
        raise InvalidConfiguration(f"{path}: {error.strerror}; give the file with --config") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidConfiguration(f"{path}: not YAML: {error}") from error
    try:
        return Settings.model_validate(content)
    except ValidationError as error:
        lines = [f"{path}: {'.'.join(map(str, e['loc'])) or 'document'}: {e['msg']}" for e in error.errors()]
        raise InvalidConfiguration("\n".join(lines)) from error
