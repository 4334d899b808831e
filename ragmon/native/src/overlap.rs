//! How many words of an answer occur in its contexts: the loop of `ragmon.metrics.grounding`, for ASCII text.

use std::collections::HashMap;

/// Words that may be wanted, by length, first and last byte: most others are told apart without a hash.
#[derive(Default)]
struct Sketch([u64; 16]);

impl Sketch {
    /// The place of a word that is not empty: which number, and which bit of it.
    fn place(word: &[u8]) -> (usize, u64) {
        let (first, last) = (word[0] as usize, word[word.len() - 1] as usize);
        let mixed = (first * 31) ^ (last * 7) ^ (word.len() * 131);
        ((mixed >> 6) % 16, 1 << (mixed % 64))
    }

    fn add(&mut self, word: &[u8]) {
        let (number, bit) = Self::place(word);
        self.0[number] |= bit;
    }

    fn may_hold(&self, word: &[u8]) -> bool {
        let (number, bit) = Self::place(word);
        self.0[number] & bit != 0
    }
}

/// How many of the words occur in the text, repetitions counted.
///
/// Words are runs of small letters and digits with single spaces between them. Both are a stranger's, so the map is the
/// standard library's, whose hash nobody can guess: a text of words that collide costs no more than any other.
pub fn words_found(words: &[u8], text: &[u8]) -> usize {
    let mut sketch = Sketch::default();
    let mut wanted: HashMap<&[u8], usize> = HashMap::new();
    for word in words.split(|&byte| byte == b' ').filter(|word| !word.is_empty()) {
        *wanted.entry(word).or_default() += 1;
        sketch.add(word);
    }
    let mut found = 0;
    let text = text.to_ascii_lowercase();
    for word in text.split(|byte| !byte.is_ascii_alphanumeric()) {
        if word.is_empty() || !sketch.may_hold(word) {
            continue;
        }
        if let Some(times) = wanted.remove(word) {
            found += times;
            if wanted.is_empty() {
                break;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_whole_and_count_as_often_as_they_are_wanted() {
        assert_eq!(words_found(b"ferry nine ferry", b"The FERRY leaves: ferry!"), 2);
        assert_eq!(words_found(b"ferry", b"ferryman, ferry7, _ferry_"), 1);
        assert_eq!(words_found(b"ferry", b"ferryman"), 0);
        assert_eq!(words_found(b"", b"ferry"), 0);
        assert_eq!(words_found(b"ferry", b""), 0);
    }
}
