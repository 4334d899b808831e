//! Texts made comparable: `ragmon.core.text.fold` and `normalise_question`, for ASCII and for the characters of a table.
//!
//! Unicode's tables are Python's. Python describes those characters beyond ASCII that stand by themselves: they neither
//! compose with their neighbours nor are marks, so the folded text is the folded characters, one after another. A text
//! with any other character is handed back.

use crate::question::is_space;

/// The first character of the table.
const FIRST: u32 = 0x80;
/// Folded characters of one character, at most.
const PARTS: usize = 3;
const PART_BITS: u32 = 16;
const PART_MASK: u64 = 0xFFFF;
/// A letter or a digit.
const ALNUM: u64 = 1 << 60;
/// Punctuation, which keys of questions leave out.
const PUNCTUATION: u64 = 1 << 61;
/// White space.
const SPACE: u64 = 1 << 62;

/// What is known of characters beyond ASCII.
#[derive(Default)]
pub struct Characters {
    entries: Vec<u64>,
}

impl Characters {
    /// The table that Python describes: for each character from U+0080 on its folded characters in 16 bits each, the
    /// first one lowest, and its kind in the bits above; 0 for a character that is Python's.
    pub fn new(entries: &[u64]) -> Self {
        Characters {
            entries: entries.to_vec(),
        }
    }

    fn entry(&self, character: char) -> u64 {
        let place = u32::from(character).wrapping_sub(FIRST) as usize;
        self.entries.get(place).copied().unwrap_or(0)
    }

    /// Whether a folded character is a letter or a digit.
    pub fn is_alnum(&self, character: char) -> bool {
        if character.is_ascii() {
            character.is_ascii_alphanumeric()
        } else {
            self.entry(character) & ALNUM != 0
        }
    }

    fn is_space(&self, character: char) -> bool {
        match u8::try_from(character) {
            Ok(byte) if byte < 0x80 => is_space(byte),
            _ => self.entry(character) & SPACE != 0,
        }
    }

    fn is_punctuation(&self, character: char) -> bool {
        character.is_ascii_punctuation() || self.entry(character) & PUNCTUATION != 0
    }

    /// A text without white space around it.
    pub fn stripped<'a>(&self, text: &'a str) -> &'a str {
        text.trim_matches(|character| self.is_space(character))
    }

    /// Append a folded text; false where a character is Python's.
    pub fn fold(&self, text: &str, folded: &mut String) -> bool {
        if text.is_ascii() {
            folded.push_str(text);
            let start = folded.len() - text.len();
            folded[start..].make_ascii_lowercase();
            return true;
        }
        for character in text.chars() {
            if character.is_ascii() {
                folded.push(character.to_ascii_lowercase());
                continue;
            }
            let entry = self.entry(character);
            if entry == 0 {
                return false;
            }
            for part in 0..PARTS {
                let code = (entry >> (PART_BITS * part as u32) & PART_MASK) as u32;
                if code != 0 {
                    folded.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                }
            }
        }
        true
    }

    /// Make the key of a question; false where a character is Python's. `folded` is a buffer.
    pub fn question_key(&self, text: &str, folded: &mut String, key: &mut String) -> bool {
        folded.clear();
        key.clear();
        if !self.fold(text, folded) {
            return false;
        }
        let mut gap = false;
        for character in folded.chars() {
            if self.is_space(character) {
                gap = !key.is_empty();
            } else if !self.is_punctuation(character) {
                if gap {
                    key.push(' ');
                    gap = false;
                }
                key.push(character);
            }
        }
        true
    }

    /// Whether a folded phrase occurs in a folded text (`ragmon.core.text.contains_phrase`).
    pub fn contains(&self, text: &str, phrase: &str) -> bool {
        if phrase.is_empty() {
            return false;
        }
        if phrase.len() >= ANYWHERE && phrase.chars().count() >= ANYWHERE {
            return text.contains(phrase);
        }
        let (first, last) = (phrase.chars().next(), phrase.chars().next_back());
        let joins = |a: Option<char>, b: Option<char>| match (a, b) {
            (Some(a), Some(b)) => self.is_alnum(a) && self.is_alnum(b),
            _ => false,
        };
        let mut from = 0;
        while let Some(found) = text[from..].find(phrase) {
            let (begin, end) = (from + found, from + found + phrase.len());
            let before = text[..begin].chars().next_back();
            let behind = text[end..].chars().next();
            if !joins(before, first) && !joins(last, behind) {
                return true;
            }
            from = begin + first.map_or(1, char::len_utf8);
        }
        false
    }
}

/// Phrases of at least this many characters match anywhere (`ragmon.core.text.ANYWHERE`).
const ANYWHERE: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    /// A table with some characters of Latin-1.
    fn table() -> Characters {
        let mut entries = vec![0; 0x80];
        for (character, folded, kind) in [
            ('\u{e9}', "\u{e9}", ALNUM),
            ('\u{c9}', "\u{e9}", ALNUM),
            ('\u{df}', "ss", ALNUM),
            ('\u{ab}', "\u{ab}", PUNCTUATION),
            ('\u{a0}', " ", SPACE),
        ] {
            let parts = folded
                .chars()
                .rev()
                .fold(0, |parts, part| parts << PART_BITS | u64::from(u32::from(part)));
            entries[u32::from(character) as usize - 0x80] = parts | kind;
        }
        Characters::new(&entries)
    }

    fn folded(text: &str) -> Option<String> {
        let mut folded = String::new();
        table().fold(text, &mut folded).then_some(folded)
    }

    #[test]
    fn characters_are_folded_one_by_one() {
        assert_eq!(folded("ABC").as_deref(), Some("abc"));
        assert_eq!(folded("STRA\u{df}E \u{c9}").as_deref(), Some("strasse \u{e9}"));
        assert_eq!(folded("a\u{301}"), None);
    }

    #[test]
    fn keys_of_questions_have_no_punctuation() {
        let (mut buffer, mut key) = (String::new(), String::new());
        assert!(table().question_key("\u{ab} Caf\u{c9},\u{a0}ou\u{e9}? ", &mut buffer, &mut key));
        assert_eq!(key, "caf\u{e9} ou\u{e9}");
    }

    #[test]
    fn short_phrases_are_words() {
        for (text, phrase, found) in [
            ("itv holds", "itv", true),
            ("situation", "itu", false),
            ("caf\u{e9}s", "caf\u{e9}", false),
            ("a caf\u{e9}.", "caf\u{e9}", true),
            ("aaa aa", "aa", true),
            ("situation", "ituat", true),
            ("x-y", "-", true),
            ("", "a", false),
        ] {
            assert_eq!(table().contains(text, phrase), found, "{phrase} in {text}");
        }
    }

    #[test]
    fn white_space_around_a_text_is_taken_off() {
        assert_eq!(table().stripped("\u{a0}\n a b\t\x1f"), "a b");
    }
}
