"""What the server refuses to listen on, and what it warns of."""

from __future__ import annotations

import re
import subprocess

import pytest

from ragmon.config.services import ServeTable
from ragmon.core.errors import ConfigError, RagmonError
from ragmon.core.process import read_token
from ragmon.server.server import check_listen_addresses
from tests.support.command_line import ragmon

CERTIFICATE = {"cert": "server.pem", "key": "server.key"}
TOKEN = "token"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "[::1]"])
def test_this_machines_own_addresses_need_nothing(host):
    assert (
        check_listen_addresses(
            ServeTable(otlp=f"{host}:4318", grpc=f"{host}:4317", admin=f"{host}:9464"), insecure=False
        )
        == []
    )


@pytest.mark.parametrize("name", ["otlp", "grpc"])
@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "10.0.0.7", "ragmon.example", "[::ffff:10.0.0.7]"])
@pytest.mark.parametrize(
    ("how", "missing"),
    [
        ({}, "a token and TLS"),
        ({"token_file": TOKEN}, "TLS"),
        ({"tls": CERTIFICATE}, "a token"),
        ({"tls": "upstream"}, "a token"),
        ({"token_file": TOKEN, "tls": CERTIFICATE}, None),
        ({"token_file": TOKEN, "tls": "upstream"}, None),
    ],
)
def test_a_write_port_others_reach_needs_a_token_and_tls(name, host, how, missing):
    given = ServeTable(**{name: f"{host}:4000"}, **how)
    if missing is None:
        assert check_listen_addresses(given, insecure=False) == []
        return
    with pytest.raises(ConfigError) as caught:
        check_listen_addresses(given, insecure=False)
    assert re.search(rf"`\[serve\] {name}` listens on \S+:4000 where [^;]* without {missing}(;|$)", str(caught.value))
    assert ("token_file" in caught.value.hint) == ("token" in missing)
    assert ("cert" in caught.value.hint) == ("TLS" in missing)
    assert "--insecure" in caught.value.hint


def test_behind_a_proxy_even_this_machines_own_addresses_need_a_token():
    with pytest.raises(ConfigError, match=r"behind a proxy .* without a token"):
        check_listen_addresses(ServeTable(tls="upstream"), insecure=False)
    assert check_listen_addresses(ServeTable(tls="upstream", token_file=TOKEN), insecure=False) == []


def test_all_ports_are_named_at_once():
    with pytest.raises(ConfigError, match=r"otlp. listens .*; .*grpc. listens") as caught:
        check_listen_addresses(ServeTable(otlp="0.0.0.0:4318", grpc="0.0.0.0:4317", token_file=TOKEN), insecure=False)
    assert caught.value.hint.count("cert =") == 1


def test_who_insists_is_warned_of_each_port():
    warnings = check_listen_addresses(ServeTable(otlp="0.0.0.0:4318", grpc="0.0.0.0:4317"), insecure=True)
    assert [text.partition(" listens")[0] for text in warnings] == ["`[serve] otlp`", "`[serve] grpc`"]
    assert all(text.endswith("without a token and TLS") for text in warnings)


@pytest.mark.parametrize("insecure", [True, False])
def test_the_port_that_only_reads_is_worth_a_warning(insecure):
    [warning] = check_listen_addresses(ServeTable(admin="0.0.0.0:9464"), insecure=insecure)
    assert warning == "`[serve] admin` listens on 0.0.0.0:9464: whoever reaches it reads metrics and trace ids"


def test_the_token_is_what_the_file_holds_without_the_space_around_it(tmp_path):
    path = tmp_path / "token"
    path.write_text("\n open-sesame-1234 \r\n")
    assert read_token(path) == "open-sesame-1234"
    assert read_token(None) is None


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"two words", "cannot be sent"),
        (b"one\ntwo", "cannot be sent"),
        ("gr\xfc\xdfe".encode(), "cannot be sent"),
        (b"\xff\xfe", "cannot be read"),
        (None, "cannot be read"),
        (b"x", "too short: 1 bytes"),
        (b"fifteen-and-two\n", "too short: 15 bytes"),
        (b"  fifteen-and-two  ", "too short: 15 bytes"),
    ],
)
def test_a_file_that_holds_no_token_is_refused_and_not_shown(tmp_path, content, wrong):
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RagmonError, match=wrong) as caught:
        read_token(path)
    assert str(path) in str(caught.value)
    assert caught.value.hint
    assert "two" not in f"{caught.value} {caught.value.hint}"
    assert "cannot be read" in wrong or f"openssl rand -hex 16 > {path}" in caught.value.hint


def test_the_token_that_the_hint_makes_is_taken(tmp_path):
    path = tmp_path / "token"
    path.write_bytes(b"x")
    with pytest.raises(RagmonError) as caught:
        read_token(path)
    subprocess.run(caught.value.hint.rpartition(": ")[2], shell=True, check=True)
    assert len(read_token(path)) == 32


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [["serve"], ["ack", "support/x", "--reason", "y"], ["show", "x", "--url", "http://127.0.0.1:1"]],
)
def test_every_command_that_reads_a_token_refuses_one_that_can_be_guessed(tmp_path, command):
    (tmp_path / "token").write_text("fifteen-letters\n")
    ports = 'otlp = "127.0.0.1:0"\ngrpc = "127.0.0.1:0"\nadmin = "127.0.0.1:1"\n'
    export = '[export]\nendpoint = "http://127.0.0.1:1"\n'
    (tmp_path / "ragmon.toml").write_text(f'[serve]\n{ports}token_file = "token"\n{export}')
    done = ragmon(*command, cwd=tmp_path)
    wrong, hint = done.error
    assert wrong.endswith("the token is too short: 15 bytes")
    assert "openssl rand -hex 16" in hint
