"""Citations written in the text of an answer: a list at its end, numbers in brackets, ids in brackets.

Numbers are ranks in the list of retrieved documents. They are read from 1, and kept beside the ids: that a pipeline
counts from 0 shows in its totals alone. An answer keeps to one convention, so the first of these that a text shows is
read: ids, numbers in square brackets, numbers in parentheses. The texts are untrusted: the time of every function grows
no faster than the length of a text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from ragmon.core.record import Answer
from ragmon.core.text import DIGITS

_LIST: Final = re.compile(r"citations\s*:\s*\[", re.IGNORECASE)

_NUMBER: Final = r"(?:0|[1-9]\d?)"  # no year, and no part of a date
_ENTRY: Final = rf"{_NUMBER}(?:\s*[-–]\s*{_NUMBER})?"
_ENTRIES: Final = rf"{_ENTRY}(?:\s*[,;]\s*{_ENTRY})*"
# Adjacent citation marks; not `[text][1]`, which is a link. An expression that starts with a bracket is searched fast.
_MARKS: Final = re.compile(rf"\[(?<!\]\[)\^?{_ENTRIES}\](?:\[\^?{_ENTRIES}\])*|【{_ENTRIES}(?:†[^【】\n]*)?】")
_NUMBERS: Final = re.compile(r"(\d{1,2})(?:\s*[-–]\s*(\d{1,2}))?")
# OpenAI's mark of a file search: `【4:0†source】` is the first result that message 4 gave.
_SEARCH_RESULT: Final = re.compile(r"【(\d{1,4}):(\d{1,3})†[^【】\n]*】")
# Code, maths, and lines that define a footnote or a link: numbers in brackets are no citations there.
_OTHER: Final = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`|^ {0,3}\[\^?\d{1,2}\]:[^\n]*"
    r"|(?<!\d)\$\$.*?\$\$|\\\([^\n]{0,300}?\\\)|\$(?=\S)[^$\n]{0,100}[\\^_{][^$\n]{0,100}\$",
    re.DOTALL | re.MULTILINE,
)
# Other ways to write `[1]`: full width, escaped, `<sup>1</sup>`, `##1$$` (RAGFlow), `.¹`; with a label, a page, `and`.
_BRACKETS: Final = str.maketrans(
    "［］〔〕（），、،：；؛０１２３４５６７８９", "[][](),,,:;;0123456789"
) | str.maketrans(DIGITS)
_DIGITS: Final = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_ESCAPED: Final = re.compile(r"\\([\[\]])")
_RAISED: Final = re.compile(
    r"(?<![\d)])(?<!\b\w)(?<!\b\w\w)"  # no power, no unit
    r"(?:<(sup|cite|ref|source|citation)(?: [^<>\n]{0,80})?>(?:<a [^<>\n]{0,200}>)?([^<>\n]{1,40})(?:</a>)?</\1>"
    r"|(?<=[.,;:!?\]\"”»’])([⁰¹²³⁴-⁹]{1,2}))"
)
_RAGFLOW: Final = re.compile(r"##(\d{1,2})\$\$")
_BRACKET: Final = re.compile(r"([\[(])(?!\d+[\])])([^\[\]()\n]{1,80})[\])]")  # with more than a number in it
_LABELS: Final = re.compile(
    r"(?:(?:documents?|docs?|sources?|src|citations?|cite|references?|refs?|ids?|passages?|contexts?|chunks?|snippets?|excerpts?"
    r"|quellen?|dokumente?|dokumenty|documentos?|documenti|documenten|fuentes?|fontes?|fonti|bron(?:nen)?|źródł[oa]|käll(?:a|or)"
    r"|kilder?|lähde|lähteet|asiakirja|zdroje?|forrás(?:ok)?|surs[ae]|kaynak|belge|sumber|dokumen|nguồn|tài liệu"
    r"|источники?|документы?|джерел[оа]|πηγή|έγγραφο|מקור|מסמך|(?:ال)?مصدر|(?:ال)?مستند|स्रोत|संदर्भ|แหล่งที่มา|แหล่งข้อมูล|เอกสาร"
    r"|อ้างอิง|来源|來源|文档|文檔|资料|資料|出典|出处|出處|参考|參考|参照|引用"
    r"|文献|文獻|文書|출처|문서|자료|참고"
    r"|s(?=\d)|#)\.?\s?[:#_-]?\s?){1,2}(?=\d)",
    re.IGNORECASE,
)
# A place in the document, with a word before the number or behind it: `[1, p. 3]`, `[1, Kapitel 2]`, `[1, 3页]`.
_PLACE: Final = re.compile(
    r"[,:;]\s?(?:(?:[^\W\d_]{1,12}\.?|§)\s?\d{1,5}(?:\s?[-–]\s?\d{1,5})?|第?\s?\d{1,5}\s?(?:页|頁|ページ|쪽|페이지))\Z",
)
_AND: Final = re.compile(
    r"(?<=\d)\s?(?:\b(?:and|und|et|y|e|en|i|a|og|och|ja|és|și|oraz|ve|dan|và|и|і|та|και|ו|و|और|และ)\b"
    r"|&|と|和|及|与|與|및|와|과)\s?(?=\D{0,14}\d)",
    re.IGNORECASE,
)
_WHOLE_MARK: Final = re.compile(rf"(?:\[\^?{_ENTRIES}\])+|【{_ENTRIES}(?:†[^【】\n]*)?】")
_OPENINGS: Final = ("[", "(", "【", "［", "〔", "（", "<", "##", "\\")
_WHOLE: Final = re.compile(rf"\^?{_ENTRIES}")
_POSSIBLE: Final = re.compile(r"[\[(【［〔（<#⁰¹²³⁴-⁹]")
# An index in code outside of any fence, as in `row[1].name` and `row[1] = 2`; `said[1].` is a citation.
_INDEXED: Final = re.compile(r"\[(?<=[A-Za-z0-9_)]\[)\d+\](?:\[\d+\])*(?=\.?\w|\s*[-+*/%]?=)")

_BRACKETED: Final = re.compile(r"([\[(【])([^\[\](){}【】\n]+)[\])】]")
# What may stand before an id inside the brackets: `[^a#1]`, `[source: a#1]`.
_LABEL: Final = re.compile(r"\s*\^|\s*(?:source|doc|document|id|ref)s?\s*[:=]\s*", re.IGNORECASE)
_RUN: Final = re.compile(r"[^\W_]+")
_DIGIT: Final = re.compile(r"\d")

_IN_PARENTHESES: Final = re.compile(r"\((\d{1,2}(?:\s?,\s?\d{1,2})*)\)")
_INTEGER: Final = re.compile(r"\d+")
_NOT_CITED: Final = re.compile(
    # Part of a word, an amount, or a word that counts: `f(1)`, `12 km (3)`, `three (3)`, `step (2)`.
    r"[A-Za-z0-9_]\Z"
    r"|\d\s?(?:[kcmµ]?m|[kmµ]?g|m?l|[mµn]?s|min|h|[kMGT]?B|k?W|V|Hz|K|°?[CF]|px|pt|[%°€$£])?\s*\Z"
    r"|\b(?i:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|steps?|parts?|points?|options?|items?|cases?"
    r"|sections?|articles?|chapters?|clauses?|paragraphs?|rules?|pages?|figures?|fig\.|tables?|equations?|eq\.|versions?"
    r"|levels?|phases?|types?|no\.)\s*\Z"
)
# Before a number that counts points: `reasons: (1) wind, (2) rain and (3) fog`.
_POINT: Final = re.compile(r"(?:\A|[\n:,;]|\b(?:and|or))[ \t*_-]*\Z")
# Between two citations of one statement: `(1), (2) and (3)`.
_CHAINED: Final = re.compile(r"\)\s?(?:[,;&]|and|or)?\s?\Z")
_ANY_IDS: Final = ("",) * 20  # in place of the documents that marks stand for, where nobody knows them
_LOOK_BACK: Final = 24  # characters before a number in parentheses that decide what it is


# What looks like a mark: something short in brackets, with a label wherever it stands, without one behind a statement.
_SEEMING: Final = re.compile(r"([\[{(<【〔〖⟦]{1,2})([^\[\](){}<>【】〔〕〖〗⟦⟧\n]{1,40})[\])}>】〕〗⟧]{1,2}")
_SEEMING_LABEL: Final = (
    r"(?i:citations?|cite|references?|refs?|sources?|src|documents?|docs?|chunks?|passages?|contexts?|evidence|excerpts?"
    r"|quellen?|fuentes?|fontes?|出典|来源|文献|資料|资料)"
)
_LABELLED: Final = re.compile(
    rf"{_SEEMING_LABEL}(?:[\s.:=#_-]{{0,3}}|\sid\s?=\s?[\"'])"
    r"(?:[^\W\d_]{0,12}[-_.:#/]?\d{1,3}[a-z]?|(?<=[\s.:=#_-])[A-Z])[\"']?\s?/?"
)
_NO_PLACEHOLDER: Final = re.compile(r"(?i:cit|ref)|\w+\s?[:=#]")
_LABEL_TAG: Final = re.compile(rf"{_SEEMING_LABEL}[^<>\n]{{0,20}}")
_TAGGED: Final = re.compile(r"\s?\w{0,12}[-_.:#/]?\d{1,4}\s?</")
# A name; no version, no number with a unit, no range of letters, no placeholder such as `NAME_1`.
_SEEMING_NAME: Final = re.compile(
    r"@?(?![A-Z]{4,}[-_ ]?\d|[A-Z]+_|[vV]\d|[aA]-[zZ])(?:[A-Z]|[A-Za-z][A-Za-z_.:#/-]{1,15})[\w.:#/-]{0,16}(?<=\w)"
)
_CITE_COMMAND: Final = re.compile(r"\\cite[a-z]{0,6}\Z")
_SAID: Final = tuple('.!?,;:。！？、，"”»’%°)')
_ENDS_STATEMENT: Final = re.compile(r"\s*(?:[.!?,;:。！？、，\[【]|\Z|\n)")


def split_citations(answer: str) -> tuple[str, list[str] | None]:
    r"""Split the citations written as `citations: [a, b]` off an answer text; None where it has no such part.

    >>> split_citations("- Rollo\n- citations: [normans#1, normans#2]")
    ('Rollo', ['normans#1', 'normans#2'])
    """
    match = _LIST.search(answer) if ":" in answer else None
    # If no bracket closes the first list, none closes a later one, so one search is enough.
    end = answer.find("]", match.end()) if match else -1
    if match is None or end < 0:
        return answer, None
    ids = answer[match.end() : end].replace(",", " ").split()
    rest = answer[: match.start()].rstrip(" \t\r\n-*") + answer[end + 1 :]
    return rest.strip().removeprefix("- ").strip(), ids


class Cited(msgspec.Struct, frozen=True, gc=False):
    """What an answer cites.

    Attributes:
        ids: Ids; a rank beyond the list is a mark, as a document that was not retrieved. None where a rank is 0.
        ranks: The numbers, where the ids are read from them.
    """

    ids: list[str] | None
    ranks: list[int] | None = None


def with_marks(answer: Answer | None, retrieved_ids: Sequence[str] | None) -> Answer | None:
    """An answer whose citations are ids: ranks in its list are, and without a list the marks in its text make one.

    >>> with_marks(Answer("Rollo did [2]."), ["d1", "d2"])
    Answer(claim='Rollo did [2].', citations=['d2'], ranks=[2])
    >>> with_marks(Answer("Rollo did.", ["[2]", "Source 1"]), ["d1", "d2"])
    Answer(claim='Rollo did.', citations=['d2', 'd1'], ranks=[2, 1])
    """
    if answer is None or not retrieved_ids or answer.ranks is not None:
        return answer
    if answer.citations is not None:
        cited = _of_ranks(answer.citations, retrieved_ids)
    else:
        cited = None if answer.claim is None else read_marks(answer.claim, retrieved_ids)
    return answer if cited is None else Answer(answer.claim, cited.ids, cited.ranks, answer.refused)


def _of_ranks(citations: list[str], ids: Sequence[str]) -> Cited | None:
    # What a list of ranks cites; None for any other list. What differs from a retrieved id in its number alone is an
    # id: `doc3` beside `doc4`, and numbers beside numbers.
    if not citations or any(name in ids for name in citations):
        return None
    if not {_INTEGER.sub("0", name) for name in ids}.isdisjoint(_INTEGER.sub("0", name) for name in citations):
        return None
    marks = [_plain_marks(name if name.startswith(_OPENINGS) else f"[{name}]") for name in citations]
    if not all(map(_WHOLE_MARK.fullmatch, marks)):
        return None
    return _cited(_expanded(marks), ids)


def ids_at(ranks: Iterable[int], ids: Sequence[str], base: int = 1) -> list[str]:
    """The ids at ranks that count from a base; what lies beyond the list is a mark.

    >>> ids_at([1, 3], ["d1", "d2"]), ids_at([1], ["d1", "d2"], base=0)
    (['d1', '[3]'], ['d2'])
    """
    names = [ids[rank - base] if base <= rank < len(ids) + base else f"[{rank}]" for rank in ranks]
    return list(dict.fromkeys(names))


def marked_citations(claim: str, ids: Sequence[str]) -> list[str] | None:
    """The documents that the marks in a claim cite if ranks count from 1, in the order of their first citation.

    Args:
        claim: The answer's text.
        ids: The retrieved ids in rank order.

    Returns:
        Ids; a number beyond the list stays as a mark, as a document that was not retrieved. None where there are no
        marks, or they mean something else: no number is within the list, or one is 0.

    >>> marked_citations("Rollo[2], says the chronicle [1, 2].", ["d1", "d2"])
    ['d2', 'd1']
    >>> marked_citations("Rollo did [normans#2]. He died in 930 (1).", ["normans#1", "normans#2"])
    ['normans#2']
    >>> marked_citations("Rollo did (2). He died in 930 (1).", ["normans#1", "normans#2"])
    ['normans#2']
    >>> marked_citations("It returns `row[1]`, or row[1].name.", ["d1"]) is None
    True
    """
    cited = read_marks(claim, ids)
    return None if cited is None else cited.ids


def read_marks(claim: str, ids: Sequence[str]) -> Cited | None:
    """What the marks in a claim cite; None where there are no marks, or no number is within the list of ids."""
    if _POSSIBLE.search(claim) is None:
        return None
    text = _prose(claim)
    if (found := _inline_ids(text, ids)) is not None:
        return Cited(found)
    text = _plain_marks(text)
    return _numbered(text, ids) or _in_parentheses(text, ids)


def has_marks(claim: str) -> bool:
    """Whether an answer has marks, whatever was retrieved; of numbers in parentheses alone one is 1, as others count.

    >>> has_marks("Rollo did [2]."), has_marks("Rollo did (1)."), has_marks("Rome won the most medals (16).")
    (True, True, False)
    """
    if _POSSIBLE.search(claim) is None:
        return False
    text = _plain_marks(_prose(claim))
    return (_numbered(text, _ANY_IDS) or _in_parentheses(text, _ANY_IDS[:1])) is not None


def _prose(text: str) -> str:
    if "`" in text or "$" in text or "\\" in text or "]:" in text:  # most answers have no code, maths or footnotes
        text = _OTHER.sub(" ", text)
    return _INDEXED.sub(" ", text)


def unread_mark(claim: str) -> str | None:
    """The first part of an answer that looks like a citation and that nothing here reads; None where there is none.

    In square brackets it is a short name with a digit behind a statement; in other brackets a label says what it is.
    A number alone is none: it is read, or means something else.

    >>> unread_mark("Tighten it to 15 Nm [src-4]."), unread_mark("Tighten it {{cite:3}} to 15 Nm.")
    ('[src-4]', '{{cite:3}}')
    >>> unread_mark("See [page 2](https://example.org), `row[x1]`, [ ] and [NAME_1].") is None
    True
    """
    if claim.isascii() and not ("[" in claim or "(" in claim or "{" in claim or "<" in claim):
        return None
    text = _OTHER.sub(" ", claim) if "`" in claim or "$" in claim or "\\(" in claim or "]:" in claim else claim
    for seeming in _SEEMING.finditer(text):
        opening, inside, (start, end) = seeming[1][0], seeming[2].strip(), seeming.span()
        around, is_link = text[max(0, start - _LOOK_BACK) : start], opening == "[" and text[end : end + 1] in ("(", ":")
        before = around.rstrip(" ")
        if opening in "〔〖⟦":
            is_mark = _DIGIT.search(inside) is not None
        elif opening == "{" and _CITE_COMMAND.search(before) is not None:
            is_mark = True
        elif _LABELLED.fullmatch(inside) is not None:
            is_mark = not is_link and (opening != "{" or _NO_PLACEHOLDER.match(inside) is not None)
        elif opening == "<":
            number = _TAGGED.match(text, end) if _LABEL_TAG.fullmatch(inside) is not None else None
            is_mark, end = number is not None, end if number is None else number.end()
        else:
            is_mark = (
                opening in "[【"
                and not is_link
                and (before[-1:] in _SAID or (before[-1:].isalnum() and before != around))
                and _DIGIT.search(inside) is not None
                and _SEEMING_NAME.fullmatch(inside) is not None
                and _ENDS_STATEMENT.match(text, end) is not None
            )
        if is_mark:
            return text[start:end]
    return None


def alike(names: Collection[str], ids: Collection[str]) -> bool:
    """Whether each of some names is an id of the list, or written like an id of it; so titles are not taken for ids.

    >>> alike(["heron#7"], ["heron#1"]), alike(["heron.pdf"], ["heron#1"])
    (True, False)
    """
    known = set(ids)
    shapes = {_shape(name) for name in known}
    return all(name in known or _shape(name) in shapes for name in names)


def _plain_marks(text: str) -> str:
    """The text with every way to write a mark as `[1]`; what is no mark stays."""
    is_plain = text.isascii()
    if not is_plain:
        text = text.translate(_BRACKETS)
    if "\\" in text:
        text = _ESCAPED.sub(r"\1", text)
    if not is_plain or "</" in text:
        text = _RAISED.sub(lambda mark: f"[{(mark[2] or mark[3]).translate(_DIGITS).strip('[] ')}]", text)
    if "$$" in text:
        text = _RAGFLOW.sub(r"[\1]", text)

    def plain(bracket: re.Match[str]) -> str:
        inside = bracket[2].partition("†")[0].strip(" *_").removesuffix("^")  # `[1†source]`, `[^1^]`
        unlabelled = _LABELS.sub("", inside)
        numbers = _AND.sub(", ", _PLACE.sub("", unlabelled))
        # In parentheses only what has a label is surely a mark.
        is_mark = _WHOLE.fullmatch(numbers) is not None and (bracket[1] == "[" or unlabelled != inside)
        return f"[{numbers}]" if is_mark else bracket[0]

    return _BRACKET.sub(plain, text)


def _inline_ids(text: str, ids: Sequence[str]) -> list[str] | None:
    known = set(ids)
    entries: dict[tuple[str, bool], None] = {}  # what stands in brackets, whole and by entries
    for match in _BRACKETED.finditer(text):
        inside = match[2]
        if inside.isdecimal():  # as most are
            entries[inside, match[1] == "("] = None
            continue
        label = _LABEL.match(inside)
        body = inside if label is None else inside[label.end() :]
        parts = (inside, body, *body.replace(";", ",").split(","), *body.split("†")[1:])
        entries |= dict.fromkeys((part.strip(), match[1] == "(") for part in parts)
    # A short number may as well be a rank in the list: it is read as a rank.
    cited = {
        name
        for name, is_aside in entries
        if name in known
        and not (is_aside and name.isalnum())
        and not (len(name) <= 2 and name.isdecimal() and int(name) <= len(ids))
    }
    if not cited:
        return None
    # An id that is not of the list but written like the cited ids of the list counts as well.
    shapes = {shape for name in cited if "0" in (shape := _shape(name)) and not shape.isalnum()}
    strange = {name for name, _ in entries if name not in known and _shape(name) in shapes}
    return [name for name in dict.fromkeys(name for name, _ in entries) if name in cited or name in strange]


def _shape(name: str) -> str:
    # A run of letters and digits becomes `0` if it has a digit, else `a`: "grey-heron#12" is "a-a#0".
    return _RUN.sub(lambda run: "0" if _DIGIT.search(run[0]) else "a", name)


def _numbered(text: str, ids: Sequence[str]) -> Cited | None:
    # In square or lenticular brackets.
    marks = dict.fromkeys(match.groups() for match in _SEARCH_RESULT.finditer(text)) if "【" in text else {}
    # Each of several searches has ranks of its own: then they say nothing.
    if len({search for search, _ in marks}) == 1:
        places = [int(place) for _, place in marks]  # by their definition from 0
        if any(place < len(ids) for place in places):
            return Cited(ids_at((place + 1 for place in places), ids))
    return _cited(_expanded(found[0].partition("†")[0] for found in _MARKS.finditer(text)), ids)


def _expanded(marks: Iterable[str]) -> dict[int, None]:
    # The numbers of marks in their order, those of a range as well.
    numbers: dict[int, None] = {}
    ranges: set[str] = set()
    for mark in marks:
        if mark[1:-1].isdecimal():  # as most are
            numbers[int(mark[1:-1])] = None
            continue
        for match in _NUMBERS.finditer(mark):
            # Each range once: otherwise a long text of ranges would give a hundred numbers for every five characters.
            if match[0] not in ranges:
                ranges.add(match[0])
                first, last = int(match[1]), int(match[2] or match[1])
                numbers |= dict.fromkeys(range(first, last + 1) if first <= last else (first, last))
    return numbers


def _cited(numbers: dict[int, None], ids: Sequence[str]) -> Cited | None:
    if not any(number <= len(ids) for number in numbers):
        return None
    ranks = list(numbers)
    return Cited(None if 0 in numbers else ids_at(ranks, ids), ranks)


def _in_parentheses(text: str, ids: Sequence[str]) -> Cited | None:
    # Parentheses mean many things: None where a number counts the points of a list or is beyond the documents.
    numbers: dict[int, None] = {}
    for match in _IN_PARENTHESES.finditer(text):
        before = text[max(0, match.start() - _LOOK_BACK) : match.start()]
        after = text[match.end() : match.end() + _LOOK_BACK]
        if after[:1].isalnum() or _NOT_CITED.search(before):
            continue
        precedes_word = after[:1].isspace() and after.lstrip(" \t*_")[:1].isalnum()
        if precedes_word and _POINT.search(before) and not _CHAINED.search(before):
            return None
        numbers |= dict.fromkeys(int(n) for n in _INTEGER.findall(match[1]))
    return _cited(numbers, ids) if all(0 < n <= len(ids) for n in numbers) else None
