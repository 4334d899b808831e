"""What ragmon's own definitions need to know about one trace and its gold item (see `own` for the choices made)."""

from __future__ import annotations

import re
import unicodedata

from tests.support.oracle import seed_003

UNSPACED = ("CJK ", "IDEOGRAPHIC ", "HIRAGANA ", "KATAKANA", "THAI ", "LAO ", "KHMER ", "MYANMAR ", "TIBETAN ")
ANYWHERE = 5
TOKEN = "not in context"


class Unassessed(Exception):  # noqa: N818 - not an error: the third answer beside a score and "does not apply"
    """The metric applies, but a fact it needs is unknown."""


# --- ids and text -----------------------------------------------------------------------------------------------------


def ident(value):
    """An id as a string."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"not an id: {value!r}")
    return str(value)


def idents(values):
    """Ids without repeats, each at its best rank."""
    return list(dict.fromkeys(ident(value) for value in values))


def fold(text):
    """Text as it is compared, but for Markdown: NFKC and casefold; dashes, quotes, white space one; invisible gone.

    Where NFKC changes the text, runs of marks are broken before the 31st.
    """
    text = "".join(map(alike, text))
    if not unicodedata.is_normalized("NFKC", text):
        text = unicodedata.normalize("NFKC", with_joiners(text))
    return " ".join(text.casefold().split())


def alike(character):
    """The plain character for a dash, a quote or an apostrophe, nothing for one that nobody sees."""
    name, category = unicodedata.name(character, ""), unicodedata.category(character)
    if category == "Cf" or name.startswith("VARIATION SELECTOR") or name == "COMBINING GRAPHEME JOINER":
        return ""
    if name in {"MINUS SIGN", "EN DASH", "EM DASH", "HYPHEN", "NON-BREAKING HYPHEN", "FIGURE DASH", "FULLWIDTH TILDE"}:
        return "-"
    if name == "ACUTE ACCENT" or (category in {"Pi", "Pf"} and " SINGLE " in name):
        return "'"
    return '"' if category in {"Pi", "Pf"} and "DOUBLE" in name else character


def with_joiners(text):
    """Text with a combining grapheme joiner before every mark that would be the 31st in a row, once decomposed."""
    joined, marks = "", 0
    for character in text:
        parts = [unicodedata.combining(part) > 0 for part in unicodedata.normalize("NFKD", character)]
        leading = parts.index(False) if False in parts else len(parts)
        if marks + leading > 30:
            joined, marks = joined + "\N{COMBINING GRAPHEME JOINER}", 0
        joined += character
        marks = parts[::-1].index(False) if False in parts else marks + leading
    return joined


def joins_words(character):
    """Whether it is a letter or digit of a script written with spaces, or a mark that stands on one."""
    is_part = character.isalnum() or unicodedata.category(character).startswith("M")
    return is_part and not unicodedata.name(character, "").startswith(UNSPACED)


def stands_alone(phrase, text, start):
    """Whether the phrase found at `start` is not cut out of a longer number, nor, if it is short, of a longer word."""
    end = start + len(phrase)
    numbers = [range(*found.span()) for found in re.finditer(r"\d+(?:[.,]\d+)*", text)]
    if phrase[0].isdecimal() and any(start - 1 in number and start in number for number in numbers):
        return False
    if phrase[-1].isdecimal() and any(end - 1 in number and end in number for number in numbers):
        return False
    if len(phrase) >= ANYWHERE:
        return True
    cut_left = start > 0 and joins_words(text[start - 1]) and joins_words(phrase[0])
    cut_right = end < len(text) and joins_words(text[end]) and joins_words(phrase[-1])
    return not cut_left and not cut_right


def occurs(phrase, text):
    """Whether a gold phrase occurs in a claim, both folded."""
    places = [start for start in range(len(text)) if phrase and text.startswith(phrase, start)]
    return any(stands_alone(phrase, text, start) for start in places)


def phrases(gold_claim):
    """Maximal runs of letters, digits, hyphens and white space that begin with a letter or digit; folded, stripped."""
    runs, run = [], ""
    for character in fold(gold_claim) + "\0":
        if character.isalnum() or (run and (character == "-" or character.isspace())):
            run += character
        else:
            runs.append(run.strip())
            run = ""
    return [run for run in runs if len(run) >= ANYWHERE]


def tokens(text, stop):
    """Words of two or more characters, folded, without the stop words; repeats kept.

    Words are runs of letters and digits; of Korean and of scripts without spaces, pairs of neighbours in such a run.
    """
    found, run, pairs = [], "", False
    for character in fold(text) + " ":
        is_paired = unicodedata.name(character, "").startswith((*UNSPACED, "HANGUL SYLLABLE"))
        is_part = character.isalnum() or (is_paired and unicodedata.category(character).startswith("M"))
        if run and (not is_part or is_paired != pairs):
            found += [run[i : i + 2] for i in range(len(run) - 1)] if pairs else [run]
            run = ""
        if is_part:
            run, pairs = run + character, is_paired
    return [word for word in found if len(word) > 1 and word not in stop]


# --- facts of one trace -----------------------------------------------------------------------------------------------


def claim_of(trace):
    """The claim, stripped; empty when there is none."""
    return ((trace.get("answer_json") or {}).get("claim") or "").strip()


def state(trace):
    """`error`, `no_answer`, `refused` or `shipped`."""
    if trace.get("error"):
        return "error"
    if not claim_of(trace):
        return "no_answer"
    return "refused" if fold(claim_of(trace)) == TOKEN else "shipped"


def answered_state(trace):
    """`refused` or `shipped`; without an answer that cannot be said."""
    if state(trace) in ("error", "no_answer"):
        raise Unassessed(state(trace))
    return state(trace)


def citations_of(trace):
    """The cited ids; without a list it is not known what is cited."""
    citations = (trace.get("answer_json") or {}).get("citations")
    if not isinstance(citations, list):
        raise Unassessed("no_citations")
    return idents(citations)


def retrieved_of(trace):
    """The retrieved ids, best first."""
    if trace.get("retrieved_ids") is None:
        raise Unassessed("error" if trace.get("error") else "no_ids")
    return idents(trace["retrieved_ids"])


def gold_ids_of(item):
    """The gold ids; an item without any cannot judge citations."""
    if not item.get("gold_citations"):
        raise Unassessed("no_gold_citations")
    return set(idents(item["gold_citations"]))


def stands_for(trace, item, match):
    """By retrieved id, the gold ids whose text its context has and which were not retrieved under their own names.

    The n-th text is that of the n-th id. Where their numbers differ, the n-th text found stands for the n-th missing
    id, further ones for the last; a text under a gold id is that id's.
    """
    gold, texts = [ident(one) for one in item.get("gold_citations") or []], item.get("gold_contexts") or []
    names = [ident(one) for one in trace.get("retrieved_ids") or []]
    documents = [
        (name, seed_003.normalise(text)) for name, text in zip(names, trace.get("contexts") or [], strict=False)
    ]
    missing = [name for name in dict.fromkeys(gold) if name not in names]
    wanted = [seed_003.normalise(text) for text in texts]
    is_text = lambda context, text: text != "" and (text == context if match == "exact" else text in context)  # noqa: E731
    found = {}
    if len(gold) == len(texts):
        for one, text in zip(gold, wanted, strict=True):
            for name, context in documents:
                if one in missing and is_text(context, text):
                    found.setdefault(name, set()).add(one)
        return found
    free = [
        [name for name, context in documents if name not in gold and is_text(context, text)] for text in set(wanted)
    ]
    free.sort(key=lambda own: min((names.index(name) for name in own), default=0))
    for n, own in enumerate(own for own in free if own):
        for name in own if missing else ():
            found.setdefault(name, set()).add(missing[min(n, len(missing) - 1)])
    return found


def claim_contains(trace, item):
    """C."""
    substrings = [fold(substring) for substring in item.get("gold_claim_substr") or [] if substring]
    if not substrings:
        raise Unassessed("no_gold_claim")
    return any(occurs(substring, fold(claim_of(trace))) for substring in substrings)


def hit_only(trace, item, match):
    """A gold document is cited."""
    return bool((gold_ids_of(item) | set(stands_for(trace, item, match))) & set(citations_of(trace)))


def citation_hit(trace, item, match):
    """H."""
    gold_ids_of(item)
    retrieved, cited = set(retrieved_of(trace)), set(citations_of(trace))
    return cited <= retrieved and hit_only(trace, item, match)
