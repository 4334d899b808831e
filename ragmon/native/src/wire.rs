//! How Python describes gold items, rules and streams: little-endian numbers, and texts behind their length.

/// Reads a description; a description that ends too early is a fault of the caller, and reads as `None`.
pub struct Wire<'a>(&'a [u8]);

impl<'a> Wire<'a> {
    /// The start of a description.
    pub fn new(bytes: &'a [u8]) -> Self {
        Wire(bytes)
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let taken = self.0.get(..length)?;
        self.0 = &self.0[length..];
        Some(taken)
    }

    /// A number of 32 bits.
    pub fn number(&mut self) -> Option<u32> {
        self.take(4)
            .and_then(|bytes| bytes.try_into().ok())
            .map(u32::from_le_bytes)
    }

    /// A number with a fraction.
    pub fn real(&mut self) -> Option<f64> {
        self.take(8)
            .and_then(|bytes| bytes.try_into().ok())
            .map(f64::from_le_bytes)
    }

    /// Bytes behind their length.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.number()? as usize;
        self.take(length)
    }

    /// A text behind its length.
    pub fn text(&mut self) -> Option<String> {
        std::str::from_utf8(self.bytes()?).ok().map(str::to_owned)
    }

    /// A list behind its length.
    pub fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.number()?;
        (0..count).map(|_| one(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let bytes = b"\x07\0\0\0\x02\0\0\0\x01\0\0\0a\x02\0\0\0bc";
        let mut wire = Wire::new(bytes);
        assert_eq!(wire.number(), Some(7));
        assert_eq!(wire.list(Wire::text), Some(vec!["a".to_owned(), "bc".to_owned()]));
        assert_eq!(wire.number(), None);
    }

    #[test]
    fn a_description_that_ends_too_early_is_none() {
        assert_eq!(Wire::new(b"\x05\0\0\0abc").bytes(), None);
        assert_eq!(Wire::new(b"\xff\xff\xff\xff").list(Wire::number), None);
    }
}
