//! Hash maps whose hash is fast and the same in every run.
//!
//! The standard library's hash resists an attacker who chooses the keys; here it would take a third of the time. The
//! keys are ids and texts of traces, and one who can write traces could make them collide: then a replay takes long, as
//! it does when he writes more of them. A word is mixed by a multiplication to 128 bits, of which both halves are used.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A map with the fast hash.
pub type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mix>>;
/// A set with the fast hash.
pub type Set<K> = HashSet<K, BuildHasherDefault<Mix>>;

const START: u64 = 0x9E37_79B9_7F4A_7C15;
const FACTOR: u64 = 0xE703_7ED1_A0B4_28DB;

/// The hash of what was written so far.
#[derive(Default)]
pub struct Mix(u64);

#[inline]
fn mixed(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl Hasher for Mix {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let mut hash = self.0 ^ (bytes.len() as u64).wrapping_mul(START);
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            let word = u64::from_le_bytes([
                chunk[0], chunk[1], chunk[2], chunk[3], chunk[4], chunk[5], chunk[6], chunk[7],
            ]);
            hash = mixed(hash ^ word, FACTOR);
        }
        let mut last = 0;
        for &byte in chunks.remainder() {
            last = last << 8 | u64::from(byte);
        }
        self.0 = mixed(hash ^ last ^ START, FACTOR);
    }

    #[inline]
    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.0 = mixed(self.0 ^ value ^ START, FACTOR);
    }

    #[inline]
    fn write_u128(&mut self, value: u128) {
        self.write_u64(value as u64);
        self.write_u64((value >> 64) as u64);
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    #[inline]
    fn write_i64(&mut self, value: i64) {
        self.write_u64(value as u64);
    }
}

/// The hash of a text.
#[inline]
pub fn of(bytes: &[u8]) -> u64 {
    let mut hasher = Mix::default();
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_all_lengths_have_their_own_hash() {
        let texts: Vec<Vec<u8>> = (0..40).flat_map(|n| [vec![0; n], vec![b'a'; n + 1]]).collect();
        let hashes: Set<u64> = texts.iter().map(|text| of(text)).collect();
        assert_eq!(hashes.len(), texts.len());
    }

    #[test]
    fn small_numbers_spread_over_both_halves() {
        let mut low = Set::default();
        let mut high = Set::default();
        for n in 0..1000_u64 {
            let mut hasher = Mix::default();
            hasher.write_u64(n);
            low.insert(hasher.finish() & 0xFFFF);
            high.insert(hasher.finish() >> 57);
        }
        assert!(low.len() > 980 && high.len() > 120);
    }
}
