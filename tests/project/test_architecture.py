"""How the package is built: layers, no import cycles, and a light `import ragmon`."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict

import pytest

import ragmon
from bench.house import ROOT, House, order, points_up

HOUSE = House(ROOT / "ragmon")


def test_packages_import_lower_ones_only_and_no_file_itself_in_a_circle():
    """Imports inside functions and for types count."""
    assert [pair for pair in HOUSE.between() if points_up(*pair)] == []
    assert HOUSE.cycles() == []
    packages = {HOUSE.package(module) for module in HOUSE.trees} - {""}
    assert packages == {name for layer in order() for name in layer}


def test_no_class_name_means_two_things():
    places = defaultdict(list)
    for module, tree in HOUSE.trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module)
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}


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
    top = {module.split(".")[1] for module in HOUSE.trees if "." in module}
    assert not top & (set(ragmon.__all__) - {"testing"})


def test_public_names_are_sorted_and_importable():
    assert list(ragmon.__all__) == sorted(ragmon.__all__)
    for name in ragmon.__all__:
        assert getattr(ragmon, name) is not None
