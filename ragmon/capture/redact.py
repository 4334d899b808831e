"""Redaction: detectors of personal data and secrets, and the policy which parts of a record leave the process.

The order of the detectors matters, as one kind may look like a part of another: pem (its base64 may contain anything),
jwt (it would match as a key after `Bearer`), key (a password in a URL ends in `@`, as the local part of an address
does), email (the local part may be a number), iban (without its letters it may match as a card), card and ip (their
groups may match as a telephone number). Phone has the loosest form and comes last.

Run time is linear in the length of a text: a run of unbounded length is matched only from its start, which a lookbehind
ensures, and every other repetition is bounded. No number starts directly after a letter, a digit or a closing bracket,
so that the text after a secret is read the same as after its placeholder: a second pass finds nothing new. Names,
streets and dates of birth have no recognisable form: an application may add a redactor of its own for them.

| field | none | hash | redacted | full |
|---|---|---|---|---|
| q, claim, contexts | dropped | dropped | redacted | unchanged |
| citations of documents that were not retrieved, tags, error | redacted | redacted | redacted | unchanged |
| qid, session | unchanged | unchanged | redacted, or hashed if there is a key | unchanged |
| user | redacted, or hashed if there is a key | the same | the same | unchanged |
| ids of documents, index, build, model, times, scores, names of tags | unchanged | unchanged | unchanged | unchanged |
| facts: lengths, decisions, measured scores | yes | yes | if redaction changed a text | no |
| facts: hash of the question | with a key | yes | if redaction changed a text, with a key | no |
| facts: hashes of claim and contexts | no | yes | no | no |

A citation of a document that was not retrieved is the model's own text. Ids belong to the application: if an id
contains user input, as a session id may, choose `redacted`. A document's id is compared with gold, so it is never
changed.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from itertools import count
from typing import Final, Literal, NamedTuple

import msgspec

from ragmon.capture.call import count_value
from ragmon.core import constants
from ragmon.core.errors import RagmonError, error_location, warn_once
from ragmon.core.gold_item import GoldItem
from ragmon.core.process import KEY_BYTES, keyed_hash
from ragmon.core.record import Answer, Record, TextFacts
from ragmon.core.text import normalise_question
from ragmon.ingest.gold import GoldIndex
from ragmon.metrics import facts as bits
from ragmon.metrics.base import Metric
from ragmon.metrics.builtin import DEFAULT_THRESHOLD, Groundedness
from ragmon.metrics.facts import FactReader

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
                parts, copied, position = [], 0, 0
                while match := detector.pattern.search(text, position):
                    span = detector.span(match)
                    if span is None:
                        position = match.start() + 1
                        continue
                    parts += [text[copied : span[0]], f"[{detector.name}]"]
                    copied = position = span[1]
                text = "".join((*parts, text[copied:]))
                break
    return text


class _Detector(NamedTuple):
    """A detector of one kind of personal data.

    Attributes:
        signs: Strings one of which is in every text with a match: to search for them first saves most of the work.
        span: The span of the data in a candidate; None if the candidate is not valid.
    """

    name: str
    signs: Sequence[str]
    pattern: re.Pattern[str]
    span: Callable[[re.Match[str]], Span | None] = re.Match.span


_LABEL: Final = "[A-Z0-9 ]{1,48}-----"
_PEM: Final = re.compile(f"-----BEGIN {_LABEL}")
_PEM_END: Final = re.compile(f"-----END {_LABEL}")
_CUT: Final = re.compile(r"(?:\s*[A-Za-z0-9+/=]{20,})*(?:\s*[A-Za-z0-9+/=]+\Z)?")  # a chunk may end inside a block


def _pem(match: re.Match[str]) -> Span:
    # Up to the end of the block; without one, up to what is no base64.
    end = _PEM_END.match(match.string, max(match.string.find("-----", match.end()), match.end()))
    end = end or _CUT.match(match.string, match.end()) or match
    return match.start(), end.end()


_JWT: Final = re.compile(r"(?<![\w\]-])(e[wy][\w-]{5,4096})\.[\w-]*\.[\w-]*(?:\.[\w-]+\.[\w-]+)?", re.ASCII)


def _jwt(match: re.Match[str]) -> Span | None:
    # The header of a token is a JSON object.
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
    # After a prefix with a hyphen it must have a random part, or many plain names would match.
    return match.span() if "-" not in match[0][:6] or _RANDOM.search(match[0]) else None


_NAME: Final = rf"{_LETTERS}0-9._%+'&~*!#$^-"
_HOST: Final = rf"@[{_LETTERS}0-9.-]+"
_EMAIL: Final = re.compile(
    rf"(?<![{_NAME}])[{_NAME}]+{_HOST}\.(?:xn--[A-Za-z0-9-]{{2,59}}|[{_LETTERS}]{{2,63}})(?:[{_NAME}]*{_HOST})*"
)


def _email(match: re.Match[str]) -> Span:
    # Without a quotation mark or asterisk before it.
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
    # The last groups may not belong to the number.
    groups = re.split(rf"[{_GAP}]", match[0])
    while groups:
        number = "".join(groups)
        doubled = (int(digit) * 2 for digit in number[-2::-2])
        luhn = sum(map(int, number[::-2])) + sum(n - 9 if n > 9 else n for n in doubled)
        if _CARD_ISSUERS.fullmatch(number) and luhn % 10 == 0:
            return match.start(), match.start() + len(number) + len(groups) - 1
        groups.pop()
    return None


_IPV4: Final = re.compile(
    rf"[0-9](?<![A-Za-z0-9_\]].)(?<![0-9\]]\..)[0-9]{{0,2}}(?:\.[0-9]{{1,3}}){{3}}{_END}(?!\.[0-9])"
)
_VERSION_WORDS: Final = re.compile(r"(?i:version|release|section|chapter|clause|build)[\s.:]{0,2}\Z")
_IPV6: Final = re.compile(
    r"(?:(?<![A-Za-z0-9_\]:.])|(?<=[G-Zg-z]:))(?=[0-9A-Fa-f]{0,4}:[0-9A-Fa-f]{0,4}:)"
    r"[0-9A-Fa-f:]{3,39}(?![A-Za-z0-9_:[])"
)


def _ipv4(match: re.Match[str]) -> Span | None:
    is_valid = all(int(part) < 256 for part in match[0].split("."))
    return match.span() if is_valid and not _follows(_VERSION_WORDS, match) else None


def _follows(words: re.Pattern[str], match: re.Match[str]) -> bool:
    text, start = match.string, match.start()
    has_letter = any(map(str.isalpha, text[max(0, start - 5) : start]))  # skips the search for most numbers
    return has_letter and words.search(text, max(0, start - 40), start) is not None


def _ipv6(match: re.Match[str]) -> Span | None:
    # `abc::def` alone does not match: it is a name in many languages. A colon may follow.
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
_AFTER_PHONE_WORD: Final = re.compile(rf"\(?[0-9](?:[{_GAP}./()]{{0,2}}[0-9]){{5,14}}{_STOP}")
_PHONE: Final = re.compile(
    r"[+(0-9](?<![A-Za-z0-9_\]#$€£¥\\+].)(?<![0-9\]]\.[0-9(])(?<![A-Za-z0-9_\]]-.)(?<![^0-9\s]/.)(?<!/[0-9]{2}/.)"
    rf"(?:(?<=[+(])[ (]{{0,2}}[0-9])?(?:{_BETWEEN}[0-9]){{5}}"
)


def _phone(match: re.Match[str]) -> Span | None:
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


Content = Literal["none", "hash", "redacted", "full"]
Redactor = Callable[[str], str]
WITHHELD: Final = "[withheld]"
"""Replaces text that a failed redactor should have redacted."""


class _Treatment(NamedTuple):
    """The functions applied to the parts of a record; a part is dropped if its function is None or returns None.

    `text` is for q, claim and contexts, `label` for tags, the error and citations of what was not retrieved.
    """

    text: Callable[[str], str] | None
    label: Callable[[str], str | None]
    name: Callable[[str], str | None]
    user: Callable[[str], str | None]


_WITHHOLD: Final = _Treatment(text=None, label=lambda _: None, name=lambda _: None, user=lambda _: None)


class _NoTextError(TypeError):
    """A redactor returned no string; the message names the redactor and quotes no text."""


@dataclass(frozen=True)
class Redaction:
    """The redaction policy of one pipeline (see the module's table).

    If a redactor fails, the record is sent without text, tags, qid, session and user, and counted in `failed`.

    Args:
        probe_content: Policy of probes; gold questions are not user data.
        gold: The gold sets, if the application has them: then a record without text names its gold item, and its facts
            say whether the claim contains the gold claim.
        key: The secret key of hashes, shared by replicas and monitor.
        redactors: The application's own redactors, applied after the built-in detectors.

    Raises:
        RagmonError: `hash` has no key, or the key is too short.
    """

    content: Content = "none"
    probe_content: Content = "full"
    gold: GoldIndex = field(default_factory=GoldIndex)
    facts: FactReader = field(default_factory=FactReader)
    grounded_threshold: float = DEFAULT_THRESHOLD
    measured: tuple[Metric, ...] = ()
    key: bytes | None = field(default=None, repr=False)
    redactors: Sequence[Redactor] = ()
    _failed: count[int] = field(default_factory=count, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        hint = f"let capture.hash_key_file name a file of at least {KEY_BYTES} random bytes"
        if self.key is None and "hash" in (self.content, self.probe_content):
            raise RagmonError('content "hash" has no key', hint=hint)
        if self.key is not None and len(self.key) < KEY_BYTES:
            raise RagmonError(f"the hash key is too short: {len(self.key)} bytes", hint=hint)

    @property
    def failed(self) -> int:
        """Records that lost their text because a redactor failed."""
        return count_value(self._failed)

    def __call__(self, record: Record) -> Record:
        """The record without the parts that the policy removes."""
        content = self.probe_content if record.source == constants.PROBE else self.content
        if content == "full":
            return record
        item = self.gold.match(record)
        try:
            redacted = _apply(record, item, self._treatment(content))
        except BaseException as error:  # noqa: BLE001 - a redactor written in Rust may panic, which is no Exception
            next(self._failed)
            reason = str(error) if isinstance(error, _NoTextError) else error_location(error)
            pipeline = record.pipeline or constants.DEFAULT_PIPELINE
            warn_once(f"redaction for {pipeline} failed, and such records go without text: {reason}")
            content, redacted = "none", _apply(record, item, _WITHHOLD)
        if item is not None and record.qid != item.qid:
            redacted.matched = self.gold.how(record)
        changed = None
        if content == "redacted":
            texts = {
                "q": (record.q, redacted.q),
                "claim": (_claim(record), _claim(redacted)),
                "contexts": (record.contexts, redacted.contexts),
            }
            changed = [name for name, (before, after) in texts.items() if before != after]
            if not changed:
                return redacted
        measures = dict(record.measures or {})
        for metric in self.measured:
            score = None if metric.key in measures else metric.measure(record, item)
            if score is not None and math.isfinite(score):
                measures[metric.key] = score
        facts = self._facts(record, item, measures, hashed=content == "hash")
        facts.redacted = changed
        return msgspec.structs.replace(redacted, facts=facts, measures=measures or None)

    def redacted_copy(self, record: Record) -> Record:
        """The record for judges: redacted if the policy is `redacted`, or without text if that fails; else complete.

        A failure is not counted here; it is counted when the record itself is sent.
        """
        if (self.probe_content if record.source == constants.PROBE else self.content) != "redacted":
            return record
        item = self.gold.match(record)
        try:
            return _apply(record, item, self._treatment("redacted"))
        except BaseException:  # noqa: BLE001 - as above
            return _apply(record, item, _WITHHOLD)

    def _treatment(self, content: Content) -> _Treatment:
        if content == "redacted":
            name = self._redact_name
            return _Treatment(text=self._redact_text, label=self._redact_text, name=name, user=name)
        return _Treatment(text=None, label=self._redact_text, name=lambda name: name, user=self._redact_name)

    def _redact_text(self, text: str) -> str:
        text = redact(text)
        for redactor in self.redactors:
            redacted: object = redactor(text)
            if not isinstance(redacted, str):
                redactor_name = getattr(redactor, "__qualname__", type(redactor).__name__)
                raise _NoTextError(f"{redactor_name} returned {type(redacted).__name__} instead of str")
            text = redacted.encode("utf-8", "replace").decode()  # a lone surrogate and a str subclass cannot be encoded
        return text

    def _redact_name(self, name: str) -> str:
        # Equal names stay equal.
        cleared = self._redact_text(name)
        return cleared if cleared == name or self.key is None else keyed_hash(self.key, name)

    def _facts(
        self, record: Record, item: GoldItem | None, measures: Mapping[str, float], *, hashed: bool
    ) -> TextFacts:
        claim, earlier, key = _claim(record), record.facts, self.key
        facts = TextFacts() if earlier is None else earlier
        if claim is not None or earlier is None:  # other decisions that came with the record stay
            facts = TextFacts(grounded=None if earlier is None else earlier.grounded)
            flags, score = self.facts.read(record, item)[0], measures.get(Groundedness.name)
            if score is not None:
                facts.grounded = score >= self.grounded_threshold
            if not flags & (bits.ERROR | bits.OUTCOME_UNKNOWN):
                facts.answered = bool(flags & (bits.SHIPPED | bits.REFUSED))
            if flags & bits.TEXT:
                facts.refused = bool(flags & bits.REFUSED)
                facts.refusal_like = bool(flags & bits.REFUSAL_LIKE)
                facts.policy_refusal = True if flags & bits.POLICY_REFUSAL else None
            if item is not None and flags & bits.CLAIM_KNOWN:
                facts.gold_version = item.set_version
                if_missing = None if flags & bits.CLAIM_CUT else False
                facts.contains_claim = True if flags & bits.CONTAINS_CLAIM else if_missing
                facts.contains_gold_claim = True if flags & bits.CONTAINS_GOLD_CLAIM else if_missing
            cut_flags = {"claim": bits.CLAIM_CUT, "contexts": bits.CONTEXTS_CUT}
            facts.cut = [text for text, cut in cut_flags.items() if flags & cut] or None
        found: dict[str, int | str | list[str]] = {}
        if record.q is not None:
            found["question_chars"] = len(record.q)
            if key is not None:
                found["question_hash"] = keyed_hash(key, normalise_question(record.q))
        if claim is not None:
            found["claim_chars"] = len(claim)
            if key is not None and hashed:
                found["claim_hash"] = keyed_hash(key, claim)
        if record.contexts is not None:
            found |= {"contexts": len(record.contexts), "context_chars": sum(map(len, record.contexts))}
            if key is not None and hashed:
                found["context_hashes"] = [keyed_hash(key, context) for context in record.contexts]
        return msgspec.structs.replace(facts, **found)


def _claim(record: Record) -> str | None:
    return None if record.answer_json is None else record.answer_json.claim


def _apply(record: Record, item: GoldItem | None, treatment: _Treatment) -> Record:
    answer, contexts, q, text = record.answer_json, record.contexts, record.q, treatment.text
    if answer is not None:
        claim = None if answer.claim is None or text is None else text(answer.claim)
        citations = answer.citations
        if citations is not None:  # a citation of a document that this request does not have is treated as text
            item_ids = () if item is None else item.ids
            known = {"", *(record.retrieved_ids or ()), *(record.candidate_ids or ()), *item_ids}
            citations = [name if name in known else treatment.label(name) or WITHHELD for name in citations]
        answer = Answer(claim, citations, answer.ranks, answer.refused)
    tags = record.tags
    if tags is not None:
        tags = {name: tag for name, given in tags.items() if (tag := treatment.label(given)) is not None}
    return msgspec.structs.replace(
        record,
        # Without the question's text, the qid must identify the gold item.
        qid=item.qid if item is not None else None if record.qid is None else treatment.name(record.qid),
        q=None if q is None or text is None else text(q),
        contexts=None if contexts is None or text is None else [text(context) for context in contexts],
        answer_json=answer,
        error=(treatment.label(record.error) or WITHHELD) if record.error else record.error,
        session=None if record.session is None else treatment.name(record.session),
        user=None if record.user is None else treatment.user(record.user),
        tags=tags,
    )
