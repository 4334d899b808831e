"""The same alerts fire in the drill, at ragmon and by its rules for Prometheus."""

from __future__ import annotations

import shutil

import pytest

from tests.support.before import differences, read_golden
from tests.support.before_drill import drill


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_the_same_alerts_fire(tmp_path):
    for subject, content in drill(tmp_path).items():
        assert not list(map(str, differences(subject, read_golden(subject), content)))
