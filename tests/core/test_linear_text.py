"""No text takes long: every pattern and function that reads strangers' text takes time that grows with its length.

The texts are made from the patterns themselves, so that a new pattern of the package is tried as soon as it is there.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from email.message import Message
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragmon
from ragmon.capture import convert, judges, redact
from ragmon.capture import convert as result
from ragmon.compat import seed_002
from ragmon.core import answers, citations, documents, errors, written
from ragmon.core import text as texts
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Answer, Record
from ragmon.core.refusals import RefusalRule, languages
from ragmon.export import text as tables
from ragmon.ingest.labels import _ids, _time
from ragmon.ingest.lines import decode, is_export
from ragmon.ingest.spans import documents as entries
from ragmon.ingest.spans import messages, prompts, tools
from ragmon.ingest.spans.mapper import _name
from ragmon.metrics import builtin
from ragmon.metrics.facts import FactReader, match_texts
from ragmon.server.probe_client import is_from_cache
from tests.support.adversarial import GENERAL, TooLongError, ended_after, growth, pumps, text_of

SECONDS = 2
"""Of the processor, after which a text is given up: what is linear takes a hundredth of it."""
MADE_WHERE_NEEDED = {
    "core.answers",  # names of the configuration, beside the usual ones, which are tried
    "capture.otlp_exporter",  # one class of characters, of a token in the configuration
    "capture.redact",  # what a pattern of bounded length found
    "config.problems",  # the configuration
    "config.services",  # the configuration, and a time in a variable
    "config.settings",
    "core.refusals",  # the default patterns are tried below
    "core.text",  # one class of characters
    "demo.app",  # a number, as in the patterns of the module
    "export.rules",  # a selector that a user writes
    "ingest.gold_files",  # names of members
    "ingest.cells",  # separators of the user
    "server.queries",  # hexadecimal digits
}
"""Modules that make or use a pattern inside a function, and why that is as good as tried."""


def modules():
    for found in pkgutil.walk_packages(ragmon.__path__, "ragmon."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def compiled(value, depth=4):
    """The patterns in a value, and in what it holds; what a module remembers may hold itself."""
    if isinstance(value, re.Pattern):
        yield value
    elif depth and isinstance(value, tuple | list | set | frozenset | dict):
        ordered = sorted(value, key=repr) if isinstance(value, set | frozenset) else value  # alike in every process
        for inner in ordered.values() if isinstance(ordered, dict) else ordered:
            yield from compiled(inner, depth - 1)


def uses(module, name):
    """How a module tries one of its patterns; one that it hands on is searched for."""
    source = Path(module.__file__).read_text("utf-8")
    found = set(re.findall(rf"\b{name}\.(fullmatch|match|search|sub|finditer|findall|split)\b", source))
    return frozenset("match" if use == "match" else "fullmatch" if use == "fullmatch" else "search" for use in found)


def found_patterns():
    """Every pattern of the package with the ways it is tried, by where it is."""
    found = {}
    for module in modules():
        for name, value in vars(module).items():
            for place, pattern in enumerate(() if name.startswith("__") else compiled(value)):
                ways = uses(module, name) or frozenset({"search"})
                found.setdefault((pattern, ways), f"{module.__name__.removeprefix('ragmon.')}.{name}.{place}")
    for place, source in enumerate(opening for language in languages() for _, opening in language.openings):
        found[re.compile(source), frozenset({"search"})] = f"refusal.openings.{place}"
    for language in languages():
        for head in sorted(language.heads):
            found[language.opening(head), frozenset({"match"})] = f"refusal.{language.code}.{head}"
        if not language.is_spaced:
            found[language.opening(), frozenset({"search"})] = f"refusal.{language.code}.openings"
        for name, way in (("turns", "search"), ("preambles", "match"), ("unless", "match")):
            found[language.matcher(name), frozenset({way})] = f"refusal.{language.code}.{name}"
    found[texts._runs_of_marks(), frozenset({"search"})] = "text._runs_of_marks"
    return [(pattern, way, name) for (pattern, ways), name in found.items() for way in sorted(ways)]


def attempt(pattern, way):
    """Try a pattern to the end of a text, as its module does."""
    if way == "search":
        return lambda text: [None for _ in pattern.finditer(text)]
    return pattern.fullmatch if way == "fullmatch" else pattern.match


def slow(pattern, way):
    """The first text that a pattern is not linear on, and how slow it is; None where all are read in time."""
    is_bytes = isinstance(pattern.pattern, bytes)
    for start, pump, end in pumps(pattern):

        def make(size, parts=(start, pump, end)):
            text = text_of(*parts, size)
            return text.encode("utf-8", "surrogatepass") if is_bytes else text

        try:
            with ended_after(SECONDS):
                wrong = growth(attempt(pattern, way), make)
        except TooLongError as late:
            wrong = str(late)
        if wrong:
            return (start, pump, end), wrong
    return None


@pytest.mark.slow
def test_every_pattern_takes_time_that_grows_with_the_text():
    for pattern, way, name in found_patterns():
        assert slow(pattern, way) is None, (name, way)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "flags"),
    [
        (r"citations\s*:\s*\[([^\]]*)\]", re.IGNORECASE),
        (r"\s*```(?:json)?\s*\n(.*)\n\s*```\s*\Z", re.DOTALL),
        (r"\w+@", 0),
        (r"<b>.*</b>", re.DOTALL),
        (r"\b(?:\d[\d.,]*|one) hours", 0),
        (r"(?:-+)+>", 0),
    ],
)
def test_a_pattern_that_takes_the_square_of_its_text_is_found(source, flags):
    """The texts are good enough: each of these patterns looks harmless and is not."""
    assert slow(re.compile(source, flags), "search") is not None


@pytest.mark.slow
def test_patterns_are_made_once_where_they_are_tried_here():
    """A pattern written into a call would not be seen here: whoever writes one says why that is harmless."""
    found = set()
    for path in Path(ragmon.__file__).parent.rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and any(
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "re"
                for node in ast.walk(function)
            ):
                found.add(".".join(path.relative_to(Path(ragmon.__file__).parent).with_suffix("").parts))
    assert found == MADE_WHERE_NEEDED


def header(text):
    message = Message()
    message["X-Cache"] = text
    return message


ITEM = GoldItem(
    "a", "Why?", answerable=True, claim_substrings=["itu", "harbour"], gold_claim="the harbour", citations=["d"]
)
BY_TEXT = GoldItem("a", "Why?", answerable=True, contexts=["the harbour"], match="contains")
FUNCTIONS = {
    written.is_null: written.is_null,
    written.scalar: written.scalar,
    answers.cited_in: answers.cited_in,
    texts.head: texts.head,
    texts.is_cut: texts.is_cut,
    texts.stream_safe: texts.stream_safe,
    texts.fold: texts.fold,
    texts.fold_lines: texts.fold_lines,
    texts.fold_characters: texts.fold_characters,
    texts.clean: texts.clean,
    texts.contains_phrase: lambda text: (
        texts.contains_phrase(text, "a"),
        texts.contains_phrase(text, "aaaaaaaaab"),
        texts.contains_phrase(text, "1"),
    ),
    texts.claim_phrases: texts.claim_phrases,
    texts.normalise_question: texts.normalise_question,
    texts.normalise_context: texts.normalise_context,
    citations.split_citations: citations.split_citations,
    citations.read_marks: lambda text: citations.read_marks(text, ["a", "b", "a#1"]),
    citations.has_marks: citations.has_marks,
    citations.unread_mark: citations.unread_mark,
    answers.read: answers.read,
    answers.without_reasoning: answers.without_reasoning,
    messages.question_in: messages.question_in,
    tools.sounds_like_retrieval: tools.sounds_like_retrieval,
    prompts.question_in_prompt: lambda text: prompts.question_in_prompt(text, [text[:9], text[9:]]),
    citations.marked_citations: lambda text: citations.marked_citations(text, ["a", "b", "a#1"]),
    builtin.words: builtin.words,
    builtin.content_words: builtin.content_words,
    builtin.groundedness: lambda text: builtin.groundedness(text, [text[::-1]]),
    redact.redact: redact.redact,
    convert.answer: lambda text: convert._taken_apart({"claim": text}),
    result.text_of: lambda text: result.text_of([{"content": text}]),
    result.as_id: result.as_id,
    answers.message: lambda text: answers.message([text, text]),
    answers.messages: answers.messages,
    answers.parse: answers.parse,
    answers.is_plain: answers.is_plain,
    answers.is_representation: answers.is_representation,
    entries.document: entries.document,
    _name: _name,
    documents.as_id: documents.as_id,
    documents.finite: documents.finite,
    documents.list_in: lambda text: documents.list_in(text, written.JSON),
    documents.may_list: lambda text: documents.may_list(text, written.JSON),
    documents.parts_of: lambda text: documents.parts_of(text, written.JSON),
    documents.note_ids: lambda text: documents.note_ids(documents.Document(text), text, written.JSON),
    documents.read_document: lambda text: documents.read_document([{"text": text}, text], written.JSON),
    written.decode: written.decode,
    written.decode_container: written.decode_container,
    written.is_json: written.is_json,
    written.too_long: written.too_long,
    written.cut_off: written.cut_off,
    errors.printable: errors.printable,
    errors.printable_line: errors.printable_line,
    errors.printable_json: errors.printable_json,
    errors.shown_name: lambda text: errors.shown_name(text, ""),
    written.mapping: written.mapping,
    written.as_text: written.as_text,
    written.nonempty_text: written.nonempty_text,
    written.number: written.number,
    tools.count: tools.count,
    answers.text_of: lambda text: answers.text_of([{"content": text}]),
    tools.as_id: tools.as_id,
    written.python_value: written.python_value,
    judges.claims_prompt: judges.claims_prompt,
    judges.completion: lambda text: judges.completion(text.encode("utf-8", "replace")),
    judges.digest: judges.digest,
    judges.findings: lambda text: judges.findings(text, 1, reasons=True),
    judges.parse_claims: judges.parse_claims,
    judges.relevance: lambda text: judges.relevance(text, text, [text], reasons=True),
    is_from_cache: lambda text: is_from_cache(header(text)),
    decode: lambda text: decode(text.encode("utf-8", "surrogatepass")),
    is_export: lambda text: is_export(text.encode("utf-8", "surrogatepass")),
    _ids: _ids,
    _time: _time,
    tables.escape: tables.escape,
    RefusalRule.refuses: lambda text: RefusalRule(window=1_000_000).refuses("not " + text),
    RefusalRule.kind: lambda text: (RefusalRule(window=1_000_000).kind("not " + text), RefusalRule().kind("{" + text)),
    FactReader.read: lambda text: FactReader().read(Record(answer_json=Answer(claim=text)), ITEM),
    match_texts: lambda text: match_texts([text], BY_TEXT),
}
"""How each function is given a text. `RefusalRule.kind` looks at 120 characters unless somebody asks for more."""
FRAMES = (
    *(
        ("citations: [", "citations: [", ""),
        ("", "citations : ", ""),
        ("", "citations: [a, ", "]"),
        ("", "citations: []", ""),
    ),
    *(
        ('{"claim": "', "a\\n", '"}'),
        ('{"claim": "', "\\ud83d", '"}'),
        ('{"a":', '{"a":', ""),
        ("[", "[1],", "1]"),
        ("", '{"a":1}', ""),
    ),
    *(
        ("1", "1", ".5"),
        ("", "1e", ""),
        ("0.", "1", ""),
        ("```json\n", "```json\n{", "\n```"),
        ("```", "\n", "```"),
        ("```\n", "\n ", "x"),
    ),
    *(
        ("Document(id=", "Document(id=", ""),
        ("Document(id=", "a, ", ""),
        ("<NodeWithScore(node=a(id_=", "), score=", ""),
    ),
    *(
        ("", "[1-99]", ""),
        ("", "a[1]", "["),
        ("a", "[1]", "("),
        ("", "[1, ", ""),
        ("", "[a#1]", ""),
        ("", "[a#", ""),
        ("", "(1) ", ""),
        ("", "(1, ", ""),
        ("", "【1†", ""),
        ("", "【4:0†a】", ""),
        ("", "the cat ", ""),
        ("", "aaaaaaaaab", ""),
    ),
    *(
        ("", "ada@example.", ""),
        ("", "sk-a_", ""),
        ("", "eyJaaaaaaa.", ""),
        ("-----BEGIN A-----", "A", "\0"),
        ("", "4111 ", ""),
    ),
)
READERS = (
    *(
        texts,
        citations,
        answers,
        written,
        documents,
        builtin,
        redact,
        messages,
        prompts,
        entries,
        tools,
        judges,
        tables,
        errors,
    ),
)
"""Modules of which every public function that takes a text first is tried."""
GIVEN = {texts.look_up, texts.parse, errors.nearest, errors.warn_once, judges.judge, judges.follow, judges.suppressed}
"""Functions that take a text of the configuration or of the program itself."""
BOUNDED = {tools.documents_in, tools.returned_list}
"""Functions that read no more than a `LiteralBudget` allows."""


@pytest.mark.slow
def test_every_function_takes_time_that_grows_with_the_text():
    for function, call in FUNCTIONS.items():
        for parts in (*FRAMES, *(("", pump, "") for pump in GENERAL)):
            with ended_after(SECONDS):
                wrong = growth(call, lambda size, parts=parts: text_of(*parts, size))
            assert wrong is None, (function, parts, wrong)


def test_every_public_function_that_takes_a_text_is_tried():
    for module in READERS:
        for name, function in inspect.getmembers(module, inspect.isfunction):
            first = next(iter(inspect.signature(function).parameters.values()), None)
            takes_text = first is not None and first.annotation in ("str", "bytes", "Any", "Message")
            if (
                takes_text
                and not name.startswith("_")
                and function.__module__ == module.__name__
                and function not in GIVEN | BOUNDED
            ):
                assert function in FUNCTIONS, f"{module.__name__}.{name} reads text: name it in FUNCTIONS"


# --- the same results as the expressions that were not linear ---------------------------------------------------------

PARTS = [
    "citations",
    "Citations:",
    " : [",
    "[",
    "]",
    "a, b",
    ",",
    "\n",
    " ",
    "-",
    "```",
    "json",
    '{"claims": ["a"]}',
    "x",
    "\u017f",
]
pieced = st.lists(st.sampled_from(PARTS), max_size=12).map("".join)


@pytest.mark.slow
@given(pieced)
def test_citations_are_those_of_the_published_expression(text):
    """Seed 002 publishes it; it takes the square of a text, and is good as an oracle of short ones."""
    found = re.compile(r"citations\s*:\s*\[([^\]]*)\]", re.IGNORECASE).search(text)
    listed = None if found is None else [part for part in re.split(r"[,\s]+", found[1]) if part]
    assert citations.split_citations(text)[1] == listed
    assert seed_002._citations(text, None) == (listed or [])


@pytest.mark.slow
@given(st.sampled_from(["", " ", "\n"]), pieced, st.sampled_from(["```", "```\n", "\n```", "\n \n``` \n", ""]))
def test_a_reply_is_unfenced_as_by_an_expression(space, body, end):
    for opening in ("```json", "```", ""):
        reply = space + opening + body + end
        found = re.match(r"\s*```(?:json)?\s*\n(.*)\n\s*```\s*\Z", reply, re.DOTALL)
        wanted = reply if found is None else found[1]
        assert judges._unfenced(reply).strip() == wanted.strip() or not wanted.strip("` \njson")


@given(
    st.lists(
        st.sampled_from(["[1]", "[2-3]", "[3-2]", "[0]", "[9]", " ", "a", "[1, 2–4; 5]", "(", "^"]), max_size=8
    ).map("".join)
)
def test_marks_are_counted_in_the_order_in_which_they_come_first(claim):
    text = citations._INDEXED.sub(" ", citations._OTHER.sub(" ", claim))
    numbers = []
    for found in citations._MARKS.finditer(text):
        for first, last in citations._NUMBERS.findall(found[0]):
            a, b = int(first), int(last or first)
            numbers += range(a, b + 1) if a <= b else (a, b)
    ids = ["d1", "d2", "d3"]
    wanted = list(dict.fromkeys(ids[n - 1] if n <= 3 else f"[{n}]" for n in numbers))
    assert citations.marked_citations(claim, ids) == (
        None if 0 in numbers or not any(n <= 3 for n in numbers) else wanted
    )
