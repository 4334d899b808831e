"""An application that exports to a bad server ends, pays and counts as it did."""

from __future__ import annotations

import pytest

from tests.support.bad_servers import BEHAVIOURS
from tests.support.before import differences, read_golden
from tests.support.before_exporter import bad_servers

SUBJECT = "exporter/servers"


@pytest.mark.parametrize(
    "names", [["401", "lying partial success"], pytest.param(list(BEHAVIOURS), marks=pytest.mark.slow)]
)
def test_a_bad_server_costs_what_it_did(names, tmp_path):
    before = {name: read_golden(SUBJECT)[name] for name in names}
    assert not list(map(str, differences(SUBJECT, before, bad_servers(tmp_path, names)[SUBJECT])))
