//! A line of a trace log that holds one request in the plain shape of the trace contract.
//!
//! `ragmon.ingest.decode` reads every shape; this reads one: version 1, or no version and the four fields without which
//! Python would try other names. A member that decides something and is not read here makes the line Python's.

use crate::json::{Cursor, Text};
use crate::text_facts::TextFacts;

/// Ids of a list that are read; longer lists are Python's.
pub const MOST_IDS: usize = 128;
/// Values of a list that is parallel to the ids: with more, Python would cut it and say so.
const MOST_VALUES: usize = 1000;
/// The longest latency in milliseconds (`ragmon.core.bounds.LONGEST_MS`).
const LONGEST_MS: f64 = 86_400_000.0;
/// Event times lie before it (`ragmon.core.record.LATEST`).
const LATEST: f64 = 253_402_300_800.0;

/// What a line says; the fields are those of `ragmon.core.record.Record`.
#[derive(Default)]
pub struct Line<'a> {
    /// The trace.
    pub trace_id: Option<Text<'a>>,
    /// Event time, seconds since the epoch.
    pub ts: Option<f64>,
    /// Pipeline, source, build, index and model: what a stream of records has in common.
    pub names: [Option<Text<'a>>; 5],
    /// The id of the gold question.
    pub qid: Option<Text<'a>>,
    /// The question.
    pub question: Option<Text<'a>>,
    /// The conversation.
    pub session: Option<Text<'a>>,
    /// Whether there is a list of retrieved ids.
    pub has_ids: bool,
    /// The retrieved ids.
    pub ids: Vec<&'a [u8]>,
    /// Whether there is an answer.
    pub has_answer: bool,
    /// The text of the answer.
    pub claim: Option<Text<'a>>,
    /// Whether the answer has a list of citations.
    pub has_citations: bool,
    /// The citations.
    pub citations: Vec<&'a [u8]>,
    /// What went wrong: `Some(true)` with a text, `Some(false)` with an empty one.
    pub error: Option<bool>,
    /// Whether there are latencies.
    pub has_latency: bool,
    /// Total, retrieval and generation, milliseconds.
    pub latency: [Option<f64>; 3],
    /// Whether there is a sampling decision.
    pub has_sampling: bool,
    /// It won the uniform draw.
    pub audit: bool,
    /// Its stratum; `rest` where none is named.
    pub stratum: &'a [u8],
    /// It was kept for its outcome.
    pub partial: bool,
    /// It says how the call ended without an end.
    pub ended: bool,
    /// The application's tracer kept the trace.
    pub exported: bool,
    /// The score of the first document as it stands there; empty without one.
    pub score: &'a [u8],
    /// What was decided about the texts where they were.
    pub facts: Option<TextFacts<'a>>,
}

/// Places in `Line::names`.
pub const PIPELINE: usize = 0;
/// See `PIPELINE`.
pub const SOURCE: usize = 1;
/// See `PIPELINE`.
pub const BUILD: usize = 2;
/// See `PIPELINE`.
pub const INDEX: usize = 3;
/// See `PIPELINE`.
pub const MODEL: usize = 4;

/// Members that were seen, because the last of two with one name counts, and that is Python's to say.
#[derive(Default)]
struct Seen(u32);

impl Seen {
    #[inline]
    fn first(&mut self, place: u32) -> Option<()> {
        let bit = 1 << place;
        if self.0 & bit != 0 {
            return None;
        }
        self.0 |= bit;
        Some(())
    }
}

impl<'a> Line<'a> {
    /// Forget what the last line said; the lists keep their memory.
    fn clear(&mut self) {
        let (mut ids, mut citations) = (std::mem::take(&mut self.ids), std::mem::take(&mut self.citations));
        ids.clear();
        citations.clear();
        *self = Line {
            ids,
            citations,
            audit: true,
            stratum: b"rest",
            ..Line::default()
        };
    }

    /// Read the line at the start of a text; returns where it ends, `None` where it is Python's.
    pub fn read(&mut self, text: &'a [u8]) -> Option<usize> {
        self.clear();
        let mut cursor = Cursor::new(text);
        let (mut seen, mut has_version) = (Seen::default(), false);
        let mut more = cursor.open(b'{', b'}')?;
        while more {
            let name = cursor.name()?;
            match name {
                b"v" => {
                    seen.first(0)?;
                    if !cursor.is_null()? {
                        (cursor.number()? == 1.0).then_some(())?;
                        has_version = true;
                    }
                }
                _ => self.member(name, &mut cursor, &mut seen)?,
            }
            more = cursor.more(b'}')?;
        }
        let usual = self.qid.is_some() && self.question.is_some() && self.has_ids && self.has_answer;
        cursor.end().filter(|_| has_version || usual)
    }

    /// Read one member.
    #[inline]
    fn member(&mut self, name: &[u8], cursor: &mut Cursor<'a>, seen: &mut Seen) -> Option<()> {
        match name {
            b"ts" => {
                seen.first(1)?;
                if !cursor.is_null()? {
                    self.ts = Some(cursor.number().filter(|ts| *ts < LATEST)?);
                }
            }
            b"pipeline" => self.named(PIPELINE, cursor, seen)?,
            b"source" => self.named(SOURCE, cursor, seen)?,
            b"build" => self.named(BUILD, cursor, seen)?,
            b"index_hash" => self.named(INDEX, cursor, seen)?,
            b"model" => self.named(MODEL, cursor, seen)?,
            b"qid" => {
                seen.first(7)?;
                self.qid = plain(cursor.text()?)?;
            }
            b"q" => {
                seen.first(8)?;
                self.question = cursor.escaped_text()?;
            }
            b"session" => {
                seen.first(9)?;
                self.session = plain(cursor.text()?)?;
            }
            b"retrieved_ids" => {
                seen.first(10)?;
                self.has_ids = list(cursor, &mut self.ids)?;
            }
            b"answer_json" => {
                seen.first(11)?;
                self.answer(cursor)?;
            }
            b"error" => {
                seen.first(12)?;
                self.error = match cursor.text()? {
                    Some(text) if text.escaped => return None,
                    text => text.map(|text| !text.bytes.is_empty()),
                };
            }
            b"latency_ms" => {
                seen.first(13)?;
                self.latencies(cursor)?;
            }
            b"sampling" => {
                seen.first(14)?;
                self.sampling(cursor)?;
            }
            b"partial" => {
                seen.first(15)?;
                self.partial = cursor.flag()?;
            }
            b"ended" => {
                seen.first(16)?;
                self.ended = plain(cursor.text()?)?.is_some();
            }
            b"trace_id" => {
                seen.first(17)?;
                self.trace_id = plain(cursor.text()?)?;
            }
            b"exported" => {
                seen.first(18)?;
                self.exported = cursor.optional_flag()? == Some(true);
            }
            b"scores" => {
                seen.first(19)?;
                let (count, first) = cursor.skip_numbers()?;
                if count > MOST_VALUES {
                    return None;
                }
                self.score = first;
            }
            b"facts" => {
                seen.first(20)?;
                self.facts = TextFacts::read(cursor)?;
            }
            _ => other(name, cursor)?,
        }
        Some(())
    }

    #[inline]
    fn named(&mut self, place: usize, cursor: &mut Cursor<'a>, seen: &mut Seen) -> Option<()> {
        seen.first(2 + place as u32)?;
        self.names[place] = plain(cursor.text()?)?;
        Some(())
    }

    fn answer(&mut self, cursor: &mut Cursor<'a>) -> Option<()> {
        let mut seen = Seen::default();
        let mut more = cursor.open(b'{', b'}')?;
        self.has_answer = true;
        while more {
            match cursor.name()? {
                b"claim" => {
                    seen.first(0)?;
                    self.claim = cursor.escaped_text()?;
                }
                b"citations" => {
                    seen.first(1)?;
                    self.has_citations = list(cursor, &mut self.citations)?;
                }
                _ => cursor.skip()?,
            }
            more = cursor.more(b'}')?;
        }
        Some(())
    }

    fn latencies(&mut self, cursor: &mut Cursor<'a>) -> Option<()> {
        if cursor.is_null()? {
            return Some(());
        }
        let mut seen = Seen::default();
        let mut more = cursor.open(b'{', b'}')?;
        self.has_latency = true;
        while more {
            let place = match cursor.name()? {
                b"total" => 0,
                b"retrieve" => 1,
                b"generate" => 2,
                _ => {
                    cursor.skip()?;
                    more = cursor.more(b'}')?;
                    continue;
                }
            };
            seen.first(place)?;
            if !cursor.is_null()? {
                self.latency[place as usize] = Some(cursor.number().filter(|ms| *ms <= LONGEST_MS)?);
            }
            more = cursor.more(b'}')?;
        }
        Some(())
    }

    fn sampling(&mut self, cursor: &mut Cursor<'a>) -> Option<()> {
        if cursor.is_null()? {
            return Some(());
        }
        let mut seen = Seen::default();
        let mut more = cursor.open(b'{', b'}')?;
        self.has_sampling = true;
        while more {
            match cursor.name()? {
                b"audit" => {
                    seen.first(0)?;
                    self.audit = cursor.flag()?;
                }
                b"stratum" => {
                    seen.first(1)?;
                    self.stratum = cursor.string().filter(|text| !text.escaped)?.bytes;
                }
                b"p_audit" => {
                    cursor.number().filter(|p| *p <= 1.0)?;
                }
                b"p" => {
                    cursor.number().filter(|p| *p > 0.0 && *p <= 1.0)?;
                }
                _ => cursor.skip()?,
            }
            more = cursor.more(b'}')?;
        }
        Some(())
    }
}

/// A text without escapes, or none.
#[inline]
fn plain(text: Option<Text<'_>>) -> Option<Option<Text<'_>>> {
    match text {
        Some(text) if text.escaped => None,
        text => Some(text),
    }
}

/// A list of ids without escapes; false for null.
#[inline]
fn list<'a>(cursor: &mut Cursor<'a>, ids: &mut Vec<&'a [u8]>) -> Option<bool> {
    if cursor.is_null()? {
        return Some(false);
    }
    let mut more = cursor.open(b'[', b']')?;
    while more {
        let id = cursor.string()?;
        if id.escaped || ids.len() == MOST_IDS {
            return None;
        }
        ids.push(id.bytes);
        more = cursor.more(b']')?;
    }
    Some(true)
}

/// Check a member from which nothing is counted here, or which must be null for the line to be read here.
fn other(name: &[u8], cursor: &mut Cursor<'_>) -> Option<()> {
    match name {
        b"parent_span_id" | b"user" => cursor.skip_text(),
        b"tags" => cursor.skip_texts(),
        // Another kind of line, measures, text that is measured: all of it is Python's.
        b"kind" | b"measures" | b"contexts" | b"candidate_ids" | b"verdicts" | b"matched" | b"probe"
        | b"judge_versions" => cursor.is_null()?.then_some(()),
        // Without a version these would be read in place of what is null: then the line is Python's by `usual`.
        _ => cursor.skip(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(text: &str) -> bool {
        Line::default().read(text.as_bytes()).is_some()
    }

    const USUAL: &str = "\"qid\":\"a\",\"q\":\"Why?\",\"retrieved_ids\":[\"d1\"],\"answer_json\":{\"claim\":\"so\"}";

    #[test]
    fn a_line_of_the_contract_is_read() {
        let text = format!(
            "{{\"v\":1,\"ts\":1763683200.5,\"pipeline\":\"p\",{USUAL},\"latency_ms\":{{\"total\":5}},\
             \"sampling\":{{\"audit\":false,\"stratum\":\"slow\",\"p_audit\":0.1,\"p\":1}},\"error\":null}}\r\n"
        );
        let mut line = Line::default();
        assert!(line.read(text.as_bytes()).is_some());
        assert_eq!(line.ts, Some(1763683200.5));
        assert_eq!(line.names[PIPELINE].map(|text| text.bytes), Some(&b"p"[..]));
        assert_eq!(line.ids, [b"d1"]);
        assert_eq!(line.latency, [Some(5.0), None, None]);
        assert!(!line.audit && line.stratum == b"slow");
    }

    #[test]
    fn nothing_of_a_line_is_left_in_the_next_one() {
        let (first, second) = (format!("{{{USUAL},\"error\":\"x\",\"partial\":true}}"), "{\"v\":1}");
        let mut line = Line::default();
        assert!(line.read(first.as_bytes()).is_some() && line.error == Some(true) && line.partial);
        assert!(line.read(second.as_bytes()).is_some());
        assert!(line.ids.is_empty() && line.error.is_none() && !line.partial && line.qid.is_none());
    }

    #[test]
    fn a_line_without_a_version_needs_what_every_trace_has() {
        assert!(reads(&format!("{{{USUAL}}}")));
        assert!(reads(&format!("{{\"v\":null,{USUAL}}}")));
        assert!(!reads("{\"qid\":\"a\"}"));
        assert!(reads("{\"v\":1,\"qid\":\"a\"}"));
    }

    #[test]
    fn what_decides_something_and_is_not_read_here_is_pythons() {
        for member in [
            "\"kind\":\"label\"",
            "\"facts\":{\"redacted\":[\"q\"]}",
            "\"measures\":{}",
            "\"contexts\":[]",
            "\"verdicts\":[]",
            "\"matched\":\"question\"",
            "\"v\":2",
            "\"v\":1.5",
            "\"qid\":5",
            "\"qid\":\"b\"",
            "\"ts\":-1",
            "\"ts\":\"2026\"",
            "\"partial\":null",
            "\"latency_ms\":5",
            "\"latency_ms\":{\"total\":1e9}",
            "\"tags\":{\"a\":1}",
            "\"scores\":[\"a\"]",
            "\"sampling\":{\"p\":0}",
            "\"retrieved_ids\":[1]",
        ] {
            assert!(!reads(&format!("{{{USUAL},{member}}}")), "{member}");
        }
    }
}
