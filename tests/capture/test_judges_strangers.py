"""Where text of users and the key may go: to the address the operator wrote, over TLS that can be verified."""

from __future__ import annotations

import pytest

from ragmon.core import constants, errors
from tests.support.chat_model import serving, status
from tests.support.fake_consumer import certificate
from tests.support.model_judges import judged, precision, short_pauses  # noqa: F401 - a fixture


@pytest.fixture
def model():
    with serving() as found:
        yield found


@pytest.fixture
def fresh_notices(monkeypatch):
    """Whatever was said before is said again."""
    monkeypatch.setattr(errors, "_said", set())


class TestRedirects:
    @pytest.mark.slow
    @pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
    @pytest.mark.parametrize(
        ("target", "why"),
        [
            ("http://169.254.169.254/latest/meta-data", "private address"),
            ("http://[::1]:1/", "private address"),
            ("http://localhost:1/", "private address"),
            ("http://10.0.0.1/", "private address"),
            ("https://example.com/", "another origin"),
            ("//example.com/", "another origin"),
            ("http://[broken", "not an address"),
        ],
    )
    def test_a_redirect_elsewhere_is_refused_by_name(self, model, caplog, fresh_notices, code, target, why):
        model.script = [status(code, Location=target)]
        assert judged(precision(model)).result == constants.JUDGE_ERROR
        assert why in caplog.text
        assert len(model.asked) == 1

    def test_another_port_of_this_machine_gets_neither_text_nor_key(self, model):
        with serving() as other:
            model.script = [status(307, Location=f"{other.url}/chat/completions")]
            assert judged(precision(model)).result == constants.JUDGE_ERROR
            assert other.asked == []

    def test_a_redirect_on_the_same_server_is_followed(self, model):
        model.script = [status(308, Location="/v2/chat/completions")]
        assert judged(precision(model)).result == constants.SCORED
        assert [asked.path for asked in model.asked] == ["/v1/chat/completions", "/v2/chat/completions"]
        assert model.asked[1].headers["Authorization"] == "Bearer sesame"

    def test_redirects_in_circles_end(self, model):
        model.script = [status(307, Location="/v1/chat/completions")] * 20
        assert judged(precision(model)).result == constants.JUDGE_ERROR
        assert len(model.asked) == 4

    def test_the_proxies_of_the_environment_play_no_part(self, model, monkeypatch):
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
        assert judged(precision(model)).result == constants.SCORED


class TestTls:
    @pytest.fixture
    def secure(self, tmp_path):
        """A model behind a certificate that signs itself, and the certificate."""
        made, key = certificate(tmp_path)
        with serving(tls=(made, key)) as found:
            yield found, made

    def test_a_certificate_nobody_vouches_for_gets_neither_text_nor_key(self, secure):
        assert judged(precision(secure[0])).result == constants.JUDGE_ERROR
        assert secure[0].asked == []

    def test_one_that_the_operator_trusts_does(self, secure, monkeypatch):
        monkeypatch.setenv("SSL_CERT_FILE", str(secure[1]))
        assert judged(precision(secure[0])).result == constants.SCORED
