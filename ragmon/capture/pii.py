"""Personal data and secrets, found by their form and replaced by typed placeholders such as `[email]`.

The order matters, for one kind may look like a part of another: pem (its base64 may hold anything), jwt (it would be a
key behind `Bearer`), key (a password in a URL ends in `@`, as a name in an address does), email (the name may be a
number), iban (without its letters it may be a card), card and ip (their groups may be a telephone number's). Phone is
the loosest form and gets what is left.

Time grows with the length of a text and no faster: a run of unbounded length is entered at its beginning alone, which a
lookbehind sees to, and every other repetition is bounded. No number starts right behind a letter, a digit or a closing
bracket, so that what stands behind a secret is read the same behind its placeholder: a second pass finds nothing new.

Names, streets and dates of birth have no form. An application's own redactor may know them.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from ipaddress import IPv6Address
from typing import Final, NamedTuple

Span = tuple[int, int]

_END: Final = r"(?![A-Za-z0-9_])"
_GAP: Final = " \u00a0\u202f\u2010-\u2013-"
"""Spaces and hyphens between the groups of a number, for use in a character class."""
_LETTERS: Final = "A-Za-z\u00c0-\u024f\u0370-\u052f"
"""Latin, Greek and Cyrillic. In a script without spaces a whole sentence would be one address."""


def redact(text: str) -> str:
    """The text with placeholders in place of personal data and secrets; what has been redacted stays as it is.

    Sources: RFC 7468 (PEM), RFC 7519 (JWT), issuers' documentation (key prefixes), RFC 5321 and 6531 (e-mail), the
    SWIFT registry and ISO 7064 (IBAN), ISO/IEC 7812 (cards), ITU-T E.164 and national numbering plans (telephone).

    >>> redact("Ask ada@example.org or +44 20 7946 0958; the server is 192.0.2.7, chunk 12 of 2024-05-17.")
    'Ask [email] or [phone]; the server is [ip], chunk 12 of 2024-05-17.'
    """
    for kind in _KINDS:
        for sign in kind.signs:
            if sign in text:
                text = _replaced(text, kind)
                break
    return text


class _Kind(NamedTuple):
    """One form of personal data.

    Attributes:
        name: What its placeholder says.
        signs: One of these is in every text that holds one: searching for them spares most of the work.
        pattern: Finds what may be one.
        span: Where in a match it stands; None where it is none after all.
    """

    name: str
    signs: Sequence[str]
    pattern: re.Pattern[str]
    span: Callable[[re.Match[str]], Span | None] = re.Match.span


def _replaced(text: str, kind: _Kind) -> str:
    parts, done, at = [], 0, 0
    while found := kind.pattern.search(text, at):
        span = kind.span(found)
        if span is None:
            at = found.start() + 1
            continue
        parts += [text[done : span[0]], f"[{kind.name}]"]
        done = at = span[1]
    return "".join((*parts, text[done:]))


_LABEL: Final = "[A-Z0-9 ]{1,48}-----"
_CUT: Final = r"(?:\s*[A-Za-z0-9+/=]{20,})*(?:\s*[A-Za-z0-9+/=]+\Z)?"  # a chunk may end inside a block
# Possessive: to be able to step back over each character would take memory by the hundredfold.
_PEM: Final = re.compile(rf"-----BEGIN {_LABEL}(?:(?:[^-]++|-(?!----))*+-----END {_LABEL}|{_CUT})")
_JWT: Final = re.compile(r"(?<![\w\]-])(e[wy][\w-]{5,4096})\.[\w-]*\.[\w-]*(?:\.[\w-]+\.[\w-]+)?", re.ASCII)


def _jwt(found: re.Match[str]) -> Span | None:
    """A token whose header is a JSON object."""
    try:
        header = json.loads(base64.urlsafe_b64decode(found[1] + "=" * (-len(found[1]) % 4)))
    except (ValueError, RecursionError):
        return None
    return found.span() if isinstance(header, dict) else None


_ISSUED: Final = {
    rf"[A-Z0-9]{{16}}{_END}": "AKIA|ASIA",  # Amazon
    r"[\w-]{35}": "AIza",  # Google
    # OpenAI, Anthropic and others, Langfuse; Google; GitHub; GitLab; Slack; Docker, Nvidia, Pinecone, Grafana, PyPI
    r"[\w.-]{19,511}[\w-]": "sk-|pk-lf-|ya29|GOCSPX-|ghp_|gho_|ghu_|ghs_|ghr_|github_pat_|glpat-|gldt-|glrt-|glptt-"
    "|glcbt-|glft-|xoxa-|xoxb-|xoxe-|xoxp-|xoxr-|xoxs-|xapp-|dckr_pat_|dckr_oat_|nvapi-|pcsk_|glsa_|pypi-",
    r"[\w/]{20,256}": "hooks.slack.com/services/",
    r"[A-Za-z0-9]{30,256}": "hf_|npm_|gsk_|pplx-|xai-|jina_|ntn_|lin_api_",  # Hugging Face, npm, Groq, Perplexity, xAI
    r"\w{10,512}": "sk_live_|sk_test_|rk_live_|rk_test_|whsec_|lsv2_pt_|lsv2_sk_",  # Stripe, LangSmith
    r"[0-9a-fA-F]{32,64}": "shpat_|shpca_|shppa_|shpss_|dapi|dop_v1_|doo_v1_|dor_v1_",  # Shopify, Databricks
    r"\.[\w-]{16,64}\.[\w-]{16,64}": "SG",  # SendGrid
}
"""The prefixes issuers publish, by what follows them."""
_KEY: Final = re.compile(
    rf"(?<![A-Za-z0-9\]-])(?:{'|'.join(f'(?:{starts}){rest}' for rest, starts in _ISSUED.items())})", re.ASCII
)
_RANDOM: Final = re.compile("(?=[A-Za-z]{0,11}[0-9])[A-Za-z0-9]{12}")
_BEARER: Final = re.compile(
    r"(?<![A-Za-z0-9\]])(?i:bearer)\s{1,4}((?=[A-Za-z_.~+/-]{0,64}\d)[\w.~+/-]{16,4096}=*)", re.ASCII
)
_PASSWORD: Final = re.compile(r"(?<=://)[^\s/@:[\]]{0,128}:[^\s/@[\]]{1,256}(?=@)")


def _key(found: re.Match[str]) -> Span | None:
    """A key; after a prefix with a hyphen it must have a random part, or many a hyphenated name would be one."""
    return found.span() if "-" not in found[0][:6] or _RANDOM.search(found[0]) else None


_NAME: Final = rf"{_LETTERS}0-9._%+'&~*!#$^-"
_HOST: Final = rf"@[{_LETTERS}0-9.-]+"
_EMAIL: Final = re.compile(
    rf"(?<![{_NAME}])[{_NAME}]+{_HOST}\.(?:xn--[A-Za-z0-9-]{{2,59}}|[{_LETTERS}]{{2,63}})(?:[{_NAME}]*{_HOST})*"
)


def _email(found: re.Match[str]) -> Span:
    """An address, without the quotation mark or asterisk before it."""
    bare = found[0].lstrip("._%'&~*!#$^-")
    return found.span() if bare.startswith("@") else (found.end() - len(bare), found.end())


_IBAN: Final = re.compile(rf"[A-Za-z](?<![A-Za-z0-9_\]].)[A-Za-z][{_GAP}]?[0-9]{{2}}(?:[{_GAP}]?[A-Za-z0-9]){{11,29}}")
_IBAN_SIZES: Final = {
    country: int(size)
    for size, countries in re.findall(
        r"(\d+)((?: [A-Z]{2})+)",
        "15 NO 16 BE 18 DK FI FK FO GL NL SD 19 MK SI 20 AT BA EE KZ LT LU MN XK 21 CH HR LI LV"
        " 22 BG BH CR DE GB GE IE ME RS VA 23 AE GI IL IQ OM SO TL 24 AD CZ ES MD PK RO SA SE SK TN VG 25 LY PT ST"
        " 26 IS TR 27 BI DJ FR GR IT MC MR SM 28 AL AZ BY CY DO GT HN HU LB NI PL SV 29 BR EG PS QA UA"
        " 30 JO KW MU YE 31 MT SC 32 LC 33 RU",
    )
    for country in countries.split()
}
_IBAN_DIGITS: Final = 10  # every real one has more; a sentence that happens to fit has fewer


def _iban(found: re.Match[str]) -> Span | None:
    """As many characters as its country's have, with the right check digits."""
    size = _IBAN_SIZES.get(found[0][:2].upper(), 0)
    places = [place for place, char in enumerate(found[0]) if char.isalnum()]
    if not 0 < size <= len(places):
        return None
    number, end = "".join(found[0][place] for place in places[:size]), found.start() + places[size - 1] + 1
    remainder = int("".join(str(int(char, 36)) for char in number[4:] + number[:4])) % 97
    fits = remainder == 1 and sum(map(str.isdigit, number)) >= _IBAN_DIGITS
    return (found.start(), end) if fits and not re.match("[A-Za-z0-9]", found.string[end : end + 1]) else None


_CARD: Final = re.compile(
    r"[0-9](?<![A-Za-z0-9_\]].)(?<![0-9\]]\..)"
    rf"(?:[0-9]{{12,18}}|[0-9]{{3}}(?:[{_GAP}][0-9]{{3,6}}){{2,4}}){_END}(?!\.[0-9])"
)
_CARD_ISSUERS: Final = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2[2-7]\d{14}"  # Visa, Mastercard, Mir
    r"|3[47]\d{13}|3[0689]\d{12,17}|35\d{14,17}"  # American Express, Diners Club, JCB
    r"|6\d{12,18}|5[0678]\d{11,17}|8[12]\d{14}|9792\d{12}"  # Discover, UnionPay, Maestro, RuPay, Troy
)


def _card(found: re.Match[str]) -> Span | None:
    """A number of an issuer's form with the right check digit; the last groups may belong to something else."""
    groups = re.split(rf"[{_GAP}]", found[0])
    while groups:
        number = "".join(groups)
        if _CARD_ISSUERS.fullmatch(number) and _luhn(number):
            return found.start(), found.start() + len(number) + len(groups) - 1
        groups.pop()
    return None


def _luhn(number: str) -> bool:
    doubled = (int(digit) * 2 for digit in number[-2::-2])
    return (sum(map(int, number[::-2])) + sum(n - 9 if n > 9 else n for n in doubled)) % 10 == 0


_IPV4: Final = re.compile(
    rf"[0-9](?<![A-Za-z0-9_\]].)(?<![0-9\]]\..)[0-9]{{0,2}}(?:\.[0-9]{{1,3}}){{3}}{_END}(?!\.[0-9])"
)
_NUMBERED: Final = re.compile(r"(?i:version|release|section|chapter|clause|build)[\s.:]{0,2}\Z")
_IPV6: Final = re.compile(
    r"(?:(?<![A-Za-z0-9_\]:.])|(?<=[G-Zg-z]:))(?=[0-9A-Fa-f]{0,4}:[0-9A-Fa-f]{0,4}:)"
    r"[0-9A-Fa-f:]{3,39}(?![A-Za-z0-9_:[])"
)


def _ipv4(found: re.Match[str]) -> Span | None:
    """Four numbers below 256; a section or a version may have four as well."""
    fits = all(int(part) < 256 for part in found[0].split("."))
    return found.span() if fits and not _follows(_NUMBERED, found) else None


def _follows(words: re.Pattern[str], found: re.Match[str]) -> bool:
    """Whether one of the words stands right before a match, at most four marks in between."""
    text, start = found.string, found.start()
    near = any(map(str.isalpha, text[max(0, start - 5) : start]))  # spares most numbers the search
    return near and words.search(text, max(0, start - 40), start) is not None


def _ipv6(found: re.Match[str]) -> Span | None:
    """An address of more than `abc::def`, which is a name in many languages; a colon may stand behind it."""
    for address in (found[0], found[0][:-1]):
        try:
            IPv6Address(address)
        except ValueError:
            continue
        told = re.search("[0-9]", address) or len(re.findall("[^:]+", address)) > 2
        return (found.start(), found.start() + len(address)) if told else None
    return None


_STOP: Final = r"(?![0-9]|(?!x[0-9])[A-Za-z_%€$£¥]|[.-][0-9]|\s(?:[%€$£¥]|(?:EUR|USD|GBP|CHF)\b))"
"""Not part of something longer, and no amount; an extension may follow."""
_BETWEEN: Final = rf"[{_GAP}./()]{{0,3}}"
_CODES: Final = (
    "(?:2[07]|3[0-469]|4[013-9]|5[1-8]|6[0-6]|8[1246]|9[0-58]|(?:2[1-69]|3[578]|42|5[09]|6[7-9]|8[0578]|9[679])[0-9])"
)
"""Country codes but those of North America (1) and Russia (7), whose numbers have a form of their own."""
_AMERICAN: Final = rf"\(?[2-9][0-9]{{2}}\)?{_BETWEEN}[2-9][0-9]{{2}}[{_GAP}.]?[0-9]{{4}}"
_INTERNATIONAL: Final = re.compile(
    rf"(?:\+ ?|00)(?:1{_BETWEEN}{_AMERICAN}|7(?:{_BETWEEN}[0-9]){{10}}|{_CODES}(?:{_BETWEEN}[0-9]){{6,12}}){_STOP}"
)
_NATIONAL: Final = re.compile(
    "(?:"
    # North America with or without its 1, mobile numbers of Italy and of China, India, Brazil, Russia.
    rf"[2-9][0-9]{{2}}[{_GAP}.][2-9][0-9]{{2}}[{_GAP}.][0-9]{{4}}|1[{_GAP}.]?{_AMERICAN}"
    rf"|3[2-9][0-9][{_GAP}./][0-9]{{3}}[{_GAP}.]?[0-9]{{4}}|1[3-9][0-9][{_GAP}][0-9]{{4}}[{_GAP}][0-9]{{4}}"
    rf"|[6-9][0-9]{{4}}[{_GAP}](?!..000)[0-9]{{5}}|[1-9][0-9] 9[0-9]{{4}}[{_GAP}][0-9]{{4}}"
    rf"|8[{_GAP}]?\(?[0-9]{{3}}\)?[{_GAP}][0-9]{{3}}[{_GAP}][0-9]{{2}}[{_GAP}][0-9]{{2}}"
    # An area code in parentheses, where a year may stand as well.
    r"|\((?!19|20)[1-9][0-9]\) ?[0-9](?:[ .-]?[0-9]){7,8}|\([2-9][0-9]{2}\) ?[0-9]{3}[ .-]?[0-9]{4}"
    rf"|\(0[1-9][0-9]{{0,3}}\)[{_GAP}/]{{0,2}}[0-9](?:[{_GAP}/]?[0-9]){{4,7}}"
    # A trunk 0, as in most of the world; in groups, and with points between them.
    rf"|0[1-9](?=[0-9]{{0,4}}[{_GAP}/)])(?:(?:[{_GAP}()]|/(?!0|[0-9][^0-9])){{0,3}}[0-9]){{7,10}}"
    r"|0[1-9](?:\.[0-9]{2}){4}|0[1-9][0-9]{0,2}(?:\.[0-9]{2,3}){3}"
    f"){_STOP}"
)
_UNBROKEN: Final = re.compile(rf"(?:0[1-9][0-9]{{8,9}}|01[5-7][0-9]{{9}}){_STOP}")
_ITEM: Final = re.compile(
    r"(?<![A-Za-z])(?i:isbn|issn|id|order|invoice|ticket|case|ref(?:erence)?|article|artikel|sku|ean|upc|gtin|serial"
    r"|account|customer|bestellung|rechnung|auftrag)\w{0,6}(?:\s(?i:number|nummer|no|nr|id|code))?[\s.:=#-]{0,4}\Z"
)
"""What an unbroken number is called where it is no telephone number."""
_FIGURE: Final = re.compile(  # a date, a month, years, twenty million, a latitude
    r"[0-9]{1,2}([./-])[0-9]{1,2}\1(?:[0-9]{4}|[0-9]{2})(?![./-]?[0-9])|(?:0[1-9]|1[0-2])[./-](?:19|20)[0-9]{2}(?![0-9])"
    rf"|(?:19|20)[0-9]{{2}}[{_GAP}./](?:[01]?[0-9]|(?:19|20)[0-9]{{2}})(?![0-9])"
    r"|\+ ?[0-9]{2}(?:[ .][0-9]{3}){2}(?![ .-]?[0-9])|\+[0-9]{2,3}\.[0-9]{4,7}(?![0-9])"
)
_CALLED: Final = re.compile(
    r"(?:(?<![A-Za-z\[])(?i:(?:tele)?phone|tel(?:efone?|éfono)?(?:nummer)?|tél(?:éphone)?|fax|mobile?|móvil|cell"
    r"|handy(?:nummer)?|rufnummer|whatsapp|call|dial|тел(?:ефон)?)(?:[\s.:#]{1,3}(?i:number|nummer|no|nr|is|at|on|me|us)){0,3}"
    r"|(?:电话|電話|手机|手機|携帯|전화)(?:号码|番号|번호)?)[\s.:#=：]{0,4}\Z"
)
"""What announces a telephone number: digits in any groups are one then."""
_ANNOUNCED: Final = re.compile(rf"\(?[0-9](?:[{_GAP}./()]{{0,2}}[0-9]){{5,14}}{_STOP}")
_PHONE: Final = re.compile(
    r"[+(0-9](?<![A-Za-z0-9_\]#$€£¥\\+].)(?<![0-9\]]\.[0-9(])(?<![A-Za-z0-9_\]]-.)(?<![^0-9\s]/.)(?<!/[0-9]{2}/.)"
    rf"(?:(?<=[+(])[ (]{{0,2}}[0-9])?(?:{_BETWEEN}[0-9]){{5}}"
)


def _phone(found: re.Match[str]) -> Span | None:
    """A number in a form telephone numbers have, or in any form where it is announced as one."""
    text, start = found.string, found.start()
    if _FIGURE.match(text, start):
        return None
    number = _INTERNATIONAL.match(text, start) or _NATIONAL.match(text, start)
    if number is None and not _follows(_ITEM, found):
        number = _UNBROKEN.match(text, start)
    if number is None and _follows(_CALLED, found):
        number = _ANNOUNCED.match(text, start)
    return None if number is None else number.span()


_DIGITS: Final = "0123456789"
_KINDS: Final = (
    _Kind("pem", ["-----BEGIN "], _PEM),
    _Kind("jwt", ["eyJ", "eyI", "eyA", "ewo", "ewk", "ew0"], _JWT, _jwt),
    _Kind("key", [start for starts in _ISSUED.values() for start in starts.split("|")], _KEY, _key),
    _Kind("key", ["earer", "EARER"], _BEARER, lambda found: found.span(1)),
    _Kind("key", ["://"], _PASSWORD),
    _Kind("email", ["@"], _EMAIL, _email),
    _Kind("iban", _DIGITS, _IBAN, _iban),
    _Kind("card", _DIGITS, _CARD, _card),
    _Kind("ip", _DIGITS, _IPV4, _ipv4),
    _Kind("ip", [":"], _IPV6, _ipv6),
    _Kind("phone", _DIGITS, _PHONE, _phone),
)
