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
