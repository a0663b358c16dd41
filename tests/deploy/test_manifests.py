"""What is shipped for containers says the same as the settings, the Procfile and the code."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from config.environment import Reader, read_holdfast
from config.health import PROBES, READY_SECONDS
from tests.processes.harness import ROOT

DEPLOY = ROOT / "deploy"
MANIFESTS = [
    document
    for file in sorted((DEPLOY / "k8s").glob("*.yaml"))
    for document in yaml.safe_load_all(file.read_text())
]
SETTINGS = next(one["data"] for one in MANIFESTS if one["kind"] == "ConfigMap")
DEPLOYMENTS = {one["metadata"]["name"]: one["spec"] for one in MANIFESTS if one["kind"] == "Deployment"}
CONTAINERS = {
    name: (spec["template"]["spec"], spec["template"]["spec"]["containers"][0])
    for name, spec in DEPLOYMENTS.items()
}
PROCFILE = dict(line.split(": ", 1) for line in (ROOT / "Procfile").read_text().splitlines())
REMOVED_AFTER = 2.0
"""Seconds that load balancers are given to stop sending, as in the tests of the shutdown."""


def test_every_process_runs_its_line_of_the_procfile() -> None:
    shipped = {container["name"]: " ".join(container["command"]) for _, container in CONTAINERS.values()}
    assert shipped == PROCFILE


def test_the_image_starts_the_web_server_itself_not_a_shell() -> None:
    (command,) = re.findall(r"^CMD (.*)$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE)
    assert " ".join(json.loads(command)) == PROCFILE["web"]


def test_the_image_holds_every_package_and_no_sandbox() -> None:
    copied = set(re.findall(r"^COPY (\w+) \1$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE))
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"sandbox", "tests", "bench"}
    assert copied == packages | {"static", "templates", "locale"}


@pytest.mark.parametrize("name", CONTAINERS)
def test_the_grace_period_leaves_time_for_pause_drain_and_grace(name: str) -> None:
    config = read_holdfast(Reader(SETTINGS))
    pod, container = CONTAINERS[name]
    pause = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])
    needed = float(pause[1]) + config.drain_seconds + config.grace_seconds
    assert pod["terminationGracePeriodSeconds"] == config.orchestrator_grace_seconds >= needed


def test_what_is_settled_here_is_what_the_code_settles_by_itself() -> None:
    ours, bare = read_holdfast(Reader(SETTINGS)), read_holdfast(Reader({}))
    for name in ("drain_seconds", "grace_seconds", "orchestrator_grace_seconds"):
        assert getattr(ours, name) == getattr(bare, name)


def test_probes_ask_the_right_question_and_wait_longer_than_it_takes() -> None:
    _, web = CONTAINERS["holdfast-web"]
    paths = {
        kind: web[kind]["httpGet"]["path"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert set(paths.values()) <= set(PROBES)
    assert paths["readinessProbe"] == "/health/ready/"
    assert paths["livenessProbe"] == paths["startupProbe"] == "/health/live/"
    ready = web["readinessProbe"]
    assert ready["timeoutSeconds"] > READY_SECONDS
    noticed = ready["periodSeconds"] * ready["failureThreshold"]
    config = read_holdfast(Reader(SETTINGS))
    assert noticed + REMOVED_AFTER <= config.drain_seconds, (
        "the door would close on requests still being sent"
    )


@pytest.mark.parametrize("name", set(CONTAINERS) - {"holdfast-web"})
def test_a_worker_is_ended_from_outside_only_long_after_it_should_have_ended_itself(name: str) -> None:
    config = read_holdfast(Reader(SETTINGS))
    _, container = CONTAINERS[name]
    *ask, who = container["readinessProbe"]["exec"]["command"]
    assert (
        container["livenessProbe"]["exec"]["command"][:-1]
        == [*ask, who]
        == ["python", "-m", "config.alive", who]
    )
    assert (
        float(container["livenessProbe"]["exec"]["command"][-1])
        > config.broker_lost_seconds + config.grace_seconds
    )
    command = container["command"]
    assert who == (command[command.index("-n") + 1].removesuffix("@%h") if "-n" in command else "beat")


def test_ports_and_jobs_are_those_that_prometheus_looks_for() -> None:
    (scraped,) = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    assert scraped["relabel_configs"][0]["regex"] == "metrics"
    with_metrics = set()
    for name, (_, container) in CONTAINERS.items():
        assert DEPLOYMENTS[name]["template"]["metadata"]["labels"]["job"] == name
        ports = {port["name"]: port["containerPort"] for port in container.get("ports", ())}
        if "metrics" in ports:
            assert str(ports["metrics"]) == SETTINGS["METRICS_PORT"]
            with_metrics.add(name)
    assert with_metrics == set(CONTAINERS) - {"holdfast-beat"}


def test_every_setting_is_one_that_the_code_reads_and_none_is_a_secret() -> None:
    code = "".join(
        (ROOT / "config" / name).read_text() for name in ("environment.py", "settings.py", "gunicorn.py")
    )
    known = set(re.findall(r'"([A-Z][A-Z_]+)"', code))
    known |= {f"{name}_URL" for name in ("PAYMENT", "CATALOG", "RATES")}
    assert set(SETTINGS) <= known
    assert not [name for name in SETTINGS if re.search("SECRET|KEY|PASSWORD|DATABASE|BROKER", name)]


def test_nothing_runs_as_root_or_writes_into_the_image() -> None:
    documents: list[Any] = [one for one in MANIFESTS if one["kind"] in ("Deployment", "Job")]
    for one in documents:
        assert one["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"] is True
    for _, container in CONTAINERS.values():
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
