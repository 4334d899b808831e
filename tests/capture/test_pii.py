"""What counts as personal data or a secret, what does not, and that looking for it stays cheap."""

from __future__ import annotations

import base64
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.capture.redact import redact
from tests.support.effort import least_ratio


def part(value):
    """A part of a JWT."""
    text = value if isinstance(value, str) else json.dumps(value)
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


JWT = f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part({'sub': 'ada'})}.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA0Z3VS5JJcds3xfn/ygWyF0qJDr\n-----END RSA PRIVATE KEY-----"

POSITIVES = {
    "email": [
        *("ada@example.org", "ada.lovelace+list@mail.example.co.uk", "o'brien@example.ie", "A_B-C@EXAMPLE.COM"),
        *("müller@bücher.de", "почта@пример.рф", "ada@xn--bcher-kva.xn--p1ai", "4930123@example.com"),
    ],
    "iban": [
        *("DE89370400440532013000", "DE89 3704 0044 0532 0130 00", "de89 3704 0044 0532 0130 00"),
        *("GB29 NWBK 6016 1331 9268 19", "FR14 2004 1010 0505 0001 3M02 606", "NO9386011117947"),
        *("NL91-ABNA-0417-1643-00", "MT84MALT011000012345MTLCAST001S", "CH93 0076 2011 6238 5295 7"),
    ],
    "card": [
        *("4111111111111111", "4111 1111 1111 1111", "4111-1111-1111-1111", "4111\u00a01111\u00a01111\u00a01111"),
        *("4222222222222", "378282246310005", "3782 822463 10005", "5555555555554444", "2223003122003222"),
        *("6011000990139424", "3056 930902 5904", "3530111333300000", "6304000000000000"),
    ],
    "ip": [
        *("192.0.2.7", "10.0.0.1", "255.255.255.255", "192.168.001.010"),
        *("2001:db8::1", "fe80::1", "::1", "2001:db8:0:0:0:0:2:1", "dead:beef::cafe"),
    ],
    "jwt": [
        JWT,
        f"{part({'alg': 'none'})}.{part({'sub': 'x'})}.",
        f"{part(json.dumps({'alg': 'none'}, indent=1))}.e30.c2ln",
    ],
    "key": [
        *("sk-abcDEF123ghiJKL456mnoPQR", "sk-proj-abcDEF123_ghiJKL456-mnoPQR789stuVWX", "AKIAIOSFODNN7EXAMPLE"),
        *("sk-ant-api03-aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5zA7bC9dE1fG-AA", "ASIAIOSFODNN7EXAMPLE"),
        *("ghp_16C7e42F292c6912E7710c838347Ae178B4a", "gho_16C7e42F292c6912E7710c838347Ae178B4a"),
        *("github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz", "glpat-Xy1Zabcdefghij234567"),
        *("xoxb-123456789012-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx", "hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567"),
        *("AIzaSyDaGmWKa4JsXZ-HjGw7ISLn_3namBGewQe", "sk_live_4eC39HqLyjWDarjtT1zdp7dc"),
        *("npm_abcdefghijklmnopqrstuvwxyz0123456789", "SG.ngeVfQFYQlKU0ufo8x5d1A.TwL2iGABf9DHoTf09kqeF8tAmbihYzrnopKc"),
    ],
    "pem": [
        PEM,
        PEM.replace("\n", "\\n"),
        PEM.replace("\n", "\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,A1\n\n", 1),
    ],
    "phone": [
        # International.
        *("+49 30 1234567", "+49 (0)30 123456-78", "+493012345678", "+49/30/1234567", "+44 20 7946 0958"),
        *("+1 (415) 555-2671", "+1-415-555-2671", "+14155552671", "+1.4155552671", "+33 1 23 45 67 89"),
        *("+34 612 345 678", "+91 98765 43210", "+86 138 1234 5678", "+7 495 123-45-67", "+971 50 123 4567"),
        *("0049 30 1234567", "00442079460958", "001 415 555 2671"),
        # North America.
        *("(415) 555-2671", "(415)555-2671", "415-555-2671", "415.555.2671", "415 555 2671", "1-800-555-0199"),
        # A trunk 0: United Kingdom, Germany, France, the Low Countries, Italy, Sweden, Japan, Australia, Turkey.
        *("020 7946 0958", "(020) 7946 0958", "07911 123456", "07911123456", "030 1234567", "(030) 1234567"),
        *("030/1234567", "089 / 12 34 56 7", "0171-1234567", "01711234567", "015112345678", "01 23 45 67 89"),
        *("01.23.45.67.89", "0612345678", "06-12345678", "0475 12 34 56", "06 1234 5678", "08-123 456 78"),
        *("03-1234-5678", "090-1234-5678", "0412 345 678", "(02) 9876 5432", "044 668 18 00", "0532 123 45 67"),
        # Italian, Chinese, Indian and Brazilian mobiles, Russia.
        *("347 123 4567", "138 1234 5678", "98765 43210", "(11) 91234-5678", "8 (495) 123-45-67", "8-800-555-35-35"),
    ],
}
AROUND = ("{}", "Ask {} today.", "({})", '"{}"', "see: {}, or page 12", "first\n{}\nlast", "电话是 {}。", "[1] {}")


def test_what_is_replaced():
    """The secret alone, whatever stands around it."""
    for kind, secret in [(kind, secret) for kind, many in POSITIVES.items() for secret in many]:
        for around in AROUND:
            assert redact(around.format(secret)) == around.format(f"[{kind}]"), (kind, secret)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Tel: 555-1234", "Tel: [phone]"),
        ("my phone number is 4155552671", "my phone number is [phone]"),
        ("Telefon: 612 345 678, Fax 5551234", "Telefon: [phone], Fax [phone]"),
        ("Tel.030 1234567", "Tel.[phone]"),
        ("手机13812345678", "手机[phone]"),
        ("call 555 1234 now", "call [phone] now"),
    ],
)
def test_digits_in_any_grouping_are_a_telephone_number_where_they_are_announced_as_one(text, expected):
    assert redact(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mailto:ada@example.org?subject=x", "mailto:[email]?subject=x"),
        ("https://x.org/u?mail=ada@example.org&x=1", "https://x.org/u?mail=[email]&x=1"),
        ("'ada@example.org' and **bob@example.org**", "'[email]' and **[email]**"),
        ("联系ada@example.org谢谢", "联系[email]谢谢"),
        ("10.0.0.1:8080 and [2001:db8::1]:443", "[ip]:8080 and [[ip]]:443"),
        ("415-555-2671x12", "[phone]x12"),
        ("0171 1234567/0172 1234567", "[phone]/[phone]"),
        ("0171 1234567,0172 1234567", "[phone],[phone]"),
        ("4111 1111 1111 1111 123 05/27", "[card] 123 05/27"),
        ("DE89 3704 0044 0532 0130 00 BIC COBADEFF370", "[iban] BIC COBADEFF370"),
    ],
)
def test_what_stands_beside_a_secret_stays(text, expected):
    assert redact(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"Bearer {JWT}", "Bearer [jwt]"),
        ("Authorization: bearer 0123456789abcdef0123", "Authorization: bearer [key]"),
        ("postgres://ada:s3cret@db.example.com/x", "postgres://[key]@db.example.com/x"),
        ("redis://:s3cret@cache", "redis://[key]@cache"),
        ("https://hooks.slack.com/services/T00000000/B00000000/aB3dE5fG7hJ9kL1mN3pQ5rS7", "https://[key]"),
        ("+4915112345678@sms.example.com", "[email]"),
    ],
)
def test_of_two_readings_the_more_telling_one_counts(text, expected):
    """The order of the kinds decides."""
    assert redact(text) == expected


def test_a_block_whose_end_is_in_the_next_chunk_is_replaced_as_far_as_it_goes():
    assert redact(f"my key: {PEM[:70]}") == "my key: [pem]"
    assert redact("It starts with -----BEGIN CERTIFICATE----- as always.") == "It starts with [pem] as always."


NEGATIVES = [
    # Dates, times, years.
    *("2024-05-17", "2024-05-17T10:30:00Z", "17.05.2024", "05.06.2024", "05/06/2024", "05-06-2024 10:30"),
    *("01.02.2024 10:30", "10:30:45", "12:30-14:45", "06/2024 123456", "1914-1918", "2015 2016 2017 2018"),
    *("call on 12.03.2024", "mobile 2023-2024 report", "call 2024-05-17"),
    # Amounts and measures.
    *("$1,234,567.89", "1 234 567,89 EUR", "1.234.567,89", "12 345 678", "EUR 1234567", "100 000 000", "+20 000 000"),
    *("+12.5%", "+5 points", "+1000000", "3.14159265358979", "0.123456789", "0.4532015112830366", "-0.25", "1.5e-10"),
    *("+48.858844, +2.294351", "51.5074 0.1278", "2^31 = 2147483648", "256, 512, 1024", "1024x768", "7 400 000"),
    *("1 2 3 4 5 6 7 8 9 10", "at 20 degrees of summer heat 12", "no 12 of the items in this list here"),
    # Sections and versions.
    *("section 4.2.1", "section 4.2.1.3", "v1.2.3", "version 10.0.19041.1", "version 1.2.3.4", "1.2.3-beta.4"),
    *("A1.2.3.4.5", "1.3.6.1.4.1.311", "ISO 8601:2004", "RFC 7519", "CVE-2021-44228", "256.1.1.1", "1.2.3.4.5"),
    # Identifiers of documents and things.
    *("p12#1", "doc-2024-01-15-003", "chunk_000123456", "56ddde6b9a695914005b9628", "ABC-0123456789", "#0456 789 012"),
    *("123e4567-e89b-12d3-a456-426614174000", "12345678-1234-1234-1234-123456789012", "0001-0042", "pages 100-200"),
    *("1700000000", "1700000000000", "1700000000.123456", "1234567890", "12345678901234567890", "9783161484100"),
    *("ISBN 978-3-16-148410-0", "ISBN 0-306-40615-2", "ISBN 0306406152", "ISSN 0317-8471", "arXiv:2401.12345"),
    *("order 0123456789", "Order no. 4155552671", "invoice 2024-000123", "doi:10.1145/3292500.3330701"),
    *("/docs/0123456789/", "https://x.org/2024/05/17/0123456789", "sha256:9f86d081884c7d659a2feaa0c55ad015"),
    *("0xdeadbeef12345678", "60000-61000", "(2003) 123 4567", "(1998) 1234-5678", "calls 1234567", "iPhone 12 1234567"),
    # Check digits that are wrong, issuers that do not exist.
    *("DE88370400440532013000", "XX89370400440532013000", "4111 1111 1111 1112", "0000 0000 0000 0000"),
    # Code and names.
    *("recall@5", "@user", "lodash@4.17.21", "std::abc", "f :: Int -> Int", "00:1A:2B:3C:4D:5E", "a task-force-2024"),
    *("sk-learn-pipeline-with-a-long-name", "bearer of bad news internationalization 5", "eyJust.a.name"),
    *(f"{part('[1]')}.x.y", f"{part('{' + '[' * 3000)}.x.y", "https://example.org:443/a@b"),
]


def test_what_is_left_alone():
    for text in NEGATIVES:
        for around in AROUND:
            assert redact(around.format(text)) == around.format(text), text


def test_real_paragraphs_hold_nothing_to_redact(shared):
    """Some 1,200 paragraphs of an encyclopaedia: years, amounts, coordinates, and nobody's telephone number."""
    for line in (shared / "squad2" / "small" / "corpus.jsonl").read_text(encoding="utf-8").splitlines():
        for text in json.loads(line).values():
            assert not isinstance(text, str) or redact(text) == text


secrets = st.sampled_from([secret for many in POSITIVES.values() for secret in many])
between = st.one_of(st.sampled_from([*" -./:@][()x10+,\n_=é电", "tel ", "://", "00", *NEGATIVES]), st.text(max_size=5))
texts = st.lists(st.one_of(secrets, between), max_size=8).map("".join)


@pytest.mark.slow
@given(texts)
def test_redacting_twice_is_redacting_once(text):
    once = redact(text)
    assert redact(once) == once


@given(st.text(st.characters(exclude_categories=["Nd"], exclude_characters="@:-"), max_size=200))
def test_text_of_any_script_survives(text):
    assert redact(text) == text


@given(st.lists(st.tuples(st.text("αбкыเ電話ñß ", min_size=1, max_size=8), secrets), max_size=4))
def test_all_that_goes_is_the_secrets(pairs):
    """Placeholders aside, what is left is what stood between them."""
    redacted = redact(" ".join(f"{word} {secret} ;" for word, secret in pairs))
    assert re.sub(r"\[[a-z]+\] ;", ";", redacted) == " ".join(f"{word} ;" for word, _ in pairs)


MEGABYTE = 1_000_000
ADVERSARIAL = {
    "pem": ["-----BEGIN X-----a", "-----BEGIN X-----\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n"],
    "jwt": ["eyJ-", "eyJhbGciOi."],
    "key": ["sk-", "Bearer ", "bearer aaaaaaaaaaaaaaaaaaaa", "://a"],
    "email": ["a", "a@", "a@a."],
    "iban": ["DE12", "DE12 1234 "],
    "card": ["1", "4111 1111 1111 1112 "],
    "ip": ["1.", "1:"],
    "phone": ["1 ", "+49 ", "(", "01/", "tel 1 "],
}


@pytest.mark.slow
@pytest.mark.parametrize("unit", [unit for units in ADVERSARIAL.values() for unit in units])
def test_time_grows_with_the_length_and_no_faster(unit):
    """A megabyte of what nearly is a secret, over and over, takes twice the time of half of it.

    Three times allows for noise, and so do more rounds; growth by the square takes four times in every round.
    """

    def redacting(size):
        text = (unit * (size // len(unit) + 1))[:size] + " eyJ @ :// 1"
        return lambda: redact(text)

    assert least_ratio(redacting(MEGABYTE), redacting(MEGABYTE // 2), enough=3) <= 3
