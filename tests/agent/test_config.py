"""The agent's settings: every mistake names file, key and what is wrong."""

from pathlib import Path

import pytest
import yaml

from agent.config import InvalidConfiguration, load_settings
from agent.ledger import terms_of
from fleet.cost.uses import NegotiatedRate

GOOD = {"cluster": "c1", "region": "us-east-1", "source": {"url": "https://git.example.com/fleet.git"}}


def written(folder: Path, content: object) -> Path:
    file = folder / "muster.yaml"
    file.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")
    return file


def test_the_least_that_is_needed(tmp_path: Path) -> None:
    settings = load_settings(written(tmp_path, GOOD))
    assert (settings.cluster, settings.source.ref.branch, settings.leader_election) == ("c1", "main", True)
    assert settings.http.port == 8080


def test_rates_and_places_of_a_ledger(tmp_path: Path) -> None:
    rates = [{"instanceType": "p5.*", "percentOff": 28, "source": "plan"}]
    rates += [{"instanceType": "*", "capacityType": "reserved", "usdPerHour": 3.5, "source": "block"}]
    settings = load_settings(written(tmp_path, {**GOOD, "ledger": {"s3": {"bucket": "abc"}, "rates": rates}}))
    assert settings.ledger is not None
    assert settings.ledger.keep_months == 25
    assert terms_of(settings.ledger).rates == (
        NegotiatedRate("p5.*", "on-demand", None, 28.0, "plan"),
        NegotiatedRate("*", "reserved", 3.5, 0.0, "block"),
    )


BLOCK = {"reservation": "cr-0123456789abcdef0", "instanceType": "p5.48xlarge", "zone": "us-east-1a", "machines": 8}
BLOCK |= {"begin": "2026-10-01T11:30:00Z", "end": "2026-10-08T11:30:00Z", "source": "invoice 7"}


def test_fees_of_reservations(tmp_path: Path) -> None:
    paid = {**BLOCK, "upfrontUsd": 53_760}
    settings = load_settings(written(tmp_path, {**GOOD, "ledger": {"path": "l.db", "commitments": [paid]}}))
    (found,) = terms_of(settings.ledger).commitments
    assert (found.reservation, found.machine_usd_h, found.source) == ("cr-0123456789abcdef0", 40.0, "invoice 7")


APP = {"id": 1, "installation": 2, "privateKeyFile": "/key"}
MISTAKES = [
    ({**GOOD, "clutser": "x"}, "clutser", "Extra inputs"),
    ({"region": "r", "source": GOOD["source"]}, "cluster", "Field required"),
    ({**GOOD, "source": {}}, "source.url", "Field required"),
    ({**GOOD, "cluster": "no spaces"}, "cluster", "pattern"),
    ({**GOOD, "http": {"port": 70000}}, "http.port", "65535"),
    ({**GOOD, "source": {"url": "x", "pollIntervalS": 0}}, "source.pollIntervalS", "0.2"),
    ({**GOOD, "source": {"url": "x", "signatureMode": "Sometimes"}}, "source.signatureMode", "pattern"),
    ({**GOOD, "http": {"webhookSecretEnv": "X"}}, "http.webhookSecretEnv", "Extra inputs"),
    ({**GOOD, "source": {"url": "x", "trust": ["forgeApproval"]}}, "document", "forgeApproval needs review"),
    ({**GOOD, "review": {"repository": "acme", "tokenEnv": "X"}}, "review.repository", "pattern"),
    ({**GOOD, "review": {"repository": "a/b", "forge": "Gogs", "tokenEnv": "X"}}, "review.forge", "'Gitea'"),
    ({**GOOD, "review": {"repository": "a/b"}}, "review", "one of tokenEnv, tokenFile and app"),
    ({**GOOD, "review": {"repository": "a/b/c", "tokenEnv": "X"}}, "review", "only GitLab has subgroups"),
    ({**GOOD, "review": {"repository": "a/b", "forge": "Gitea", "tokenEnv": "X"}}, "review", "url says where"),
    ({**GOOD, "review": {"repository": "a/b", "forge": "GitLab", "app": APP}}, "review", "app is of GitHub"),
    ({**GOOD, "webhook": {"tlsKeyFile": "/x"}}, "webhook", "tlsCertificateFile and tlsKeyFile go together"),
    ({**GOOD, "http": {"tlsCertificateFile": "/x"}}, "http", "tlsCertificateFile and tlsKeyFile go together"),
    ({**GOOD, "webhook": {"maxBodyBytes": 1 << 30}}, "webhook.maxBodyBytes", "26214400"),
    ({**GOOD, "webhook": {"headerTimeoutS": 0}}, "webhook.headerTimeoutS", "greater than 0"),
    ({**GOOD, "logFormat": "xml"}, "logFormat", "pattern"),
    ({**GOOD, "ledger": {"path": "l", "commitments": [BLOCK]}}, "ledger.commitments.0", "says what is paid"),
    (
        {**GOOD, "ledger": {"path": "l", "commitments": [{**BLOCK, "upfrontUsd": 1, "end": BLOCK["begin"]}]}},
        "ledger.commitments.0",
        "end has to be later than begin",
    ),
    ({**GOOD, "ledger": {"path": "l", "commitments": [{**BLOCK, "usdPerHour": 1}] * 2}}, "ledger", "more than once"),
    ({**GOOD, "cloud": "fog"}, "cloud", "there is no cloud 'fog': aws"),
    ({**GOOD, "aws": {"refreshIntervalS": 1}}, "aws.refreshIntervalS", "60"),
    ({**GOOD, "notifications": {"commitLink": "https://x/commit/"}}, "notifications.commitLink", "pattern"),
    ({**GOOD, "ledger": {}}, "ledger", "one of path and s3"),
    (
        {**GOOD, "ledger": {"path": "/l", "userLabel": "muster.dev/owner"}},
        "ledger",
        "only muster.dev/user names a user",
    ),
    ({**GOOD, "ledger": {"path": "/l", "s3": {"bucket": "abc"}}}, "ledger", "one of path and s3"),
    ({**GOOD, "ledger": {"s3": {"bucket": "abc"}, "mostMib": 99}}, "ledger", "mostMib bounds a file"),
    ({**GOOD, "ledger": {"s3": {"bucket": "A/B"}}}, "ledger.s3.bucket", "pattern"),
    ({**GOOD, "ledger": {"path": "/l", "keepMonths": 0}}, "ledger.keepMonths", "greater than or equal to 1"),
    (
        {**GOOD, "ledger": {"path": "/l", "rates": [{"instanceType": "p5.*", "source": "x"}]}},
        "ledger.rates.0",
        "one of usdPerHour and percentOff",
    ),
    ("- a list", "document", "dictionary"),
    ("", "document", "dictionary"),
    ("a: [", "not YAML", ""),
    ("cluster: a\nregion: us-east-1\ncluster: b\nsource: {url: u, url: v}\n", ":3:1", "'cluster' is already given"),
    ("cluster: !!str a\nregion: us-east-1\nsource: {url: u}\nsource: {url: v}\n", ":1:10", "tag"),
    ("cluster: a\nregion: us-east-1\nsource: {url: u, url: v}\n", ":3:18", "'url' is already given in line 3"),
]


@pytest.mark.parametrize(("content", "key", "words"), MISTAKES, ids=lambda value: str(value)[:30])
def test_mistakes(tmp_path: Path, content: object, key: str, words: str) -> None:
    file = written(tmp_path, content)
    with pytest.raises(InvalidConfiguration) as caught:
        load_settings(file)
    message = str(caught.value)
    assert message.startswith(str(file))
    assert key in message
    assert words in message


def test_the_webhook_listens_only_with_a_secret_and_a_secret_in_a_file_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not load_settings(written(tmp_path, GOOD)).webhook.listens
    monkeypatch.setenv("HOOK", "from the environment")
    assert load_settings(written(tmp_path, {**GOOD, "webhook": {"secretEnv": "HOOK"}})).webhook.secret() == (
        "from the environment"
    )
    file = tmp_path / "secret"
    webhook = load_settings(written(tmp_path, {**GOOD, "webhook": {"secretFile": str(file)}})).webhook
    assert webhook.listens
    assert webhook.secret() == "", "and then nobody may deliver"
    for secret in ("one", "two"):
        file.write_text(f"{secret}\n", encoding="utf-8")
        assert webhook.secret() == secret
    file.write_bytes(b"\xff")
    assert webhook.secret() == ""


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        load_settings(written(tmp_path, {"x": 1, "y": 2}))
    assert len(str(caught.value).splitlines()) == 5


def test_a_file_that_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="--config"):
        load_settings(tmp_path / "none.yaml")


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    file = tmp_path / "muster.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidConfiguration):
        load_settings(file)
