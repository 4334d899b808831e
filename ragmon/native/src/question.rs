//! The key by which questions are compared: `ragmon.core.text.normalise_question`, for ASCII text.

/// Append the key of a question: small letters, without punctuation, with single spaces.
///
/// Returns false, and leaves the key unfinished, where the text is not ASCII: Unicode is Python's business.
///
/// The caller keeps texts out that are longer than the part Python reads (`READ`).
pub fn ascii_key(text: &[u8], key: &mut Vec<u8>) -> bool {
    let start = key.len();
    let mut gap = false;
    for &byte in text {
        if byte >= 0x80 {
            return false;
        }
        if is_space(byte) {
            gap = key.len() > start;
        } else if !byte.is_ascii_punctuation() {
            if gap {
                key.push(b' ');
                gap = false;
            }
            key.push(byte.to_ascii_lowercase());
        }
    }
    true
}

/// Whether `str.split` and `str.strip` take an ASCII character for white space.
pub fn is_space(byte: u8) -> bool {
    matches!(byte, 9..=13 | 28..=32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Option<String> {
        let mut key = Vec::new();
        ascii_key(text.as_bytes(), &mut key).then(|| String::from_utf8(key).expect("ASCII"))
    }

    #[test]
    fn a_key_has_small_letters_no_punctuation_and_single_spaces() {
        assert_eq!(key("  What is\t\tthe \"unit\"? ").as_deref(), Some("what is the unit"));
        assert_eq!(key("a - b").as_deref(), Some("a b"));
        assert_eq!(key("?!").as_deref(), Some(""));
        assert_eq!(key("a\x1fb\x00c").as_deref(), Some("a b\x00c"));
    }

    #[test]
    fn other_scripts_are_handed_back() {
        assert_eq!(key("caf\u{e9}"), None);
    }
}
