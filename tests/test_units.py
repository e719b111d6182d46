"""The systemd units start commands that exist, with what they need and no more."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nemesis.streams.permissions import user_of
from tests.conftest import ROOT
from tests.test_docs import command_of

UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
SYSTEMD = shutil.which("systemd-analyze") or ""
HARD = {
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "ProtectKernelTunables": "yes",
    "ProtectKernelModules": "yes",
    "ProtectControlGroups": "yes",
    "PrivateTmp": "yes",
    "DevicePolicy": "closed",
    "RestrictNamespaces": "yes",
    "RestrictSUIDSGID": "yes",
    "SystemCallArchitectures": "native",
    "SystemCallErrorNumber": "EPERM",
    "UMask": "0077",
}
CALLS = {"nemesis-producer.service": ["@system-service", "adjtimex"]}
CAPABILITIES = {"nemesis-producer.service": "CAP_SYSLOG CAP_SYS_PTRACE"}
DEVICES = {
    "nemesis-producer.service": {
        "/dev/kmsg r", "char-nvidia rw", "char-nvidia-frontend rw", "char-nvidiactl rw",
    }
}  # fmt: skip


def settings(unit: Path) -> dict[str, list[str]]:
    """Every setting of a unit with its values, in order."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        if line and line[0] not in "#;[":
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def name(unit: Path) -> str:
    return unit.name


@pytest.mark.parametrize("unit", UNITS, ids=name)
def test_a_unit_may_do_what_it_needs_and_no_more(unit: Path) -> None:
    found = settings(unit)
    assert {key: found.get(key) for key in HARD} == {key: [value] for key, value in HARD.items()}
    assert found["SystemCallFilter"] == CALLS.get(unit.name, ["@system-service"])
    assert ("adjtimex" in found["SystemCallFilter"]) != ("ProtectClock" in found), "it refuses it"
    assert found["CapabilityBoundingSet"] == [CAPABILITIES.get(unit.name, "")]
    assert set(found.get("DeviceAllow", [])) == DEVICES.get(unit.name, set())
    assert ("DynamicUser" in found) != ("User" in found), "never as root"


@pytest.mark.parametrize("unit", UNITS, ids=name)
def test_a_unit_starts_a_command_that_there_is_with_its_own_seed(unit: Path) -> None:
    found = settings(unit)
    program, *words = found["ExecStart"][0].split()
    assert program in ("/opt/nemesis/bin/nemesis", "/opt/nemesis-train/bin/nemesis")
    command, rest = command_of(["nemesis", *words])
    options = {option for each in command.params for option in each.opts}
    assert {word for word in rest if word.startswith("--")} <= options
    seed, _, path = found["LoadCredential"][0].partition(":")
    assert path == f"/etc/nemesis/{seed}"
    role = {"producer": "producer/x", "agent": "node/x", "exporter": "exporter"}[words[0]]
    assert re.sub("%l", "x", seed) == f"{user_of(role)}.nk"
    assert "--credentials ${CREDENTIALS_DIRECTORY}" in found["ExecStart"][0]


@pytest.mark.skipif(not SYSTEMD, reason="no systemd-analyze here")
def test_systemd_takes_every_unit_and_finds_it_little_exposed(tmp_path: Path) -> None:
    copies = []
    for unit in UNITS:
        copy = tmp_path / unit.name.replace("@", "@job")
        text = re.sub(r"/opt/nemesis(-train)?/bin/nemesis", sys.executable, unit.read_text())
        copy.write_text(text)
        copies.append(str(copy))
    ran = subprocess.run([SYSTEMD, "verify", *copies], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    safe = [SYSTEMD, "security", "--offline=true", "--threshold=30", "--no-pager", *copies]
    judged = subprocess.run(safe, capture_output=True, text=True, check=False)
    assert judged.returncode == 0, judged.stdout
