//! A hash for small caches.

const FACTOR: u64 = 0x517c_c1b7_2722_0a95;

#[inline]
fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(5) ^ word).wrapping_mul(FACTOR)
}

/// A hash that is quick rather than hard to collide with: entries found by it must be compared byte by byte before they
/// are used, and an attacker who produces collisions must achieve no more than cache misses.
#[inline]
pub fn fingerprint(text: &[u8]) -> u64 {
    let mut words = text.chunks_exact(8);
    let hash = words.by_ref().fold(text.len() as u64, |hash, word| {
        mix(hash, word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)))
    });
    let rest = words.remainder();
    let hash = match (rest.is_empty(), text.last_chunk()) {
        (true, _) => hash,
        // Some of its bytes are looked at twice.
        (false, Some(last)) => mix(hash, u64::from_le_bytes(*last)),
        (false, None) => rest.iter().fold(hash, |hash, &byte| mix(hash, u64::from(byte))),
    };
    // The high bits are the well-mixed ones.
    hash.rotate_left(26)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_byte_counts_at_every_length() {
        for length in 0..40 {
            let text = vec![b'a'; length];
            let mut seen = HashSet::from([fingerprint(&text)]);
            for place in 0..length {
                let mut other = text.clone();
                if let Some(byte) = other.get_mut(place) {
                    *byte = b'b';
                }
                assert!(seen.insert(fingerprint(&other)), "{place} of {length}");
            }
        }
    }

    #[test]
    fn texts_of_other_lengths_differ() {
        let all: HashSet<u64> = (0..100).map(|length| fingerprint(&vec![0; length])).collect();
        assert_eq!(all.len(), 100);
    }
}
