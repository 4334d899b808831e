//! Facts in place of text: `ragmon.core.record.TextFacts`, as far as they decide something without a gold item.
//!
//! A record whose text stayed in the application says what was decided about it there. With a gold item more of it
//! counts (was a phrase found, against which version of gold): such a line is Python's. So is one whose texts were changed
//! or cut, because the text and the facts count together there.

use crate::facts::{COMPLIANT, OUTCOME_UNKNOWN, REFUSAL_LIKE, REFUSED, SHIPPED, TEXT};
use crate::json::Cursor;

const GROUNDED_KNOWN: u64 = 1 << 30;
const GROUNDED: u64 = 1 << 31;

/// What was decided about the texts of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextFacts<'a> {
    /// There was an answer, refusal or not.
    pub answered: Option<bool>,
    /// It was a refusal token.
    pub refused: Option<bool>,
    /// The patterns called it a refusal.
    pub refusal_like: Option<bool>,
    /// Groundedness reached its threshold.
    pub grounded: Option<bool>,
    /// The hash of the question.
    pub question_hash: Option<&'a [u8]>,
    /// The length of the question in characters.
    pub question_chars: Option<u64>,
    /// The length of the answer in characters.
    pub claim_chars: Option<u64>,
    /// It is known how many contexts there were.
    pub has_contexts: bool,
}

impl<'a> TextFacts<'a> {
    /// Read the facts of a line, or null; `None` where they are Python's.
    pub fn read(cursor: &mut Cursor<'a>) -> Option<Option<Self>> {
        if cursor.is_null()? {
            return Some(None);
        }
        let (mut facts, mut seen) = (TextFacts::default(), 0u32);
        let mut more = cursor.open(b'{', b'}')?;
        while more {
            let name = cursor.name()?;
            if let Some(place) = MEMBERS.iter().position(|member| *member == name) {
                if seen & 1 << place != 0 {
                    return None; // the last of two counts, and that is Python's to say
                }
                seen |= 1 << place;
                facts.member(place, cursor)?;
            } else {
                cursor.skip()?;
            }
            more = cursor.more(b'}')?;
        }
        Some(Some(facts))
    }

    fn member(&mut self, place: usize, cursor: &mut Cursor<'a>) -> Option<()> {
        match place {
            0 => self.answered = cursor.optional_flag()?,
            1 => self.refused = cursor.optional_flag()?,
            2 => self.refusal_like = cursor.optional_flag()?,
            3 => self.grounded = cursor.optional_flag()?,
            4 => {
                let hash = cursor.text()?;
                if hash.is_some_and(|hash| hash.escaped) {
                    return None;
                }
                self.question_hash = hash.map(|hash| hash.bytes);
            }
            5 => self.question_chars = cursor.optional_count()?,
            6 => self.claim_chars = cursor.optional_count()?,
            7 => self.has_contexts = cursor.optional_count()?.is_some(),
            8 | 9 => {
                cursor.optional_flag()?;
            }
            10 => {
                cursor.optional_count()?;
            }
            11 | 12 => cursor.skip_text()?,
            13 => cursor.skip_strings()?,
            _ => return cursor.is_null()?.then_some(()),
        }
        Some(())
    }

    /// The bits of an answer whose text is not there (`FactReader._call_flags`, `_text_fact_flags`).
    pub fn answer(&self, has_citations: bool) -> u64 {
        let compliant = if has_citations { COMPLIANT } else { 0 };
        if self.refused.is_none() && self.answered.is_none() {
            return OUTCOME_UNKNOWN | compliant;
        }
        let mut flags = if self.refused == Some(true) {
            let template = if self.refusal_like == Some(true) { 0 } else { COMPLIANT };
            REFUSED | template
        } else if self.answered != Some(false) {
            SHIPPED
        } else {
            0
        };
        flags |= match self.refusal_like {
            None => 0,
            Some(false) => TEXT,
            Some(true) => TEXT | REFUSAL_LIKE,
        };
        // A refusal in other words does not follow the template, whatever list it carries.
        if flags & REFUSAL_LIKE != 0 {
            flags
        } else {
            flags | compliant
        }
    }

    /// The bits of groundedness.
    pub fn grounded(&self) -> u64 {
        match self.grounded {
            None => 0,
            Some(false) => GROUNDED_KNOWN,
            Some(true) => GROUNDED_KNOWN | GROUNDED,
        }
    }
}

/// The members, in the order of `TextFacts::member`; the last two make a line Python's unless they are null.
const MEMBERS: [&[u8]; 16] = [
    b"answered",
    b"refused",
    b"refusal_like",
    b"grounded",
    b"question_hash",
    b"question_chars",
    b"claim_chars",
    b"contexts",
    b"contains_claim",
    b"contains_gold_claim",
    b"context_chars",
    b"gold_version",
    b"claim_hash",
    b"context_hashes",
    b"redacted",
    b"cut",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Option<TextFacts<'_>>> {
        TextFacts::read(&mut Cursor::new(text.as_bytes()))
    }

    #[test]
    fn what_was_decided_is_read() {
        let facts = read(r#"{"answered":true,"refused":null,"question_chars":12,"contexts":3,"else":[1]} "#);
        let facts = facts.flatten().expect("facts");
        assert_eq!(
            (facts.answered, facts.refused, facts.question_chars),
            (Some(true), None, Some(12))
        );
        assert!(facts.has_contexts);
        assert_eq!(read("null"), Some(None));
    }

    #[test]
    fn what_is_more_than_a_decision_is_pythons() {
        for text in [
            r#"{"redacted":["q"]}"#,
            r#"{"cut":["claim"]}"#,
            r#"{"answered":1}"#,
            r#"{"question_chars":1.0}"#,
            r#"{"question_chars":-1}"#,
            r#"{"claim_chars":1234567890123456}"#,
            r#"{"answered":true,"answered":true}"#,
            r#"{"gold_version":5}"#,
            r#"{"context_hashes":[1]}"#,
            "[]",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn an_answer_is_what_was_decided_about_it() {
        let decided = |answered, refused, refusal_like| TextFacts {
            answered,
            refused,
            refusal_like,
            ..TextFacts::default()
        };
        assert_eq!(decided(None, None, None).answer(true), OUTCOME_UNKNOWN | COMPLIANT);
        assert_eq!(decided(Some(true), Some(true), None).answer(false), REFUSED | COMPLIANT);
        assert_eq!(
            decided(Some(true), Some(true), Some(true)).answer(true),
            REFUSED | TEXT | REFUSAL_LIKE
        );
        assert_eq!(
            decided(Some(true), Some(false), Some(false)).answer(true),
            SHIPPED | TEXT | COMPLIANT
        );
        assert_eq!(decided(Some(false), None, None).answer(false), 0);
    }
}
