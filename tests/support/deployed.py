"""What tests of `deploy/` share: its files, read strictly, and programs that are installed here."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
import yaml

from ragmon.config.services import ServeTable
from tests.support.waiting import TIMEOUT

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DRAIN = 10
"""Seconds `ragmon serve` may take to drain."""
PORTS = {name: getattr(ServeTable(), name).port for name in ("otlp", "grpc", "admin")}
USER = 10001
_TICK = threading.Event()


class Strict(yaml.SafeLoader):
    """Refuses a key that stands twice, which YAML forbids and PyYAML takes."""

    def construct_mapping(self, node, deep=False):
        keys = [key.value for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"{node.start_mark}: a key stands twice"
        return super().construct_mapping(node, deep)


def documents(path):
    """The documents of a YAML file."""
    return list(yaml.load_all(path.read_text(encoding="utf-8"), Strict))


def document(name):
    """The one document of a file in `deploy/`."""
    (found,) = documents(DEPLOY / name)
    return found


def uncommented(text, beginning):
    """The example in a comment that begins so, to the next line that is not indented as far."""
    lines = iter(text.splitlines())
    first = next(found for line in lines if (found := re.match(rf"( *# +){re.escape(beginning)}", line)))
    indent = len(first[1])
    found = [first.string[indent:]]
    for line in lines:
        if not line.lstrip().startswith("#") or re.search(r"[^ #]", line[:indent]):
            break
        found.append(line[indent:])
    return "\n".join(found)


def installed(name):
    """Where a program is; without it the test is skipped."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def run(*command, **options):
    """What a command that ends well says."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def stages():
    """The instructions of each stage of the image, by their word."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found = []
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            found.append({})
        found[-1].setdefault(word, []).append(rest.strip())
    return found


def final():
    """The instructions of the image's last stage."""
    return stages()[-1]


# Services of compose files.


def check_image(service):
    """A service's image is pinned, or built here."""
    assert re.fullmatch(r"[\w./-]+:(v?\d+\.\d+\.\d+|local)", service["image"]), service["image"]
    assert ("build" in service) == service["image"].endswith(":local")


def check_confined(service, compose):
    """A service may do little, is open to this machine alone, and refers to what its file defines."""
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "network_mode", "pid", "devices", "cap_add"} & set(service)
    assert set(service.get("secrets", ())) <= set(compose["secrets"])
    assert set(service["networks"]) <= set(compose["networks"])
    assert set(service.get("depends_on", ())) <= set(compose["services"])


def check_mounts(compose):
    """What services mount exists, and they can write to volumes alone."""
    for name, service in compose["services"].items():
        for volume in service["volumes"]:
            source, _, *mode = volume.split(":")
            if source.startswith("."):
                assert (DEPLOY / source).exists(), (name, source)
                assert mode == ["ro"]
            else:
                assert source in compose["volumes"]
