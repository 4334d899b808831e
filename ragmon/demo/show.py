"""The demo from start to end: traffic, incident, red gates, summary; a live table on a terminal, else plain lines.

Threads of users and probers ask the application: users an endless, seeded stream of questions in everyday wording,
probers the gold questions. Incidents are faults that real RAG systems have had.
"""

from __future__ import annotations

import json
import logging
import os
import random
import re
import shlex
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from importlib import resources
from itertools import accumulate, cycle
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from types import MappingProxyType, TracebackType
from typing import Final, Self

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ragmon.capture.trace import probe
from ragmon.config.load import load
from ragmon.core import constants
from ragmon.core.errors import RagmonError
from ragmon.core.network import Address
from ragmon.core.policy import Outcome
from ragmon.demo.app import Application, RagPipeline
from ragmon.export.schema import gate_summary
from ragmon.export.text import bounds_text, value
from ragmon.metrics.base import parse
from ragmon.monitor import install
from ragmon.monitor.embedded import Monitor
from ragmon.monitor.install import Installation

_SEED: Final = 20
_WRONG_SCALE: Final = 8.0
_SLOW_SECONDS: Final = 0.3


def index_drift(pipeline: RagPipeline) -> None:
    """Rebuild the index with half of the ids handed round; turns answer_precision and citation_hit_rate red."""
    corpus = list(pipeline.corpus)
    # A fixed seed, so that an incident looks the same in every run; no randomness for security is needed.
    drifted = random.Random(_SEED).sample(range(len(corpus)), len(corpus) // 2)  # noqa: S311
    ids = [corpus[position].id for position in drifted]
    for position, id_ in zip(drifted, ids[1:] + ids[:1], strict=True):
        corpus[position] = replace(corpus[position], id=id_)
    pipeline.rebuild(corpus)


def refusal_wave(pipeline: RagPipeline) -> None:
    """Set the score threshold as for another retriever's scale; turns over_refusal_rate red."""
    pipeline.min_score = _WRONG_SCALE


def hallucination(pipeline: RagPipeline) -> None:
    """Drop the thresholds, so that everything is answered; under_refusal_rate, answer_precision, citation_hit_rate."""
    pipeline.min_score = pipeline.min_support = 0.0


def citation_break(pipeline: RagPipeline) -> None:
    """Cite passages by the numbers of another index; citation_scope, coverage, answer_precision, citation_hit_rate."""
    pipeline.cite = _of_another_index


def latency(pipeline: RagPipeline) -> None:
    """Let every answer wait a few hundred milliseconds; turns answered_within and the p95 latency ratio red."""
    pipeline.delay = _SLOW_SECONDS


INCIDENTS: Final[Mapping[str, Callable[[RagPipeline], None]]] = MappingProxyType(
    {incident.__name__: incident for incident in (index_drift, refusal_wave, hallucination, citation_break, latency)}
)


def _of_another_index(passage_id: str) -> str:
    document, _, number = passage_id.partition("#")
    return f"{document}#{int(number) + 1000}"


_MIN_TYPO_LENGTH: Final = 6
_TYPO_SHARE: Final = 0.02
_CASUAL_SHARE: Final = 0.3
_OFF_TOPIC_WEIGHT: Final = 0.3
"""Weight of gold questions that the handbook does not answer: users ask them less often than the gold set does."""

_REWORDINGS: Final = tuple(
    (re.compile(pattern), wordings)
    for pattern, wordings in (
        (r"^What does (.{1,200}) cost(.{0,200})\?$", (r"How much is \1\2?", r"What is the price of \1\2?")),
        (r"^How much is (.+)\?$", (r"What does \1 cost?", r"What is the price of \1?")),
        (r"^How long is (the .+)\?$", (r"What is the length of \1?", r"Just how long is \1?")),
        (r"^How (?:high|tall) is (.+)\?$", (r"What is the height of \1?", r"Just how tall is \1?")),
        (r"^How heavy (?:is|are) (.+)\?$", (r"What is the weight of \1?",)),
        (r"^What colour is (.+)\?$", (r"Which colour is \1?",)),
        (r"^In which year was (.+)\?$", (r"When was \1?", r"What year was \1?")),
        (r"^When was (.+)\?$", (r"In what year was \1?", r"Which year was \1?")),
        (r"^When (does|do) (.+)\?$", (r"At what time \1 \2?", r"What time \1 \2?")),
        (r"^On which (day|evening)\b(.+)\?$", (r"Which \1\2?", r"What \1\2?")),
        (r"^How many (.+)\?$", (r"Roughly how many \1?", r"Exactly how many \1?")),
    )
)
_OPENERS: Final = (
    "",
    "",
    "",
    "Hi, ",
    "Hello! ",
    "Good morning. ",
    "Excuse me, ",
    "Quick question: ",
    "Sorry to bother you. ",
    "I was wondering: ",
    "Can you tell me: ",
    "Does anyone know? ",
)
_CLOSERS: Final = ("", "", "", "", " Thanks!", " Thank you.", " Thanks in advance.")


def load_questions() -> dict[str, float]:
    """All questions of the gold set and the extra questions without a gold answer, with their relative frequency."""
    folder = resources.files(__package__)
    gold = map(json.loads, folder.joinpath("gold.jsonl").read_text("utf-8").splitlines())
    extra = folder.joinpath("questions.txt").read_text("utf-8").splitlines()
    return {item["question"]: 1.0 if item["answerable"] else _OFF_TOPIC_WEIGHT for item in gold} | dict.fromkeys(
        extra, 1.0
    )


def user_questions(seed: int = 0, *, verbatim: float = 0.2) -> Iterator[str]:
    """An endless stream of questions as users would ask them; the same seed gives the same stream."""
    rng = random.Random(seed)  # noqa: S311 - synthetic traffic must be repeatable, not unpredictable
    popularity = load_questions()
    questions, weights = list(popularity), list(accumulate(popularity.values()))
    while True:
        (question,) = rng.choices(questions, cum_weights=weights)
        yield question if rng.random() < verbatim else reworded(question, rng)


def reworded(question: str, rng: random.Random) -> str:
    """The question in other words, sometimes with a greeting, in lower case, or with a typing error."""
    for pattern, wordings in _REWORDINGS:
        if pattern.match(question):
            question = pattern.sub(rng.choice((*wordings, r"\g<0>")), question)
            break
    if rng.random() < _TYPO_SHARE:
        question = _with_typo(question, rng)
    text = rng.choice(_OPENERS) + question + rng.choice(_CLOSERS)
    return text.lower().replace("?", "") if rng.random() < _CASUAL_SHARE else text


def _with_typo(question: str, rng: random.Random) -> str:
    """The question with two adjacent letters swapped inside one of its longer words."""
    tokens = question.split(" ")
    position = rng.choice([position for position, word in enumerate(tokens) if len(word) >= _MIN_TYPO_LENGTH] or [0])
    word, index = tokens[position], rng.randrange(1, max(2, len(tokens[position]) - 2))
    tokens[position] = word[:index] + word[index : index + 2][::-1] + word[index + 2 :]
    return " ".join(tokens)


# Many users with a low rate each: the request rate stays up when answers become slow, as with real users.
USERS: Final = 16
USER_RATE: Final = 2.0
"""Questions a second of each user."""
PROBERS: Final = 16
PROBE_RATE: Final = 2.5
"""Gold questions a second of each prober."""
PLANNED_RATE: Final = USERS * USER_RATE + PROBERS * PROBE_RATE
"""Calls a second of all of them together."""

Question = tuple[Callable[[str], object], str]
"""The function to call, and the question."""


class Load:
    """Concurrent users and probers."""

    def __init__(self, application: Application, seed: int = 0) -> None:
        self._application = application
        self._stop = Event()
        gold = gold_questions()
        users = [Thread(target=self._users, args=(seed + user,), name=f"user-{user}") for user in range(USERS)]
        probers = [
            Thread(target=self._probes, args=(prober, gold[prober::PROBERS]), name=f"prober-{prober}")
            for prober in range(PROBERS)
        ]
        self._threads = [*users, *probers]

    def start(self) -> None:
        """Start all threads."""
        for thread in self._threads:
            thread.daemon = True
            thread.start()

    def stop(self) -> None:
        """Stop all threads, and wait for the requests in progress."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _users(self, seed: int) -> None:
        self._ask(((self._application.ask, question) for question in user_questions(seed)), USER_RATE, seed)

    def _probes(self, prober: int, gold: list[tuple[str, str]]) -> None:
        # Shuffled, so that any part of a sweep is a random sample of the set, not a section of the file.
        random.Random(prober).shuffle(gold)  # noqa: S311 - repeatable, not secret
        self._ask(((self._probe(qid), question) for qid, question in cycle(gold)), PROBE_RATE, -prober - 1)

    def _probe(self, qid: str) -> Callable[[str], object]:
        def ask(question: str) -> object:
            with probe(qid):
                return self._application.ask(question)

        return ask

    def _ask(self, questions: Iterator[Question], rate: float, seed: int) -> None:
        """Call at random times (Poisson), `rate` times a second on average, or less often if answers take longer."""
        rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
        due = monotonic()
        for ask, question in questions:
            due = max(due + rng.expovariate(rate), monotonic())
            if self._stop.wait(due - monotonic()):
                return
            ask(question)


def gold_questions() -> list[tuple[str, str]]:
    """The id and the text of every gold question."""
    lines = resources.files(__package__).joinpath("gold.jsonl").read_text("utf-8").splitlines()
    return [(item["qid"], item["question"]) for item in map(json.loads, lines)]


WIDE: Final = 80
"""Columns of a terminal that fits all columns of the table."""
_STYLES: Final = {"pass": "bold green", "fail": "bold white on red", "insufficient": "yellow"}


class LiveScreen:
    """A table that is redrawn on every update."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, seconds: float, headline: str, outcomes: Sequence[Outcome]) -> None:
        """Draw the table."""
        wide = self._live.console.width >= WIDE
        self._live.update(Group(Text(f"\n{seconds:4.0f} s  {headline}"), table(outcomes, wide=wide)), refresh=True)

    def say(self, text: str) -> None:
        """Print above the table."""
        self._live.console.print(text, highlight=False, markup=False)


class PlainScreen:
    """One line per gate, its name, value and verdict: all gates under a new headline, then those that change."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._headline = ""
        self._verdicts: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def show(self, seconds: float, headline: str, outcomes: Sequence[Outcome]) -> None:
        """Print the lines that have changed."""
        if headline != self._headline:
            self._headline, self._verdicts = headline, {}
            self.say(f"-- {seconds:.0f} s  {headline}")
        for outcome in outcomes:
            name = outcome.gate.name
            if self._verdicts.get(name) != outcome.verdict:
                self.say(f"{name} {value(gate_summary(outcome))} {outcome.verdict}")
            self._verdicts[name] = outcome.verdict

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


Screen = LiveScreen | PlainScreen


def open_screen(console: Console) -> Screen:
    """A live table on a terminal that can move its cursor, else plain lines; FORCE_COLOR has no effect on this."""
    return LiveScreen(console) if console.file.isatty() and not console.is_dumb_terminal else PlainScreen(console)


def table(outcomes: Sequence[Outcome], *, wide: bool = True) -> Table:
    """The gates with value and verdict."""
    rendered = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    rendered.add_column("gate", no_wrap=True)
    rendered.add_column("value", justify="right", no_wrap=True)
    if wide:
        for column in ("95 % interval", "needs", "n", "source"):
            rendered.add_column(column, justify="left" if column == "source" else "right", no_wrap=True)
    rendered.add_column("verdict", no_wrap=True)
    for outcome in outcomes:
        details = (bounds_text(outcome.lower, outcome.upper), needs(outcome), str(outcome.n), outcome.source)
        verdict = Text(outcome.verdict, style=_STYLES[outcome.verdict])
        rendered.add_row(outcome.gate.name, value(gate_summary(outcome)), *(details if wide else ()), verdict)
    return rendered


def needs(outcome: Outcome) -> str:
    """The direction and the threshold of the gate."""
    return f"{'≥' if outcome.gate.at_least else '≤'} {outcome.gate.threshold:g}"


HEALTHY: Final = 15.0
"""Seconds of healthy traffic before the incident; longer until every gate has passed."""
PATIENCE: Final = 60.0
"""Seconds after which a busy machine is waited for no longer: before the incident, and after it for a red gate."""
_FRAME: Final = 0.5
"""Seconds between two looks at the gates."""
CONFIG: Final = Path(str(resources.files(__package__))) / "ragmon.toml"


class Story:
    """A run: healthy traffic, an incident, red gates. Times are seconds since its start."""

    def __init__(self, screen: Screen, monitor: Monitor, pipeline: RagPipeline, incident: str) -> None:
        self._screen = screen
        self._monitor = monitor
        self._pipeline = pipeline
        self._incident = incident
        self._began = monotonic()
        self._broken: float | None = None
        self._reds: dict[str, float] = {}
        self._pages: set[str] = set()

    def introduce(self) -> None:
        """Say what there is to see, in four lines."""
        self._screen.say("A small RAG pipeline answers users, and probes: questions whose answers are known.")
        self._screen.say("ragmon captures every call, scores it and judges the gates, live.")
        traffic = (
            f"{PLANNED_RATE:g} questions a second, and gates over the last {self._monitor.settings.gates()[0].window}"
        )
        self._screen.say(f"Seconds show what else takes minutes: {traffic}.")
        self._screen.say(f"Page: http://{self._monitor.address}/  Ctrl-C ends the demo.")

    def go_on(self) -> None:
        """Show the gates, say what has turned red, and let the incident happen when all gates have passed."""
        now = monotonic() - self._began
        outcomes = self._monitor.outcomes()
        has_passed = all(outcome.verdict == "pass" for outcome in outcomes)
        if self._broken is None and now >= HEALTHY and (has_passed or now >= PATIENCE):
            incident = INCIDENTS[self._incident]
            incident(self._pipeline)
            self._broken = now
            self._screen.say(f"{now:.1f} s  INCIDENT {self._incident}: {_first_line(incident)}")
        for outcome in outcomes:
            if outcome.verdict == "fail" and outcome.gate.name not in self._reds:
                self._reds[outcome.gate.name] = now
                self._screen.say(f"{now:.1f} s  RED {_failed(outcome)}")
        for edge in self._monitor.transitions():
            if (edge.severity, edge.state) == (constants.PAGE, "firing") and edge.alert not in self._pages:
                self._pages.add(edge.alert)
                self._screen.say(f"{now:.1f} s  PAGE {edge.alert}: proven within the budget of false alarms")
        headline = "healthy" if self._broken is None else f"broken by {self._incident}, Ctrl-C ends it"
        self._screen.show(now, headline, outcomes)

    def is_over(self, seconds: float) -> bool:
        """Whether it has lasted so many seconds, and has shown a red gate or waited for one."""
        now = monotonic() - self._began
        return now >= seconds and self._broken is not None and (bool(self._reds) or now >= self._broken + PATIENCE)

    def verdict(self) -> str:
        """What the incident turned red, and when."""
        if self._broken is None:
            return "Stopped before the incident."
        reds = [f"{name} after {seconds - self._broken:.1f} s" for name, seconds in self._reds.items()]
        found = ", ".join(reds) or "no gate. Try again when this machine is less busy"
        return f"{self._incident} at {self._broken:.1f} s turned red: {found}."


def _failed(outcome: Outcome) -> str:
    """A failed gate: name, value, interval, threshold, and what is broken."""
    interval = "" if outcome.lower is None else f" (95 % interval {bounds_text(outcome.lower, outcome.upper)})"
    is_share = outcome.gate.kind == "threshold"
    broken = _first_line(parse(outcome.gate.metric)) if is_share else outcome.reason
    return f"{outcome.gate.name}: {value(gate_summary(outcome))}{interval}, needs {needs(outcome)}: {broken}"


def _first_line(documented: object) -> str:
    return (documented.__doc__ or "").strip().partition("\n")[0]


def run(seconds: float, incident: str, *, port: int | None, console: Console) -> None:
    """Run the demo until Ctrl-C."""
    application = Application()
    log = Path(tempfile.mkdtemp(prefix="ragmon-demo-")) / "trace.jsonl"
    alarm_log = logging.getLogger(constants.ALARM_LOG)
    with ExitStack() as stack:
        stack.callback(alarm_log.setLevel, alarm_log.level)
        alarm_log.setLevel(logging.CRITICAL)  # the screen shows the alarms
        installed, monitor = _install(log, port)
        stack.callback(installed.shutdown)
        screen = open_screen(console)
        stack.enter_context(screen)
        story = Story(screen, monitor, application.pipeline, incident)
        story.introduce()
        traffic = Load(application)
        traffic.start()
        stack.callback(traffic.stop)
        frame = Event()
        with suppress(KeyboardInterrupt):
            while not story.is_over(seconds):
                story.go_on()
                frame.wait(_FRAME)
    for line in ["", story.verdict(), *_summary(installed, monitor, log)]:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _install(log: Path, port: int | None) -> tuple[Installation, Monitor]:
    """Start capture and the monitor, with the demo's configuration; the environment is ignored."""
    loaded = load(CONFIG, environ={})
    admin = loaded.serve.admin
    if port is None:
        try:
            socket.create_server((admin.host, admin.port)).close()
        except OSError:
            port = 0
    settings = replace(
        loaded,
        export=loaded.export.model_copy(update={"jsonl": log}),
        serve=loaded.serve.model_copy(update={"admin": Address(admin.host, admin.port if port is None else port)}),
    )
    try:
        installed = install.install(settings, strict=True)
    except RagmonError as error:
        shutil.rmtree(log.parent)
        raise RagmonError(str(error), hint="give another --port, or none") from error
    assert installed.monitor is not None  # noqa: S101 - no sink was given
    return installed, installed.monitor


def _summary(installed: Installation, monitor: Monitor, log: Path) -> list[str]:
    """The counts, the path of the trace log, and commands to try next."""
    counters = installed.counters()
    config = str(CONFIG)
    return [
        f"{counters.received} calls captured, {counters.scored} scored, {sum(counters.dropped.values())} lost.",
        f"digest {monitor.digest()[:16]}",
        f"Trace log: {log}",
        "The same counts from the log, hence the same digest:",
        f"  {_command('replay', str(log), '--config', config, '--format', 'md', '--questions', '0')}",
        "The same gates on the whole log, as CI would judge it (exit code 1 is a failed gate):",
        f"  {_command('gate', str(log), '--config', config)}",
    ]


def _command(*arguments: str) -> str:
    """A command line for the ragmon that is running, as the user can type it."""
    script = Path(sys.executable).with_name("ragmon")
    on_path = shutil.which("ragmon")
    if on_path is not None and script.exists() and Path(on_path).samefile(script):
        program = ["ragmon"]
    elif script.exists():
        program = [os.path.relpath(script) if script.is_relative_to(Path.cwd()) else str(script)]
    else:
        program = [sys.executable, "-m", "ragmon"]
    return shlex.join([*program, *arguments])
