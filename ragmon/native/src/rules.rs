//! How the records of a pipeline are reduced: `ragmon.scoring.scorer.ReductionRules` with its refusal rule.

use crate::fold::Characters;
use crate::hash::Set;
use crate::wire::Wire;

/// Characters behind the window that Python's patterns may look at (`ragmon.core.refusal.REACH`).
pub const REACH: usize = 160;

/// Whether an answer may be a refusal in other words than a token.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Matcher {
    /// There are no patterns.
    Never,
    /// Only where its start holds one of the words without which no pattern matches.
    Words,
    /// Patterns of somebody's own, which Python tries on every answer.
    Always,
}

/// The rules of a pipeline.
pub struct Rule {
    tokens: Set<String>,
    words: Set<String>,
    matcher: Matcher,
    /// How many characters the patterns see.
    pub window: usize,
    /// A refusal that only the patterns find counts as refused.
    pub matcher_counts: bool,
    /// An answer without a list of citations cites nothing.
    pub citations_required: bool,
    /// Requests of one session are a cluster.
    pub by_session: bool,
    /// Requests with one question are a cluster.
    pub by_question: bool,
    /// The declared bound on the latency, milliseconds.
    pub within_ms: Option<f64>,
}

impl Rule {
    /// The rules that Python describes.
    pub fn read(wire: &mut Wire<'_>) -> Option<Rule> {
        let bits = wire.number()?;
        let matcher = match wire.number()? {
            0 => Matcher::Never,
            1 => Matcher::Words,
            _ => Matcher::Always,
        };
        let (window, within) = (wire.number()? as usize, wire.real()?);
        Some(Rule {
            matcher,
            window,
            matcher_counts: bits & 1 != 0,
            citations_required: bits & 2 != 0,
            by_session: bits & 4 != 0,
            by_question: bits & 8 != 0,
            within_ms: (bits & 16 != 0).then_some(within),
            tokens: wire.list(Wire::text)?.into_iter().collect(),
            words: wire.list(Wire::text)?.into_iter().collect(),
        })
    }

    /// Whether a folded answer is a refusal token.
    pub fn is_token(&self, folded: &str) -> bool {
        self.tokens.contains(folded)
    }

    /// Whether Python has to try its patterns on a folded answer.
    pub fn may_refuse(&self, folded: &str, characters: &Characters) -> bool {
        match self.matcher {
            Matcher::Never => false,
            Matcher::Always => true,
            Matcher::Words => {
                let start = first(folded, self.window);
                start
                    .split(|character| !characters.is_alnum(character))
                    .any(|word| self.words.contains(word))
            }
        }
    }

    /// The part of a folded answer that the patterns see.
    pub fn seen<'a>(&self, folded: &'a str) -> &'a str {
        first(folded, self.window + REACH)
    }
}

/// The first characters of a text.
fn first(text: &str, count: usize) -> &str {
    if text.len() <= count {
        return text;
    }
    if text.is_char_boundary(count) && text[..count].is_ascii() {
        return &text[..count];
    }
    text.char_indices().nth(count).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
#[allow(missing_docs)]
pub mod tests {
    use super::*;

    /// The description of rules with one token and some words.
    pub fn described(bits: u32, matcher: u32, words: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in [bits, matcher, 120] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(100.0_f64.to_le_bytes());
        for list in [&["not in context"][..], words] {
            bytes.extend((list.len() as u32).to_le_bytes());
            for text in list {
                bytes.extend((text.len() as u32).to_le_bytes());
                bytes.extend(text.as_bytes());
            }
        }
        bytes
    }

    fn rule(matcher: u32) -> Rule {
        Rule::read(&mut Wire::new(&described(1, matcher, &["sorry", "t"]))).expect("a description")
    }

    #[test]
    fn tokens_are_whole_answers() {
        assert!(rule(1).is_token("not in context"));
        assert!(!rule(1).is_token("not in context."));
    }

    #[test]
    fn patterns_are_tried_where_a_word_of_theirs_stands_in_the_window() {
        let characters = Characters::default();
        assert!(rule(1).may_refuse("i'm sorry, no", &characters));
        assert!(rule(1).may_refuse("i don't know", &characters));
        assert!(!rule(1).may_refuse("sorrys_t0", &characters));
        assert!(!rule(1).may_refuse(&("a".repeat(118) + " sorry"), &characters));
        assert!(rule(2).may_refuse("anything", &characters));
        assert!(!rule(0).may_refuse("i'm sorry", &characters));
    }

    #[test]
    fn a_text_is_cut_at_characters() {
        assert_eq!(first("a\u{e9}b", 2), "a\u{e9}");
        assert_eq!(first("\u{e9}\u{e9}", 1), "\u{e9}");
        assert_eq!(first("abc", 2), "ab");
        assert_eq!(first("\u{e9}", 5), "\u{e9}");
    }
}
