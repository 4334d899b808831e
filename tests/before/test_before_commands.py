"""The command line says what it said before, and a server answers hostile requests as it did."""

from __future__ import annotations

import pytest

from tests.support.before import differences, read_golden
from tests.support.before_commands import SUBJECTS, configurations, usages
from tests.support.before_http import requests


def asked(before, now):
    """The part of the golden answers that was asked today."""
    return {kind: {name: before[kind][name] for name in held if name in before[kind]} for kind, held in now.items()}


@pytest.mark.slow
@pytest.mark.parametrize("subject", [configurations, usages])
def test_every_eighth_command_says_what_it_said(subject, tmp_path):
    for name, content in subject(tmp_path, every=8).items():
        assert not list(map(str, differences(name, asked(read_golden(name), content), content)))


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_every_command_says_what_it_said(name, tmp_path):
    for subject, content in SUBJECTS[name](tmp_path).items():
        assert not list(map(str, differences(subject, read_golden(subject), content)))


@pytest.mark.parametrize("server", ["token", pytest.param("open", marks=pytest.mark.slow)])
def test_a_server_answers_hostile_requests_as_it_did(server, tmp_path):
    for name, content in requests(tmp_path, [server]).items():
        assert not list(map(str, differences(name, asked(read_golden(name), content), content)))
