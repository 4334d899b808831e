//! Random groups of clusters: `ragmon.scoring.groups`.

/// How many groups there are.
pub const GROUPS: usize = 64;
/// The kind of a group made from a session.
pub const SESSION: u32 = 0;
/// The kind of a group made from a question.
pub const QUESTION: u32 = 1;
/// The kind of a group made from the hash of a question.
pub const HASH: u32 = 2;

/// The remainders of CRC-32 (ISO-HDLC, as in zlib) by byte.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            remainder = if remainder & 1 == 1 {
                remainder >> 1 ^ 0xEDB8_8320
            } else {
                remainder >> 1
            };
            bit += 1;
        }
        table[byte] = remainder;
        byte += 1;
    }
    table
};

/// zlib's `crc32`, going on from a checksum.
fn crc32(text: &[u8], from: u32) -> u32 {
    !text.iter().fold(!from, |crc, &byte| {
        TABLE[((crc ^ u32::from(byte)) & 255) as usize] ^ crc >> 8
    })
}

/// The group of a session or of the key of a question: a checksum, mixed as in the last steps of MurmurHash3.
pub fn group(text: &[u8], kind: u32) -> u8 {
    let mut x = crc32(text, kind);
    x = (x ^ x >> 16).wrapping_mul(0x85EB_CA6B);
    x = (x ^ x >> 13).wrapping_mul(0xC2B2_AE35);
    ((x ^ x >> 16) % GROUPS as u32) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_zlibs() {
        assert_eq!(crc32(b"123456789", 0), 0xCBF4_3926);
        assert_eq!(crc32(b"6789", crc32(b"12345", 0)), 0xCBF4_3926);
    }

    #[test]
    fn sessions_and_questions_of_one_text_are_apart() {
        let differing = (0..100).filter(|n| {
            let text = format!("s{n}");
            group(text.as_bytes(), SESSION) != group(text.as_bytes(), QUESTION)
        });
        assert!(differing.count() > 80);
    }
}
