"""The Helm chart, rendered by Helm itself and held to Kubernetes' schemas; no cluster is needed."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helm_python
import kubernetes_validate
import pytest
import typer.main
import yaml

from api.app import create_app
from cli.main import app
from store.settings import Settings

REPOSITORY = Path(__file__).parents[2]
CHART = REPOSITORY / "docker" / "helm" / "regatta"
DOCKERFILE = (REPOSITORY / "docker" / "Dockerfile").read_text(encoding="utf-8")
KUBERNETES = ("1.25", "1.37")
USER = 10001

Document = dict[str, Any]

DEFAULTS: Document = {}
EVERYTHING: Document = {
    "settings": {"REGATTA_ALLOW_HUB": True, "REGATTA_REQUESTS_PER_S": 20, "AWS_REGION": "eu-west-1"},
    "artifacts": {"url": "s3://bucket/regatta"},
    "models": {"existingClaim": "models"},
    "datasets": {"existingClaim": "datasets"},
    "image": {"pullSecrets": ["registry"]},
    "api": {
        "ingress": {"enabled": True, "className": "nginx", "host": "regatta.example", "tlsSecret": "tls"}
    },
    "workers": {
        "cpu": {"replicas": 0},
        "gpu": {"replicas": 2, "runtimeClassName": "nvidia", "nodeSelector": {"gpu": "h200"}},
    },
    "networkPolicy": {"from": [{"namespaceSelector": {}}]},
}


def rendered(values: Document) -> list[Document]:
    """The manifests of a release named `prod`."""
    with helm_python.Chart.load(CHART) as chart:
        files = chart.render(values, name="prod", namespace="ml")
    texts = [text for name, text in files.items() if name.endswith(".yaml")]
    return [document for text in texts for document in yaml.safe_load_all(text) if document]


def named(documents: list[Document], kind: str, name: str) -> Document:
    (found,) = [each for each in documents if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def pods(documents: list[Document]) -> Iterator[Document]:
    """The specs of all pods that the manifests lead to."""
    for document in documents:
        if "template" in document.get("spec", {}):
            yield document["spec"]["template"]["spec"]


def environment(container: Document) -> Document:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


@pytest.fixture(scope="module")
def defaults() -> list[Document]:
    return rendered(DEFAULTS)


@pytest.fixture(scope="module")
def everything() -> list[Document]:
    return rendered(EVERYTHING)


def test_helm_finds_nothing_wrong() -> None:
    found = helm_python.lint(CHART, EVERYTHING, strict=True)
    assert found["errors"] == []
    assert [message["error"] for message in found["messages"]] == ["icon is recommended"]


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("values", [DEFAULTS, EVERYTHING], ids=["defaults", "everything"])
def test_manifests_are_what_kubernetes_takes(values: Document, version: str) -> None:
    for document in rendered(values):
        kubernetes_validate.validate(document, version, strict=True)


def test_pods_have_no_root_no_token_and_nothing_to_write_but_their_volumes(
    everything: list[Document],
) -> None:
    for pod in pods(everything):
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == USER
        assert f"--uid {USER} --gid {USER}" in DOCKERFILE
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"requests", "limits"} <= container["resources"].keys()
        mounts = [mount["name"] for mount in container["volumeMounts"]]
        claimed = [volume["name"] for volume in pod["volumes"]]
        assert set(mounts) - {"data"} <= set(claimed)


def test_parts_run_commands_with_settings_that_exist(everything: list[Document]) -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    started = set()
    for pod in pods(everything):
        (container,) = pod["containers"]
        command, *options = container["args"]
        started.add(command)
        known = {option for parameter in commands[command].params for option in parameter.opts}
        assert set(options) <= known
        names = {
            name.removeprefix("REGATTA_") for name in environment(container) if name.startswith("REGATTA_")
        }
        assert {name.lower() for name in names} <= set(Settings.model_fields)
    assert started == {"migrate", "api", "scheduler", "worker"}


def test_passwords_and_keys_come_from_the_secret_alone(everything: list[Document]) -> None:
    for pod in pods(everything):
        (container,) = pod["containers"]
        assert container["envFrom"] == [{"secretRef": {"name": "regatta"}}]
        assert not re.search("DATABASE_URL|BROKER_URL|SECRET|ACCESS_KEY", str(container["env"]))


def test_the_database_is_brought_up_to_date_first(defaults: list[Document]) -> None:
    job = named(defaults, "Job", "prod-regatta-migrate")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"


def test_the_api_is_asked_for_its_own_health(defaults: list[Document]) -> None:
    deployment = named(defaults, "Deployment", "prod-regatta-api")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    routes = create_app(Settings()).openapi()["paths"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in routes
    assert environment(container)["REGATTA_API_KEYS_REQUIRED"] == "true"


def test_a_worker_keeps_its_name_and_disk_and_stops_its_jobs_in_time(everything: list[Document]) -> None:
    workers = named(everything, "StatefulSet", "prod-regatta-worker-gpu")["spec"]
    pod = workers["template"]["spec"]
    (container,) = pod["containers"]
    given = environment(container)
    assert given["REGATTA_HOST_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert given["REGATTA_DEVICES"] == "gpu"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 8
    assert [claim["metadata"]["name"] for claim in workers["volumeClaimTemplates"]] == ["data"]
    assert pod["terminationGracePeriodSeconds"] > Settings().stop_grace_s + 120


def test_artifacts_are_in_s3_or_in_a_volume_that_all_share(
    defaults: list[Document], everything: list[Document]
) -> None:
    def places(documents: list[Document]) -> set[str]:
        made = [environment(container) for pod in pods(documents) for container in pod["containers"]]
        return {env["REGATTA_ARTIFACTS_URL"] for env in made if "REGATTA_ARTIFACTS_URL" in env}

    assert places(defaults) == {"file:///artifacts"}
    assert named(defaults, "PersistentVolumeClaim", "prod-regatta-artifacts")["spec"]["accessModes"] == [
        "ReadWriteMany"
    ]
    assert places(everything) == {"s3://bucket/regatta"}
    assert "PersistentVolumeClaim" not in {document["kind"] for document in everything}


def test_only_the_api_is_reached_from_elsewhere(everything: list[Document]) -> None:
    everyone = named(everything, "NetworkPolicy", "prod-regatta")["spec"]
    assert (everyone["policyTypes"], "ingress" in everyone) == (["Ingress"], False)
    (rule,) = named(everything, "NetworkPolicy", "prod-regatta-api")["spec"]["ingress"]
    assert rule == {"ports": [{"port": "http"}], "from": [{"namespaceSelector": {}}]}
    services = {each["metadata"]["name"] for each in everything if each["kind"] == "Service"}
    assert services == {"prod-regatta-api", "prod-regatta-worker-cpu", "prod-regatta-worker-gpu"}


def test_images_are_those_that_the_dockerfile_builds(defaults: list[Document]) -> None:
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, re.MULTILINE))
    images = {container["image"] for pod in pods(defaults) for container in pod["containers"]}
    assert images == {"regatta:service", "regatta:worker-cpu", "regatta:worker-gpu"}
    assert {image.partition(":")[2] for image in images} <= stages


@pytest.mark.parametrize(
    "values",
    [
        {"settings": {"REGATTA_SECRET_KEY": "in-plain-sight"}},
        {"settings": {"regatta_api_port": 1}},
        {"secretName": ""},
        {"replicas": 3},
        {"artifacts": {"url": "ftp://somewhere"}},
        {"api": {"ingress": {"enabled": True}}},
        {"workers": {"gpu": {"devices": "tpu:8"}}},
        {"workers": {"cpu": {"resources": {"limits": {"memory": "much"}}}}},
    ],
    ids=str,
)
def test_values_that_cannot_be_are_refused(values: Document) -> None:
    with pytest.raises(helm_python.HelmError):
        rendered(values)
