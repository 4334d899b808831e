//! A scanner of one line of JSON that takes the plain case and refuses the rest.
//!
//! It accepts a part of what Python's decoder accepts, and never more: whatever is unusual (an escape that it does not
//! know, a number with many digits, deep nesting) makes it give up, and the line goes to Python, which is the law. So a
//! function here returns `None` both for what is wrong and for what is merely rare.

/// The deepest nesting of a value that is passed over.
const DEPTH: u32 = 24;
/// The most digits of a whole number: all of them are exact in a double.
const WHOLE_DIGITS: usize = 15;
/// The most bytes of a number with a fraction.
const NUMBER_BYTES: usize = 32;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// A string as it stands in the line, without its quotes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Text<'a> {
    /// Its bytes; valid UTF-8.
    pub bytes: &'a [u8],
    /// It holds a backslash, so that its bytes are not its characters.
    pub escaped: bool,
    /// It holds a character outside ASCII.
    pub wide: bool,
}

/// A place in a line, which ends at the next `\n`: nothing behind it is looked at, because no value may hold one.
pub struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// A line at the start of a text.
    pub fn new(text: &'a [u8]) -> Self {
        Cursor { text, at: 0 }
    }

    /// Pass over white space within the line; returns the byte behind it, 0 at the end of the text.
    #[inline]
    pub fn peek(&mut self) -> u8 {
        while let Some(&byte) = self.text.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\r') {
                return byte;
            }
            self.at += 1;
        }
        0
    }

    /// Where the line ends, if nothing is left of it but white space.
    pub fn end(&mut self) -> Option<usize> {
        (self.peek() == b'\n' || self.at == self.text.len()).then_some(self.at)
    }

    /// Take one byte behind white space.
    #[inline]
    pub fn take(&mut self, byte: u8) -> Option<()> {
        if self.peek() != byte {
            return None;
        }
        self.at += 1;
        Some(())
    }

    /// Take a word, such as `null`.
    #[inline]
    fn word(&mut self, word: &[u8]) -> Option<()> {
        if !self.text[self.at..].starts_with(word) {
            return None;
        }
        self.at += word.len();
        Some(())
    }

    /// Whether another member follows, behind its comma, or the closing byte ends the list.
    #[inline]
    pub fn more(&mut self, close: u8) -> Option<bool> {
        let byte = self.peek();
        self.at += 1;
        if byte == b',' {
            Some(true)
        } else if byte == close {
            Some(false)
        } else {
            None
        }
    }

    /// Take an opening byte; returns whether anything stands before the closing one.
    #[inline]
    pub fn open(&mut self, open: u8, close: u8) -> Option<bool> {
        self.take(open)?;
        if self.peek() == close {
            self.at += 1;
            return Some(false);
        }
        Some(true)
    }

    /// The name of a member and its colon; names with escapes are rare.
    #[inline]
    pub fn name(&mut self) -> Option<&'a [u8]> {
        let name = self.string()?;
        if name.escaped {
            return None;
        }
        self.take(b':')?;
        self.peek();
        Some(name.bytes)
    }

    /// A string, with its quotes.
    #[inline]
    pub fn string(&mut self) -> Option<Text<'a>> {
        self.take(b'"')?;
        let start = self.at;
        let (mut escaped, mut wide) = (false, false);
        loop {
            self.at += plain_length(self.text.get(self.at..)?);
            match *self.text.get(self.at)? {
                b'"' => break,
                b'\\' => {
                    escaped = true;
                    self.at += 2; // what it escapes is looked at where the string is read
                }
                byte if byte >= 0x80 => {
                    wide = true;
                    self.at += 1;
                }
                byte if byte < 0x20 => return None,
                _ => self.at += 1,
            }
        }
        let bytes = &self.text[start..self.at];
        self.at += 1;
        if wide && std::str::from_utf8(bytes).is_err() {
            return None;
        }
        Some(Text { bytes, escaped, wide })
    }

    /// A string, or null.
    #[inline]
    pub fn text(&mut self) -> Option<Option<Text<'a>>> {
        if self.is_null()? {
            return Some(None);
        }
        self.string().map(Some)
    }

    /// A string whose escapes are all known, or null.
    #[inline]
    pub fn escaped_text(&mut self) -> Option<Option<Text<'a>>> {
        let text = self.text()?;
        match text {
            Some(text) if text.escaped && !escapes_are_known(text.bytes) => None,
            text => Some(text),
        }
    }

    /// Take null where it stands here; false where another value does.
    #[inline]
    pub fn is_null(&mut self) -> Option<bool> {
        if self.peek() != b'n' {
            return Some(false);
        }
        self.word(b"null")?;
        Some(true)
    }

    /// true or false.
    #[inline]
    pub fn flag(&mut self) -> Option<bool> {
        if self.peek() == b't' {
            self.word(b"true")?;
            return Some(true);
        }
        self.word(b"false")?;
        Some(false)
    }

    /// A number that is not negative and has no exponent, exactly as Python reads it.
    #[inline]
    pub fn number(&mut self) -> Option<f64> {
        self.peek();
        let start = self.at;
        let mut whole: u64 = 0;
        while let Some(digit) = self.digit() {
            whole = whole.wrapping_mul(10).wrapping_add(digit);
        }
        let digits = self.at - start;
        if digits == 0 || digits > WHOLE_DIGITS || (digits > 1 && self.text[start] == b'0') {
            return None;
        }
        if self.text.get(self.at) != Some(&b'.') {
            return if self.ends_number() { Some(whole as f64) } else { None };
        }
        self.at += 1;
        let fraction = self.at;
        while let Some(digit) = self.digit() {
            whole = whole.wrapping_mul(10).wrapping_add(digit);
        }
        let decimals = self.at - fraction;
        if decimals == 0 || self.at - start > NUMBER_BYTES || !self.ends_number() {
            return None;
        }
        // Clinger's fast path: both are exact in a double, so one division rounds once, as Python's reader does.
        if digits + decimals <= WHOLE_DIGITS {
            return Some(whole as f64 / TENS[decimals]);
        }
        std::str::from_utf8(&self.text[start..self.at]).ok()?.parse().ok()
    }

    #[inline]
    fn digit(&mut self) -> Option<u64> {
        let byte = *self.text.get(self.at)?;
        if !byte.is_ascii_digit() {
            return None;
        }
        self.at += 1;
        Some(u64::from(byte - b'0'))
    }

    /// Whether the byte here ends a number without an exponent.
    #[inline]
    fn ends_number(&self) -> bool {
        matches!(
            self.text.get(self.at),
            Some(b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n')
        )
    }

    /// Pass over a number that is certainly in the range of a double.
    fn skip_number(&mut self) -> Option<()> {
        let start = self.at;
        if self.text.get(self.at) == Some(&b'-') {
            self.at += 1;
        }
        let first = self.at;
        while self.digit().is_some() {}
        let digits = self.at - first;
        if digits == 0 || digits > WHOLE_DIGITS || (digits > 1 && self.text[first] == b'0') {
            return None;
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digit()?;
            while self.digit().is_some() {}
        }
        if matches!(self.text.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.text.get(self.at), Some(b'-' | b'+')) {
                self.at += 1;
            }
            let exponent = self.at;
            while self.digit().is_some() {}
            if self.at == exponent || self.at - exponent > 2 {
                return None;
            }
        }
        if self.at - start > NUMBER_BYTES || !self.ends_number() {
            return None;
        }
        Some(())
    }

    /// Pass over a list of numbers or null; returns its length, and the first number as it stands there.
    pub fn skip_numbers(&mut self) -> Option<(usize, &'a [u8])> {
        if self.is_null()? {
            return Some((0, b""));
        }
        let (mut count, mut first) = (0, &b""[..]);
        let mut more = self.open(b'[', b']')?;
        while more {
            self.peek();
            let start = self.at;
            self.skip_number()?;
            if count == 0 {
                first = &self.text[start..self.at];
            }
            count += 1;
            more = self.more(b']')?;
        }
        Some((count, first))
    }

    /// true or false, or null.
    pub fn optional_flag(&mut self) -> Option<Option<bool>> {
        if self.is_null()? {
            return Some(None);
        }
        self.flag().map(Some)
    }

    /// A whole number that is not negative, or null.
    pub fn optional_count(&mut self) -> Option<Option<u64>> {
        if self.is_null()? {
            return Some(None);
        }
        let start = self.at;
        let mut whole = 0;
        while let Some(digit) = self.digit() {
            whole = whole * 10 + digit;
            if self.at - start > WHOLE_DIGITS {
                return None;
            }
        }
        let digits = self.at - start;
        if digits == 0 || (digits > 1 && self.text[start] == b'0') || !self.ends_number() {
            return None;
        }
        Some(Some(whole))
    }

    /// Pass over a list of strings, or null.
    pub fn skip_strings(&mut self) -> Option<()> {
        if self.is_null()? {
            return Some(());
        }
        let mut more = self.open(b'[', b']')?;
        while more {
            self.skip_string()?;
            more = self.more(b']')?;
        }
        Some(())
    }

    /// Pass over an object of strings, or null.
    pub fn skip_texts(&mut self) -> Option<()> {
        if self.is_null()? {
            return Some(());
        }
        let mut more = self.open(b'{', b'}')?;
        while more {
            self.name()?;
            self.skip_string()?;
            more = self.more(b'}')?;
        }
        Some(())
    }

    /// Pass over a string whose escapes are all known.
    pub fn skip_string(&mut self) -> Option<()> {
        let text = self.string()?;
        if text.escaped && !escapes_are_simple(text.bytes) {
            return None;
        }
        Some(())
    }

    /// Pass over a string with known escapes, or null.
    pub fn skip_text(&mut self) -> Option<()> {
        if self.is_null()? {
            return Some(());
        }
        self.skip_string()
    }

    /// Pass over any value.
    pub fn skip(&mut self) -> Option<()> {
        self.skip_at(0)
    }

    fn skip_at(&mut self, depth: u32) -> Option<()> {
        match self.peek() {
            b'"' => self.skip_string(),
            b'n' => self.word(b"null"),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'[' if depth < DEPTH => {
                let mut more = self.open(b'[', b']')?;
                while more {
                    self.skip_at(depth + 1)?;
                    more = self.more(b']')?;
                }
                Some(())
            }
            b'{' if depth < DEPTH => {
                let mut more = self.open(b'{', b'}')?;
                while more {
                    self.name()?;
                    self.skip_at(depth + 1)?;
                    more = self.more(b'}')?;
                }
                Some(())
            }
            _ => self.skip_number(),
        }
    }
}

/// Powers of ten that are exact in a double.
const TENS: [f64; WHOLE_DIGITS + 1] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];

/// How many bytes stand before the first quote, backslash, control character or byte outside ASCII, eight at a time.
#[inline]
fn plain_length(text: &[u8]) -> usize {
    let mut at = 0;
    for chunk in text.chunks_exact(8) {
        let word = u64::from_le_bytes([
            chunk[0], chunk[1], chunk[2], chunk[3], chunk[4], chunk[5], chunk[6], chunk[7],
        ]);
        // The high bit of a byte is set where it is below 0x20, a quote, a backslash or above 0x7f; a borrow may set
        // bits of later bytes wrongly, but never of earlier ones, and the first is what is asked for.
        let quote = word ^ (ONES * b'"' as u64);
        let slash = word ^ (ONES * b'\\' as u64);
        let found = word.wrapping_sub(ONES * 0x20) & !word
            | quote.wrapping_sub(ONES) & !quote
            | slash.wrapping_sub(ONES) & !slash
            | word;
        let found = found & HIGH;
        if found != 0 {
            return at + (found.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    at
}

/// Whether every escape of a string is one of a single letter.
fn escapes_are_simple(bytes: &[u8]) -> bool {
    let mut rest = bytes.iter();
    while let Some(&byte) = rest.next() {
        if byte == b'\\'
            && !matches!(
                rest.next(),
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't')
            )
        {
            return false;
        }
    }
    true
}

/// Whether `unescape` knows every escape of a string, which may never be asked for its characters.
fn escapes_are_known(bytes: &[u8]) -> bool {
    let mut at = 0;
    while let Some(slash) = bytes[at..].iter().position(|&byte| byte == b'\\') {
        at += slash + 2;
        match bytes.get(at - 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {}
            Some(b'u') => match bytes.get(at..at + 4).and_then(hexadecimal).and_then(char::from_u32) {
                Some(_) => at += 4,
                None => return false,
            },
            _ => return false,
        }
    }
    true
}

/// Append the characters of a string with escapes; false where an escape is not known.
///
/// `\u` is read where it names a character of its own: half of a surrogate pair is left to Python.
pub fn unescape(bytes: &[u8], out: &mut Vec<u8>) -> bool {
    let mut at = 0;
    while at < bytes.len() {
        let plain = bytes[at..]
            .iter()
            .position(|&byte| byte == b'\\')
            .unwrap_or(bytes.len() - at);
        out.extend_from_slice(&bytes[at..at + plain]);
        at += plain;
        if at == bytes.len() {
            break;
        }
        let Some(&kind) = bytes.get(at + 1) else { return false };
        at += 2;
        match kind {
            b'"' | b'\\' | b'/' => out.push(kind),
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'u' => {
                let Some(unit) = bytes.get(at..at + 4).and_then(hexadecimal) else {
                    return false;
                };
                at += 4;
                let Some(character) = char::from_u32(unit) else {
                    return false;
                };
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            _ => return false,
        }
    }
    true
}

/// The number of four hexadecimal digits.
fn hexadecimal(digits: &[u8]) -> Option<u32> {
    digits
        .iter()
        .try_fold(0, |number, &digit| Some(number * 16 + char::from(digit).to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skips(text: &str) -> bool {
        let mut cursor = Cursor::new(text.as_bytes());
        cursor.skip().is_some() && cursor.end() == Some(text.len())
    }

    fn number(text: &str) -> Option<f64> {
        Cursor::new(text.as_bytes()).number()
    }

    #[test]
    fn plain_values_are_passed_over() {
        for text in [
            "{\"a\":[1,2.5,-3e2,true,false,null],\"b\":{}} ",
            "[] ",
            "\"a\\n\\\"b\" ",
            " \t\r\"\u{e9}\" ",
        ] {
            assert!(skips(text), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_or_rare_is_refused() {
        for text in [
            "{\"a\":1,}",
            "[1 2]",
            "{a:1}",
            "\"a",
            "\"\\u0041\"",
            "\"\\x\"",
            "01 ",
            "1. ",
            "-",
            "1e400 ",
            "NaN",
            "\"\u{1}\"",
            "tru",
            "[1]]",
            "[1,\n2]",
        ] {
            assert!(!skips(text), "{text}");
        }
        assert!(!skips(&("[".repeat(30) + &"]".repeat(30))));
    }

    #[test]
    fn a_line_ends_at_its_newline() {
        let mut cursor = Cursor::new(b"{} \r\n{}");
        assert!(cursor.skip().is_some());
        assert_eq!(cursor.end(), Some(4));
    }

    #[test]
    fn numbers_are_the_doubles_of_the_standard_library() {
        for text in [
            "0",
            "5",
            "0.1",
            "1763683200.123456",
            "123456789.123456789",
            "86400000",
            "0.30000000000000004",
        ] {
            assert_eq!(number(&format!("{text},")), text.parse().ok(), "{text}");
        }
        for text in ["-1", "1e5", "00", "1.", ".5", "1234567890123456", "1x"] {
            assert_eq!(number(&format!("{text},")), None, "{text}");
        }
    }

    #[test]
    fn the_end_of_a_string_is_found_at_every_place() {
        for length in 0..40 {
            for end in ["\"", "\\", "\u{1}", "\u{e9}"] {
                let text = "a".repeat(length) + end + "bbbbbbbbbbbb";
                assert_eq!(plain_length(text.as_bytes()).min(length + 12), length, "{text:?}");
            }
        }
    }

    #[test]
    fn escapes_become_characters() {
        let mut out = Vec::new();
        assert!(unescape(b"a\\n\\\"\\u00e9\\/", &mut out));
        assert_eq!(out, "a\n\"\u{e9}/".as_bytes());
        assert!(escapes_are_known(b"a\\n\\\"\\u00e9\\/"));
        for bad in [&b"\\ud83d\\ude00"[..], b"\\u12", b"\\x", b"\\"] {
            assert!(!unescape(bad, &mut Vec::new()) && !escapes_are_known(bad));
        }
    }
}
