//! TFRecord, the framing of TensorBoard's event files:
//!
//! ```text
//! u64  length of the data          u32  checksum of the length
//! [u8] the data                    u32  checksum of the data
//! ```
//!
//! in little-endian order. A checksum is a CRC-32C, rotated and offset by a constant ("masked").

/// Frames data as a record.
pub(super) fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut record = Vec::with_capacity(data.len() + 16);
    record.extend(length);
    record.extend(masked(crc32c(&length)).to_le_bytes());
    record.extend(data);
    record.extend(masked(crc32c(data)).to_le_bytes());
    record
}

fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The CRC with Castagnoli's polynomial, 0x1EDC6F41, reflected.
fn crc32c(data: &[u8]) -> u32 {
    let next = |crc: u32, &byte: &u8| TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8);
    !data.iter().fold(!0, next)
}

/// The remainder of each byte.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            let carry = crc & 1 == 1;
            crc >>= 1;
            if carry {
                crc ^= 0x82f6_3b78;
            }
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value of the CRC catalogue, and the examples of RFC 3720, B.4.
    #[test]
    fn checksums_are_those_of_the_standard() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&rising), 0x46dd_794e);
    }
}
