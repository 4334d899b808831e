"""How the package is built: layers, no import cycles, and a light `import ragmon`."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ragmon
from tests.support.imports import APART, arrows, cycles, layers, modules, package, public_classes


@pytest.mark.slow
def test_packages_point_down_and_no_module_imports_itself_in_a_circle():
    """Nine layers and the demo, no name of a class twice: what a newcomer must hold in the head."""
    assert cycles() == []
    assert {name: where for name, where in public_classes().items() if len(where) > 1} == {}
    assert len(arrows()) <= 110
    found = {package(module) for module in modules()} - APART
    assert found == {name for layer in layers() for name in layer}


HEAVY = (
    *("pydantic", "prometheus_client", "grpc", "google.protobuf", "starlette", "rich"),
    *("opentelemetry.sdk", "opentelemetry.exporter", "requests"),
)


@pytest.mark.parametrize("code", ["import ragmon", "import ragmon; ragmon.trace; ragmon.record; ragmon.stage"])
def test_importing_ragmon_and_decorating_is_light(code):
    """A pipeline that only decorates its functions loads none of the heavy dependencies."""
    script = f"{code}\nimport sys\nprint(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_no_public_name_is_also_a_submodule():
    """`ragmon.replay` is the function, whatever was imported before; only `testing` is a module on purpose."""
    top = {module.split(".")[0] for module in modules()} - {""}
    assert not top & (set(ragmon.__all__) - {"testing"})


def test_public_names_are_sorted_and_importable():
    assert list(ragmon.__all__) == sorted(ragmon.__all__)
    for name in ragmon.__all__:
        assert getattr(ragmon, name) is not None
