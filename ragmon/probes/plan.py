"""Which probes there are, and what each asks: from the configuration, or from the command line alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from ragmon.config.services import Probe
from ragmon.config.settings import ProbeSpec, Settings
from ragmon.core.errors import RagmonError, UnknownNameError
from ragmon.core.private_files import default_folder, make_private
from ragmon.core.quota import Spent
from ragmon.delivery import identity
from ragmon.gold import GoldSet
from ragmon.privacy import probe_key
from ragmon.probes.pacing import Budget
from ragmon.probes.question import Question

NAME = "probe"
"""The name of a probe that nobody named."""


def questions(gold: GoldSet) -> list[Question]:
    """The questions of a gold set, in its order; an item without a text cannot be asked.

    Raises:
        RagmonError: It has none.
    """
    found = [item for item in gold if item.question.strip()]
    if not found:
        raise RagmonError(f"gold set {gold.name} has no question to ask", hint="items with a question: `ragmon gold`")
    return [Question(place, item.qid, item.question) for place, item in enumerate(found)]


def chosen(settings: Settings, sets: Sequence[GoldSet], *, name: str | None, target: str | None) -> list[ProbeSpec]:
    """The probes that are meant.

    Args:
        settings: The configuration.
        sets: The gold sets; where they are not those of the configuration, the first one is asked.
        name: The one that is meant; None for all.
        target: Where its questions go in place of where the configuration sends them.

    Raises:
        RagmonError: There is none, or it is not clear which one is meant.
    """
    found = [spec for spec in settings.probes if name in (None, spec.name)]
    if name is not None and not found:
        raise UnknownNameError("probe", name, [spec.name for spec in settings.probes])
    known = {gold.name for gold in sets}
    foreign = any(spec.gold not in known for spec in found)
    if len(found) > 1 and (target is not None or foreign):
        hint = f"--name, one of: {', '.join(spec.name for spec in found)}"
        raise RagmonError("the configuration has several probes, and --gold or --target is for one of them", hint=hint)
    if not found:
        found = [_named_by_nobody(settings, sets, target)]
    if foreign:
        found = [replace(spec, gold=_only(sets).name) for spec in found]
    return found if target is None else [replace(spec, target=_checked(target)) for spec in found]


def _named_by_nobody(settings: Settings, sets: Sequence[GoldSet], target: str | None) -> ProbeSpec:
    """A probe the configuration does not have."""
    if target is None:
        raise RagmonError("nothing is to be probed", hint="--gold FILE --target module:function, or [probe.NAME]")
    gold = _only(sets)
    usual = {key: value for key, value in Probe(target=_checked(target)) if key != "gold"}
    return ProbeSpec(NAME, gold.pipeline or settings.pipeline, gold.name, **usual)


def _only(sets: Sequence[GoldSet]) -> GoldSet:
    if len(sets) != 1:
        told = "no gold set" if not sets else f"{len(sets)} gold sets, and no word which one"
        raise RagmonError(f"there is {told} to ask the questions of", hint="--gold FILE")
    return sets[0]


def _checked(target: str) -> str:
    """A target that was typed.

    Raises:
        RagmonError: It is none.
    """
    from pydantic import ValidationError  # noqa: PLC0415 - for the one who mistypes

    try:
        return Probe(target=target).target
    except ValidationError as error:
        hint = "myapp.rag:answer, or https://rag.example/answer"
        raise RagmonError(f"--target is neither a function nor an address: {target!r}", hint=hint) from error


def budget_in(folder: Path, spec: ProbeSpec) -> Budget:
    """The day's budget of a probe; what was sent is counted in a server's own folder, which exists."""
    return Budget(spec.max_per_day, Spent(folder, f"probe-{_mark(spec.name)}"))


def budget_of(settings: Settings, spec: ProbeSpec) -> Budget:
    """The day's budget of a probe of this machine, whichever process sends it."""
    folder = default_folder(identity(settings))
    name = f"probe-{_mark(str(settings.path), spec.name, spec.target)}"
    return Budget(spec.max_per_day, None if folder is None else Spent(folder, name, make_private))


def _mark(*told: str) -> str:
    return sha256("|".join(told).encode()).hexdigest()[:16]


def key_of(settings: Settings, pipeline: str) -> bytes | None:
    """What proves to an application that a request is a probe; None where nothing does.

    Raises:
        RagmonError: The key cannot be read.
    """
    return probe_key(settings.of(pipeline).capture)
