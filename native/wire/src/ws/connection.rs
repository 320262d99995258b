//! The order of frames on one connection.
//!
//! ```text
//!   Open ─ frames are read ──────────▶ close ──▶ Closing ─ the client's close frame is looked for ──▶ Closed
//!    │                                             ▲                                                    ▲
//!    ▼ Event::Close, Event::Failed                 │ the client can still answer                        │
//!   Open ─ nothing more is read ─────▶ close ──────┴────────────────────────────────────────────────────┘
//! ```
//!
//! The client's end of the connection is an event after the messages before it, and until the server has called `close`
//! it can answer those.

use std::fmt;

use crate::ws::close::{NO_CODE, is_close_code, truncate_reason};
use crate::ws::deflate::{Agreement, Deflater, OWN_WINDOW_BITS, StreamPool};
use crate::ws::event::{Event, Kind, Progress};
use crate::ws::frame::{FrameHead, MAX_CONTROL, Opcode};
use crate::ws::limits::Limits;
use crate::ws::message::{Reader, Search};

/// Why a frame cannot be sent. Nothing was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// A close frame was sent, or the connection is over.
    Closed,
    /// The code may not be in a close frame (RFC 6455 section 7.4).
    Code,
    /// A ping or pong of more than 125 bytes (RFC 6455 section 5.5).
    TooLong,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the connection is closed",
            Self::Code => "a close frame may not carry this code",
            Self::TooLong => "control frame too long",
        })
    }
}

impl std::error::Error for SendError {}

enum State {
    /// Frames can be sent.
    Open(Reading),
    /// The server has sent its close frame, and awaits the client's.
    Closing(Search),
    Closed,
}

enum Reading {
    Frames(Reader),
    /// The client has ended, or failed: then its close frame may still come, if frame boundaries are known.
    Ended(Option<Search>),
}

/// The state of one connection, from the handshake on.
pub struct Connection {
    state: State,
    deflater: Option<Box<Deflater>>,
}

impl Connection {
    /// A new connection; with `agreement` it compresses.
    pub fn new(agreement: Option<Agreement>) -> Self {
        let reader = Reader::new(agreement);
        Self {
            state: State::Open(Reading::Frames(reader)),
            deflater: agreement.map(|agreement| Box::new(Deflater::new(agreement))),
        }
    }

    /// Have binary messages of one plain frame from this size on passed on in pieces, in place in the input, instead of
    /// putting them together here. To be called before anything is read.
    #[must_use]
    pub fn in_pieces(mut self, from: u64) -> Self {
        if let State::Open(Reading::Frames(reader)) = &mut self.state {
            reader.in_pieces(from);
        }
        self
    }

    /// Read on from `input`: all bytes that have arrived and are not consumed yet. Payloads are unmasked in place, so
    /// consumed bytes are changed. Repeat with the rest until this returns `NeedMore` or `Closed`.
    #[inline]
    pub fn poll(&mut self, input: &mut [u8], pool: &mut StreamPool, limits: &Limits) -> Progress {
        match &mut self.state {
            State::Open(Reading::Frames(reader)) => {
                let (consumed, result) = reader.read(input, pool, limits);
                let search = Search { left: reader.left() };
                let event = match result {
                    Ok(event) => event,
                    Err(failure) => {
                        let search = failure.leaves_close().then_some(search);
                        self.state = State::Open(Reading::Ended(search));
                        return Progress { consumed, event: Event::Failed(failure) };
                    }
                };
                if let Event::Close { .. } = event {
                    self.state = State::Open(Reading::Ended(None));
                }
                Progress { consumed, event }
            }
            State::Open(Reading::Ended(search)) => Progress { consumed: drain(search, input), event: Event::NeedMore },
            State::Closing(search) => {
                let (consumed, result) = search.read(input);
                if result == Ok(Event::NeedMore) {
                    return Progress { consumed, event: Event::NeedMore };
                }
                self.state = State::Closed;
                result.map_or(Progress { consumed: input.len(), event: Event::Closed }, |event| Progress {
                    consumed,
                    event,
                })
            }
            State::Closed => Progress { consumed: input.len(), event: Event::Closed },
        }
    }

    /// Unmask bytes of a payload that is passed on [in pieces](Self::in_pieces), and that were received elsewhere than
    /// in the input; returns how many follow. `None`: no such payload is coming, or fewer bytes of it are.
    pub fn piece(&mut self, piece: &mut [u8]) -> Option<u64> {
        match &mut self.state {
            State::Open(Reading::Frames(reader)) => reader.piece(piece),
            _ => None,
        }
    }

    /// Whether messages can be sent.
    pub const fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Whether both sides have finished.
    pub const fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// Append a message. The payload of a text must be UTF-8.
    #[inline]
    pub fn message(
        &mut self,
        out: &mut Vec<u8>,
        kind: Kind,
        payload: &[u8],
        pool: &mut StreamPool,
    ) -> Result<(), SendError> {
        if let Some(head) = self.message_head(kind, payload.len(), pool)? {
            out.reserve(FrameHead::LONGEST + payload.len());
            out.extend_from_slice(head.as_bytes());
            out.extend_from_slice(payload);
            return Ok(());
        }
        if let Some(deflater) = &mut self.deflater
            && put_deflated(deflater, out, kind, payload, pool)
        {
            return Ok(());
        }
        put(out, kind.opcode(), payload);
        Ok(())
    }

    /// The frame header for a message of `length` bytes, so that a large one can be written from its own place. `None`:
    /// it has to be compressed, by [`message`](Self::message).
    #[inline]
    pub fn message_head(&self, kind: Kind, length: usize, pool: &StreamPool) -> Result<Option<FrameHead>, SendError> {
        if !self.is_open() {
            return Err(SendError::Closed);
        }
        let deflates = self.deflater.is_some() && length >= pool.settings.threshold;
        Ok((!deflates).then(|| FrameHead::new(kind.opcode(), false, length)))
    }

    /// Whether messages may be compressed.
    #[inline]
    pub const fn compresses(&self) -> bool {
        self.deflater.is_some()
    }

    /// The frame of a message for many clients, in the form that this client can read. If the frame is compressed, the
    /// client's own stream is dropped: its window moves on without it.
    pub fn prepared<'a>(&mut self, prepared: &'a mut Prepared, pool: &mut StreamPool) -> Result<&'a [u8], SendError> {
        if !self.is_open() {
            return Err(SendError::Closed);
        }
        if let Some(deflater) = self.deflater.as_mut().filter(|deflater| deflater.bits() >= OWN_WINDOW_BITS)
            && prepared.length >= pool.settings.threshold
        {
            deflater.release(pool);
            return Ok(prepared.deflated(pool));
        }
        Ok(&prepared.plain)
    }

    /// Append a ping.
    pub fn ping(&self, out: &mut Vec<u8>, payload: &[u8]) -> Result<(), SendError> {
        self.control(out, Opcode::Ping, payload)
    }

    /// Append a pong: the answer to a ping, with its payload.
    pub fn pong(&self, out: &mut Vec<u8>, payload: &[u8]) -> Result<(), SendError> {
        self.control(out, Opcode::Pong, payload)
    }

    fn control(&self, out: &mut Vec<u8>, opcode: Opcode, payload: &[u8]) -> Result<(), SendError> {
        if !self.is_open() {
            return Err(SendError::Closed);
        }
        if payload.len() > MAX_CONTROL {
            return Err(SendError::TooLong);
        }
        put(out, opcode, payload);
        Ok(())
    }

    /// Append the close frame, after which nothing is sent; [`NO_CODE`] makes one without a code. The reason is
    /// truncated to fit. Input from the client is dropped from now on, up to its own close frame; unless that has come,
    /// or cannot be found: then the connection is [closed](Self::is_closed).
    pub fn close(&mut self, out: &mut Vec<u8>, code: u16, reason: &str) -> Result<(), SendError> {
        let State::Open(reading) = &self.state else { return Err(SendError::Closed) };
        let mut payload = Vec::new();
        if code != NO_CODE {
            if !is_close_code(code) {
                return Err(SendError::Code);
            }
            payload.extend(code.to_be_bytes());
            payload.extend(truncate_reason(reason).as_bytes());
        }
        let search = match reading {
            Reading::Frames(reader) => Some(Search { left: reader.left() }),
            Reading::Ended(search) => *search,
        };
        put(out, Opcode::Close, &payload);
        self.state = search.map_or(State::Closed, State::Closing);
        self.deflater = None;
        Ok(())
    }

    /// Drop the stream that compresses, which the next message can do without. For a connection that sends nothing for
    /// a while; the next message begins with an empty window.
    pub fn release(&mut self, pool: &mut StreamPool) {
        if let Some(deflater) = &mut self.deflater {
            deflater.release(pool);
        }
    }
}

/// Drop input after the end of a client; note its close frame.
fn drain(search: &mut Option<Search>, input: &mut [u8]) -> usize {
    let Some(found) = search else { return input.len() };
    let (consumed, result) = found.read(input);
    if result == Ok(Event::NeedMore) {
        return consumed;
    }
    *search = None;
    input.len()
}

fn put(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8]) {
    out.extend_from_slice(FrameHead::new(opcode, false, payload.len()).as_bytes());
    out.extend_from_slice(payload);
}

/// Append a compressed message, in front of which there is room for any header until its length is known.
fn put_deflated(deflater: &mut Deflater, out: &mut Vec<u8>, kind: Kind, payload: &[u8], pool: &mut StreamPool) -> bool {
    let start = out.len();
    let room = start + FrameHead::LONGEST;
    out.resize(room, 0);
    if !deflater.deflate(payload, out, pool) {
        out.truncate(start);
        return false;
    }
    let head = FrameHead::new(kind.opcode(), true, out.len() - room);
    out.splice(start..room, head.as_bytes().iter().copied());
    true
}

/// A message for many clients: framed once, and compressed once if any of them wants that.
pub struct Prepared {
    kind: Kind,
    length: usize,
    plain: Vec<u8>,
    deflated: Option<Vec<u8>>,
}

impl Prepared {
    /// The message. The payload of a text must be UTF-8.
    pub fn new(kind: Kind, payload: &[u8]) -> Self {
        let mut plain = Vec::with_capacity(FrameHead::LONGEST + payload.len());
        put(&mut plain, kind.opcode(), payload);
        Self { kind, length: payload.len(), plain, deflated: None }
    }

    fn deflated(&mut self, pool: &mut StreamPool) -> &[u8] {
        let Self { kind, length, plain, deflated } = self;
        deflated.get_or_insert_with(|| {
            let payload = plain.get(plain.len() - *length..).unwrap_or_default();
            let mut frame = Vec::new();
            // One message with an empty window, of the usual size: every client that has agreed on one can read it.
            let mut deflater = Deflater::once();
            if !put_deflated(&mut deflater, &mut frame, *kind, payload, pool) {
                frame.clone_from(plain);
            }
            frame
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ws::event::Payload;
    use crate::ws::failure::Failure;
    use crate::ws::mask::Mask;

    const AGREED: Agreement =
        Agreement { client_bits: 12, client_is_told: true, server_bits: 12, client_reset: false, server_reset: false };

    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = FrameHead::new(Opcode::Text, false, payload.len()).as_bytes().to_vec();
        bytes[0] = first;
        bytes[1] |= 0x80;
        bytes.extend([1, 2, 3, 4]);
        let start = bytes.len();
        bytes.extend_from_slice(payload);
        Mask::new([1, 2, 3, 4]).apply(&mut bytes[start..]);
        bytes
    }

    fn small() -> Limits {
        Limits { message: 10, overhead: 20 }
    }

    /// All events up to `NeedMore`, and the rest of the input.
    fn events(connection: &mut Connection, input: &[u8], limits: &Limits) -> (Vec<Event>, usize) {
        let (mut input, mut at, mut found, mut pool) = (input.to_vec(), 0, Vec::new(), StreamPool::default());
        loop {
            let progress = connection.poll(&mut input[at..], &mut pool, limits);
            at += progress.consumed;
            let end = matches!(progress.event, Event::NeedMore | Event::Closed);
            found.push(progress.event);
            if end {
                return (found, input.len() - at);
            }
        }
    }

    fn only(connection: &mut Connection, input: &[u8], limits: &Limits) -> Event {
        events(connection, input, limits).0.remove(0)
    }

    #[test]
    fn a_message_that_is_all_there_is_not_copied() {
        let mut connection = Connection::new(Some(AGREED));
        let (found, left) = events(&mut connection, &frame(0x81, b"Hello"), &small());
        assert_eq!(found[0], Event::Message { kind: Kind::Text, payload: Payload::Input(6..11) });
        assert_eq!(left, 0);
    }

    /// RFC 6455 section 5.4
    #[test]
    fn a_message_in_pieces_is_kept_and_the_input_is_not() {
        let mut connection = Connection::new(None);
        let bytes = frame(0x82, &[7; 300]);
        let (limits, mut left) = (Limits::default(), 0);
        for at in 8..bytes.len() - 1 {
            let piece = if at == 8 { &bytes[..=8] } else { &bytes[at..=at] };
            let (found, rest) = events(&mut connection, piece, &limits);
            assert_eq!(found, [Event::NeedMore]);
            left += rest;
        }
        assert_eq!(left, 0);
        let (found, _) = events(&mut connection, &bytes[bytes.len() - 1..], &limits);
        assert_eq!(found[0], Event::Message { kind: Kind::Binary, payload: Payload::Assembled(vec![7; 300]) });
    }

    /// The pieces of a large message add up to the same as the whole, in any cut of the input; texts, fragments and
    /// compressed messages never come in pieces, nor do those that are there as a whole.
    #[test]
    fn a_large_binary_message_is_told_in_pieces() {
        let payload: Vec<u8> = (0..1000_u32).map(|number| (number % 251) as u8).collect();
        let frames = [frame(0x82, &payload), frame(0x01, &payload[..0]), frame(0x80, &[b'a'; 200])].concat();
        let limits = Limits::default();
        for cut in 1..frames.len() {
            let mut connection = Connection::new(Some(AGREED)).in_pieces(1000);
            let (mut told, mut others) = (Vec::new(), Vec::new());
            let mut kept = Vec::new();
            for part in frames.chunks(cut) {
                kept.extend_from_slice(part);
                let mut at = 0;
                loop {
                    let progress = connection.poll(&mut kept[at..], &mut StreamPool::default(), &limits);
                    match progress.event {
                        Event::NeedMore => {}
                        Event::Piece { payload: range, left } => {
                            assert!(!range.is_empty());
                            told.extend_from_slice(&kept[at..][range]);
                            assert_eq!(told.len() as u64 + left, 1000);
                        }
                        Event::Message { kind: Kind::Binary, payload: found } => {
                            assert!(cut >= 1008 && told.is_empty());
                            told.extend_from_slice(found.of(&kept[at..]));
                        }
                        event => others.push(event),
                    }
                    at += progress.consumed;
                    if progress.consumed == 0 || at == kept.len() {
                        break;
                    }
                }
                kept.drain(..at);
            }
            assert_eq!(told, payload, "cut at {cut}");
            let text = Event::Message { kind: Kind::Text, payload: Payload::Assembled(vec![b'a'; 200]) };
            assert_eq!(others, [text]);
        }
    }

    #[test]
    fn a_piece_may_be_received_elsewhere() {
        let mut connection = Connection::new(None).in_pieces(5);
        assert_eq!(connection.piece(&mut [1]), None, "nothing is coming");
        let mut begun = frame(0x82, &[7; 10]);
        let (here, elsewhere) = begun.split_at_mut(9);
        connection.poll(here, &mut StreamPool::default(), &small());
        assert_eq!(connection.piece(&mut [0; 8]), None, "that is more than comes");
        assert_eq!(connection.piece(&mut elsewhere[..2]), Some(5));
        assert_eq!(connection.piece(&mut elsewhere[2..]), Some(0));
        assert_eq!(elsewhere, [7; 7]);
        assert_eq!(connection.piece(&mut [1]), None, "it is complete");
        let mut next = frame(0x81, b"a");
        let event = connection.poll(&mut next, &mut StreamPool::default(), &small()).event;
        assert!(matches!(event, Event::Message { kind: Kind::Text, .. }));
    }

    /// A message beyond the limit is refused before any piece of it; a close skips the rest of a message.
    #[test]
    fn a_message_in_pieces_keeps_to_the_limit_and_to_the_end() {
        let mut connection = Connection::new(None).in_pieces(5);
        let begun = frame(0x82, &[1; 11]);
        assert_eq!(only(&mut connection, &begun[..8], &small()), Event::Failed(Failure::TooBig));
        let mut connection = Connection::new(None).in_pieces(5);
        let mut begun = frame(0x82, &[1; 10]);
        let piece = connection.poll(&mut begun[..10], &mut StreamPool::default(), &small());
        assert_eq!(piece.event, Event::Piece { payload: 6..10, left: 6 });
        connection.close(&mut Vec::new(), 1000, "").unwrap();
        let rest = [&[0x88; 6], &frame(0x88, b"\x03\xe8")[..]].concat();
        assert_eq!(only(&mut connection, &rest, &small()), Event::Close { code: 1000, reason: 14..14 });
    }

    /// W11: Autobahn 6.4
    #[test]
    fn bad_text_is_found_before_the_frame_ends() {
        let bytes = frame(0x81, b"ab\xffcd");
        for (end, failed) in [(8, false), (9, true)] {
            let found = only(&mut Connection::new(None), &bytes[..end], &small());
            assert_eq!(found == Event::Failed(Failure::Text), failed);
        }
    }

    /// W8
    #[test]
    fn a_message_of_the_limit_passes_and_one_byte_more_does_not() {
        for (size, passes) in [(10, true), (11, false)] {
            let payload = vec![b'a'; size];
            let (first, second) = payload.split_at(5);
            let fragments = [frame(0x01, first), frame(0x80, second)].concat();
            let mut deflated = Vec::new();
            assert!(Deflater::once().deflate(&payload, &mut deflated, &mut StreamPool::default()));
            for input in [frame(0x81, &payload), fragments, frame(0xC1, &deflated)] {
                let found = only(&mut Connection::new(Some(AGREED)), &input, &small());
                assert_eq!(found != Event::Failed(Failure::TooBig), passes);
                assert_eq!(matches!(found, Event::Message { .. }), passes);
            }
        }
    }

    /// W9
    #[test]
    fn fragments_may_waste_as_much_as_the_limit() {
        // Four headers of six bytes, of which twenty may carry nothing.
        for (payload, fails) in [(0, true), (3, true), (4, false)] {
            let empty = frame(0x00, b"");
            let fragments = [frame(0x02, &vec![0; payload]), empty.clone(), empty.clone(), empty];
            let found = only(&mut Connection::new(None), &fragments.concat(), &small());
            assert_eq!(found, if fails { Event::Failed(Failure::TooManyFragments) } else { Event::NeedMore });
        }
    }

    /// W3
    #[test]
    fn a_close_is_behind_the_messages_and_can_be_answered_later() {
        let mut connection = Connection::new(None);
        let input = [frame(0x81, b"a"), frame(0x88, b"\x03\xe8bye"), frame(0x81, b"b"), vec![0xff]].concat();
        let (found, left) = events(&mut connection, &input, &small());
        assert!(matches!(found[0], Event::Message { .. }));
        assert!(matches!(&found[1], Event::Close { code: 1000, reason } if reason.len() == 3));
        assert_eq!((&found[2..], left), (&[Event::NeedMore][..], 0));
        let (mut out, mut pool) = (Vec::new(), StreamPool::default());
        connection.message(&mut out, Kind::Text, b"answer", &mut pool).unwrap();
        connection.close(&mut out, 1000, "bye").unwrap();
        assert_eq!(out, b"\x81\x06answer\x88\x05\x03\xe8bye");
        assert!(connection.is_closed());
        assert_eq!(events(&mut connection, b"x", &small()), (vec![Event::Closed], 0));
    }

    #[test]
    fn after_our_close_only_the_clients_counts() {
        let (mut out, mut connection) = (Vec::new(), Connection::new(None));
        events(&mut connection, &frame(0x82, b"cut off")[..9], &small());
        connection.close(&mut out, 1001, "").unwrap();
        assert!(!connection.is_open() && !connection.is_closed());
        let rest = [&frame(0x82, b"cut off")[9..], &frame(0x81, &[0xff; 200]), &frame(0x89, b"?")].concat();
        assert_eq!(events(&mut connection, &rest, &small()), (vec![Event::NeedMore], 0));
        let found = events(&mut connection, &[frame(0x88, b"\x03\xe9"), vec![0]].concat(), &small());
        assert!(matches!(found.0[..], [Event::Close { code: 1001, .. }, Event::Closed]));
        assert_eq!(found.1, 0);
    }

    #[test]
    fn what_is_no_frame_ends_the_search_for_a_close() {
        for bytes in [&b"\x81\x05"[..], b"\x83\x80", b"\x88\x81\0\0\0\0\x03"] {
            let (mut out, mut connection) = (Vec::new(), Connection::new(None));
            connection.close(&mut out, 1000, "").unwrap();
            assert_eq!(events(&mut connection, &[bytes, b"more"].concat(), &small()), (vec![Event::Closed], 0));
            assert!(connection.is_closed());
        }
    }

    /// RFC 6455 section 7.1.7
    #[test]
    fn after_a_failure_the_clients_close_is_found_if_frames_can_be_told_apart() {
        let close = frame(0x88, b"\x03\xe8");
        let too_big = [frame(0x81, &[b'a'; 11]), close.clone()].concat();
        let bad_text = [frame(0x81, b"ab\xffcd"), close.clone()].concat();
        let masking = [vec![0x81, 0x00], close].concat();
        for (input, frames) in [(too_big, true), (bad_text, true), (masking, false)] {
            for cut in 2..input.len() {
                let (mut out, mut connection) = (Vec::new(), Connection::new(None));
                let (mut found, left) = events(&mut connection, &input[..cut], &small());
                let rest = [&input[cut - left..cut], &input[cut..]].concat();
                let failed = matches!(found.pop(), Some(Event::NeedMore)) && matches!(found[..], [Event::Failed(_)]);
                if failed {
                    connection.close(&mut out, 1002, "").unwrap();
                    assert_eq!(connection.is_closed(), !frames);
                }
                let (found, left) = events(&mut connection, &rest, &small());
                if failed && frames {
                    assert!(matches!(found[..], [Event::Close { code: 1000, .. }, Event::Closed]), "{found:?}");
                }
                if failed && !frames {
                    assert_eq!(found, [Event::Closed]);
                }
                assert_eq!(left, 0);
            }
            // It may come before the server has sent its own.
            let (mut out, mut connection) = (Vec::new(), Connection::new(None));
            events(&mut connection, &input, &small());
            connection.close(&mut out, 1002, "").unwrap();
            assert!(connection.is_closed());
        }
    }

    /// W4
    #[test]
    fn what_may_not_be_sent_is_not() {
        let (mut out, mut pool, mut connection) = (Vec::new(), StreamPool::default(), Connection::new(None));
        for code in [0, 999, 1004, 1006, 1015, 2999, 5000] {
            assert_eq!(connection.close(&mut out, code, ""), Err(SendError::Code));
        }
        assert_eq!(connection.ping(&mut out, &[0; 126]), Err(SendError::TooLong));
        assert!(out.is_empty() && connection.is_open());
        connection.ping(&mut out, b"p").unwrap();
        connection.pong(&mut out, &[0; 125]).unwrap();
        assert_eq!((&out[..4], out.len()), (&b"\x89\x01p\x8a"[..], 3 + 127));
        out.clear();
        connection.close(&mut out, NO_CODE, "ignored").unwrap();
        assert_eq!(out, b"\x88\x00");
        assert_eq!(connection.close(&mut out, 1000, ""), Err(SendError::Closed));
        assert_eq!(connection.message(&mut out, Kind::Text, b"", &mut pool), Err(SendError::Closed));
        assert_eq!(connection.pong(&mut out, b""), Err(SendError::Closed));
        assert_eq!(connection.prepared(&mut Prepared::new(Kind::Text, b""), &mut pool), Err(SendError::Closed));
        assert_eq!(out, b"\x88\x00");
        let mut connection = Connection::new(None);
        connection.close(&mut out, 1000, &"x".repeat(200)).unwrap();
        assert_eq!(out[2..6], [0x88, 125, 0x03, 0xe8]);
    }

    #[test]
    fn small_messages_may_stay_as_they_are() {
        let mut pool = StreamPool::new(crate::ws::Settings { threshold: 6, ..Default::default() });
        let (mut out, mut connection) = (Vec::new(), Connection::new(Some(AGREED)));
        connection.message(&mut out, Kind::Text, b"Hello", &mut pool).unwrap();
        assert_eq!(out, b"\x81\x05Hello");
        assert!(connection.message_head(Kind::Text, 6, &pool).unwrap().is_none());
        out.clear();
        connection.message(&mut out, Kind::Text, b"Hello!", &mut pool).unwrap();
        assert_eq!(out[0], 0xC1);
    }

    #[test]
    fn one_frame_goes_to_many_and_each_can_go_on() {
        let mut pool = StreamPool::default();
        let payload = b"to all of you, to all of you";
        let mut prepared = Prepared::new(Kind::Text, payload);
        for agreement in [
            None,
            Some(AGREED),
            Some(Agreement { server_bits: 9, ..AGREED }),
            Some(Agreement { server_reset: true, client_reset: true, ..AGREED }),
        ] {
            let (mut server, mut out) = (Connection::new(agreement), Vec::new());
            server.message(&mut out, Kind::Text, payload, &mut pool).unwrap();
            out.extend_from_slice(server.prepared(&mut prepared, &mut pool).unwrap());
            server.message(&mut out, Kind::Text, payload, &mut pool).unwrap();
            let theirs = agreement.map(|agreed| Agreement { client_bits: agreed.server_bits, ..agreed });
            let mut client = Connection::new(theirs);
            let mut frames = out.as_slice();
            for _ in 0..3 {
                let (head, rest) = frames.split_at(2);
                let (content, behind) = rest.split_at(usize::from(head[1]));
                frames = behind;
                let mut input = frame(head[0], content);
                let Event::Message { payload: found, .. } =
                    client.poll(&mut input, &mut pool, &Limits::default()).event
                else {
                    panic!("not a message");
                };
                assert_eq!(found.of(&input), payload);
            }
            assert!(frames.is_empty());
        }
    }
}
