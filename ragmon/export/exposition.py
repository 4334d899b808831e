"""The body of `/metrics`: what prometheus_client writes, byte for byte, without writing every label again each time.

A series keeps its labels from one scrape to the next, and only its number is another one. So the client writes the line
of a series once; later scrapes take the part before the number from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import ClassVar, Final

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector as MetricCollector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from ragmon.core.series_names import Family

END: Final = "# EOF\n"
"""The last line of OpenMetrics."""
FORMATS: Final = 4
"""Formats in which pages are kept."""
Encoder = Callable[[MetricCollector], bytes]
_format: Final[Callable[[float], str]] = floatToGoString
_formatted: Final = lru_cache(1 << 16)(_format)


@cache
def _checked_name(family: str, kind: str, ending: str) -> str:
    """The name of a declared family without its ending, checked by prometheus_client."""
    name: str = Metric(family.removesuffix(ending), "", kind).name
    return name


def _number(value: float) -> str:
    """A number as prometheus_client writes it; most are on one page after the other."""
    # The cache cannot tell the two zeros apart.
    return _formatted(value) if value else _format(value)


class RowFamily(Metric):
    """A family whose samples are kept as label values and numbers: a page has many thousands.

    `Sample` objects are made only for who asks for them, such as a registry of prometheus_client.

    Args:
        family: What is declared of it.
        value: The number of its one sample, if it has no labels.

    Attributes:
        label_values: The label values of each sample.
        values: The number of each sample.
    """

    kind: ClassVar[str]
    ending: ClassVar[str] = ""

    def __init__(self, family: Family, value: float | None = None) -> None:
        self.label_values: list[tuple[str, ...]] = []
        self.values: list[float] = []
        self._labels = tuple(family.labels)
        # What the constructor of `Metric` sets, after it has checked the name: a page has hundreds of families.
        self.name, self.unit = _checked_name(family, self.kind, self.ending), ""
        self.documentation, self.type = family.text, self.kind
        if value is not None:
            self.add_metric((), value)

    def add_metric(self, labels: Iterable[str], value: float) -> None:
        """Add a sample.

        Args:
            labels: The values of its labels.
            value: Its number.
        """
        self.label_values.append(tuple(labels))
        self.values.append(value)

    @property
    def samples(self) -> list[Sample]:
        """The samples as prometheus_client has them."""
        return list(map(self.sample, self.label_values, self.values))

    @samples.setter
    def samples(self, _: list[Sample]) -> None:
        """Nothing: samples are made of the rows."""

    def sample(self, labels: Sequence[str], value: float) -> Sample:
        """A sample as prometheus_client has it."""
        return Sample(self.name + self.ending, dict(zip(self._labels, labels, strict=True)), value)


class GaugeRows(RowFamily):
    """The samples of a gauge."""

    kind = "gauge"


class CounterRows(RowFamily):
    """The samples of a counter."""

    kind = "counter"
    ending = "_total"


def size(family: Metric) -> int:
    """How many samples a family has."""
    return len(family.values if isinstance(family, RowFamily) else family.samples)


class _Families(MetricCollector):
    """Some families as the encoders of prometheus_client take them.

    Args:
        families: The families.
    """

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """The families."""
        return self._families


_Prefixes = dict[tuple[str, ...], str]
"""What is written before the number, by label values."""


class ExpositionWriter:
    """Writes families in one format.

    Args:
        encode: The encoder of prometheus_client for the format.
    """

    def __init__(self, encode: Encoder) -> None:
        self._encode = encode
        self._end = encode(_Families(())).decode()  # OpenMetrics has a last line
        self._headers: dict[tuple[str, str], str] = {}
        self._prefixes: dict[str, _Prefixes] = {}

    def write(self, families: Iterable[Metric]) -> bytes:
        """The families as text."""
        return "".join([*self._parts(families), self._end]).encode()

    def _parts(self, families: Iterable[Metric]) -> Iterator[str]:
        known, self._prefixes = self._prefixes, {}
        for family in families:
            yield self._header(family)
            before = known.get(family.name, {})
            yield from self._rows(family, before) if isinstance(family, RowFamily) else self._histogram(family, before)

    def _rows(self, family: RowFamily, known: _Prefixes) -> Iterator[str]:
        """The lines of a family that has rows."""
        prefixes = [known.get(labels, "") for labels in family.label_values]
        if new := [place for place, prefix in enumerate(prefixes) if not prefix]:
            text = self._samples(family, [family.sample(family.label_values[place], 0.0) for place in new])
            for place, line in zip(new, text.removesuffix("\n").split("\n"), strict=True):
                prefixes[place] = _before_number(line)
        # Nearly always the same series are there again, and their labels need not be hashed once more.
        is_same = not new and len(known) == len(prefixes)
        self._prefixes[family.name] = known if is_same else dict(zip(family.label_values, prefixes, strict=True))
        rows = zip(prefixes, family.values, strict=True)
        yield "".join([f"{prefix}{_number(value)}\n" for prefix, value in rows])

    def _histogram(self, family: Metric, known: _Prefixes) -> Iterator[str]:
        """The lines of a family of samples, some of which may have an exemplar."""
        prefixes = self._prefixes[family.name] = _Prefixes()
        for sample in family.samples:
            if sample.exemplar is not None:
                yield self._samples(family, (sample,))
                continue
            series = (sample.name, *sample.labels.values())
            prefix = known.get(series) or _before_number(self._samples(family, (sample,)))
            prefixes[series] = prefix
            yield f"{prefix}{_number(sample.value)}\n"

    def _header(self, family: Metric) -> str:
        """The lines before the samples of a family."""
        key = (family.name, family.documentation)
        header = self._headers.get(key)
        if header is None:
            header = self._headers[key] = self._text(family, ())
        return header

    def _samples(self, family: Metric, samples: Sequence[Sample]) -> str:
        """The lines of samples."""
        return self._text(family, samples).removeprefix(self._header(family))

    def _text(self, family: Metric, samples: Sequence[Sample]) -> str:
        part = Metric(family.name, family.documentation, family.type, family.unit)
        part.samples = list(samples)
        return self._encode(_Families((part,))).decode().removesuffix(self._end)


def _before_number(line: str) -> str:
    return line[: line.rindex(" ") + 1]


class Exposition:
    """The body of `/metrics`, written again only when the data changed since the last scrape in the same format.

    Args:
        read: The families at this moment.
        moment: The version of the data.
    """

    def __init__(self, read: Callable[[], Iterable[Metric]], moment: Callable[[], object]) -> None:
        self._read = read
        self._moment = moment
        self._cached: dict[str, tuple[object, bytes]] = {}
        self._writers: dict[str, ExpositionWriter] = {}

    def page(self, accept: str) -> tuple[bytes, str]:
        """The series of the current snapshot, and their content type.

        Args:
            accept: The Accept header; without one, the oldest format is used.
        """
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # a malformed version in the header
            encode, content_type = choose_encoder("")
        moment = self._moment()
        cached = self._cached.get(content_type)
        if cached is None or cached[0] != moment:
            if cached is None and len(self._cached) >= FORMATS:  # the header may name any version
                self._cached.clear()
                self._writers.clear()
            writer = self._writers.setdefault(content_type, ExpositionWriter(encode))
            cached = self._cached[content_type] = (moment, writer.write(self._read()))
        return cached[1], content_type
