"""The Helm chart renders, Kubernetes would take it, and nobody in it may do more than he needs."""

import base64
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from nemesis.processors.catalogue import CATALOGUE
from nemesis.streams.server import nats_server_program
from tests.conftest import ROOT
from tests.test_docs import command_of

helm = pytest.importorskip("helm_python", reason="Helm's library has no wheel for this machine")
schemas = pytest.importorskip("kubernetes_validate")

CHART = ROOT / "deploy" / "helm" / "nemesis"
SECRETS = ROOT / "deploy" / "helm" / "secrets.sh"
KUBERNETES = "1.31"
NODES = ["n001", "gpu.rack7"]
LARGE = {
    "nats": {"replicas": 3},
    "exporter": {"serviceMonitor": True},
    "producer": {
        "seeds": "secrets", "nodes": NODES, "privileged": True, "runtimeClassName": "nvidia",
        "dcgm": "http://127.0.0.1:9400/metrics", "nodeSelector": {"pool": "gpu"},
    },
}  # fmt: skip
OUTSIDE = {"server": "nats://log.example:4222", "provision": {"replicas": 3}}


def rendered(values: dict[str, Any]) -> list[dict[str, Any]]:
    with helm.Chart.load(CHART) as chart:
        files = chart.render(values, name="lab", namespace="gpu")
    texts = [text for name, text in sorted(files.items()) if name.endswith(".yaml")]
    return [each for text in texts for each in yaml.safe_load_all(text) if each]


@pytest.fixture(scope="module", params=[{}, LARGE, OUTSIDE], ids=["small", "large", "outside"])
def resources(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return rendered(request.param)


def pods(resources: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By name, what each workload's pods are."""
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in resources
        if "template" in each.get("spec", {})
    }


def kinds(resources: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in resources if each["kind"] == kind]


def secret_of(pod: dict[str, Any]) -> str:
    (found,) = [v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v]
    return str(found)


def test_helm_has_nothing_to_complain_of() -> None:
    told = helm.lint(CHART, strict=True)
    assert [each for each in told["messages"] if each["severity"] > 1] == []


def test_kubernetes_takes_every_resource(resources: list[dict[str, Any]]) -> None:
    for each in resources:
        if each["apiVersion"] != "monitoring.coreos.com/v1":  # an operator's own kind
            schemas.validate(each, KUBERNETES, strict=True)
    names = [(each["kind"], each["metadata"]["name"]) for each in resources]
    assert len(names) == len(set(names))


def test_no_pod_may_do_more_than_it_needs(resources: list[dict[str, Any]]) -> None:
    for name, pod in pods(resources).items():
        assert pod["automountServiceAccountToken"] is False, name
        (container,) = pod["containers"]
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] is True, name
        assert container["resources"]["limits"]["memory"], name
        watches = name.startswith("lab-producer")
        if not context.get("privileged"):
            assert context["allowPrivilegeEscalation"] is False, name
            added = {"add": ["SYSLOG", "SYS_PTRACE"]} if watches else {}
            assert context["capabilities"] == {"drop": ["ALL"], **added}, name
        assert watches or context["runAsNonRoot"] is True, name
        assert watches or not pod.get("hostNetwork"), name
        assert "provision" in name or container["livenessProbe"], name


def test_every_processor_runs_and_every_part_starts_a_command_that_there_is() -> None:
    found = rendered({})
    started = set()
    for name, pod in pods(found).items():
        if name == "lab-nats":
            continue
        words = ["nemesis", *pod["containers"][0]["args"]]
        command, rest = command_of(words)
        options = {option for each in command.params for option in each.opts}
        assert {word for word in rest if word.startswith("--")} <= options, words
        started |= set(rest) if words[1] == "process" else set()
    assert started == set(CATALOGUE)


def test_each_part_finds_the_seeds_that_compose_gives_it(tmp_path: Path) -> None:
    given = dict(
        re.findall(r"^give ([a-z-]+) \d+ (.*)$", (ROOT / "deploy/seeds.sh").read_text(), re.M)
    )
    for seed in {seed for seeds in given.values() for seed in seeds.split()}:
        (tmp_path / f"{seed}.nk").write_text(seed)
    for node in ("n001", "gpu_2erack7"):
        (tmp_path / f"producer-{node}.nk").write_text(node)
    (tmp_path / "authorization.conf").write_text("authorization {}")
    ran = subprocess.run(
        ["sh", str(SECRETS), "gpu", str(tmp_path), str(tmp_path / "authorization.conf"), *NODES],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    made = {each["metadata"]["name"]: each for each in yaml.safe_load_all(ran.stdout)}
    for each in made.values():
        schemas.validate(each, KUBERNETES, strict=True)
    for name, pod in pods(rendered(LARGE)).items():
        secret = made.pop(secret_of(pod))
        part = re.sub(r"^lab-|-\d+$", "", name)
        if part == "nats":
            assert set(secret["data"]) == {"authorization.conf"}
        elif part.startswith("producer-"):
            (key,) = secret["data"]
            assert base64.b64decode(secret["data"][key]).decode() == key[9:-3]
        else:
            assert set(secret["data"]) == {f"{seed}.nk" for seed in given[part].split()}, part
    assert not made


def test_a_nodes_seed_goes_to_that_node_alone() -> None:
    sets = kinds(rendered(LARGE), "DaemonSet")
    assert len(sets) == len(NODES)
    for node, each in zip(NODES, sets, strict=True):
        pod = each["spec"]["template"]["spec"]
        assert pod["nodeSelector"]["kubernetes.io/hostname"] == node
        assert secret_of(pod) == f"nemesis-producer-{node}"
    (one,) = kinds(rendered({}), "DaemonSet")
    assert not [v for v in one["spec"]["template"]["spec"]["volumes"] if "secret" in v]


@pytest.mark.parametrize(("values", "replicas"), [({}, 1), (LARGE, 3)], ids=["1", "3"])
def test_a_real_server_takes_the_configuration(
    tmp_path: Path, values: dict[str, Any], replicas: int
) -> None:
    found = rendered(values)
    (config,) = kinds(found, "ConfigMap")
    text = config["data"]["nats.conf"].replace("/log", str(tmp_path / "log"))
    (tmp_path / "nats.conf").write_text(text)
    (tmp_path / "authorization").mkdir()
    (tmp_path / "authorization" / "authorization.conf").write_text("authorization {}\n")
    ran = subprocess.run(
        [nats_server_program(), "-t", "-c", tmp_path / "nats.conf"],
        env={"POD_NAME": "lab-nats-0"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert text.count(":6222\n") == (0 if replicas == 1 else replicas + 1)
    (servers,) = kinds(found, "StatefulSet")
    assert servers["spec"]["replicas"] == replicas
    (job,) = kinds(found, "Job")
    arguments = job["spec"]["template"]["spec"]["containers"][0]["args"]
    assert arguments[arguments.index("--replicas") + 1] == str(replicas)
    assert len(kinds(found, "PodDisruptionBudget")) == (replicas > 1)


def test_a_log_elsewhere_needs_no_server_here() -> None:
    found = rendered(OUTSIDE)
    assert not kinds(found, "StatefulSet")
    for pod in pods(found).values():
        said = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
        assert said["NEMESIS_SERVER"] == OUTSIDE["server"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"nats": {"replicas": 2}},
        {"producer": {"seeds": "secrets"}},
        {"producer": {"privilegd": True}},
        {"server": "nats://user:password@host:4222"},
        {"parts": {"healer": {"args": [], "replicas": 1}}},
        {"exporter": {"port": 80}},
    ],
)
def test_values_that_cannot_be_meant_are_refused(wrong: dict[str, Any]) -> None:
    with helm.Chart.load(CHART) as chart, pytest.raises(helm.HelmError):
        chart.validate_schema(chart.merge_values(wrong))
