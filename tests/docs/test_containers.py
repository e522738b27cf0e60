"""The container: linted and checked as it is written; built and asked where a docker daemon is there."""

import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import httpx
import pytest
import yaml

from fairshot.cli.serve import TOKEN_VARIABLE
from fairshot.server.serving import SHORTEST_TOKEN, choose_token
from support.pages import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICE = COMPOSE["services"]["fairshot"]
TOKEN = "madeupforthistest"
NEEDED_BYTES = 25e9  # of disk, to build the image with the libraries for GPUs that torch brings by default


def instructions(name: str) -> list[str]:
    """Return the arguments of the instructions of one kind, of the last stage."""
    last = re.split(r"^FROM ", re.sub(r"\\\n\s*", "", DOCKERFILE), flags=re.MULTILINE)[-1]
    return re.findall(rf"^{name} (.*)$", last, re.MULTILINE)


def test_the_linter_finds_nothing():
    beside = Path(sys.executable).with_name("hadolint")  # where pip has put it
    found = beside if beside.exists() else shutil.which("hadolint")
    if found is None:
        pytest.skip("hadolint is not installed: it has no wheel for this machine")
    linted = subprocess.run([found, ROOT / "Dockerfile"], check=False, capture_output=True, text=True)
    assert linted.returncode == 0, linted.stdout


def test_it_serves_without_rights_from_a_volume_and_tells_its_health():
    assert int(instructions("USER")[0]) > 0  # by its number, so that it can be seen not to be root
    assert instructions("VOLUME") == ["/store"]
    assert "/api/health" in instructions("HEALTHCHECK")[0]
    assert DOCKERFILE.index("USER ") < DOCKERFILE.index("ENTRYPOINT ")


def test_what_it_installs_is_what_the_package_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = set(re.findall(r'"(torch(?:vision)?>=[\d.]+)"', DOCKERFILE))
    assert asked == {name for name in project["dependencies"] if re.match(r"torch(vision)?>=", name)}
    (extras,) = re.findall(r"\.whl\)\[(.*?)\]", DOCKERFILE)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    copied = {
        source
        for line in re.findall(r"^COPY (?:--\S+ )?(.*) \S+$", DOCKERFILE, re.MULTILINE)
        for source in line.split()
    }
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {path.split("/")[0] for path in copied} == allowed
    assert all((ROOT / path).exists() for path in copied)


def test_the_entrypoint_is_a_script_that_can_be_run():
    script = ROOT / "docker" / "entrypoint.sh"
    subprocess.run(["sh", "-n", script], check=True)
    assert "docker/entrypoint.sh /usr/local/bin/fairshot-entrypoint" in DOCKERFILE
    assert instructions("ENTRYPOINT") == ['["fairshot-entrypoint"]']


@pytest.mark.parametrize(
    ("arguments", "called"),
    [
        ([], ["new {store}", "serve {store} --host 0.0.0.0 --port 8000"]),
        (["classes", "/store/store"], ["classes /store/store"]),
    ],
)
def test_the_entrypoint_serves_or_passes_a_command_on(arguments, called, tmp_path):
    stand_in = tmp_path / "fairshot"
    stand_in.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n')
    stand_in.chmod(0o755)
    script = (ROOT / "docker" / "entrypoint.sh").read_text().replace("/store/store", f"{tmp_path}/store")
    subprocess.run(
        ["sh", "-c", script, "entrypoint", *arguments], check=True, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}
    )
    assert (tmp_path / "calls").read_text().splitlines() == [
        line.format(store=tmp_path / "store") for line in called
    ]


def test_compose_asks_for_a_token_and_is_reached_from_this_machine_alone():
    assert SERVICE["environment"][TOKEN_VARIABLE].startswith("${FAIRSHOT_TOKEN:?")
    assert f"at least {SHORTEST_TOKEN} characters" in SERVICE["environment"][TOKEN_VARIABLE]
    assert SERVICE["ports"] == ["127.0.0.1:8000:8000"]
    assert SERVICE["volumes"] == ["store:/store"]
    assert COMPOSE.keys() == {"services", "volumes"}
    assert "store" in COMPOSE["volumes"]
    assert SERVICE["read_only"]
    assert SERVICE["cap_drop"] == ["ALL"]


def test_the_server_takes_the_tokens_that_are_shown():
    shown = [(ROOT / name).read_text() for name in ("compose.yaml", "docs/containers.md")]
    tokens = re.findall(rf"{TOKEN_VARIABLE}=(\S+)", "".join(shown))
    assert len(tokens) == 3
    for token in (TOKEN, *tokens):
        assert choose_token("0.0.0.0", token) == token


def test_compose_itself_accepts_the_file():
    if (
        subprocess.run(["docker", "compose", "version"], check=False, capture_output=True).returncode
        if shutil.which("docker")
        else True
    ):
        pytest.skip("docker compose is not installed")
    checked = ["docker", "compose", "--file", ROOT / "compose.yaml", "config", "--quiet"]
    environment = {"PATH": str(Path(shutil.which("docker")).parent)}
    assert (
        subprocess.run(checked, check=False, env=environment, capture_output=True).returncode != 0
    )  # no token
    subprocess.run(checked, check=True, env={**environment, "FAIRSHOT_TOKEN": TOKEN}, capture_output=True)


@pytest.fixture(scope="module")
def image() -> str:
    """Build the image, where a daemon is there and base images can be had."""
    if (
        shutil.which("docker") is None
        or subprocess.run(["docker", "info"], check=False, capture_output=True).returncode
    ):
        pytest.skip("no docker daemon can be reached")
    if subprocess.run(["docker", "pull", "python:3.12-slim"], check=False, capture_output=True).returncode:
        pytest.skip("the base image cannot be had")
    probe = [
        "docker",
        "run",
        "--rm",
        "python:3.12-slim",
        "pip",
        "download",
        "--no-deps",
        "--dest",
        "/tmp",
        "pip",
    ]
    if subprocess.run(probe, check=False, capture_output=True).returncode:
        pytest.skip("pip reaches no package registry from a container")
    if shutil.disk_usage("/").free < NEEDED_BYTES:
        pytest.skip("there is no room to build an image with torch in it")
    subprocess.run(
        ["docker", "build", "--quiet", "--tag", "fairshot-test", ROOT], check=True, capture_output=True
    )
    return "fairshot-test"


def test_the_container_answers_and_asks_for_the_token(image):
    options = ["--rm", "--detach", "--publish", "127.0.0.1::8000", "--env", f"{TOKEN_VARIABLE}={TOKEN}"]
    started = subprocess.run(["docker", "run", *options, image], check=True, capture_output=True, text=True)
    container = started.stdout.strip()
    try:
        port = subprocess.run(
            ["docker", "port", container, "8000"], check=True, capture_output=True, text=True
        )
        url = f"http://{port.stdout.split()[0]}"
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            try:
                if httpx.get(f"{url}/api/health", timeout=60).status_code == 200:
                    break
            except httpx.TransportError:  # it is not there yet
                pass
            time.sleep(1)
        assert httpx.get(f"{url}/api/classes", timeout=60).status_code == 401
        signed = {"Authorization": f"Bearer {TOKEN}"}
        assert httpx.get(f"{url}/api/classes", headers=signed, timeout=60).json() == []
        who = subprocess.run(
            ["docker", "exec", container, "id", "-u"], check=True, capture_output=True, text=True
        )
        assert int(who.stdout) > 0
    finally:
        subprocess.run(["docker", "stop", container], check=False, capture_output=True)
