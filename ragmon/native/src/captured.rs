//! What was captured of each record: the bits of what it lacks (`ragmon.scoring.captured`).

use crate::facts::{IDS, REFUSAL_LIKE, SHIPPED};
use crate::hash::Map;
use crate::line::Line;
use crate::text_facts::TextFacts;

const NO_QUESTION: u32 = 1 << 0;
const NO_ANSWER: u32 = 1 << 1;
const NO_IDS: u32 = 1 << 2;
const NO_CONTEXTS: u32 = 1 << 3;
const NO_CITATIONS: u32 = 1 << 4;
/// There is no gold item.
pub const NO_GOLD: u32 = 1 << 5;
const NO_SESSION: u32 = 1 << 6;
const NO_LATENCY: u32 = 1 << 8;
const WITHHELD_QUESTION: u32 = 1 << 9;
const WITHHELD_ANSWER: u32 = 1 << 10;
const WITHHELD_CONTEXTS: u32 = 1 << 11;
const UNFINISHED: u32 = 1 << 12;
const NOT_SHIPPED: u32 = 1 << 13;
const NOT_DECORATED: u32 = 1 << 14;
/// A retrieved id occurs in gold.
pub const IN_GOLD: u32 = 1 << 15;
/// None does.
pub const NOT_IN_GOLD: u32 = 1 << 16;
const UNCOUNTED_REFUSAL: u32 = 1 << 17;

/// Examples of ids that are kept.
const EXAMPLES: usize = 3;
/// Characters of an example.
const LONGEST_ID: usize = 128;

/// The bits that follow from the line alone.
pub fn lacks(line: &Line<'_>) -> u32 {
    let mut mask = NO_CONTEXTS;
    let mut lacking = |is_lacking: bool, bit: u32| mask |= if is_lacking { bit } else { 0 };
    lacking(line.question.is_none() && line.qid.is_none(), NO_QUESTION);
    lacking(!line.has_citations, NO_CITATIONS);
    lacking(line.session.is_none(), NO_SESSION);
    lacking(!line.has_latency, NO_LATENCY);
    lacking(!line.has_sampling, NOT_DECORATED);
    lacking(
        line.error.is_some() || (line.partial && line.has_sampling && !line.audit),
        UNFINISHED,
    );
    line.facts.map_or(mask, |facts| withheld(mask, line, &facts))
}

/// The bits of a record whose texts were captured, and not sent because of a setting.
fn withheld(mut mask: u32, line: &Line<'_>, facts: &TextFacts<'_>) -> u32 {
    if facts.question_hash.is_some() {
        mask &= !NO_QUESTION;
    }
    if mask & NO_QUESTION != 0 && facts.question_chars.is_some() {
        mask |= WITHHELD_QUESTION;
    }
    if line.claim.is_none() && (facts.claim_chars.is_some() || facts.answered.is_some()) {
        mask |= NO_ANSWER | WITHHELD_ANSWER;
    }
    if facts.has_contexts {
        mask |= WITHHELD_CONTEXTS;
    }
    mask
}

/// Whether question or answer of a record from spans are missing: an instrumentation may have left them out.
pub fn may_be_hidden(mask: u32) -> bool {
    mask & NOT_DECORATED != 0 && mask & (NO_QUESTION | NO_ANSWER) != 0
}

/// The bits that follow from the facts.
pub fn by_flags(flags: u64, has_claim: bool) -> u32 {
    let mask = if flags & IDS == 0 { NO_IDS } else { 0 };
    if flags & SHIPPED != 0 {
        return if flags & REFUSAL_LIKE != 0 {
            mask | UNCOUNTED_REFUSAL
        } else {
            mask
        };
    }
    mask | NOT_SHIPPED | if has_claim { 0 } else { NO_ANSWER }
}

/// What was captured of a pipeline and source.
#[derive(Default)]
pub struct Captured {
    /// Records by minute and by the bits of what they lack.
    pub masks: Map<(i64, u32), u64>,
    /// Retrieved ids of records whose ids do not occur in gold.
    pub ids: u64,
    /// The first of those ids in the order of text.
    pub examples: Vec<String>,
}

impl Captured {
    /// Note ids of which none occurs in gold.
    pub fn note_strange(&mut self, count: u64, smallest: &str) {
        self.ids += count;
        let end = smallest
            .char_indices()
            .nth(LONGEST_ID)
            .map_or(smallest.len(), |(end, _)| end);
        self.add_example(&smallest[..end]);
    }

    /// Add what was captured elsewhere.
    pub fn merge(&mut self, other: &Captured) {
        for (&mask, &count) in &other.masks {
            *self.masks.entry(mask).or_default() += count;
        }
        self.ids += other.ids;
        other.examples.iter().for_each(|name| self.add_example(name));
    }

    fn add_example(&mut self, name: &str) {
        // The order of UTF-8 is that of its characters, as in Python.
        if let Err(place) = self.examples.binary_search_by(|example| example.as_str().cmp(name)) {
            if place < EXAMPLES {
                self.examples.insert(place, name.to_owned());
                self.examples.truncate(EXAMPLES);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_three_ids_in_the_order_of_text_are_kept() {
        let mut captured = Captured::default();
        for name in ["d", "b", "e", "a", "b", "c"] {
            captured.note_strange(2, name);
        }
        assert_eq!(captured.examples, ["a", "b", "c"]);
        assert_eq!(captured.ids, 12);
    }

    #[test]
    fn an_example_is_cut_at_a_character() {
        let mut captured = Captured::default();
        captured.note_strange(1, &"\u{e9}".repeat(200));
        assert_eq!(captured.examples[0].chars().count(), 128);
    }

    #[test]
    fn a_usual_record_lacks_little() {
        let mut line = Line::default();
        let text = r#"{"v":1,"qid":"a","session":"s","answer_json":{"citations":[]},"latency_ms":{},"sampling":{}}"#;
        line.read(text.as_bytes()).expect("a plain line");
        assert_eq!(lacks(&line), NO_CONTEXTS);
        assert_eq!(by_flags(SHIPPED | IDS, true), 0);
        assert_eq!(by_flags(IDS, false), NOT_SHIPPED | NO_ANSWER);
    }
}
