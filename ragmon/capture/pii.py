"""Detectors of personal data and secrets: each match is replaced by a typed placeholder such as `[email]`.

The order of the detectors matters, as one kind may look like a part of another: pem (its base64 may contain anything),
jwt (it would match as a key after `Bearer`), key (a password in a URL ends in `@`, as the local part of an address
does), email (the local part may be a number), iban (without its letters it may match as a card), card and ip (their
groups may match as a telephone number). Phone has the loosest form and comes last.

Run time is linear in the length of a text: a run of unbounded length is matched only from its start, which a lookbehind
ensures, and every other repetition is bounded. No number starts directly after a letter, a digit or a closing bracket,
so that the text after a secret is read the same as after its placeholder: a second pass finds nothing new.

Names, streets and dates of birth have no recognisable form. An application may add a redactor of its own for them.
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
"""Latin, Greek and Cyrillic. In a script without spaces a whole sentence would match as one address."""


def redact(text: str) -> str:
    """The text with placeholders for personal data and secrets; redacted text stays unchanged.

    Sources: RFC 7468 (PEM), RFC 7519 (JWT), issuers' documentation (key prefixes), RFC 5321 and 6531 (e-mail), the
    SWIFT registry and ISO 7064 (IBAN), ISO/IEC 7812 (cards), ITU-T E.164 and national numbering plans (telephone).

    >>> redact("Ask ada@example.org or +44 20 7946 0958; the server is 192.0.2.7, chunk 12 of 2024-05-17.")
    'Ask [email] or [phone]; the server is [ip], chunk 12 of 2024-05-17.'
    """
    for detector in _DETECTORS:
        for sign in detector.signs:
            if sign in text:
                text = _replace_matches(text, detector)
                break
    return text


class _Detector(NamedTuple):
    """A detector of one kind of personal data.

    Attributes:
        name: The word in its placeholder.
        signs: Strings one of which is in every text with a match: to search for them first saves most of the work.
        pattern: Finds candidates.
        span: The span of the data in a candidate; None if the candidate is not valid.
    """

    name: str
    signs: Sequence[str]
    pattern: re.Pattern[str]
    span: Callable[[re.Match[str]], Span | None] = re.Match.span


def _replace_matches(text: str, detector: _Detector) -> str:
    parts, copied, position = [], 0, 0
    while match := detector.pattern.search(text, position):
        span = detector.span(match)
        if span is None:
            position = match.start() + 1
            continue
        parts += [text[copied : span[0]], f"[{detector.name}]"]
        copied = position = span[1]
    return "".join((*parts, text[copied:]))


_LABEL: Final = "[A-Z0-9 ]{1,48}-----"
_PEM: Final = re.compile(f"-----BEGIN {_LABEL}")
_PEM_END: Final = re.compile(f"-----END {_LABEL}")
_CUT: Final = re.compile(r"(?:\s*[A-Za-z0-9+/=]{20,})*(?:\s*[A-Za-z0-9+/=]+\Z)?")  # a chunk may end inside a block


def _pem(match: re.Match[str]) -> Span:
    """The span of a block up to its end; without one, up to what is no base64."""
    end = _PEM_END.match(match.string, max(match.string.find("-----", match.end()), match.end()))
    end = end or _CUT.match(match.string, match.end()) or match
    return match.start(), end.end()


_JWT: Final = re.compile(r"(?<![\w\]-])(e[wy][\w-]{5,4096})\.[\w-]*\.[\w-]*(?:\.[\w-]+\.[\w-]+)?", re.ASCII)


def _jwt(match: re.Match[str]) -> Span | None:
    """The span of a token whose header is a JSON object."""
    try:
        header = json.loads(base64.urlsafe_b64decode(match[1] + "=" * (-len(match[1]) % 4)))
    except (ValueError, RecursionError):
        return None
    return match.span() if isinstance(header, dict) else None


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
"""The key prefixes that issuers publish, by the pattern that follows them."""
_KEY: Final = re.compile(
    rf"(?<![A-Za-z0-9\]-])(?:{'|'.join(f'(?:{starts}){rest}' for rest, starts in _ISSUED.items())})", re.ASCII
)
_RANDOM: Final = re.compile("(?=[A-Za-z]{0,11}[0-9])[A-Za-z0-9]{12}")
_BEARER: Final = re.compile(
    r"(?<![A-Za-z0-9\]])(?i:bearer)\s{1,4}((?=[A-Za-z_.~+/-]{0,64}\d)[\w.~+/-]{16,4096}=*)", re.ASCII
)
_PASSWORD: Final = re.compile(r"(?<=://)[^\s/@:[\]]{0,128}:[^\s/@[\]]{1,256}(?=@)")


def _key(match: re.Match[str]) -> Span | None:
    """The span of a key; after a prefix with a hyphen it must have a random part, or many plain names would match."""
    return match.span() if "-" not in match[0][:6] or _RANDOM.search(match[0]) else None


_NAME: Final = rf"{_LETTERS}0-9._%+'&~*!#$^-"
_HOST: Final = rf"@[{_LETTERS}0-9.-]+"
_EMAIL: Final = re.compile(
    rf"(?<![{_NAME}])[{_NAME}]+{_HOST}\.(?:xn--[A-Za-z0-9-]{{2,59}}|[{_LETTERS}]{{2,63}})(?:[{_NAME}]*{_HOST})*"
)


def _email(match: re.Match[str]) -> Span:
    """The span of an address, without a quotation mark or asterisk before it."""
    address = match[0].lstrip("._%'&~*!#$^-")
    return match.span() if address.startswith("@") else (match.end() - len(address), match.end())


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
_IBAN_DIGITS: Final = 10  # every real IBAN has more; a sentence that matches by chance has fewer


def _iban(match: re.Match[str]) -> Span | None:
    """The span of a number with its country's length and the right check digits."""
    size = _IBAN_SIZES.get(match[0][:2].upper(), 0)
    positions = [position for position, char in enumerate(match[0]) if char.isalnum()]
    if not 0 < size <= len(positions):
        return None
    number, end = "".join(match[0][position] for position in positions[:size]), match.start() + positions[size - 1] + 1
    remainder = int("".join(str(int(char, 36)) for char in number[4:] + number[:4])) % 97
    is_valid = remainder == 1 and sum(map(str.isdigit, number)) >= _IBAN_DIGITS
    return (match.start(), end) if is_valid and not re.match("[A-Za-z0-9]", match.string[end : end + 1]) else None


_CARD: Final = re.compile(
    r"[0-9](?<![A-Za-z0-9_\]].)(?<![0-9\]]\..)"
    rf"(?:[0-9]{{12,18}}|[0-9]{{3}}(?:[{_GAP}][0-9]{{3,6}}){{2,4}}){_END}(?!\.[0-9])"
)
_CARD_ISSUERS: Final = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2[2-7]\d{14}"  # Visa, Mastercard, Mir
    r"|3[47]\d{13}|3[0689]\d{12,17}|35\d{14,17}"  # American Express, Diners Club, JCB
    r"|6\d{12,18}|5[0678]\d{11,17}|8[12]\d{14}|9792\d{12}"  # Discover, UnionPay, Maestro, RuPay, Troy
)


def _card(match: re.Match[str]) -> Span | None:
    """The span of a number in an issuer's format with the right check digit; the last groups may not belong to it."""
    groups = re.split(rf"[{_GAP}]", match[0])
    while groups:
        number = "".join(groups)
        if _CARD_ISSUERS.fullmatch(number) and _luhn(number):
            return match.start(), match.start() + len(number) + len(groups) - 1
        groups.pop()
    return None


def _luhn(number: str) -> bool:
    doubled = (int(digit) * 2 for digit in number[-2::-2])
    return (sum(map(int, number[::-2])) + sum(n - 9 if n > 9 else n for n in doubled)) % 10 == 0


_IPV4: Final = re.compile(
    rf"[0-9](?<![A-Za-z0-9_\]].)(?<![0-9\]]\..)[0-9]{{0,2}}(?:\.[0-9]{{1,3}}){{3}}{_END}(?!\.[0-9])"
)
_VERSION_WORDS: Final = re.compile(r"(?i:version|release|section|chapter|clause|build)[\s.:]{0,2}\Z")
_IPV6: Final = re.compile(
    r"(?:(?<![A-Za-z0-9_\]:.])|(?<=[G-Zg-z]:))(?=[0-9A-Fa-f]{0,4}:[0-9A-Fa-f]{0,4}:)"
    r"[0-9A-Fa-f:]{3,39}(?![A-Za-z0-9_:[])"
)


def _ipv4(match: re.Match[str]) -> Span | None:
    """The span of four numbers below 256, if they are no section or version number."""
    is_valid = all(int(part) < 256 for part in match[0].split("."))
    return match.span() if is_valid and not _follows(_VERSION_WORDS, match) else None


def _follows(words: re.Pattern[str], match: re.Match[str]) -> bool:
    """Whether one of the words is directly before a match, with at most four characters in between."""
    text, start = match.string, match.start()
    has_letter = any(map(str.isalpha, text[max(0, start - 5) : start]))  # skips the search for most numbers
    return has_letter and words.search(text, max(0, start - 40), start) is not None


def _ipv6(match: re.Match[str]) -> Span | None:
    """The span of an address; `abc::def` alone does not match: it is a name in many languages. A colon may follow."""
    for address in (match[0], match[0][:-1]):
        try:
            IPv6Address(address)
        except ValueError:
            continue
        is_address = re.search("[0-9]", address) or len(re.findall("[^:]+", address)) > 2
        return (match.start(), match.start() + len(address)) if is_address else None
    return None


_STOP: Final = r"(?![0-9]|(?!x[0-9])[A-Za-z_%€$£¥]|[.-][0-9]|\s(?:[%€$£¥]|(?:EUR|USD|GBP|CHF)\b))"
"""The number is not part of something longer, and no amount of money; an extension may follow."""
_BETWEEN: Final = rf"[{_GAP}./()]{{0,3}}"
_CODES: Final = (
    "(?:2[07]|3[0-469]|4[013-9]|5[1-8]|6[0-6]|8[1246]|9[0-58]|(?:2[1-69]|3[578]|42|5[09]|6[7-9]|8[0578]|9[679])[0-9])"
)
"""Country codes except North America (1) and Russia (7), whose numbers have their own format."""
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
    # An area code in parentheses, which may also be a year.
    r"|\((?!19|20)[1-9][0-9]\) ?[0-9](?:[ .-]?[0-9]){7,8}|\([2-9][0-9]{2}\) ?[0-9]{3}[ .-]?[0-9]{4}"
    rf"|\(0[1-9][0-9]{{0,3}}\)[{_GAP}/]{{0,2}}[0-9](?:[{_GAP}/]?[0-9]){{4,7}}"
    # A trunk prefix 0, as in most of the world; in groups, also separated by points.
    rf"|0[1-9](?=[0-9]{{0,4}}[{_GAP}/)])(?:(?:[{_GAP}()]|/(?!0|[0-9][^0-9])){{0,3}}[0-9]){{7,10}}"
    r"|0[1-9](?:\.[0-9]{2}){4}|0[1-9][0-9]{0,2}(?:\.[0-9]{2,3}){3}"
    f"){_STOP}"
)
_UNBROKEN: Final = re.compile(rf"(?:0[1-9][0-9]{{8,9}}|01[5-7][0-9]{{9}}){_STOP}")
_NOT_PHONE_WORDS: Final = re.compile(
    r"(?<![A-Za-z])(?i:isbn|issn|id|order|invoice|ticket|case|ref(?:erence)?|article|artikel|sku|ean|upc|gtin|serial"
    r"|account|customer|bestellung|rechnung|auftrag)\w{0,6}(?:\s(?i:number|nummer|no|nr|id|code))?[\s.:=#-]{0,4}\Z"
)
"""Words before an unbroken number that is no telephone number."""
_DATE_OR_NUMBER: Final = re.compile(  # a date, a month, years, twenty million, a latitude
    r"[0-9]{1,2}([./-])[0-9]{1,2}\1(?:[0-9]{4}|[0-9]{2})(?![./-]?[0-9])|(?:0[1-9]|1[0-2])[./-](?:19|20)[0-9]{2}(?![0-9])"
    rf"|(?:19|20)[0-9]{{2}}[{_GAP}./](?:[01]?[0-9]|(?:19|20)[0-9]{{2}})(?![0-9])"
    r"|\+ ?[0-9]{2}(?:[ .][0-9]{3}){2}(?![ .-]?[0-9])|\+[0-9]{2,3}\.[0-9]{4,7}(?![0-9])"
)
_PHONE_WORDS: Final = re.compile(
    r"(?:(?<![A-Za-z\[])(?i:(?:tele)?phone|tel(?:efone?|éfono)?(?:nummer)?|tél(?:éphone)?|fax|mobile?|móvil|cell"
    r"|handy(?:nummer)?|rufnummer|whatsapp|call|dial|тел(?:ефон)?)(?:[\s.:#]{1,3}(?i:number|nummer|no|nr|is|at|on|me|us)){0,3}"
    r"|(?:电话|電話|手机|手機|携帯|전화)(?:号码|番号|번호)?)[\s.:#=：]{0,4}\Z"
)
"""Words before a telephone number: after them, digits in any grouping match."""
_AFTER_PHONE_WORD: Final = re.compile(rf"\(?[0-9](?:[{_GAP}./()]{{0,2}}[0-9]){{5,14}}{_STOP}")
_PHONE: Final = re.compile(
    r"[+(0-9](?<![A-Za-z0-9_\]#$€£¥\\+].)(?<![0-9\]]\.[0-9(])(?<![A-Za-z0-9_\]]-.)(?<![^0-9\s]/.)(?<!/[0-9]{2}/.)"
    rf"(?:(?<=[+(])[ (]{{0,2}}[0-9])?(?:{_BETWEEN}[0-9]){{5}}"
)


def _phone(match: re.Match[str]) -> Span | None:
    """The span of a number in a usual telephone format, or in any format after a word for telephone."""
    text, start = match.string, match.start()
    if _DATE_OR_NUMBER.match(text, start):
        return None
    number = _INTERNATIONAL.match(text, start) or _NATIONAL.match(text, start)
    if number is None and not _follows(_NOT_PHONE_WORDS, match):
        number = _UNBROKEN.match(text, start)
    if number is None and _follows(_PHONE_WORDS, match):
        number = _AFTER_PHONE_WORD.match(text, start)
    return None if number is None else number.span()


_DIGITS: Final = "0123456789"
_DETECTORS: Final = (
    _Detector("pem", ["-----BEGIN "], _PEM, _pem),
    _Detector("jwt", ["eyJ", "eyI", "eyA", "ewo", "ewk", "ew0"], _JWT, _jwt),
    _Detector("key", [start for starts in _ISSUED.values() for start in starts.split("|")], _KEY, _key),
    _Detector("key", ["earer", "EARER"], _BEARER, lambda match: match.span(1)),
    _Detector("key", ["://"], _PASSWORD),
    _Detector("email", ["@"], _EMAIL, _email),
    _Detector("iban", _DIGITS, _IBAN, _iban),
    _Detector("card", _DIGITS, _CARD, _card),
    _Detector("ip", _DIGITS, _IPV4, _ipv4),
    _Detector("ip", [":"], _IPV6, _ipv6),
    _Detector("phone", _DIGITS, _PHONE, _phone),
)
