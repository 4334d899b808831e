"""Cases of the alerts on requests, and on what metrics rest on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ragmon.alerting import assessed, counted
from ragmon.alerting.cases.case import TARGET, Case, scraped
from ragmon.config.settings import Settings
from ragmon.core import constants, series_names
from ragmon.core.series_names import label
from ragmon.export.traffic import LATENCY_BOUNDS

_UP: Final = {scraped("up"): "1x600"}


def cases(settings: Settings) -> list[Case]:
    """Those of the first pipeline: every other has the same alerts."""
    one = next(iter(settings.pipelines.values()))
    found = [*_errors(one.name), *_empty(one.name), *_unassessed(settings), *_gold(settings)]
    bound = one.metrics.answered_within
    if bound is not None and bound < LATENCY_BOUNDS[-1]:
        found += _slow(one.name, float(bound))
    return found


def _ticket(pipeline: str, **more: str) -> list[Mapping[str, str]]:
    return [{"pipeline": label(pipeline), "severity": "ticket", **more}]


def _slow(pipeline: str, bound: float) -> Iterator[Case]:
    """Nine of ten calls take long, or none does."""
    for share, fires in ((0.9, _ticket(pipeline)), (0.0, [])):
        series = {}
        for limit in (*map(str, map(float, LATENCY_BOUNDS)), "+Inf"):
            slow = limit == "+Inf" or float(limit) >= LATENCY_BOUNDS[-1]
            grows = 60 if slow or (float(limit) >= bound and share == 0) else 60 * (1 - share)
            labels = {"pipeline": label(pipeline), "source": constants.LIVE, "le": limit}
            series[scraped(f"{series_names.LATENCY}_bucket", **labels)] = f"0+{grows:g}x30"
        quick = {key: values if share else values.replace("0+60", "0+60") for key, values in series.items()}
        yield Case("RagmonLatencyP95", f"{share:.0%} of the calls take longer than {bound:g} s", quick, "20m", fires)


def _errors(pipeline: str) -> Iterator[Case]:
    """Half of the calls fail; one in a hundred; half of very few."""
    for share, calls, fires in ((0.5, 60.0, _ticket(pipeline)), (0.01, 60.0, []), (0.5, 0.2, [])):
        here = {"pipeline": label(pipeline)}
        series = {
            scraped(series_names.ERRORS, **here, code="TimeoutError"): f"0+{calls * share:g}x30",
            scraped(series_names.REQUESTS, **here, source=constants.LIVE, stratum="error"): f"0+{calls * share:g}x30",
            scraped(
                series_names.REQUESTS, **here, source=constants.LIVE, stratum="rest"
            ): f"0+{calls * (1 - share):g}x30",
        }
        yield Case("RagmonErrors", f"{share:.0%} of {calls:g} calls a minute fail", series, "20m", fires)


def _empty(pipeline: str) -> Iterator[Case]:
    for share, calls, fires in ((0.5, 60.0, _ticket(pipeline)), (0.01, 60.0, []), (0.5, 0.2, [])):
        here = {"pipeline": label(pipeline), "source": constants.LIVE}
        series = {
            scraped(f"{series_names.DOCUMENTS}_bucket", **here, le="0.0"): f"0+{calls * share:g}x30",
            scraped(f"{series_names.DOCUMENTS}_count", **here): f"0+{calls:g}x30",
        }
        say = f"{share:.0%} of {calls:g} retrievals a minute bring nothing"
        yield Case("RagmonEmptyRetrieval", say, series, "20m", fires)


def _unassessed(settings: Settings) -> Iterator[Case]:
    gate = next(iter(counted.shares(settings)), None)
    if gate is None:
        return
    whose = scraped_scored(gate.metric)
    fires = [{"metric": gate.metric, "severity": "ticket"}]
    for reason, share, labels in (
        (constants.NO_TEXT, 0.2, fires),
        (constants.NO_TEXT, 0.01, []),
        (assessed.EXPECTED[0], 0.2, []),
    ):
        unknown = scraped(series_names.UNASSESSED, metric=gate.metric, reason=reason)
        series = {whose: f"0+{60 * (1 - share):g}x120", unknown: f"0+{60 * share:g}x120"}
        yield Case("RagmonTooManyUnassessed", f"{share:.0%} for the reason {reason}", series, "90m", labels)
    none = {scraped(series_names.UNASSESSED, metric=gate.metric, reason=constants.NO_TEXT): "0+1x120"}
    yield Case("RagmonTooManyUnassessed", "nothing at all is assessed", none, "90m", fires)


def scraped_scored(metric: str) -> str:
    """How many requests a metric scored, as it is after a scrape."""
    ((_, series),) = counted.scored_by([metric]).items()
    name, _, cut = series.partition("{")
    k = {"k": cut.removeprefix('k="').removesuffix('"}')} if cut else {}
    return scraped(name, **k)


def _gold(settings: Settings) -> Iterator[Case]:
    gate = next((gate for gate in counted.shares(settings) if gate.source == constants.PROBE), None)
    if gate is None:
        return
    minutes = int(assessed.span(settings, gate)[:-1])
    where = ",".join(f'{key}="{value}"' for key, value in TARGET.items())
    counter = counted.scored(gate).replace('gold!=""', 'gold="any"')[:-1] + f",{where}}}"
    fires = _ticket(gate.pipeline, gold=label(gate.gold or ""))
    among = {"pipeline": label(gate.pipeline), "gold": label(gate.gold or "")}
    long = 3 * minutes
    stood = {**_UP, scraped("up"): f"1x{long}", counter: f"0+5x30 150x{long}"}
    yield Case("RagmonGoldStale", "probes stopped", stood, f"{2 * minutes + 60}m", fires, among)
    never = {scraped("up"): f"1x{long}"}
    yield Case("RagmonGoldStale", "nobody ever probed", never, f"{minutes + 30}m", fires, among)
    asked = {scraped("up"): f"1x{long}", counter: f"0+5x{long}"}
    yield Case("RagmonGoldStale", "probes go on", asked, f"{2 * minutes + 60}m", among=among)
    new = {scraped("up"): f"1x{long}", counter: f"_x5 360x{long}"}
    yield Case("RagmonGoldStale", "a first round is over, the second is not yet due", new, f"{minutes}m", among=among)
