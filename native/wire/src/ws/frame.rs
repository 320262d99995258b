//! The header of a frame (RFC 6455 section 5.2), read and written.

use crate::ws::failure::Failure;
use crate::ws::mask::Mask;

/// The frame is the last of its message.
pub(crate) const FIN: u8 = 0x80;
/// The message is compressed (RFC 7692 section 6).
pub(crate) const RSV1: u8 = 0x40;
const RSV2_AND_3: u8 = 0x30;
const MASKED: u8 = 0x80;
/// The longest payload of a control frame (RFC 6455 section 5.5).
pub const MAX_CONTROL: usize = 125;

/// The type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// More of the message in progress.
    Continuation = 0x0,
    /// A text message, or its beginning.
    Text = 0x1,
    /// A binary message, or its beginning.
    Binary = 0x2,
    /// The end of the connection.
    Close = 0x8,
    /// A question for a pong.
    Ping = 0x9,
    /// The answer to a ping.
    Pong = 0xA,
}

impl Opcode {
    const fn new(bits: u8) -> Option<Self> {
        Some(match bits {
            0x0 => Self::Continuation,
            0x1 => Self::Text,
            0x2 => Self::Binary,
            0x8 => Self::Close,
            0x9 => Self::Ping,
            0xA => Self::Pong,
            _ => return None,
        })
    }

    /// Whether such a frame may come between those of a message (RFC 6455 section 5.5).
    pub const fn is_control(self) -> bool {
        self as u8 >= Self::Close as u8
    }
}

/// The two bytes that every frame begins with. They are held to what no frame of a client's may begin with, whatever came
/// before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) opcode: Opcode,
    pub(crate) fin: bool,
    /// The bits that only an extension gives a meaning: the first, and whether one of the others is set.
    pub(crate) rsv1: bool,
    pub(crate) rsv2_or_3: bool,
    length: u8,
}

impl Start {
    /// The start of the frame that `input` begins with; `None` if it is not all there.
    #[inline]
    pub(crate) fn read(input: &[u8]) -> Result<Option<Self>, Failure> {
        let &[first, second, ..] = input else { return Ok(None) };
        let Some(opcode) = Opcode::new(first & 0x0F) else { return Err(Failure::Opcode) };
        let start = Self {
            opcode,
            fin: first & FIN != 0,
            rsv1: first & RSV1 != 0,
            rsv2_or_3: first & RSV2_AND_3 != 0,
            length: second & !MASKED,
        };
        if second & MASKED == 0 {
            return Err(Failure::Masking);
        }
        if opcode.is_control() {
            if usize::from(start.length) > MAX_CONTROL {
                return Err(Failure::ControlTooLong);
            }
            if !start.fin {
                return Err(Failure::ControlFragmented);
            }
        }
        Ok(Some(start))
    }

    /// The rest of the header; `None` if it is not all there.
    #[inline]
    pub(crate) fn header(self, input: &[u8]) -> Result<Option<Header>, Failure> {
        let rest = input.get(2..).unwrap_or_default();
        // The shortest form has to be used, and the highest bit is 0.
        let (length, rest, valid) = match self.length {
            126 => {
                let Some((bytes, rest)) = rest.split_first_chunk() else { return Ok(None) };
                let length = u64::from(u16::from_be_bytes(*bytes));
                (length, rest, length >= 126)
            }
            127 => {
                let Some((bytes, rest)) = rest.split_first_chunk() else { return Ok(None) };
                let length = u64::from_be_bytes(*bytes);
                (length, rest, length > 0xFFFF && length >> 63 == 0)
            }
            length => (u64::from(length), rest, true),
        };
        let Some((mask, payload)) = rest.split_first_chunk() else { return Ok(None) };
        if !valid {
            return Err(Failure::Length);
        }
        Ok(Some(Header { start: self, length, size: input.len() - payload.len(), mask: Mask::new(*mask) }))
    }
}

/// The header of a frame of a client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) start: Start,
    /// Bytes of payload.
    pub(crate) length: u64,
    /// Bytes of the header itself.
    pub(crate) size: usize,
    pub(crate) mask: Mask,
}

/// The header of a frame of the server's, which is not masked. The payload has to follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    bytes: [u8; 10],
    size: usize,
}

impl FrameHead {
    /// The longest there is.
    pub(crate) const LONGEST: usize = 10;

    /// The header of a whole message or a control frame; `deflated` says that its payload is compressed.
    #[inline]
    pub(crate) fn new(opcode: Opcode, deflated: bool, payload: usize) -> Self {
        let first = FIN | if deflated { RSV1 } else { 0 } | opcode as u8;
        let mut bytes = [first, 127, 0, 0, 0, 0, 0, 0, 0, 0];
        let size = if let [_, short, a, b, ..] = &mut bytes
            && let Ok(length) = u16::try_from(payload)
        {
            if length <= 125 {
                *short = length as u8;
                2
            } else {
                *short = 126;
                [*a, *b] = length.to_be_bytes();
                4
            }
        } else if let Some(place) = bytes.last_chunk_mut() {
            *place = (payload as u64).to_be_bytes();
            Self::LONGEST
        } else {
            0
        };
        Self { bytes, size }
    }

    /// The bytes on the wire.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.size).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &[u8]) -> Result<Option<Header>, Failure> {
        Start::read(input)?.map_or(Ok(None), |start| start.header(input))
    }

    /// The server's frames, as a client would write them.
    fn masked(head: FrameHead) -> Vec<u8> {
        let mut bytes = head.as_bytes().to_vec();
        bytes[1] |= MASKED;
        bytes.extend([1, 2, 3, 4]);
        bytes
    }

    #[test]
    fn what_is_written_is_read_and_only_when_it_is_all_there() {
        for length in [0, 1, 125, 126, 127, 255, 256, 65_535, 65_536, 1 << 32, (1 << 63) - 1] {
            let Ok(payload) = usize::try_from(length) else { continue };
            let bytes = masked(FrameHead::new(Opcode::Binary, payload % 2 == 0, payload));
            for end in 0..bytes.len() {
                assert_eq!(read(&bytes[..end]), Ok(None));
            }
            let header = read(&bytes).unwrap().unwrap();
            assert_eq!((header.length, header.size), (length, bytes.len()));
            assert_eq!((header.start.fin, header.start.rsv1), (true, payload % 2 == 0));
            assert_eq!((header.start.opcode, header.mask), (Opcode::Binary, Mask::new([1, 2, 3, 4])));
        }
    }

    /// W11
    #[test]
    fn what_no_client_may_send_is_refused_by_its_first_bytes() {
        for (bytes, failure) in [
            (&[0x83, 0x80][..], Failure::Opcode),
            (&[0x8b, 0x80], Failure::Opcode),
            (&[0x8f, 0x00], Failure::Opcode),
            (&[0x81, 0x05], Failure::Masking),
            (&[0x89, 0xfe], Failure::ControlTooLong),
            (&[0x09, 0x80], Failure::ControlFragmented),
            (&[0x81, 0xfe, 0, 125, 0, 0, 0, 0], Failure::Length),
            (&[0x82, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0], Failure::Length),
            (&[0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], Failure::Length),
        ] {
            assert_eq!(read(bytes), Err(failure), "{bytes:x?}");
        }
    }
}
