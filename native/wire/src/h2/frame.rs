//! Frames (RFC 9113 sections 4 and 6): what a client's hold, each checked by itself, and the server's written. Which frame
//! may come when is not known here.

use std::ops::Range;

/// The client's first bytes (section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes of a frame's head.
pub const HEAD: usize = 9;
/// Bytes of payload that every endpoint takes (section 4.2).
pub const MIN_MAX_FRAME: usize = 1 << 14;
/// The largest increment and window (section 6.9).
pub const MAX_WINDOW: u32 = (1 << 31) - 1;

const END_STREAM: u8 = 0x01;
const ACK: u8 = 0x01;
const END_HEADERS: u8 = 0x04;
const PADDED: u8 = 0x08;
const PRIORITY: u8 = 0x20;
/// Bytes of the priority at the beginning of some `HEADERS`, and of `PRIORITY` (section 5.3.2: deprecated and ignored).
const PRIORITY_LENGTH: usize = 5;
/// The bit in front of a number of 31.
const RESERVED: u32 = 1 << 31;

/// The type of a frame: its number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Data = 0x0,
    Headers = 0x1,
    Priority = 0x2,
    Reset = 0x3,
    Settings = 0x4,
    PushPromise = 0x5,
    Ping = 0x6,
    GoAway = 0x7,
    WindowUpdate = 0x8,
    Continuation = 0x9,
    PriorityUpdate = 0x10,
}

impl Kind {
    const ALL: [Self; 11] = [
        Self::Data,
        Self::Headers,
        Self::Priority,
        Self::Reset,
        Self::Settings,
        Self::PushPromise,
        Self::Ping,
        Self::GoAway,
        Self::WindowUpdate,
        Self::Continuation,
        Self::PriorityUpdate,
    ];

    fn new(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&kind| kind as u8 == number)
    }
}

/// Why a stream or a connection ends (section 7): its number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ErrorCode {
    /// Nothing is wrong.
    NoError = 0x0,
    /// The protocol was broken.
    Protocol = 0x1,
    /// The server failed.
    Internal = 0x2,
    /// More was sent than a window allowed.
    FlowControl = 0x3,
    /// Settings were not acknowledged in time.
    SettingsTimeout = 0x4,
    /// A frame came for a stream that was half-closed.
    StreamClosed = 0x5,
    /// A frame has a size that it may not have.
    FrameSize = 0x6,
    /// The stream was refused before anything was done for it: the request can be sent again.
    RefusedStream = 0x7,
    /// The stream is no longer needed.
    Cancel = 0x8,
    /// A header block cannot be decoded.
    Compression = 0x9,
    /// The connection of a CONNECT request was reset.
    Connect = 0xA,
    /// The peer makes too much work.
    EnhanceYourCalm = 0xB,
    /// TLS lacks required properties.
    InadequateSecurity = 0xC,
    /// The request has to be sent with HTTP/1.1.
    Http11Required = 0xD,
}

impl ErrorCode {
    /// Its name in the RFC.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoError => "NO_ERROR",
            Self::Protocol => "PROTOCOL_ERROR",
            Self::Internal => "INTERNAL_ERROR",
            Self::FlowControl => "FLOW_CONTROL_ERROR",
            Self::SettingsTimeout => "SETTINGS_TIMEOUT",
            Self::StreamClosed => "STREAM_CLOSED",
            Self::FrameSize => "FRAME_SIZE_ERROR",
            Self::RefusedStream => "REFUSED_STREAM",
            Self::Cancel => "CANCEL",
            Self::Compression => "COMPRESSION_ERROR",
            Self::Connect => "CONNECT_ERROR",
            Self::EnhanceYourCalm => "ENHANCE_YOUR_CALM",
            Self::InadequateSecurity => "INADEQUATE_SECURITY",
            Self::Http11Required => "HTTP_1_1_REQUIRED",
        }
    }
}

/// A frame that breaks the rules by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The error code.
    pub code: ErrorCode,
    /// The stream that ends by it; 0 if it is the connection (section 5.4).
    pub stream: u32,
}

impl Violation {
    const fn connection(code: ErrorCode) -> Self {
        Self { code, stream: 0 }
    }
}

const SIZE_ERROR: Violation = Violation::connection(ErrorCode::FrameSize);

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Bytes of payload.
    pub length: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl Head {
    /// The head that `input` begins with; `None` if it is not all there.
    #[inline]
    pub fn read(input: &[u8]) -> Option<Self> {
        let &[a, b, c, kind, flags, ref stream @ ..] = input.first_chunk::<HEAD>()?;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        Some(Self { length, kind, flags, stream: u32::from_be_bytes(*stream) & !RESERVED })
    }

    /// Refuse a payload of more than `limit` bytes before any of it is kept: with the whole connection, which is always
    /// right (section 4.2).
    pub const fn check(self, limit: usize) -> Result<(), Violation> {
        if self.length > limit { Err(SIZE_ERROR) } else { Ok(()) }
    }

    /// Bytes of the payload that [`Frame::read`] has to see: all, but for `DATA`, which can be taken as it comes.
    #[inline]
    pub const fn needs(self) -> usize {
        match self.kind {
            0x0 if self.has(PADDED) && self.length > 0 => 1,
            0x0 => 0,
            _ => self.length,
        }
    }

    /// Whether the frame goes on with a header section that others have begun.
    pub const fn is_continuation(self) -> bool {
        self.kind == Kind::Continuation as u8
    }

    /// Whether the frame has settings of the client's: a client's first frame.
    pub const fn is_settings(self) -> bool {
        self.kind == Kind::Settings as u8 && !self.has(ACK)
    }

    const fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// On a stream, or on the connection, as it must be.
    fn on_stream(self, wanted: bool) -> Result<(), Violation> {
        if (self.stream != 0) == wanted { Ok(()) } else { Err(Violation::connection(ErrorCode::Protocol)) }
    }
}

/// A frame of a client's. Ranges are of its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A part of a request body.
    Data {
        /// Its stream.
        stream: u32,
        /// Where the bytes lie.
        data: Range<usize>,
        /// Its share of the windows: padding counts.
        flow: usize,
        /// Nothing follows on the stream.
        end_stream: bool,
    },
    /// The beginning of a header section.
    Headers {
        /// Its stream.
        stream: u32,
        /// Where the part of the block lies.
        block: Range<usize>,
        /// Nothing follows on the stream.
        end_stream: bool,
        /// The block is complete.
        end_headers: bool,
        /// The stream is to wait for itself, which is an error of its own (RFC 7540 section 5.3.1).
        awaits_itself: bool,
    },
    /// More of a header section.
    Continuation {
        /// Its stream.
        stream: u32,
        /// The block is complete.
        end_headers: bool,
    },
    /// The client ends a stream.
    Reset {
        /// Which.
        stream: u32,
        /// Why: an [`ErrorCode`], or anything.
        code: u32,
    },
    /// The client's settings; the payload has them for [`settings`].
    Settings,
    /// The client has read ours.
    SettingsAck,
    /// A question for the same bytes.
    Ping([u8; 8]),
    /// The answer to one.
    PingAck([u8; 8]),
    /// The client will open no more streams.
    GoAway {
        /// The last stream of the server's that it has looked at.
        last: u32,
        /// Why: an [`ErrorCode`], or anything.
        code: u32,
    },
    /// The client takes more.
    WindowUpdate {
        /// On which stream; 0 on all together.
        stream: u32,
        /// How much more, at least one.
        increment: u32,
    },
    /// The client likes to have a stream at another time (RFC 9218 section 7.1).
    PriorityUpdate {
        /// Which.
        stream: u32,
        /// Where the field value lies.
        value: Range<usize>,
    },
    /// Nothing that means anything: a priority of old, or a frame that is not known (section 4.1).
    Ignored,
}

impl Frame {
    /// The frame of a head and its payload, which has at least as many bytes as it [needs](Head::needs).
    pub fn read(head: Head, payload: &[u8]) -> Result<Self, Violation> {
        let Some(kind) = Kind::new(head.kind) else { return Ok(Self::Ignored) };
        head.on_stream(match kind {
            Kind::Settings | Kind::Ping | Kind::GoAway | Kind::PriorityUpdate => false,
            Kind::WindowUpdate => head.stream != 0, // both are right
            _ => true,
        })?;
        let stream = head.stream;
        match kind {
            Kind::Data => {
                let data = unpadded(head, payload, 0)?;
                Ok(Self::Data { stream, data, flow: head.length, end_stream: head.has(END_STREAM) })
            }
            Kind::Headers => {
                let block = unpadded(head, payload, if head.has(PRIORITY) { PRIORITY_LENGTH } else { 0 })?;
                let (end_stream, end_headers) = (head.has(END_STREAM), head.has(END_HEADERS));
                let priority = payload.get(usize::from(head.has(PADDED))..).unwrap_or_default();
                let awaits_itself = head.has(PRIORITY) && depends_on(priority) == Some(stream);
                Ok(Self::Headers { stream, block, end_stream, end_headers, awaits_itself })
            }
            Kind::Continuation => Ok(Self::Continuation { stream, end_headers: head.has(END_HEADERS) }),
            Kind::Priority if payload.len() != PRIORITY_LENGTH => Err(Violation { code: ErrorCode::FrameSize, stream }),
            Kind::Priority if depends_on(payload) == Some(stream) => {
                Err(Violation { code: ErrorCode::Protocol, stream })
            }
            Kind::Priority => Ok(Self::Ignored),
            // Only servers push (section 8.4).
            Kind::PushPromise => Err(Violation::connection(ErrorCode::Protocol)),
            Kind::Reset => {
                let code = payload.try_into().map_err(|_| SIZE_ERROR)?;
                Ok(Self::Reset { stream, code: u32::from_be_bytes(code) })
            }
            Kind::Settings => match (head.has(ACK), payload.len()) {
                (true, 0) => Ok(Self::SettingsAck),
                (false, length) if length.is_multiple_of(SETTING) => Ok(Self::Settings),
                _ => Err(SIZE_ERROR),
            },
            Kind::Ping => {
                let data = payload.try_into().map_err(|_| SIZE_ERROR)?;
                Ok(if head.has(ACK) { Self::PingAck(data) } else { Self::Ping(data) })
            }
            Kind::GoAway => {
                let (last, rest) = number(payload).ok_or(SIZE_ERROR)?;
                let (code, _) = number(rest).ok_or(SIZE_ERROR)?;
                Ok(Self::GoAway { last: last & !RESERVED, code })
            }
            Kind::WindowUpdate => {
                let (increment, rest) = number(payload).ok_or(SIZE_ERROR)?;
                match increment & !RESERVED {
                    _ if !rest.is_empty() => Err(SIZE_ERROR),
                    0 => Err(Violation { code: ErrorCode::Protocol, stream }),
                    increment => Ok(Self::WindowUpdate { stream, increment }),
                }
            }
            Kind::PriorityUpdate => {
                let (stream, _) = number(payload).ok_or(SIZE_ERROR)?;
                match stream & !RESERVED {
                    0 => Err(Violation::connection(ErrorCode::Protocol)),
                    stream => Ok(Self::PriorityUpdate { stream, value: 4..payload.len() }),
                }
            }
        }
    }
}

/// The range between `skipped` bytes, after the length of the padding, and the padding (section 6.1).
fn unpadded(head: Head, payload: &[u8], skipped: usize) -> Result<Range<usize>, Violation> {
    let (mut start, mut padding) = (skipped, 0);
    if head.has(PADDED) {
        padding = usize::from(*payload.first().ok_or(SIZE_ERROR)?);
        start += 1;
    }
    if start > head.length {
        return Err(SIZE_ERROR);
    }
    let end = head.length.checked_sub(padding).filter(|&end| end >= start);
    end.map(|end| start..end).ok_or(Violation::connection(ErrorCode::Protocol))
}

/// The stream that is to be served first, by a priority of old (RFC 7540 section 5.3.1).
fn depends_on(priority: &[u8]) -> Option<u32> {
    number(priority).map(|(stream, _)| stream & !RESERVED)
}

fn number(payload: &[u8]) -> Option<(u32, &[u8])> {
    payload.split_first_chunk().map(|(bytes, rest)| (u32::from_be_bytes(*bytes), rest))
}

/// Bytes of a setting.
const SETTING: usize = 6;

/// The settings in the payload of a `SETTINGS` frame, in order: identifier and value (section 6.5.1).
pub fn settings(payload: &[u8]) -> impl Iterator<Item = (u16, u32)> {
    payload
        .as_chunks::<SETTING>()
        .0
        .iter()
        .map(|&[a, b, c, d, e, f]| (u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f])))
}

fn put_head(out: &mut Vec<u8>, length: usize, kind: Kind, flags: u8, stream: u32) {
    let [_, a, b, c] = (length as u32).to_be_bytes();
    out.extend_from_slice(&[a, b, c, kind as u8, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
}

/// Append the head of a `DATA` frame; its payload has to follow.
pub fn put_data_head(out: &mut Vec<u8>, stream: u32, length: usize, end_stream: bool) {
    put_head(out, length, Kind::Data, if end_stream { END_STREAM } else { 0 }, stream);
}

/// Append a header section, in as many frames as it takes with payloads of `max_frame` bytes (section 6.10).
pub fn put_headers(out: &mut Vec<u8>, stream: u32, block: &[u8], end_stream: bool, max_frame: usize) {
    let (first, mut rest) = block.split_at_checked(max_frame).unwrap_or((block, &[]));
    let (ends_stream, ends_headers) =
        (if end_stream { END_STREAM } else { 0 }, |rest: &[u8]| if rest.is_empty() { END_HEADERS } else { 0 });
    put_head(out, first.len(), Kind::Headers, ends_stream | ends_headers(rest), stream);
    out.extend_from_slice(first);
    while !rest.is_empty() {
        let (next, behind) = rest.split_at_checked(max_frame.max(1)).unwrap_or((rest, &[]));
        rest = behind;
        put_head(out, next.len(), Kind::Continuation, ends_headers(rest), stream);
        out.extend_from_slice(next);
    }
}

/// Set the length of a frame that begins at `start`, whose payload was appended without being known before.
pub(crate) fn set_length(out: &mut [u8], start: usize, length: usize) {
    let [_, bytes @ ..] = (length as u32).to_be_bytes();
    if let Some(place) = out.get_mut(start..start + bytes.len()) {
        place.copy_from_slice(&bytes);
    }
}

/// Append a `RST_STREAM` frame.
pub fn put_reset(out: &mut Vec<u8>, stream: u32, code: ErrorCode) {
    put_head(out, 4, Kind::Reset, 0, stream);
    out.extend_from_slice(&(code as u32).to_be_bytes());
}

/// Append a `SETTINGS` frame.
pub fn put_settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    put_head(out, settings.len() * SETTING, Kind::Settings, 0, 0);
    for (identifier, value) in settings {
        out.extend_from_slice(&identifier.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Append the acknowledgement of a `SETTINGS` frame.
pub fn put_settings_ack(out: &mut Vec<u8>) {
    put_head(out, 0, Kind::Settings, ACK, 0);
}

/// Append a `PING` frame, or the answer to one.
pub fn put_ping(out: &mut Vec<u8>, data: [u8; 8], ack: bool) {
    put_head(out, data.len(), Kind::Ping, if ack { ACK } else { 0 }, 0);
    out.extend_from_slice(&data);
}

/// Append a `GOAWAY` frame; `last` is the last stream that was, or will be, looked at. `debug` is for people.
pub fn put_go_away(out: &mut Vec<u8>, last: u32, code: ErrorCode, debug: &[u8]) {
    put_head(out, 8 + debug.len(), Kind::GoAway, 0, 0);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&(code as u32).to_be_bytes());
    out.extend_from_slice(debug);
}

/// Append a `WINDOW_UPDATE` frame; stream 0 is the connection.
pub fn put_window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    put_head(out, 4, Kind::WindowUpdate, 0, stream);
    out.extend_from_slice(&increment.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: ErrorCode = ErrorCode::FrameSize;
    const PROTOCOL: ErrorCode = ErrorCode::Protocol;

    fn read(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<Frame, Violation> {
        Frame::read(Head { length: payload.len(), kind, flags, stream }, payload)
    }

    fn written(put: impl FnOnce(&mut Vec<u8>)) -> Vec<(Head, Vec<u8>, Frame)> {
        let mut out = Vec::new();
        put(&mut out);
        let (mut rest, mut frames) = (out.as_slice(), Vec::new());
        while !rest.is_empty() {
            let head = Head::read(rest).unwrap();
            let (payload, behind) = rest[HEAD..].split_at(head.length);
            frames.push((head, payload.to_vec(), Frame::read(head, payload).unwrap()));
            rest = behind;
        }
        frames
    }

    #[track_caller]
    fn only(put: impl FnOnce(&mut Vec<u8>)) -> Frame {
        let mut frames = written(put);
        assert_eq!(frames.len(), 1);
        frames.remove(0).2
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(only(|out| put_reset(out, 5, ErrorCode::Cancel)), Frame::Reset { stream: 5, code: 8 });
        assert_eq!(only(put_settings_ack), Frame::SettingsAck);
        assert_eq!(only(|out| put_ping(out, *b"12345678", false)), Frame::Ping(*b"12345678"));
        assert_eq!(only(|out| put_ping(out, *b"12345678", true)), Frame::PingAck(*b"12345678"));
        assert_eq!(
            only(|out| put_go_away(out, 7, ErrorCode::EnhanceYourCalm, b"why")),
            Frame::GoAway { last: 7, code: 11 }
        );
        assert_eq!(
            only(|out| put_window_update(out, 0, MAX_WINDOW)),
            Frame::WindowUpdate { stream: 0, increment: MAX_WINDOW }
        );
        let frames = written(|out| put_settings(out, &[(3, 100), (4, 65_535)]));
        assert_eq!(frames[0].2, Frame::Settings);
        assert_eq!(settings(&frames[0].1).collect::<Vec<_>>(), [(3, 100), (4, 65_535)]);
        let data = only(|out| {
            put_data_head(out, 1, 3, true);
            out.extend(b"abc");
        });
        assert_eq!(data, Frame::Data { stream: 1, data: 0..3, flow: 3, end_stream: true });
    }

    /// Section 6.10
    #[test]
    fn a_header_section_takes_as_many_frames_as_it_needs() {
        for (length, sizes) in [(0, &[0][..]), (4, &[4]), (5, &[4, 1]), (12, &[4, 4, 4])] {
            let block: Vec<u8> = (0..length).collect();
            let frames = written(|out| put_headers(out, 3, &block, true, 4));
            assert_eq!(frames.iter().map(|frame| frame.0.length).collect::<Vec<_>>(), sizes);
            assert_eq!(frames.iter().flat_map(|frame| frame.1.clone()).collect::<Vec<_>>(), block);
            for (at, (_, _, frame)) in frames.iter().enumerate() {
                let last = at + 1 == frames.len();
                match frame {
                    Frame::Headers { stream: 3, end_stream: true, end_headers, .. } => {
                        assert_eq!((at, *end_headers), (0, last));
                    }
                    Frame::Continuation { stream: 3, end_headers } => assert_eq!((at > 0, *end_headers), (true, last)),
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    #[test]
    fn a_head_is_read_when_it_is_all_there_and_without_its_reserved_bit() {
        let bytes = [0x01, 0x02, 0x03, 0x00, 0x01, 0xff, 0xff, 0xff, 0xff];
        for end in 0..HEAD {
            assert_eq!(Head::read(&bytes[..end]), None);
        }
        let head = Head::read(&bytes).unwrap();
        assert_eq!((head.length, head.stream, head.flags), (0x01_0203, MAX_WINDOW, 1));
        assert_eq!(head.check(0x01_0203), Ok(()));
        assert_eq!(head.check(0x01_0202), Err(Violation { code: SIZE, stream: 0 }));
    }

    /// Sections 6.1 and 6.2
    #[test]
    fn padding_is_taken_off() {
        let data = |payload: &[u8]| match read(0, PADDED, 1, payload)? {
            Frame::Data { data, flow, .. } => {
                assert_eq!(flow, payload.len());
                Ok(payload[data].to_vec())
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(data(b"\x00"), Ok(vec![]));
        assert_eq!(data(b"\x02ab\0\0"), Ok(b"ab".to_vec()));
        assert_eq!(data(b"\x04ab\0\0"), Ok(vec![]));
        assert_eq!(data(b"\x05ab\0\0"), Err(Violation { code: PROTOCOL, stream: 0 }));
        assert_eq!(data(b""), Err(Violation { code: SIZE, stream: 0 }));
        let block = |payload: &[u8]| match read(1, PADDED | PRIORITY, 1, payload)? {
            Frame::Headers { block, .. } => Ok(payload[block].to_vec()),
            other => panic!("{other:?}"),
        };
        assert_eq!(block(b"\x01\0\0\0\0\x10ab\0"), Ok(b"ab".to_vec()));
        assert_eq!(block(b"\x00\0\0\0\0\x10"), Ok(vec![]));
        assert_eq!(block(b"\x01\0\0\0\0\x10"), Err(Violation { code: PROTOCOL, stream: 0 }));
        assert_eq!(block(b"\x00\0\0\0\0"), Err(Violation { code: SIZE, stream: 0 }));
    }

    #[test]
    fn data_can_be_read_before_it_is_there() {
        let head = |flags, length| Head { length, kind: 0, flags, stream: 1 };
        assert_eq!((head(0, 9).needs(), head(PADDED, 9).needs(), head(PADDED, 0).needs()), (0, 1, 0));
        let whole = Frame::Data { stream: 1, data: 0..9, flow: 9, end_stream: true };
        assert_eq!(Frame::read(head(END_STREAM, 9), b""), Ok(whole));
        let padded = Frame::Data { stream: 1, data: 1..5, flow: 9, end_stream: false };
        assert_eq!(Frame::read(head(PADDED, 9), b"\x04"), Ok(padded));
        assert_eq!(Head { length: 9, kind: 1, flags: 0, stream: 1 }.needs(), 9);
    }

    #[test]
    fn a_stream_may_not_wait_for_itself() {
        for (flags, payload, awaits_itself) in [
            (PRIORITY, &[0x80, 0, 0, 1, 0, 0x82][..], true),
            (PRIORITY | PADDED, &[0, 0, 0, 0, 1, 0, 0x82], true),
            (PRIORITY, &[0, 0, 0, 3, 0, 0x82], false),
            (0, &[0, 0, 0, 1, 0, 0x82], false),
        ] {
            let frame = read(1, flags, 1, payload);
            assert!(matches!(frame, Ok(Frame::Headers { awaits_itself: found, .. }) if found == awaits_itself));
        }
    }

    #[test]
    fn each_frame_has_its_place_and_its_size() {
        for (kind, stream, payload, code, of) in [
            (0x0, 0, &b"a"[..], PROTOCOL, 0),
            (0x1, 0, b"a", PROTOCOL, 0),
            (0x2, 0, &[0; 5], PROTOCOL, 0),
            (0x2, 3, &[0; 4], SIZE, 3),
            (0x2, 3, &[0x80, 0, 0, 3, 0], PROTOCOL, 3),
            (0x3, 0, &[0; 4], PROTOCOL, 0),
            (0x3, 1, &[0; 5], SIZE, 0),
            (0x4, 1, b"", PROTOCOL, 0),
            (0x4, 0, &[0; 7], SIZE, 0),
            (0x5, 1, &[0; 8], PROTOCOL, 0),
            (0x6, 1, &[0; 8], PROTOCOL, 0),
            (0x6, 0, &[0; 7], SIZE, 0),
            (0x7, 1, &[0; 8], PROTOCOL, 0),
            (0x7, 0, &[0; 7], SIZE, 0),
            (0x8, 0, &[0; 4], PROTOCOL, 0),
            (0x8, 3, &[0x80, 0, 0, 0], PROTOCOL, 3),
            (0x8, 3, &[0, 0, 0, 1, 0], SIZE, 0),
            (0x8, 3, &[0; 3], SIZE, 0),
            (0x9, 0, b"", PROTOCOL, 0),
            (0x10, 1, &[0, 0, 0, 1], PROTOCOL, 0),
            (0x10, 0, &[0; 4], PROTOCOL, 0),
            (0x10, 0, &[0; 3], SIZE, 0),
        ] {
            assert_eq!(read(kind, 0, stream, payload), Err(Violation { code, stream: of }), "{kind:x} {payload:x?}");
        }
        assert_eq!(read(0x4, ACK, 0, &[0; 6]), Err(Violation { code: SIZE, stream: 0 }));
        assert_eq!(read(0x2, 0, 1, &[0; 5]), Ok(Frame::Ignored));
        assert_eq!(read(0xfa, 0xff, 9, b"grease"), Ok(Frame::Ignored));
        assert_eq!(read(0x10, 0, 0, b"\0\0\0\x05u=1"), Ok(Frame::PriorityUpdate { stream: 5, value: 4..7 }));
    }
}
