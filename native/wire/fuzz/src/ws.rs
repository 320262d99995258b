//! WebSocket: events do not depend on cuts, buffers are bounded, and every encoded message decodes again.

use wire::ws::mask::Mask;
use wire::ws::{Agreement, Connection, Event, Failure, Kind, Limits, NO_CODE, Prepared, Settings, StreamPool};

use super::fingerprint;

/// The events of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Seen {
    Message(bool, Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(u16, Vec<u8>),
    Failed(u16, String),
    Closed,
}

/// A server that answers nothing but the end.
struct Peer {
    connection: Connection,
    pool: StreamPool,
    limits: Limits,
    input: Vec<u8>,
    seen: Vec<Seen>,
    /// Of a message that comes in pieces.
    told: Vec<u8>,
    out: Vec<u8>,
}

impl Peer {
    fn new(agreement: Option<Agreement>, limits: &Limits) -> Self {
        Self {
            connection: Connection::new(agreement),
            pool: StreamPool::default(),
            limits: limits.clone(),
            input: Vec::new(),
            seen: Vec::new(),
            told: Vec::new(),
            out: Vec::new(),
        }
    }

    /// One that puts large messages together itself.
    fn in_pieces(agreement: Option<Agreement>, limits: &Limits) -> Self {
        let mut peer = Self::new(agreement, limits);
        peer.connection = Connection::new(agreement).in_pieces(5);
        peer
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        let mut at = 0;
        loop {
            let window = &mut self.input[at..];
            let progress = self.connection.poll(window, &mut self.pool, &self.limits);
            assert!(progress.consumed <= window.len());
            at += progress.consumed;
            let seen = match progress.event {
                Event::NeedMore => break,
                Event::Closed => {
                    if self.seen.last() != Some(&Seen::Closed) {
                        self.seen.push(Seen::Closed);
                    }
                    break;
                }
                Event::Message { kind, payload } => {
                    let bytes = payload.of(window).to_vec();
                    assert!(bytes.len() <= self.limits.message);
                    assert!(kind == Kind::Binary || std::str::from_utf8(&bytes).is_ok());
                    if let wire::ws::Payload::Assembled(buffer) = payload {
                        self.pool.recycle(buffer);
                    }
                    Seen::Message(kind == Kind::Text, bytes)
                }
                Event::Piece { payload, left } => {
                    assert!(!payload.is_empty());
                    self.told.extend_from_slice(&window[payload]);
                    assert!(self.told.len() as u64 + left <= self.limits.message as u64);
                    if left > 0 {
                        continue;
                    }
                    Seen::Message(false, std::mem::take(&mut self.told))
                }
                Event::Ping(range) => Seen::Ping(window[range].to_vec()),
                Event::Pong(range) => Seen::Pong(window[range].to_vec()),
                Event::Close { code, reason } => {
                    let seen = Seen::Close(code, window[reason].to_vec());
                    let answered = self.connection.close(&mut self.out, code, "");
                    assert!(answered.is_ok() || self.connection.is_closed());
                    seen
                }
                Event::Failed(failure) => self.fail(failure),
            };
            assert!(progress.consumed > 0 || matches!(seen, Seen::Failed(..)));
            self.seen.push(seen);
        }
        self.input.drain(..at);
        assert!(self.input.len() < 14 + 125, "nothing but a header or a control frame stays with the caller");
    }

    fn receive_all(&mut self, pieces: Vec<&[u8]>) {
        for piece in pieces {
            self.receive(piece);
        }
    }

    fn fail(&mut self, failure: Failure) -> Seen {
        let reason = failure.reason(&self.limits);
        self.connection.close(&mut self.out, failure.code(), &reason).unwrap();
        Seen::Failed(failure.code(), reason)
    }
}

fn agreement(control: u8) -> Option<Agreement> {
    (control & 1 == 1).then_some(Agreement {
        client_bits: 8 + (control >> 1 & 7),
        client_is_told: true,
        server_bits: 9 + (control >> 1 & 7) % 7,
        client_reset: control & 16 != 0,
        server_reset: control & 32 != 0,
    })
}

fn limits(control: u8) -> Limits {
    if control & 64 == 0 { Limits { message: 200, overhead: 40 } } else { Limits::default() }
}

/// Pieces whose lengths follow from the bytes.
fn pieces(data: &[u8], salt: u8) -> Vec<&[u8]> {
    let (mut rest, mut found) = (data, Vec::new());
    let mut state = u32::from(salt) | 1;
    while !rest.is_empty() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (piece, behind) = rest.split_at(rest.len().min(1 + (state >> 24) as usize % 23));
        found.push(piece);
        rest = behind;
    }
    found
}

/// Any bytes, in any cut, are the same events.
pub fn ws_frames(data: &[u8]) -> u64 {
    let [control, salt, rest @ ..] = data else { return 0 };
    let (agreement, limits) = (agreement(*control), limits(*control));
    let mut whole = Peer::new(agreement, &limits);
    whole.receive(rest);
    let bytes = || rest.chunks(1).collect();
    let cuts = [
        (pieces(rest, *salt), Peer::new(agreement, &limits)),
        (pieces(rest, *salt), Peer::in_pieces(agreement, &limits)),
        (bytes(), Peer::new(agreement, &limits)),
        (bytes(), Peer::in_pieces(agreement, &limits)),
    ];
    for (cut, mut peer) in cuts {
        peer.receive_all(cut);
        assert_eq!(peer.seen, whole.seen);
        assert_eq!(peer.out, whole.out);
    }
    let ends = whole.seen.iter().filter(|seen| matches!(seen, Seen::Failed(..))).count();
    assert!(ends <= 1, "it fails once");
    let outcome: Vec<_> = whole.seen.iter().map(std::mem::discriminant).collect();
    fingerprint(&(whole.seen.last(), outcome.len().min(8), outcome))
}

/// A frame as a client sends it.
fn client_frame(first: u8, payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        length @ 0..=125 => frame.push(0x80 | length as u8),
        length @ 126..=0xFFFF => {
            frame.push(0xFE);
            frame.extend((length as u16).to_be_bytes());
        }
        length => {
            frame.push(0xFF);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    frame.extend(mask);
    let start = frame.len();
    frame.extend_from_slice(payload);
    Mask::new(mask).apply(&mut frame[start..]);
    frame
}

/// The server's output, as if a client had written it.
fn as_client(mut frames: &[u8], mask: [u8; 4]) -> Vec<u8> {
    let mut out = Vec::new();
    while let [first, second, rest @ ..] = frames {
        assert!(second & 0x80 == 0, "the server does not mask");
        let (length, rest) = match second {
            126 => (usize::from(u16::from_be_bytes(*rest.first_chunk().unwrap())), &rest[2..]),
            127 => (u64::from_be_bytes(*rest.first_chunk().unwrap()) as usize, &rest[8..]),
            length => (usize::from(*length), rest),
        };
        out.extend(client_frame(*first, &rest[..length], mask));
        frames = &rest[length..];
    }
    out
}

/// Messages in fragments, with pings between them, come out as they went in; and so does what the server writes.
pub fn ws_messages(data: &[u8]) -> u64 {
    let [control, salt, script @ ..] = data else { return 0 };
    let limits = Limits::default();
    let (mut wire, mut expected, mut rest) = (Vec::new(), Vec::new(), script);
    let mut server = Peer::new(None, &limits);
    while let [head, mask, behind @ ..] = rest {
        let (payload, behind) = behind.split_at(behind.len().min(usize::from(head >> 2)));
        rest = behind;
        let text = head & 1 == 1 && std::str::from_utf8(payload).is_ok();
        let kind = if text { Kind::Text } else { Kind::Binary };
        let mask = [*mask, mask.wrapping_add(1), mask.rotate_left(3), *salt];
        let opcode = if text { 1 } else { 2 };
        let mut fragments = if head & 2 == 0 { vec![payload] } else { pieces(payload, *salt) };
        if head & 2 != 0 {
            fragments.push(&[]);
        }
        for (at, fragment) in fragments.iter().enumerate() {
            let fin = if at + 1 == fragments.len() { 0x80 } else { 0 };
            wire.extend(client_frame(fin | if at == 0 { opcode } else { 0 }, fragment, mask));
            if fin == 0 {
                wire.extend(client_frame(0x89, &mask, mask));
                expected.push(Seen::Ping(mask.to_vec()));
            }
        }
        expected.push(Seen::Message(text, payload.to_vec()));
        server.connection.message(&mut server.out, kind, payload, &mut server.pool).unwrap();
    }
    let mut whole = Peer::new(None, &limits);
    whole.receive(&wire);
    assert_eq!(whole.seen, expected);
    let mut cut = Peer::new(agreement(*control), &limits);
    cut.receive_all(pieces(&wire, *salt));
    assert_eq!(cut.seen, expected);
    server.connection.close(&mut server.out, if control & 2 == 0 { NO_CODE } else { 1000 }, "bye").unwrap();
    assert!(server.connection.message(&mut server.out, Kind::Binary, b"", &mut server.pool).is_err());
    let mut reader = Peer::new(None, &limits);
    reader.receive_all(pieces(&as_client(&server.out, [1, 2, 3, 4]), *salt));
    expected.retain(|seen| matches!(seen, Seen::Message(..)));
    expected.push(if control & 2 == 0 { Seen::Close(NO_CODE, vec![]) } else { Seen::Close(1000, b"bye".to_vec()) });
    reader.seen.retain(|seen| *seen != Seen::Closed);
    assert_eq!(reader.seen, expected);
    fingerprint(&(expected.len(), wire.len().checked_ilog2()))
}

/// Compressed messages inflate to the original, in any state of the streams between two messages; and any bytes that
/// claim to be compressed give the same in any cut, and within the limits.
pub fn ws_deflate(data: &[u8]) -> u64 {
    let [control, salt, script @ ..] = data else { return 0 };
    let Some(ours) = agreement(control | 1) else { return 0 };
    let theirs = Agreement { client_bits: ours.server_bits, client_reset: ours.server_reset, ..ours };
    let limits = Limits { message: 4096, overhead: 4096 };
    let settings = Settings { level: 1 + salt % 9, threshold: usize::from(salt % 3) * 8, kept: usize::from(salt & 1) };
    let mut pool = StreamPool::new(settings);
    let (mut server, mut other) = (Connection::new(Some(ours)), Connection::new(Some(ours)));
    let mut reader = Peer::new(Some(theirs), &limits);
    let (mut out, mut expected, mut rest) = (Vec::new(), Vec::new(), script);
    while let [head, behind @ ..] = rest {
        let (piece, behind) = behind.split_at(behind.len().min(usize::from(head >> 3)));
        rest = behind;
        let payload = piece.repeat(1 + usize::from(head >> 5));
        match head & 7 {
            0 => server.release(&mut pool),
            1 => {
                let mut prepared = Prepared::new(Kind::Binary, &payload);
                out.extend_from_slice(server.prepared(&mut prepared, &mut pool).unwrap());
                expected.push(Seen::Message(false, payload));
            }
            2 => other.message(&mut Vec::new(), Kind::Binary, &payload, &mut pool).unwrap(),
            _ => {
                server.message(&mut out, Kind::Binary, &payload, &mut pool).unwrap();
                expected.push(Seen::Message(false, payload));
            }
        }
    }
    reader.receive_all(pieces(&as_client(&out, [9, 8, 7, 6]), *salt));
    assert_eq!(reader.seen, expected);

    let mut frames = Vec::new();
    for (at, fragment) in script.chunks(1 + usize::from(*salt)).enumerate() {
        frames.extend(client_frame([0x41, 0x80, 0xC2][at % 3], fragment, [*salt, 0, 0, 1]));
    }
    ws_frames(&[&[control | 1, *salt], frames.as_slice()].concat())
}
