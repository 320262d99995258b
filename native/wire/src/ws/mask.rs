//! The masking of a client's payloads (RFC 6455 section 5.3).

/// The four bytes a payload was masked with, turned to where the payload goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mask([u8; 4]);

impl Mask {
    /// The mask of a frame's header, in front of its payload.
    pub const fn new(bytes: [u8; 4]) -> Self {
        Self(bytes)
    }

    /// Take the mask off the next bytes of the payload; or put it on.
    #[inline]
    pub fn apply(&mut self, data: &mut [u8]) {
        let [a, b, c, d] = self.0;
        let wide = u128::from_ne_bytes([a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d]);
        // Whole words of any alignment: the compiler makes vectors of them.
        let (words, rest) = data.as_chunks_mut::<16>();
        for word in words {
            *word = (u128::from_ne_bytes(*word) ^ wide).to_ne_bytes();
        }
        for (byte, key) in rest.iter_mut().zip(self.0.iter().cycle()) {
            *byte ^= key;
        }
        self.0.rotate_left(rest.len() % 4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_the_book(data: &[u8], mask: [u8; 4]) -> Vec<u8> {
        data.iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]).collect()
    }

    #[test]
    fn any_length_at_any_alignment_in_any_pieces() {
        let bytes: Vec<u8> = (0..200).map(|byte: u8| byte.wrapping_mul(37)).collect();
        let mask = [0x37, 0xfa, 0x21, 0x3d];
        for start in 0..17 {
            for length in 0..70 {
                let plain = &bytes[start..start + length];
                let expected = by_the_book(plain, mask);
                for cut in 0..=length {
                    let mut buffer = bytes.clone();
                    let mut state = Mask::new(mask);
                    state.apply(&mut buffer[start..start + cut]);
                    state.apply(&mut buffer[start + cut..start + length]);
                    assert_eq!(buffer[start..start + length], expected, "{length} bytes at {start} cut at {cut}");
                }
            }
        }
    }
}
