"""How a call begins that is not plainly one of its own without a parent."""

from __future__ import annotations

from typing import Any

from ragmon.capture.baggage import asked
from ragmon.capture.calls import Call, Lost, Probing, Site, active, here
from ragmon.capture.draws import Odds, random
from ragmon.capture.parents import Parent, find
from ragmon.capture.runtime import Plan
from ragmon.core.log import warn_once, whereabouts

_PROBE = Odds(audit=True, p_audit=1.0)
_REFUSED = Odds(audit=False, p_audit=0.0, p_parent=0.0)
"""The odds of a call whose parent was not sampled, where that is respected."""


def begin(site: Site, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    """The call that begins; None where it is no call of its own, or nothing is monitored."""
    outer = active.get()
    if plan.of is None or here.lane.busy or (isinstance(outer, Call | Lost) and not outer.ended):
        return None
    parent = _parent() if plan.watch is not None and plan.watch() else None
    if parent is not None and plan.of.claim is not None:
        plan.of.claim(parent.span_id)
    probe = outer.qid if isinstance(outer, Probing) and not outer.ended else _asked(plan, parent)
    if probe is not None:
        odds = _PROBE
    elif parent is not None:
        odds = parent.odds(plan.won.p_audit, plan.threshold, respected=plan.respected) or _REFUSED
    else:
        odds = plan.lost if random() < plan.p_lost else plan.won
    call = Call(site, plan, args, kwargs, odds)
    call.parent = parent
    call.probe = probe
    call.detailed = odds.audit or plan.detail
    return call


def _asked(plan: Plan, parent: Parent | None) -> str | None:
    """The gold question that a prober elsewhere asks; None where nobody has proved that one does."""
    if parent is None or plan.probe_key is None:
        return None
    try:
        return asked(plan.probe_key, parent.trace_id)
    except Exception as error:  # noqa: BLE001 - whatever the application has put there
        warn_once(f"the baggage of a call could not be read: {whereabouts(error)}")
        return None


def _parent() -> Parent | None:
    """The span the call runs in; None where there is none, or what is there is no span after all."""
    try:
        return find()
    except Exception as error:  # noqa: BLE001 - whatever the application has put there
        warn_once(f"the span around a call could not be read: {whereabouts(error)}")
        return None
