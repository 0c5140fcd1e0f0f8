"""The manifests of deploy/kubernetes against the schema of Kubernetes, against each other, and against the commands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from boatlift.console.app import app
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.health import Health
from support.manifests import DEPLOY, Document, container_of, documents_in, documents_of, named

KUSTOMIZATIONS = [path.parent for path in sorted(DEPLOY.glob("*/kustomization.yaml"))]
EACH = pytest.mark.parametrize("folder", KUSTOMIZATIONS, ids=lambda path: path.name)
OLDEST = "1.30"  # Spark 4.3 asks for no older one, and each is supported for some 14 months
VERSIONS = [OLDEST, ".".join(kubernetes_validate.latest_version().split(".")[:2])]


def validate(document: Document, version: str = VERSIONS[-1]) -> None:
    """Unknown fields are refused."""
    assert kubernetes_validate.validate(document, version, strict=True) == version


def pods_in(documents: list[Document]) -> Iterator[Document]:
    """Pods that Spark makes from a template."""
    for document in documents:
        if document["kind"] == "ConfigMap":
            yield from (yaml.safe_load(text) for name, text in document["data"].items() if name.endswith(".yaml"))


def expanded(container: Document) -> list[str]:
    """The arguments as Kubernetes hands them over; the fields of a pod have its values."""
    values = {each["name"]: "10.0.0.7" for each in container["env"]}
    return [re.sub(r"\$\((\w+)\)", lambda found: values[found[1]], each) for each in container["args"]]


def options_of(container: Document) -> dict[str, Any]:
    _, bound, _ = app.parse_args(["run", *expanded(container)[1:], "--store", "s3://bucket/flows/flights"])
    return dict(bound.arguments)


def ports_of(container: Document) -> dict[str, int]:
    return {each["name"]: each["containerPort"] for each in container["ports"]}


@EACH
@pytest.mark.parametrize("version", VERSIONS)
def test_each_document_is_valid(folder: Any, version: str) -> None:
    documents = documents_of(folder)
    assert len({(each["kind"], each["metadata"]["name"]) for each in documents}) == len(documents) >= 4
    for document in (*documents, *pods_in(documents)):
        validate(document, version)


def test_every_manifest_is_in_a_kustomization() -> None:
    named_there = {
        path.parent / each
        for path in DEPLOY.glob("*/kustomization.yaml")
        for each in documents_in(path)[0]["resources"]
        if each.endswith(".yaml")
    }
    assert named_there == {path for path in DEPLOY.rglob("*.yaml") if path.name != "kustomization.yaml"}


@pytest.mark.parametrize(
    ("place", "field", "value"),
    [
        ("spec", "replicaCount", 2),
        ("spec.template.spec", "terminationGracePeriod", 120),
        ("spec.template.spec.containers.0.readinessProbe.httpGet", "ports", 8080),
        ("spec.template.spec.containers.0", "envfrom", []),
        ("spec", "replicas", "two"),
    ],
)
def test_a_misspelt_field_is_refused(place: str, field: str, value: object) -> None:
    document = deepcopy(named(documents_of(DEPLOY / "base"), "Deployment"))
    found: Any = document
    for each in place.split("."):
        found = found[int(each) if each.isdecimal() else each]
    found[field] = value
    with pytest.raises(kubernetes_validate.ValidationError, match=field if field != "replicas" else "integer"):
        validate(document)


@EACH
def test_the_arguments_are_those_of_the_command_line(folder: Any) -> None:
    container = container_of(documents_of(folder))
    assert container["args"][0] == "run"
    options = options_of(container)
    assert options["replica"]
    names = ("replica", "health", "listen", "bytes_in_flight")
    RunOptions(**{name: options[name] for name in names})
    assert {each.partition("=")[0] for each in options["conf"]} >= {"spark.driver.memory"}


@EACH
def test_probes_services_and_policies_name_ports_that_the_arguments_open(folder: Any) -> None:
    documents = documents_of(folder)
    container = container_of(documents)
    options, ports = options_of(container), ports_of(container)
    settings = dict(each.split("=", 1) for each in options["conf"])
    opened = {
        "health": options["health"],
        "standbys": options["listen"],
        "pushes": "of the program:8000",
        "driver": f":{settings.get('spark.driver.port')}",
        "blocks": f":{settings.get('spark.driver.blockManager.port')}",
    }
    assert {name: f"{number}" for name, number in ports.items()} == {
        name: opened[name].rpartition(":")[2] for name in ports
    }
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        assert asked["port"] == "health"
        assert Health().answer(asked["path"])[0] in (200, 503)
    for document in documents:
        if document["kind"] == "Service":
            assert {each["targetPort"] for each in document["spec"]["ports"]} <= ports.keys()
        if document["kind"] == "NetworkPolicy":
            assert {port["port"] for rule in document["spec"]["ingress"] for port in rule["ports"]} <= ports.keys()


@EACH
def test_selectors_and_references_find_what_they_name(folder: Any) -> None:
    documents = documents_of(folder)
    deployment = named(documents, "Deployment")
    template = deployment["spec"]["template"]
    labels, pod = template["metadata"]["labels"], template["spec"]
    container = container_of(documents)
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    for spread in pod["topologySpreadConstraints"]:
        assert spread["labelSelector"]["matchLabels"] == labels
    executors = [each["metadata"]["labels"] for each in pods_in(documents)]
    for document in documents:
        match document["kind"]:
            case "Service":
                assert document["spec"]["selector"] == labels
            case "PodDisruptionBudget":
                assert document["spec"]["selector"]["matchLabels"] == labels
            case "NetworkPolicy":
                assert document["spec"]["podSelector"]["matchLabels"] == labels
                sources = [each for rule in document["spec"]["ingress"] for each in rule.get("from", ())]
                assert all(each["podSelector"]["matchLabels"] in (labels, *executors) for each in sources)
            case "RoleBinding":
                assert named(documents, "Role", document["roleRef"]["name"])
                assert all(named(documents, each["kind"], each["name"]) for each in document["subjects"])
    for each in (pod, *(executor["spec"] for executor in pods_in(documents))):
        assert named(documents, "ServiceAccount", each["serviceAccountName"])
    assert named(documents, "ConfigMap", container["envFrom"][0]["configMapRef"]["name"])
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert {each["name"] for each in container["volumeMounts"]} == volumes.keys()


@EACH
def test_scratch_has_room_for_the_cache_and_the_rows_in_flight(folder: Any) -> None:
    documents = documents_of(folder)
    container, pod = container_of(documents), named(documents, "Deployment")["spec"]["template"]["spec"]
    (limit,) = (each["emptyDir"]["sizeLimit"] for each in pod["volumes"] if "emptyDir" in each)
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert named(documents, "ConfigMap")["data"]["BOATLIFT_SCRATCH"] == mounts["scratch"]
    cache = 10 * 2**30  # the default of `cache=`
    assert int(limit.removesuffix("Gi")) * 2**30 > cache + options_of(container)["bytes_in_flight"]
    assert container["resources"]["requests"]["ephemeral-storage"] == limit


@EACH
def test_no_manifest_has_a_secret_and_no_pod_has_rights_that_it_does_not_need(folder: Any) -> None:
    documents = documents_of(folder)
    assert not [each for each in documents if each["kind"] == "Secret"]
    settings = {name for each in documents if each["kind"] == "ConfigMap" for name in each["data"]}
    assert settings <= {"BOATLIFT_STORE", "BOATLIFT_SCRATCH", "SPARK_LOCAL_DIRS", "AWS_REGION", "executor.yaml"}
    specs = [named(documents, "Deployment")["spec"]["template"]["spec"], *(pod["spec"] for pod in pods_in(documents))]
    for pod in specs:
        assert pod["securityContext"]["runAsNonRoot"]
        (container,) = pod["containers"]
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    needs_the_server = any(each["kind"] == "Role" for each in documents)
    assert specs[0]["automountServiceAccountToken"] == needs_the_server


def test_the_image_has_the_user_of_the_pods_and_files_that_build(tmp_path: Any) -> None:
    steps = re.sub(r"\\\n", "", (DEPLOY / "Containerfile").read_text()).splitlines()
    user = named(documents_of(DEPLOY / "base"), "Deployment")["spec"]["template"]["spec"]["securityContext"][
        "runAsUser"
    ]
    assert f"USER {user}" in steps
    assert any(f"useradd --uid {user} " in each for each in steps)
    copied = [shlex.split(each)[1:] for each in steps if each.startswith("COPY --from=boatlift")]
    for *sources, target in copied:
        for source in (each for each in sources if not each.startswith("--")):
            assert (DEPLOY.parent.parent / source).exists()
            if target.startswith("/boatlift"):
                at = tmp_path / source if target.endswith("src") else tmp_path
                subprocess.run(["cp", "-r", DEPLOY.parent.parent / source, at], check=True)
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*wheel, "-w", tmp_path / "wheels", tmp_path], check=True, timeout=120)
    assert list((tmp_path / "wheels").glob("boatlift-*.whl"))


def test_the_image_starts_an_executor_with_what_spark_gives_it(tmp_path: Any) -> None:
    """The variables are those of Spark's step for executor pods."""
    java = tmp_path / "java"
    java.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    given = {
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
        "SPARK_EXECUTOR_ID": "3",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_EXECUTOR_MEMORY": "1024m",
        "SPARK_APPLICATION_ID": "spark-application-1",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "flights-exec-3",
        "SPARK_CLASSPATH": "/extra/*",
        **{f"SPARK_JAVA_OPT_{number}": f"-Dnumber={number} x" for number in (0, 1, 2, 10)},
    }
    paths = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    script = ["bash", str(DEPLOY / "entrypoint.sh"), "executor"]
    made = subprocess.run(script, env={**given, "PATH": paths}, capture_output=True, text=True, check=True, timeout=60)
    told = made.stdout.splitlines()
    assert told[:4] == [f"-Dnumber={number} x" for number in (0, 1, 2, 10)]
    assert told[4:6] == ["-Xms1024m", "-Xmx1024m"]
    assert told[told.index("-cp") + 1].startswith("/extra/*:")
    assert told[told.index("-cp") + 1].endswith("pyspark/jars/*")
    named_values = dict(
        zip(told[told.index("--driver-url") :: 2], told[told.index("--driver-url") + 1 :: 2], strict=True)
    )
    assert named_values == {
        "--driver-url": given["SPARK_DRIVER_URL"],
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-application-1",
        "--hostname": "10.0.0.2",
        "--resourceProfileId": "0",
        "--podName": "flights-exec-3",
    }
