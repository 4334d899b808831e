"""What a call's arguments and result say: the question, the claim, the citations, the documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import Parameter
from typing import Any, Final

from ragmon.capture.calls import Site
from ragmon.capture.documents import as_id, ids_of, is_listed
from ragmon.core.paths import Path, look_up, member
from ragmon.core.record import Answer
from ragmon.core.text import clean, split_citations

_QUESTION: Final = ("question", "query", "q")
_ANSWER: Final = ("answer_json", "answer")
_CLAIM: Final = ("claim", "answer", "response", "result", "output", "text", "content")
_IDS: Final = ("retrieved", "retrieved_ids")
_DOCUMENTS: Final = ("documents", "source_documents", "source_nodes", "chunks", "contexts", "context")
_CANDIDATES: Final = ("candidates", "candidate_ids")
_NESTED: Final = 3
"""How deep an answer may lie: a message in a field of a result."""


def question(site: Site, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The question a call was asked, by the decorator's `question=` or by the usual names; None where there is none.

    Raises:
        Exception: Whatever a callable `question=` raises.
    """
    if callable(site.question):
        return site.question(*args, **kwargs)
    if site.question is not None:
        return look_up(arguments(site, args, kwargs), site.question)
    given = arguments(site, args, kwargs, defaults=False)
    named = next((given[name] for name in _QUESTION if isinstance(given.get(name), str)), None)
    if named is not None:
        return named
    given = arguments(site, args, kwargs)
    texts = {name: value for name, value in given.items() if isinstance(value, str)}
    named = next((texts[name] for name in _QUESTION if name in texts), None)
    defaults = set(given) - set(arguments(site, args, kwargs, defaults=False))
    return named if named is not None else next((texts[name] for name in texts if name not in defaults), None)


def arguments(site: Site, args: Sequence[Any], kwargs: Mapping[str, Any], *, defaults: bool = True) -> dict[str, Any]:
    """The arguments of a call by parameter; those a catch-all took stand under their own names and places.

    Args:
        site: The function.
        args: By place.
        kwargs: By name.
        defaults: Name those as well that nobody gave.
    """
    places = None if defaults else site.places
    if places is not None and len(args) <= len(places):
        triples = zip(places, args, site.defaults, strict=False)
        # A wrapper with the function's own parameters passes defaults on as if they had been given.
        return {**{name: value for name, value, default in triples if value is not default}, **kwargs}
    try:
        bound = site.signature.bind_partial(*args, **kwargs) if site.signature is not None else None
    except TypeError:  # a call that does not fit has raised already, for the caller to see
        bound = None
    if bound is None:
        return {**{str(place): value for place, value in enumerate(args)}, **kwargs}
    if defaults:
        bound.apply_defaults()
    given = {}
    for name, value in bound.arguments.items():
        parameter = bound.signature.parameters[name]
        if not defaults and value is parameter.default:
            continue
        kind = parameter.kind
        if kind is Parameter.VAR_POSITIONAL:
            given.update({f"{name}[{place}]": entry for place, entry in enumerate(value)})
        elif kind is Parameter.VAR_KEYWORD:
            given.update(value)
        else:
            given[name] = value
    return given


def extract(result: Any, site: Site) -> dict[str, Any]:
    """What a result says, by field of `ragmon.record`; documents that came without an id list stand under `documents`.

    Args:
        result: Anything a pipeline returns: text, mappings, dataclasses, pydantic models, framework responses.
        site: The decorator's `extract=`.

    Raises:
        Exception: Whatever a callable `extract=` or a property of the result raises.
    """
    if callable(site.extract):
        return dict(site.extract(result))
    if site.extract is not None:
        return {field: look_up(result, path) for field, path in site.extract.items()}
    if isinstance(result, str):
        return {"claim": result}
    inner = next((held for name in _ANSWER if _has_parts(held := member(result, name))), result)
    citations = member(inner, "citations")
    documents = _first(result, _DOCUMENTS)
    said = {
        "claim": _first(inner, _CLAIM),
        "citations": citations if citations is not None else member(result, "citations"),
        "retrieved": _first(result, _IDS),
        "documents": documents if documents is not None else look_up(result, ("retrieval", "topk")),
        "candidates": _first(result, _CANDIDATES),
        **{name: as_id(member(result, name)) for name in ("qid", "index_hash", "build", "session")},
    }
    return {field: value for field, value in said.items() if value is not None}


def _has_parts(value: Any) -> bool:
    """Whether an answer is an object with members, not a text."""
    return value is not None and not isinstance(value, str | int | float | list | tuple)


def _first(value: Any, wanted: Sequence[str]) -> Any:
    for name in wanted:
        found = member(value, name)
        if found is not None:
            return found
    return None


def answer(said: Mapping[str, Any], id_from: Path | None) -> Answer:
    """The answer among what was said; citations written into its text are taken out of it where no others are known.

    Args:
        said: Fields of `ragmon.record`.
        id_from: Path from a citation that is an object to the document's id.
    """
    citations = said.get("citations")
    claim = text_of(said.get("claim"))
    if claim is not None and citations is None:
        claim, written = split_citations(claim)
        return Answer(claim=claim, citations=written)
    if is_listed(citations) or isinstance(citations, set | frozenset):
        return Answer(claim=claim, citations=ids_of(citations, id_from))
    return Answer(claim=claim)


def text_of(found: Any, depth: int = _NESTED) -> str | None:
    """The text of an answer or a question: itself, a number written out, or what a message or its parts hold."""
    if isinstance(found, str):
        return clean(found)
    if found is None or isinstance(found, bool) or not depth:
        return None
    if isinstance(found, int | float):
        return str(found)
    if isinstance(found, list | tuple):
        texts = [text_of(part, depth - 1) for part in found]
        return "".join(text for text in texts if text is not None) if any(text is not None for text in texts) else None
    return text_of(_first(found, _CLAIM), depth - 1)
