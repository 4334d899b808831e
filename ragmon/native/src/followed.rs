//! Requests that are followed one by one, as a server does: what alarms, failing requests and exemplars need of each.
//!
//! A replay needs counts alone. A server counts the same, and besides looks at every request at the time it came. What it
//! needs of a plain one is told here: which facts, in which cluster, its lengths and its latency. What counts by the
//! item, ends in an error or did not come within the time that the server keeps is Python's.

use crate::captured::may_be_hidden;
use crate::json::Text;
use crate::line::Line;
use crate::scan::text_of;

/// It won the uniform draw at a rate that is known.
const DRAWN: u64 = 1;
/// The application's tracer kept its trace.
const EXPORTED: u64 = 2;
/// Its answer cites something.
const CITES: u64 = 4;
/// Its question is known; the second text is the key of it.
const QUESTION: u64 = 8;
/// The hash of its question is known; the second text is that hash.
const QUESTION_HASH: u64 = 16;
/// Ends a text; it does not stand in UTF-8.
const END: u8 = 0xFF;

/// What is told of a request beside its stream and its facts.
#[derive(Clone, Copy, Default)]
pub struct Seen {
    line: u64,
    bits: u64,
}

/// The requests of a block that are followed; nothing where they are not.
#[derive(Default)]
pub struct Followed {
    /// Requests are followed.
    pub is_on: bool,
    /// Event times before it are Python's, seconds since the epoch.
    pub earliest: f64,
    /// Event times after it are Python's.
    pub latest: f64,
    /// Four numbers for each request: latency, score of the first document, characters of question and answer.
    pub values: Vec<f64>,
    /// Three texts for each request, each with an end: session, question, trace.
    pub texts: Vec<u8>,
    /// Four numbers for each request that is counted: line, stream, facts, bits.
    pub numbers: Vec<u64>,
    raw: Vec<u8>,
}

impl Followed {
    /// Forget the requests of the last block.
    pub fn clear(&mut self) {
        self.values.clear();
        self.texts.clear();
        self.numbers.clear();
    }

    /// Whether a request is followed here: it ended well, its time is one that is kept, and nothing of it may be hidden.
    pub fn admits(&self, line: &Line<'_>, mask: u32) -> bool {
        let in_time = line.ts.is_some_and(|ts| ts >= self.earliest && ts <= self.latest);
        in_time && line.error.is_none() && !may_be_hidden(mask)
    }

    /// Note what is told of a request; `None` where it is Python's, and then nothing is noted.
    pub fn see(&mut self, line: &Line<'_>, number: u64, is_drawn: bool, question_key: &str) -> Option<Seen> {
        let facts = line.facts.unwrap_or_default();
        let score = match line.score {
            b"" => f64::NAN,
            score => std::str::from_utf8(score).ok()?.parse().ok()?,
        };
        let lengths = [
            self.length(line.question, facts.question_chars)?,
            self.length(line.claim, facts.claim_chars)?,
        ];
        let bit = |holds: bool, bit: u64| if holds { bit } else { 0 };
        let (question, question_bits) = match (line.question, facts.question_hash) {
            (Some(_), _) => (question_key.as_bytes(), QUESTION),
            (None, Some(hash)) => (hash, QUESTION_HASH),
            (None, None) => (&b""[..], 0),
        };
        self.values
            .extend([line.latency[0].unwrap_or(f64::NAN), score, lengths[0], lengths[1]]);
        for text in [bytes_of(line.session), question, bytes_of(line.trace_id)] {
            self.texts.extend_from_slice(text);
            self.texts.push(END);
        }
        Some(Seen {
            line: number,
            bits: bit(is_drawn, DRAWN)
                | bit(line.exported, EXPORTED)
                | bit(!line.citations.is_empty(), CITES)
                | question_bits,
        })
    }

    /// The characters of a text, or how many there were where it is not there; not a number where neither is known.
    fn length(&mut self, text: Option<Text<'_>>, known: Option<u64>) -> Option<f64> {
        match text {
            Some(text) => Some(text_of(text, &mut self.raw)?.chars().count() as f64),
            None => Some(known.map_or(f64::NAN, |count| count as f64)),
        }
    }

    /// Note that a request was counted.
    pub fn count(&mut self, seen: &Seen, stream: u32, key: u32) {
        self.numbers
            .extend([seen.line, u64::from(stream), u64::from(key), seen.bits]);
    }
}

fn bytes_of<'a>(text: Option<Text<'a>>) -> &'a [u8] {
    text.map_or(b"", |text| text.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followed() -> Followed {
        Followed {
            is_on: true,
            earliest: 100.0,
            latest: 200.0,
            ..Followed::default()
        }
    }

    fn line(members: &str) -> String {
        format!("{{\"v\":1,\"sampling\":{{}},{members}}}")
    }

    fn admits(members: &str) -> bool {
        let text = line(members);
        let mut line = Line::default();
        line.read(text.as_bytes()).expect("a plain line");
        followed().admits(&line, 0)
    }

    #[test]
    fn a_request_of_another_time_or_with_an_error_is_pythons() {
        assert!(admits("\"ts\":100") && admits("\"ts\":200"));
        assert!(!admits("\"ts\":99.9") && !admits("\"ts\":200.1") && !admits("\"ts\":null"));
        assert!(!admits("\"ts\":150,\"error\":\"\"") && !admits("\"ts\":150,\"error\":\"x\""));
    }

    #[test]
    fn what_is_told_of_a_request_stands_in_columns() {
        let text = line(
            "\"session\":\"s1\",\"trace_id\":\"t1\",\"exported\":true,\"scores\":[-0.5,2],\"latency_ms\":{\"total\":7},\
             \"facts\":{\"question_hash\":\"h1\",\"claim_chars\":30},\"answer_json\":{\"citations\":[\"d1\"]}",
        );
        let (mut line, mut followed) = (Line::default(), followed());
        line.read(text.as_bytes()).expect("a plain line");
        let seen = followed.see(&line, 4, true, "").expect("a plain request");
        followed.count(&seen, 2, 5);
        assert_eq!(followed.numbers, [4, 2, 5, DRAWN | EXPORTED | CITES | QUESTION_HASH]);
        assert_eq!(followed.values[..2], [7.0, -0.5]);
        assert!(followed.values[2].is_nan());
        assert_eq!(followed.values[3], 30.0);
        assert_eq!(followed.texts, b"s1\xffh1\xfft1\xff");
    }

    #[test]
    fn a_text_is_as_long_as_its_characters() {
        let text = line("\"q\":\"Stra\u{df}e \\\"7\\\"\"");
        let (mut line, mut followed) = (Line::default(), followed());
        line.read(text.as_bytes()).expect("a plain line");
        followed.see(&line, 1, false, "strasse 7").expect("a plain request");
        assert_eq!(followed.values[2], 10.0);
        assert_eq!(followed.texts, b"\xffstrasse 7\xff\xff");
    }
}
