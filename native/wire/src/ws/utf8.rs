//! Whether text is UTF-8, told as it comes: the first byte that no text can have there is found at once.

use std::str::from_utf8;

/// The state of a text so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Utf8 {
    /// The beginning of a character whose end has not come.
    begun: [u8; 4],
    length: usize,
}

impl Utf8 {
    /// Look at the next bytes; `false` if the text is not UTF-8, whatever follows.
    #[inline]
    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> bool {
        while self.length > 0 {
            let Some((&byte, rest)) = bytes.split_first() else { return true };
            bytes = rest;
            if !self.push_byte(byte) {
                return false;
            }
        }
        match from_utf8(bytes) {
            Ok(_) => true,
            Err(error) => error.error_len().is_none() && self.begin(bytes.get(error.valid_up_to()..)),
        }
    }

    /// Whether the text can end here.
    pub(crate) const fn is_complete(&self) -> bool {
        self.length == 0
    }

    fn begin(&mut self, bytes: Option<&[u8]>) -> bool {
        bytes.is_some_and(|bytes| bytes.iter().all(|&byte| self.push_byte(byte)))
    }

    fn push_byte(&mut self, byte: u8) -> bool {
        let Some(place) = self.begun.get_mut(self.length) else { return false };
        *place = byte;
        self.length += 1;
        match from_utf8(self.begun.get(..self.length).unwrap_or_default()) {
            Ok(_) => self.length = 0,
            Err(error) if error.error_len().is_some() => return false,
            Err(_) => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how many bytes, one at a time, a text is refused; `None` if it is not.
    fn refused_at(text: &[u8]) -> Option<usize> {
        let mut state = Utf8::default();
        (1..=text.len()).find(|&end| !state.push(&text[end - 1..end]))
    }

    /// W11
    #[test]
    fn the_first_bad_byte_is_found_in_any_cut() {
        let texts: [&[u8]; 16] = [
            b"",
            b"plain",
            "\u{e9}\u{20ac}\u{1d11e}\u{10ffff}".as_bytes(),
            b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited",
            b"ok\xc0\xaf",
            b"\xe0\x80\x80",
            b"\xe0\x9f",
            b"\xf0\x8f\xbf\xbf",
            b"\xf4\x90\x80\x80",
            b"\xf5",
            b"\x80",
            b"a\xff",
            b"\xe2\x82",
            b"\xe2\x28\xa1",
            b"\xf0\x9f\x98",
            b"\xed\xbf\xbf",
        ];
        for text in texts {
            let expected = from_utf8(text).err().and_then(|error| {
                // The byte behind what a character could begin with; the first if there is no such beginning.
                error.error_len().map(|length| error.valid_up_to() + length.max(1))
            });
            let found = refused_at(text);
            assert_eq!(found.is_some(), expected.is_some(), "{text:?}");
            for cut in 0..=text.len() {
                let mut state = Utf8::default();
                let good = state.push(&text[..cut]);
                assert_eq!(good, found.is_none_or(|at| at > cut), "{text:?} cut at {cut}");
                if good {
                    assert_eq!(state.push(&text[cut..]), found.is_none());
                    assert_eq!(found.is_none() && state.is_complete(), from_utf8(text).is_ok());
                }
            }
        }
    }
}
