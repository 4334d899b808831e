"""URLs that users write: what is one, what is refused, and that no password is shown."""

from __future__ import annotations

import pytest

from ragmon.core.errors import RagmonError
from ragmon.core.network import Url, parse_url, split_url


def parsed(text, **options):
    return parse_url(text, "the target", hint="https://rag.example/answer", **options)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://h", Url("http", "h", 80)),
        ("HTTPS://Rag.Example", Url("https", "rag.example", 443)),
        (" http://h:8080/ ", Url("http", "h", 8080, "/")),
        ("http://[::1]:4318/a/b?x=1&y=2#top", Url("http", "::1", 4318, "/a/b", "x=1&y=2")),
        ("http://bücher.example/", Url("http", "bücher.example", 80, "/")),
    ],
)
def test_a_url_is_read_in_its_parts(text, url):
    assert parsed(text) == url


@pytest.mark.parametrize(
    ("url", "authority", "target", "shown"),
    [
        (Url("http", "h", 80), "h:80", "/", "http://h:80"),
        (Url("https", "::1", 443, "/a", "b=c"), "[::1]:443", "/a?b=c", "https://[::1]:443/a?b=c"),
    ],
)
def test_it_is_written_for_messages_and_for_requests(url, authority, target, shown):
    assert (url.authority, url.target, str(url)) == (authority, target, shown)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "h:80",
        "ftp://h",
        "http://",
        "http://:80/",
        "http://h:port",
        "http://h:99999",
        "http://[::1",
        "http://a..b",
        f"http://{'a' * 70}.example",
        "http://a b/",
        "http://h/a b",
        "http://h/ü",
        "http://h/?q=ü",
    ],
)
def test_what_is_none_is_named_and_shown(text):
    with pytest.raises(RagmonError, match="the target is not an address: '") as refused:
        parsed(text)
    assert refused.value.hint == "https://rag.example/answer"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("http://me:hunter2@h/", "the target names a user"),
        ("http://hunter2@h/", "the target names a user"),
        ("http://me:hunter2@h:99999/", "the target is not an address"),
        ("htp://me:hunter2@h/", "the target is not an address"),
        ("http://me:hunter2@h/a b", "the target names a user"),
        ("me:hunter2@h", "the target is not an address"),
    ],
)
def test_a_password_is_refused_and_never_shown(text, message):
    with pytest.raises(RagmonError, match=message) as refused:
        parsed(text)
    assert "hunter2" not in f"{refused.value} {refused.value.hint}"
    if "names" in message:
        assert "hunter2" not in repr(split_url(text))


@pytest.mark.parametrize("text", ["http://h?x=1", "http://h/#top", "http://h/?"])
def test_paths_are_appended_only_to_what_ends_with_a_path(text):
    assert parsed(text)
    with pytest.raises(RagmonError, match="not an address"):
        parsed(text, base=True)


def test_a_slash_at_the_end_of_a_base_is_left_out():
    assert [parsed(f"http://h{path}", base=True).path for path in ("", "/", "/a", "/a/")] == ["", "", "/a", "/a"]


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("localhost", True),
        ("app.localhost", True),
        ("127.8.9.1", True),
        ("[::1]", True),
        ("10.0.0.1", False),
        ("h", False),
    ],
)
def test_this_machine_is_known_by_its_name(host, is_loopback):
    assert split_url(f"http://{host}").is_loopback is is_loopback


@pytest.mark.parametrize(
    ("other", "is_same"),
    [("http://H:80/x", True), ("http://h:81", False), ("https://h", False), ("http://me@h", True)],
)
def test_an_origin_is_scheme_host_and_port(other, is_same):
    assert (split_url("http://h/").origin == split_url(other).origin) is is_same
