//! Frames of a client's, put together to messages.
//!
//! ```text
//!             a whole frame at hand, plain
//!   header ──────────────────────────────────────────────▶ message, where it lies in the input
//!     │ any other
//!     ▼
//!   payload ─▶ unmasked ─▶ inflated ─▶ checked ─▶ kept ──▶ message, assembled
//!     │  ▲       all of it as it comes                at the end of its last frame
//!     ▼  │
//!   header of the next fragment; between fragments, control frames
//! ```
//!
//! A large binary message of one plain frame can be left to the caller, who gets its pieces as they come.
//!
//! The header of a frame, and a control frame, are read when they are there as a whole: at most 131 bytes stay with the
//! caller, and none of a payload. The memory for a message is about its size, and every limit is checked before more is
//! kept. So the outcome never depends on how bytes were cut into reads.

use crate::ws::close;
use crate::ws::deflate::{Agreement, Inflater, StreamPool};
use crate::ws::event::{Event, Kind, Payload};
use crate::ws::failure::Failure;
use crate::ws::frame::{Header, Opcode, Start};
use crate::ws::limits::Limits;
use crate::ws::mask::Mask;
use crate::ws::utf8::Utf8;

/// How many times the available part of a message to allocate: a client that announces much and sends nothing gets
/// little.
const AHEAD: usize = 64;

/// A data frame whose payload is not complete.
#[derive(Clone, Copy)]
struct Frame {
    mask: Mask,
    left: u64,
    fin: bool,
    /// It is a message, and is kept by the caller.
    told: bool,
}

/// A message in progress.
struct Message {
    kind: Kind,
    deflated: bool,
    content: Content,
    /// Bytes of its payloads and of its headers, on the wire.
    wire: u64,
    headers: u64,
}

/// The part of a message that has come.
struct Content {
    bytes: Vec<u8>,
    /// Of a text.
    utf8: Option<Utf8>,
}

impl Content {
    /// Make room for all of a frame that is coming, instead of growing with each piece of it.
    fn expect(&mut self, piece: usize, left: u64) {
        let there = self.bytes.len().saturating_add(piece);
        let ahead = usize::try_from(left).unwrap_or(usize::MAX).min(there.saturating_mul(AHEAD));
        self.bytes.reserve(piece.saturating_add(ahead));
    }

    /// Add plain bytes. The first fault decides whether the message is too large or invalid text.
    fn push(&mut self, plain: &[u8], limits: &Limits) -> Result<(), Failure> {
        let room = limits.message.saturating_sub(self.bytes.len());
        let (fits, over) = plain.split_at_checked(room).unwrap_or((plain, &[]));
        if self.utf8.as_mut().is_some_and(|utf8| !utf8.push(fits)) {
            return Err(Failure::Text);
        }
        if !over.is_empty() {
            return Err(Failure::TooBig);
        }
        self.bytes.extend_from_slice(fits);
        Ok(())
    }
}

/// Reads a client's messages until it ends.
pub(crate) struct Reader {
    /// Most clients that have it send a message now and then; those that have not need no room for it.
    inflater: Option<Box<Inflater>>,
    frame: Option<Frame>,
    message: Option<Message>,
    /// The size from which binary messages come in pieces.
    pieces_from: u64,
}

impl Reader {
    pub(crate) fn new(agreement: Option<Agreement>) -> Self {
        let inflater = agreement.map(|agreement| Box::new(Inflater::new(agreement)));
        Self { inflater, frame: None, message: None, pieces_from: u64::MAX }
    }

    pub(crate) fn in_pieces(&mut self, from: u64) {
        self.pieces_from = from;
    }

    /// Unmask a piece of a payload that is passed on in pieces, in place; returns how many bytes follow.
    pub(crate) fn piece(&mut self, piece: &mut [u8]) -> Option<u64> {
        let mut frame = self.frame.filter(|frame| frame.told)?;
        frame.left = frame.left.checked_sub(piece.len() as u64)?;
        frame.mask.apply(piece);
        self.frame = Some(frame).filter(|frame| frame.left > 0);
        Some(frame.left)
    }

    /// Bytes of payload still to come of the frame that is being read.
    pub(crate) fn left(&self) -> u64 {
        self.frame.map_or(0, |frame| frame.left)
    }

    /// Read on: the next event, or why there is none, and how much of the input is dealt with.
    #[inline]
    pub(crate) fn read(
        &mut self,
        input: &mut [u8],
        pool: &mut StreamPool,
        limits: &Limits,
    ) -> (usize, Result<Event, Failure>) {
        let mut at = 0;
        loop {
            let step = match self.frame {
                None => self.header(input, &mut at, limits, pool),
                Some(frame) => self.payload(frame, input, &mut at, pool, limits),
            };
            match step {
                Ok(None) => {}
                Ok(Some(event)) => return (at, Ok(event)),
                Err(failure) => return (at, Err(failure)),
            }
        }
    }

    /// Read the header at `at`, and all of a frame that can be taken as a whole.
    #[inline]
    fn header(
        &mut self,
        input: &mut [u8],
        at: &mut usize,
        limits: &Limits,
        pool: &mut StreamPool,
    ) -> Result<Option<Event>, Failure> {
        let rest = input.get_mut(*at..).unwrap_or_default();
        let Some(start) = Start::read(rest)? else { return Ok(Some(Event::NeedMore)) };
        self.check(start)?;
        let Some(header) = start.header(rest)? else { return Ok(Some(Event::NeedMore)) };
        let size = header.size;
        if start.opcode.is_control() {
            let length = usize::try_from(header.length).unwrap_or(usize::MAX);
            let Some(payload) = rest.get_mut(size..size + length) else { return Ok(Some(Event::NeedMore)) };
            let begin = *at + size;
            *at = begin + length;
            return control(header, payload, begin).map(Some);
        }
        self.check_limits(header, limits)?;
        if start.fin && !start.rsv1 && self.message.is_none() {
            let end = usize::try_from(header.length).ok().and_then(|length| length.checked_add(size));
            if let Some(payload) = end.and_then(|end| rest.get_mut(size..end)) {
                let begin = *at + size;
                *at = begin + payload.len();
                return whole(header, payload, begin).map(Some);
            }
        }
        *at += size;
        if start.fin && !start.rsv1 && self.is_told(header) {
            self.frame = Some(Frame { mask: header.mask, left: header.length, fin: true, told: true });
        } else {
            self.begin(header, pool);
        }
        Ok(None)
    }

    /// Refuse frames that are out of order (RFC 6455 section 5.4, RFC 7692 section 6).
    #[inline]
    fn check(&self, start: Start) -> Result<(), Failure> {
        let mut compressible = false;
        match start.opcode {
            Opcode::Continuation if self.message.is_none() => return Err(Failure::ContinuationUnexpected),
            Opcode::Text | Opcode::Binary if self.message.is_some() => return Err(Failure::ContinuationMissing),
            Opcode::Text | Opcode::Binary => compressible = self.inflater.is_some(),
            _ => {}
        }
        if start.rsv2_or_3 || (start.rsv1 && !compressible) { Err(Failure::ReservedBits) } else { Ok(()) }
    }

    /// Refuse a payload that is too big, alone or with the fragments before it, or fragments that carry nothing.
    #[inline]
    fn check_limits(&self, header: Header, limits: &Limits) -> Result<(), Failure> {
        let before = self.message.as_ref();
        let deflated = header.start.rsv1 || before.is_some_and(|message| message.deflated);
        let limit = if deflated { limits.deflated() } else { limits.message };
        let wire = before.map_or(0, |message| message.wire).saturating_add(header.length);
        if wire > limit as u64 {
            return Err(Failure::TooBig);
        }
        let headers = before.map_or(0, |message| message.headers).saturating_add(header.size as u64);
        if headers.saturating_sub(wire) > limits.overhead as u64 { Err(Failure::TooManyFragments) } else { Ok(()) }
    }

    /// Whether this is a message of one frame that the caller puts together.
    fn is_told(&self, header: Header) -> bool {
        header.length >= self.pieces_from && header.start.opcode == Opcode::Binary && self.message.is_none()
    }

    /// A frame begins whose payload is kept.
    fn begin(&mut self, header: Header, pool: &mut StreamPool) {
        let start = header.start;
        let message = self.message.get_or_insert_with(|| {
            let kind = if start.opcode == Opcode::Text { Kind::Text } else { Kind::Binary };
            let utf8 = (kind == Kind::Text).then(Utf8::default);
            let content = Content { bytes: pool.buffer(), utf8 };
            Message { kind, deflated: start.rsv1, content, wire: 0, headers: 0 }
        });
        message.wire = message.wire.saturating_add(header.length);
        message.headers = message.headers.saturating_add(header.size as u64);
        self.frame = Some(Frame { mask: header.mask, left: header.length, fin: start.fin, told: false });
    }

    /// Take the available part of a payload.
    fn payload(
        &mut self,
        mut frame: Frame,
        input: &mut [u8],
        at: &mut usize,
        pool: &mut StreamPool,
        limits: &Limits,
    ) -> Result<Option<Event>, Failure> {
        let there = input.len().saturating_sub(*at);
        let length = usize::try_from(frame.left).map_or(there, |left| left.min(there));
        let piece = input.get_mut(*at..*at + length).unwrap_or_default();
        frame.mask.apply(piece);
        frame.left -= piece.len() as u64;
        let begin = *at;
        *at += piece.len();
        self.frame = Some(frame);
        if frame.told {
            if piece.is_empty() {
                return Ok(Some(Event::NeedMore));
            }
            self.frame = Some(frame).filter(|frame| frame.left > 0);
            return Ok(Some(Event::Piece { payload: begin..*at, left: frame.left }));
        }
        self.add(piece, frame, pool, limits)?;
        if frame.left > 0 {
            return Ok(Some(Event::NeedMore));
        }
        self.frame = None;
        if frame.fin { self.finish(pool, limits).map(Some) } else { Ok(None) }
    }

    fn add(&mut self, piece: &[u8], frame: Frame, pool: &mut StreamPool, limits: &Limits) -> Result<(), Failure> {
        let Some(message) = &mut self.message else { return Ok(()) };
        let content = &mut message.content;
        match &mut self.inflater {
            Some(inflater) if message.deflated => inflater.push(piece, pool, |plain| content.push(plain, limits)),
            _ => {
                content.expect(piece.len(), frame.left);
                content.push(piece, limits)
            }
        }
    }

    /// The last frame of a message is complete.
    fn finish(&mut self, pool: &mut StreamPool, limits: &Limits) -> Result<Event, Failure> {
        let Some(Message { kind, deflated, mut content, .. }) = self.message.take() else { return Ok(Event::NeedMore) };
        if let Some(inflater) = self.inflater.as_mut().filter(|_| deflated) {
            inflater.finish(pool, |plain| content.push(plain, limits))?;
        }
        if content.utf8.is_some_and(|utf8| !utf8.is_complete()) {
            return Err(Failure::Text);
        }
        Ok(Event::Message { kind, payload: Payload::Assembled(content.bytes) })
    }
}

/// A message of one frame that is all there.
#[inline]
fn whole(mut header: Header, payload: &mut [u8], begin: usize) -> Result<Event, Failure> {
    header.mask.apply(payload);
    let kind = if header.start.opcode == Opcode::Text { Kind::Text } else { Kind::Binary };
    if kind == Kind::Text && std::str::from_utf8(payload).is_err() {
        return Err(Failure::Text);
    }
    Ok(Event::Message { kind, payload: Payload::Input(begin..begin + payload.len()) })
}

/// A control frame that is all there.
fn control(mut header: Header, payload: &mut [u8], begin: usize) -> Result<Event, Failure> {
    header.mask.apply(payload);
    let range = begin..begin + payload.len();
    match header.start.opcode {
        Opcode::Ping => Ok(Event::Ping(range)),
        Opcode::Pong => Ok(Event::Pong(range)),
        _ => {
            let (code, reason) = close::parse(payload)?;
            Ok(Event::Close { code, reason: begin + reason.start..begin + reason.end })
        }
    }
}

/// Looks for the close frame of a client, and for nothing else: frames before it are dropped.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Search {
    /// Missing bytes of an unwanted payload.
    pub(crate) left: u64,
}

impl Search {
    /// Read on, as [`Reader::read`] does.
    pub(crate) fn read(&mut self, input: &mut [u8]) -> (usize, Result<Event, Failure>) {
        let mut at = 0;
        let result = loop {
            let rest = input.get_mut(at..).unwrap_or_default();
            let dropped = usize::try_from(self.left).map_or(rest.len(), |left| left.min(rest.len()));
            self.left -= dropped as u64;
            at += dropped;
            match self.step(rest.get_mut(dropped..).unwrap_or_default(), &mut at) {
                Ok(None) => {}
                Ok(Some(event)) => break Ok(event),
                Err(failure) => break Err(failure),
            }
        };
        (at, result)
    }

    fn step(&mut self, rest: &mut [u8], at: &mut usize) -> Result<Option<Event>, Failure> {
        let Some(start) = Start::read(rest)? else { return Ok(Some(Event::NeedMore)) };
        let Some(header) = start.header(rest)? else { return Ok(Some(Event::NeedMore)) };
        if start.opcode != Opcode::Close {
            self.left = header.length;
            *at += header.size;
            return Ok(None);
        }
        let length = usize::try_from(header.length).unwrap_or(usize::MAX);
        let Some(payload) = rest.get_mut(header.size..header.size + length) else { return Ok(Some(Event::NeedMore)) };
        let begin = *at + header.size;
        *at = begin + length;
        control(header, payload, begin).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// W8: memory follows the bytes received, not the size announced.
    #[test]
    fn room_is_made_once_and_not_for_what_is_only_announced() {
        let mut content = Content { bytes: Vec::new(), utf8: None };
        content.expect(1, 1 << 40);
        assert!((1..=2 * (1 + AHEAD)).contains(&content.bytes.capacity()));
        content.expect(1000, 63_000);
        let capacity = content.bytes.capacity();
        assert!(capacity >= 64_000);
        content.push(&[0; 1000], &Limits::default()).unwrap();
        content.expect(63_000, 0);
        assert_eq!(content.bytes.capacity(), capacity);
    }
}
