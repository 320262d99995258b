//! Decoders for request bodies: by length, and in chunks. Data stays where it is; the caller gets ranges of it.
//!
//! ```text
//!   Size ─▶ (extensions) ─▶ SizeLf ─▶ Data ─▶ DataCr ─▶ DataLf ─▶ Size …
//!                              │ size 0
//!                              ▼
//!                         LineStart ─▶ TrailerName ─▶ TrailerValue ─▶ TrailerLf ─▶ LineStart …
//!                              │ CR
//!                              ▼
//!                           FinalLf ─▶ Done
//! ```
//!
//! Framing is read a byte at a time, so it costs the same in any cut; data is skipped over in one step. Trailers are
//! held to field syntax and counted, and then dropped: nothing of them ever reaches the application.

use std::ops::Range;

use crate::budget::Budget;
use crate::error::{Error, Refusal};
use crate::h1::framing::BodyLength;
use crate::headers::token_byte;
use crate::limits::Limits;
use crate::limits::table::{CHUNK_BYTES_PER_WASTE, MAX_CHUNK_SIZE_DIGITS};

/// One step of decoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Bytes of the input that are dealt with.
    pub consumed: usize,
    /// The body bytes among them; empty when there were none.
    pub data: Range<usize>,
    /// Whether the body is complete.
    pub done: bool,
}

/// A decoder for one body.
#[derive(Clone, Debug)]
pub enum Decoder {
    /// This many bytes are to come.
    Length(u64),
    /// Chunks are to come.
    Chunked(Chunked),
}

impl Decoder {
    /// The decoder a head asks for, or `None` if no body follows.
    pub fn new(body: BodyLength, limits: &Limits) -> Option<Self> {
        match body {
            BodyLength::None => None,
            BodyLength::Length(length) => Some(Self::Length(length)),
            BodyLength::Chunked => Some(Self::Chunked(Chunked::new(limits))),
        }
    }

    /// Read on. At most one run of data comes out of one call; call again with the rest while `consumed` says there is
    /// one. An error comes only after all data in front of it has been given out.
    #[inline]
    pub fn decode(&mut self, input: &[u8], limits: &Limits) -> Result<Decoded, Error> {
        match self {
            Self::Length(left) => {
                let length = usize::try_from(*left).map_or(input.len(), |left| left.min(input.len()));
                *left -= length as u64;
                Ok(Decoded { consumed: length, data: 0..length, done: *left == 0 })
            }
            Self::Chunked(chunked) => chunked.decode(input, limits),
        }
    }

    /// Bytes that are certain to come, as far as is known.
    pub(crate) fn certain(&self) -> u64 {
        match self {
            Self::Length(left) => *left,
            Self::Chunked(chunked) => chunked.left,
        }
    }
}

/// The place of the next byte in the chunk grammar (RFC 9112 section 7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In the size, after this many digits.
    Size(u8),
    /// White space behind a size or an extension: only `;` may follow.
    BeforeSemicolon,
    ExtensionStart,
    ExtensionName,
    /// White space behind an extension's name: `=` or `;` may follow.
    AfterName,
    ValueStart,
    Value,
    Quoted,
    QuotedPair,
    /// Behind the closing quote.
    AfterQuote,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    LineStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    FinalLf,
    Done,
}

/// The decoder for chunks.
#[derive(Clone, Copy, Debug)]
pub struct Chunked {
    state: State,
    /// While the size is read: its value. Then: data bytes still to come of this chunk.
    left: u64,
    /// Data bytes of the chunks so far, this one included.
    total: u64,
    waste: Budget,
    trailer_bytes: usize,
    trailers: usize,
}

impl Chunked {
    /// A decoder in front of the first chunk.
    pub fn new(limits: &Limits) -> Self {
        let waste = Budget::new(limits.chunk_waste);
        Self { state: State::Size(0), left: 0, total: 0, waste, trailer_bytes: 0, trailers: 0 }
    }

    fn decode(&mut self, input: &[u8], limits: &Limits) -> Result<Decoded, Error> {
        let start = self.framing(input, 0, limits)?;
        let data = self.take_data(input, start);
        // What follows the data is read along, so that a body in one read takes one call. An error in it waits for
        // the next call, which reads the same bytes again.
        let behind_data = *self;
        let consumed = self.framing(input, data.end, limits).unwrap_or_else(|_| {
            *self = behind_data;
            data.end
        });
        Ok(Decoded { consumed, data, done: self.state == State::Done })
    }

    /// As much of this chunk's data as is there.
    #[inline]
    fn take_data(&mut self, input: &[u8], start: usize) -> Range<usize> {
        if self.state != State::Data {
            return start..start;
        }
        let there = input.len() - start;
        let length = usize::try_from(self.left).map_or(there, |left| left.min(there));
        self.left -= length as u64;
        if self.left == 0 {
            self.state = State::DataCr;
        }
        start..start + length
    }

    /// Read framing from `at` up to data, the end of the body or the end of the input.
    #[inline]
    fn framing(&mut self, input: &[u8], at: usize, limits: &Limits) -> Result<usize, Error> {
        let mut at = at;
        while !matches!(self.state, State::Data | State::Done) {
            let Some(&byte) = input.get(at) else { break };
            self.state = self.step(byte, limits)?;
            at += 1;
        }
        Ok(at)
    }

    #[inline]
    fn step(&mut self, byte: u8, limits: &Limits) -> Result<State, Error> {
        match self.state {
            State::Size(digits) => self.size(byte, digits),
            State::SizeLf => self.size_end(byte, limits),
            State::DataCr if byte == b'\r' => Ok(State::DataLf),
            State::DataLf if byte == b'\n' => Ok(State::Size(0)),
            State::DataCr | State::DataLf => Err(Error::new(Refusal::ChunkEnd)),
            State::LineStart | State::TrailerName | State::TrailerValue | State::TrailerLf | State::FinalLf => {
                self.trailer(byte, limits)
            }
            _ => self.extension(byte),
        }
    }

    /// `1*HEXDIG`: no sign, no prefix, no white space in front. Leading zeros are waste.
    fn size(&mut self, byte: u8, digits: u8) -> Result<State, Error> {
        if let Some(digit) = char::from(byte).to_digit(16) {
            if usize::from(digits) == MAX_CHUNK_SIZE_DIGITS {
                return Err(Error::over(Refusal::ChunkSizeTooLong, MAX_CHUNK_SIZE_DIGITS));
            }
            if digits > 0 && self.left == 0 {
                self.waste()?;
            }
            self.left = self.left << 4 | u64::from(digit);
            return Ok(State::Size(digits + 1));
        }
        match byte {
            b'\r' if digits > 0 => Ok(State::SizeLf),
            b';' if digits > 0 => self.waste().map(|()| State::ExtensionStart),
            b' ' | b'\t' if digits > 0 => self.waste().map(|()| State::BeforeSemicolon),
            _ => Err(Error::new(Refusal::ChunkSize)),
        }
    }

    fn size_end(&mut self, byte: u8, limits: &Limits) -> Result<State, Error> {
        if byte != b'\n' {
            return Err(Error::new(Refusal::ChunkLineEnd));
        }
        if self.left == 0 {
            return Ok(State::LineStart);
        }
        self.total = self.total.checked_add(self.left).ok_or(Error::new(Refusal::ChunkSizeSum))?;
        if let Some(limit) = limits.body.filter(|&limit| self.total > limit) {
            return Err(Error::over(Refusal::BodyTooLarge, limit));
        }
        self.waste.replenish(self.left / CHUNK_BYTES_PER_WASTE as u64);
        Ok(State::Data)
    }

    /// `*( BWS ";" BWS token [ BWS "=" BWS ( token / quoted-string ) ] )` (RFC 9112 section 7.1.1), ignored but checked:
    /// a line end inside one is read differently by different servers.
    fn extension(&mut self, byte: u8) -> Result<State, Error> {
        let state = match (self.state, byte) {
            (State::ExtensionName | State::Value | State::AfterQuote, b'\r') => return Ok(State::SizeLf),
            (State::Quoted, b'"') => State::AfterQuote,
            (State::Quoted, b'\\') => State::QuotedPair,
            (State::Quoted | State::QuotedPair, b'\t' | b' '..=b'~' | 0x80..) | (State::ValueStart, b'"') => {
                State::Quoted
            }
            (State::ExtensionStart | State::ValueStart, b' ' | b'\t') => self.state,
            (State::ExtensionName | State::AfterName, b' ' | b'\t') => State::AfterName,
            (State::Value | State::AfterQuote | State::BeforeSemicolon, b' ' | b'\t') => State::BeforeSemicolon,
            (State::ExtensionName | State::AfterName, b'=') => State::ValueStart,
            (State::ExtensionStart | State::ValueStart, b';') => return Err(Error::new(Refusal::ChunkExtension)),
            (_, b';') => State::ExtensionStart,
            (State::ExtensionStart | State::ExtensionName, _) if token_byte(byte) != 0 => State::ExtensionName,
            (State::ValueStart | State::Value, _) if token_byte(byte) != 0 => State::Value,
            _ => return Err(Error::new(Refusal::ChunkExtension)),
        };
        self.waste()?;
        Ok(state)
    }

    /// Count a byte that only makes the framing longer.
    fn waste(&mut self) -> Result<(), Error> {
        if self.waste.consume(1) { Ok(()) } else { Err(Error::new(Refusal::ChunkWaste)) }
    }

    /// Field lines up to the empty one (RFC 9112 section 7.1.2), as strict as those of a head.
    fn trailer(&mut self, byte: u8, limits: &Limits) -> Result<State, Error> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > limits.trailers.saturating_add(2) {
            return Err(Error::over(Refusal::TrailersTooLarge, limits.trailers));
        }
        match (self.state, byte) {
            (State::LineStart, b'\r') => Ok(State::FinalLf),
            (State::FinalLf, b'\n') => Ok(State::Done),
            (State::LineStart, _) if token_byte(byte) != 0 => self.next_trailer(limits),
            (State::TrailerName, b':') | (State::TrailerValue, b'\t' | b' '..=b'~' | 0x80..) => Ok(State::TrailerValue),
            (State::TrailerName, _) if token_byte(byte) != 0 => Ok(State::TrailerName),
            (State::TrailerValue, b'\r') => Ok(State::TrailerLf),
            (State::TrailerLf, b'\n') => Ok(State::LineStart),
            _ => Err(Error::new(Refusal::Trailer)),
        }
    }

    fn next_trailer(&mut self, limits: &Limits) -> Result<State, Error> {
        if self.trailers == limits.fields {
            return Err(Error::over(Refusal::TooManyTrailers, limits.fields));
        }
        self.trailers += 1;
        Ok(State::TrailerName)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decode in pieces of `size` bytes: the data, and the bytes left after the body if it ended.
    fn decode_pieces(input: &[u8], size: usize, limits: &Limits) -> (Vec<u8>, Result<Option<usize>, u16>) {
        let mut decoder = Decoder::Chunked(Chunked::new(limits));
        let (mut data, mut at) = (Vec::new(), 0);
        while at < input.len() {
            let piece = &input[at..input.len().min(at + size)];
            match decoder.decode(piece, limits) {
                Ok(decoded) => {
                    assert!(decoded.data.end <= decoded.consumed && decoded.consumed <= piece.len());
                    assert!(decoded.consumed > 0, "every call makes progress");
                    data.extend_from_slice(&piece[decoded.data]);
                    at += decoded.consumed;
                    if decoded.done {
                        return (data, Ok(Some(input.len() - at)));
                    }
                }
                Err(error) => return (data, Err(error.status())),
            }
        }
        (data, Ok(None))
    }

    #[track_caller]
    fn decode_with(input: &[u8], limits: &Limits) -> (Vec<u8>, Result<Option<usize>, u16>) {
        let whole = decode_pieces(input, input.len().max(1), limits);
        for size in [1, 2, 3, 5, 7, 16, 64] {
            assert_eq!(decode_pieces(input, size, limits), whole, "in pieces of {size}");
        }
        whole
    }

    #[track_caller]
    fn decode(input: &str) -> Result<String, u16> {
        let (data, end) = decode_with(input.as_bytes(), &Limits::default());
        assert_ne!(end, Ok(None), "unfinished: {input}");
        end.map(|_| String::from_utf8(data).unwrap())
    }

    #[test]
    fn a_counted_body_ends_at_its_length() {
        let limits = Limits::default();
        let mut decoder = Decoder::new(BodyLength::Length(5), &limits).unwrap();
        assert_eq!(decoder.decode(b"", &limits).unwrap(), Decoded { consumed: 0, data: 0..0, done: false });
        assert_eq!(decoder.decode(b"he", &limits).unwrap(), Decoded { consumed: 2, data: 0..2, done: false });
        assert_eq!(decoder.decode(b"llo!", &limits).unwrap(), Decoded { consumed: 3, data: 0..3, done: true });
        assert!(Decoder::new(BodyLength::None, &limits).is_none());
    }

    #[test]
    fn chunks_are_joined_and_what_follows_is_left() {
        let (data, end) = decode_with(b"5\r\nhello\r\n00A\r\n0123\r\n0\r\n\n\r\n0\r\n\r\nGET /", &Limits::default());
        assert_eq!((data.as_slice(), end), (&b"hello0123\r\n0\r\n\n"[..], Ok(Some(5))));
        assert_eq!(decode("0\r\n\r\n"), Ok(String::new()));
        assert_eq!(decode("0000000000000001\r\na\r\n0000000000000000\r\n\r\n"), Ok("a".into()));
    }

    #[test]
    fn a_body_in_one_read_takes_one_call() {
        let limits = Limits::default();
        let mut decoder = Decoder::Chunked(Chunked::new(&limits));
        let decoded = decoder.decode(b"5\r\nhello\r\n0\r\n\r\n", &limits).unwrap();
        assert_eq!(decoded, Decoded { consumed: 15, data: 3..8, done: true });
    }

    #[test]
    fn data_in_front_of_an_error_is_given_out_first() {
        let limits = Limits::default();
        let mut decoder = Decoder::Chunked(Chunked::new(&limits));
        let decoded = decoder.decode(b"5\r\nhelloXX", &limits).unwrap();
        assert_eq!(decoded, Decoded { consumed: 8, data: 3..8, done: false });
        assert!(decoder.decode(b"XX", &limits).is_err());
    }

    /// F6, F10
    #[test]
    fn sizes_are_hexadecimal_digits_and_crlf() {
        for size in [
            "",
            "0x5",
            "+5",
            "-1",
            "5g",
            " 5",
            "\t5",
            "5 ",
            "5\t",
            "5 5",
            "5,5",
            "0_5",
            "\"5\"",
            "5\0",
            "5\x0b",
            "5:",
            "\u{b2}",
            "00000000000000005",
            "10000000000000005",
            "fffffffffffffffff",
        ] {
            assert_eq!(decode(&format!("{size}\r\nhello\r\n0\r\n\r\n")), Err(400), "{size:?}");
        }
        for body in ["\r\n\r\n", ";a\r\n\r\n", "5\r\nhello\r\n\r\n\r\n"] {
            assert_eq!(decode(body), Err(400), "no digit is not zero: {body:?}");
        }
        for end in ["\n", "\r", "\r\r\n", "\n\r", "\rX"] {
            assert_eq!(decode(&format!("5{end}hello\r\n0\r\n\r\n")), Err(400), "{end:?}");
        }
    }

    #[test]
    fn sizes_beyond_what_is_countable_do_not_wrap() {
        let limits = Limits::default();
        assert_eq!(decode_with(b"ffffffffffffffff\r\nhello", &limits), (b"hello".to_vec(), Ok(None)));
        let mut chunked = Chunked { total: 2, ..Chunked::new(&limits) };
        assert!(chunked.decode(b"fffffffffffffffe\r\n", &limits).is_err());
    }

    /// F8
    #[test]
    fn data_is_followed_by_exactly_crlf() {
        for end in ["", "XX", "\n", "\r", "\rX", "\n\n", "!\r\n", "\r\n\r\n"] {
            assert_eq!(decode(&format!("5\r\nhello{end}0\r\n\r\n")), Err(400), "{end:?}");
        }
    }

    #[test]
    fn extensions_are_read_over() {
        for extension in [
            ";a",
            ";a=b",
            ";a=b;c",
            ";a=\"b\"",
            ";a=\"b;c\\\"\\\r\"".replace('\r', " ").as_str(),
            ";a=\"\"",
            "; a",
            " ;a",
            "\t;\ta\t=\tb ; c",
            ";a=\"\u{e9}\t\"",
            ";!#$%&'*+-.^_`|~=1",
        ] {
            assert_eq!(
                decode(&format!("5{extension}\r\nhello\r\n0{extension}\r\n\r\n")),
                Ok("hello".into()),
                "{extension}"
            );
        }
    }

    /// F9
    #[test]
    fn extensions_follow_the_grammar() {
        for extension in [
            ";",
            ";a;",
            ";;a",
            ";a=;b",
            ";a=",
            ";=b",
            ";a=b=c",
            ";a=b c",
            ";a b",
            ";a=\"b",
            ";a=\"b\"c",
            ";\u{e9}",
            ";a,b",
            ";a/b",
            ";a\n",
            ";a\nb",
            ";a\rb",
            ";a\r",
            ";a=\"\n\"",
            ";a=\"\r\"",
            ";a=\"\\\n\"",
            ";a\0",
            ";a=\x01",
            ";a=\"\x01\"",
            ";a=\x7f",
            ";a=\"\x7f\"",
            ";a ",
            ";a=b ",
        ] {
            let (_, end) = decode_with(format!("5{extension}\r\nhello\r\n0\r\n\r\n").as_bytes(), &Limits::default());
            assert_eq!(end, Err(400), "{extension:?}");
        }
    }

    /// F13
    #[test]
    fn wasted_bytes_pass_up_to_the_limit() {
        let limits = Limits { chunk_waste: 4, ..Limits::default() };
        let one = |size: &str| decode_with(format!("{size}\r\na\r\n0\r\n\r\n").as_bytes(), &limits).1.is_ok();
        assert!(one("1;abc") && !one("1;abcd"));
        assert!(one("1 ;ab") && !one("1 ;abc"));
        assert!(one("00001") && !one("000001"));
        let many = |chunk: &str, count| decode_with((chunk.repeat(count) + "0\r\n\r\n").as_bytes(), &limits).1.is_ok();
        assert!(many("1;\r\na\r\n".replace(';', ";b").as_str(), 2) && !many("1;b\r\na\r\n", 3));
    }

    /// F13
    #[test]
    fn data_earns_waste_back() {
        let limits = Limits { chunk_waste: 4, ..Limits::default() };
        let chunk = format!("40;abc\r\n{}\r\n", "x".repeat(64));
        assert!(decode_with((chunk.repeat(20) + "0\r\n\r\n").as_bytes(), &limits).1.is_ok());
        let greedy = format!("30;abc\r\n{}\r\n", "x".repeat(48));
        assert_eq!(decode_with((greedy.repeat(20) + "0\r\n\r\n").as_bytes(), &limits).1, Err(400));
    }

    /// D3
    #[test]
    fn bodies_pass_up_to_the_limit() {
        let limits = Limits { body: Some(10), ..Limits::default() };
        assert!(decode_with(b"5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n", &limits).1.is_ok());
        assert_eq!(decode_with(b"5\r\n01234\r\n6\r\n567890\r\n0\r\n\r\n", &limits), (b"01234".to_vec(), Err(413)));
        assert_eq!(decode_with(b"b\r\n", &limits), (Vec::new(), Err(413)));
    }

    /// F14
    #[test]
    fn trailers_are_checked_counted_and_dropped() {
        let limits = Limits { fields: 2, trailers: 12, ..Limits::default() };
        let end = |trailers: &str| decode_with(format!("0\r\n{trailers}\r\n").as_bytes(), &limits).1;
        for trailers in ["", "Host: b\r\n", "a:b\r\nc:\td\r\n", "a:\r\n", "a: \u{e9}\r\n"] {
            assert_eq!(end(trailers), Ok(Some(0)), "{trailers}");
        }
        assert_eq!((end("a: 3456789\r\n"), end("a: 34567890\r\n")), (Ok(Some(0)), Err(431)));
        assert_eq!((end("a:\r\nb:\r\n"), end("a:\r\nb:\r\nc:\r\n")), (Ok(Some(0)), Err(431)));
        for trailers in [
            "a : b\r\n",
            ": b\r\n",
            "a\r\n",
            " a: b\r\n",
            "a: b\n",
            "a: \0\r\n",
            "a: b\rc\r\n",
            "a:\r\n b\r\n",
            "\u{e9}:\r\n",
        ] {
            assert_eq!(end(trailers), Err(400), "{trailers:?}");
        }
        for last in ["\n", "\rX", "\r\r\n", "GET / HTTP/1.1\r\n"] {
            assert_eq!(decode_with(format!("0\r\n{last}").as_bytes(), &Limits::default()).1, Err(400), "{last:?}");
        }
    }

    /// F16, F17
    #[test]
    fn a_cut_body_is_never_done() {
        let whole = b"5;a=\"b\"\r\nhello\r\n0\r\nx: y\r\n\r\n";
        for cut in 0..whole.len() {
            assert_eq!(decode_with(&whole[..cut], &Limits::default()).1, Ok(None), "{cut}");
        }
    }

    /// D5
    #[test]
    fn a_finished_decoder_takes_nothing_more() {
        let limits = Limits::default();
        let mut decoder = Decoder::Chunked(Chunked::new(&limits));
        assert!(decoder.decode(b"0\r\n\r\n", &limits).unwrap().done);
        assert_eq!(decoder.decode(b"GET /", &limits).unwrap(), Decoded { consumed: 0, data: 0..0, done: true });
    }
}
