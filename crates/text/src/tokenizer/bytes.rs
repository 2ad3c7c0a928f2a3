//! The byte alphabet of GPT-2: vocabularies write each byte as one printable character.
//!
//! Printable Latin-1 stands for itself; the other 68 bytes, in order, are U+0100 onwards.

/// Whether a byte is written as the character of the same number.
fn stands_for_itself(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

/// From character number to byte, for the characters of the alphabet (all below U+0144).
#[derive(Debug, Clone)]
pub(super) struct ByteAlphabet {
    bytes: [Option<u8>; 0x144],
}

impl ByteAlphabet {
    pub(super) fn new() -> Self {
        let mut bytes = [None; 0x144];
        let mut shifted = 0x100;
        for byte in 0..=255u8 {
            if stands_for_itself(byte) {
                bytes[usize::from(byte)] = Some(byte);
            } else {
                bytes[shifted] = Some(byte);
                shifted += 1;
            }
        }
        ByteAlphabet { bytes }
    }

    /// The bytes that `token` spells, or `None` when a character is not of the alphabet.
    pub(super) fn decode(&self, token: &str) -> Option<Vec<u8>> {
        token.chars().map(|c| self.bytes.get(c as usize).copied().flatten()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alphabet_is_gpt2s() {
        let alphabet = ByteAlphabet::new();
        assert_eq!(alphabet.decode("Ġhi"), Some(b" hi".to_vec()));
        assert_eq!(alphabet.decode("ĊĉŃ"), Some(vec![b'\n', b'\t', 0xAD]));
        assert_eq!(alphabet.decode("ÿ"), Some(vec![0xFF]));
        assert_eq!(alphabet.decode(" "), None);
        assert_eq!(alphabet.decode("一"), None);
        let all: std::collections::HashSet<u8> = alphabet.bytes.iter().flatten().copied().collect();
        assert_eq!(all.len(), 256);
    }
}
