"""Lines of trace logs of the weird kind: records of every shape, written in every way, and then damaged."""

from __future__ import annotations

import json
import random

NOON = 1_763_683_200.0
TEXTS = (
    "the answer is 42",
    "  The Answer: 42!\n",
    "not in context",
    "NOT IN CONTEXT ",
    "I'm sorry, I don't have enough information to answer that.",
    "I could not find that. However, as of 2021 it was 42.",
    "Dazu konnte ich leider nichts finden.",
    "Die Straße heißt „Hauptstraße“ – seit 1950…",
    "Je n’ai pas trouvé d’informations sur ce sujet.",
    "Il n'y a\u00a0rien : «\u00a0rien\u00a0»",
    "申し訳ありませんが、その情報は見つかりませんでした。",
    "資料中没有提到。",
    "e\u0301te\u0301 et naïve ①",
    "İstanbul ΣΊΣΥΦΟΣ ﬁne",
    "a\tb\u2028c\u0085d",
    "\u00a0",
    "",
    "   ",
    "x" * 130 + " sorry, no information",
    "42",
    "emoji 😀 42",
    "null\u0000char",
    "not itu but situation",
    "itu, they said",
)
"""Claims, questions, tags."""
QUESTIONS = (
    "What is it?",
    "what  is IT",
    "Was heißt das?",
    "wie geht’s",
    "Question 1?",
    "Quelle est l’année ?",
    "",
    "?!",
)
IDS = ("d1", "d2", "d3#1", "d3#2", "d4", "d5")
ODD_IDS = ("p1/é", "Ω", "x" * 140, "", "日本", 'q"uote')
STRATA = ("rest", "error", "slow", "unknown_weight", "straße")


class Mutator:
    """Makes lines, the same ones from the same seed.

    Args:
        seed: The seed.
        wild: The share of lines whose bytes are damaged.
    """

    def __init__(self, seed, wild=0.25):
        self.rng = random.Random(seed)
        self.wild = wild
        self.ts = NOON
        self._streams = [self.stream() for _ in range(8)]

    def lines(self, count):
        """So many lines, now and then a blank one among them; the last one may have no newline."""
        lines = [self.line() for _ in range(count)]
        if lines and self.rng.random() < 0.3:
            lines[-1] = lines[-1].rstrip(b"\r\n")
        if lines and self.rng.random() < 0.1:
            lines[0] = b"\xef\xbb\xbf" + lines[0]
        return lines

    def line(self):
        """One line with its newline."""
        chance = self.rng.random()
        if chance < 0.02:
            return self.rng.choice((b"\n", b" \t\r\n", b"\x0b\x0c\n"))
        data = self.written(self.record())
        if chance < 0.02 + self.wild:
            for _ in range(self.rng.randint(1, 3)):
                data = self.damaged(data)
        return data.replace(b"\n", b" ") + self.rng.choice((b"\n", b"\n", b"\n", b"\r\n", b" \n"))

    def one(self, *values):
        """One of some values; a function is called."""
        value = self.rng.choice(values)
        return value() if callable(value) else value

    def ids(self, most=6):
        rng = self.rng
        return [rng.choice(ODD_IDS if rng.random() < 0.04 else IDS) for _ in range(rng.randint(0, most))]

    def many_ids(self):
        return [
            f"m{self.rng.randint(0, 2000)}" for _ in range(self.rng.choice((64, 65, 127, 128, 129, 200, 1001, 1005)))
        ]

    def time(self):
        self.ts += self.rng.choice((0, 0.5, 1, 7, 40, 300, 4000 if self.rng.random() < 0.05 else 1))
        back = self.rng.choice((0, 0, 0, 0, 0, 5, 3895, 3905, 9000))
        return max(0.0, self.ts - back)

    def latency(self):
        usual, odd = (0, 1, 5.25, 0.1, 1234.5678, 98.7, None), (86_400_000, 86_400_000.5, 1e-7, 1e300, -1)
        number = lambda: self.rng.choice(odd if self.rng.random() < 0.02 else usual)  # noqa: E731
        return {name: number() for name in ("total", "retrieve", "generate", "other") if self.rng.random() < 0.6}

    def facts(self):
        """What was decided about texts that stayed elsewhere."""
        flags = ("answered", "refused", "refusal_like", "contains_claim", "contains_gold_claim", "grounded")
        numbers = ("question_chars", "claim_chars", "contexts", "context_chars")
        odd = {"redacted": ["q"], "cut": ["claim"], "gold_version": "1", "claim_hash": "a", "context_hashes": ["b"]}
        told = {name: self.one(True, False, None) for name in flags if self.rng.random() < 0.4}
        told |= {name: self.one(0, 12, 345) for name in numbers if self.rng.random() < 0.3}
        told |= {name: value for name, value in odd.items() if self.rng.random() < 0.05}
        if self.rng.random() < 0.2:
            told["question_hash"] = self.one("0" * 64, "ab" * 32, "", None)
        return told

    def stream(self):
        """Names that records have in common; few of them, because the first record of a stream is Python's."""
        one, rng = self.one, self.rng
        return {
            "pipeline": one(None, "support", "support", "sales"),
            "source": one(None, "live", "live", "probe", "match", "label", "replay"),
            "build": one(None, "b1", "b2", ""),
            "index_hash": one(None, "i1"),
            "model": one(None, None, lambda: f"m{rng.randint(0, 20)}", ""),
        }

    def record(self):
        """The members of a line."""
        one, rng = self.one, self.rng
        texts, odd = (lambda: rng.choice(TEXTS)), rng.random() < 0.15
        row = {
            "v": one(1, 1, 1, 1, None, "1.0", 2) if odd else one(1, 1, 1, None),
            "trace_id": one(None, "5a" * 16, lambda: f"{rng.getrandbits(128):032x}"),
            "ts": one(None, self.time, self.time, self.time),
            "qid": one(None, "a", "b", "c", "d", "e", "ü", "z", "nobody"),
            "q": one(None, lambda: rng.choice(QUESTIONS), lambda: rng.choice(QUESTIONS), texts),
            "retrieved_ids": one(None, self.ids, self.ids, self.ids, self.many_ids if odd else []),
            "answer_json": one(
                None,
                lambda: {
                    "claim": one(texts, texts, texts, None),
                    "citations": one(None, self.ids, lambda: self.ids(2)),
                },
                lambda: {"claim": texts(), "citations": self.ids(2)},
                {},
            ),
            "latency_ms": one(None, self.latency, self.latency),
            "sampling": one(
                None,
                None,
                lambda: {
                    "audit": one(True, True, False),
                    "stratum": rng.choice(STRATA),
                    "p_audit": 0.1,
                    "p": one(1, 0.5),
                },
                {},
            ),
            "session": one(None, None, lambda: f"s{rng.randint(0, 40)}", "", "sé"),
            "facts": one(None, None, None, self.facts),
            "error": one(None, None, None, None, "", "timeout"),
            "partial": one(False, False, False, True),
            "ended": one(None, None, None, "cancelled"),
            "tags": one(None, None, {"lang": "de"}, {"lang": texts()}),
            "user": one(None, "ada"),
            "scores": one(None, [0.5, -1e-3, 12], []),
            "exported": one(None, True, False),
            "parent_span_id": one(None, "00f067aa0ba902b7"),
        }
        if odd:
            row |= self.rare()
        row |= self.stream() if rng.random() < 0.02 else rng.choice(self._streams)
        if odd and rng.random() < 0.1:
            row["source"] = "wrong"
        names = [name for name in row if row[name] is not None or rng.random() < 0.2]
        if rng.random() < 0.3:
            rng.shuffle(names)
        return [(name, row[name]) for name in names]

    def rare(self):
        """Members that are Python's alone, and values of wrong types."""
        one, rng = self.one, self.rng
        rows = (
            {"contexts": [rng.choice(TEXTS), "the old harbour lies there", "a b c"]},
            {"facts": one({"refused": True}, {"answered": True, "claim_chars": 5}, {"question_hash": "0" * 64}, {})},
            {"verdicts": [True, False]},
            {"measures": one({"groundedness": 0.5}, {"answer_correct": 1})},
            {"candidate_ids": self.ids()},
            {"matched": "embedding"},
            {"probe": one(True, False)},
            {"kind": "label", "trace_id": "5a" * 16, "rater": "ada", "correct": True},
            {
                "kind": "totals",
                "ts": self.ts,
                "instance": "i",
                "started": NOON,
                "pipeline": "support",
                "source": "live",
                "calls": 5,
                "kept": 2,
            },
            {"answer": "yes [d1]", "chunks": [{"id": "d1", "text": "t", "score": 1, "metadata": {"doc": "d2"}}]},
            {"retrieved_ids": [{"id": "d9", "key": "d1"}, {"id": "d8"}]},
            {"qid": one(5, True, 1.5, [])},
            {"ts": one("2025-11-21T00:00:00Z", -1, 1e300, "x", 10**20, 253_402_300_799.5, 253_402_300_800)},
            {"retrieved_ids": one("d1", [1, "d1"], [None], {"a": 1})},
            {
                "answer_json": one(
                    "text", 5, [], {"claim": 5}, {"citations": "d1"}, {"claim": "a", "extra": [{"b": None}]}
                )
            },
            {"latency_ms": one(5, "5", {"total": "5"}, {"total": 1e400})},
            {"sampling": one({"p": 0}, {"p_audit": 2}, {"audit": None}, {"stratum": 5}, 5)},
            {"unknown": one(1, [1, 2, {"a": "b\n"}], {"deep": [[[[1]]]]}, 1.5e10, -0.0)},
            {"scores": one([0.1] * 1200, ["a"], [1e400])},
            {"user_input": "What is it?", "response": "42"},
        )
        return rng.choice(rows)

    def written(self, members):
        """Members as JSON, in one of the ways in which it may be written."""
        rng = self.rng
        ascii_only, space = rng.random() < 0.2, rng.choice(("", "", " ", "\t"))
        parts = []
        for name, value in members:
            text = json.dumps(value, ensure_ascii=ascii_only, separators=("," + space, ":" + space))
            parts.append(f"{json.dumps(name)}{space}:{space}{text}")
        if parts and rng.random() < 0.04:
            parts.append(rng.choice(parts))  # the same member twice
        return (space + "{" + f"{space},{space}".join(parts) + space + "}").encode("utf-8", "surrogatepass")

    def damaged(self, data):
        """Bytes after one damage."""
        rng = self.rng
        at = rng.randint(0, len(data))
        end = min(len(data), at + rng.randint(0, 8))
        pieces = (
            *(b"NaN", b"Infinity", b"-", b"1e999", b"0" * 30, b"9" * 400, b"1.", b".5", b"01", b"1E+2", b"-0", b"1e-7"),
            *(b"\\u0041", b"\\ud83d", b"\\ud83d\\ude00", b"\\u00e9", b"\\x", b"\\", b'\\"', b"\\/", b"\\n", b'"'),
            *(b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xf4\x90\x80\x80", b"\x00", b"\x1f", b"\x7f"),
            *(
                b"[" * 40,
                b"[" * 2000,
                b"{",
                b"}",
                b"]",
                b",",
                b":",
                b"null",
                b"true",
                b" ",
                b"\r",
                b"\x0b",
                b"\xc2\xa0",
            ),
            *(b'"q":null,', b'"v":1,', b'"qid":"a",', b'"\\u0071id":"b",', b'"kind":null,', b'"ts":1e9,', b"{}", b"[]"),
        )
        kind = rng.randint(0, 6)
        if kind == 0:
            return data[:at]
        if kind == 1:
            return data[:at] + data[end:]
        if kind == 2:
            return data[:at] + bytes([rng.randint(0, 255)]) + data[at + 1 :]
        if kind == 3:
            return data[:at] + data[at:end] + data[at:]
        if kind == 4:  # a number or a word in place of a value
            place = data.find(b":", at) + 1
            stop = min((p for p in (data.find(b",", place), data.find(b"}", place)) if p > 0), default=place)
            return data[:place] + rng.choice(pieces) + data[stop:]
        return data[:at] + rng.choice(pieces) + data[at:]
