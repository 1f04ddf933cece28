//! CRC-32C (Castagnoli), with the widest suitable instructions of the processor.

use crc_fast::{CrcAlgorithm, Digest};

/// The checksum of a byte string.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The checksum of concatenated parts.
pub(crate) fn crc32c_of(parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720, appendix B.4: thirty-two zeros, ones, rising and falling bytes.
    #[test]
    fn the_examples_of_iscsi_have_its_sums() {
        let rising: Vec<u8> = (0..32).collect();
        let falling: Vec<u8> = (0..32).rev().collect();
        let examples: [(&[u8], u32); 4] = [
            (&[0; 32], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&rising, 0x46dd_794e),
            (&falling, 0x113f_db5c),
        ];
        for (bytes, sum) in examples {
            assert_eq!(crc32c(bytes), sum);
            for cut in 0..=bytes.len() {
                let (front, back) = bytes.split_at(cut);
                assert_eq!(crc32c_of(&[front, back]), sum, "cut at {cut}");
            }
        }
    }

    /// Whole pages use the wide instructions, short parts do not.
    #[test]
    fn long_parts_have_the_sum_of_all_their_bits() {
        let bit_by_bit = |bytes: &[u8]| {
            let mut sum = !0_u32;
            for byte in bytes {
                sum ^= u32::from(*byte);
                for _ in 0..8 {
                    sum = (sum >> 1) ^ (0x82f6_3b78 * (sum & 1));
                }
            }
            !sum
        };
        let page: Vec<u8> = (0..4096_u32)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        for bytes in [0, 1, 15, 16, 255, 256, 1023, 1024, 4032, 4092, 4096] {
            let (page, rest) = page.split_at(bytes);
            assert_eq!(crc32c(page), bit_by_bit(page), "{bytes} bytes");
            assert_eq!(crc32c_of(&[page, rest]), bit_by_bit(&[page, rest].concat()));
        }
    }
}
