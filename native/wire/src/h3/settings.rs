//! The settings of each side (RFC 9114 section 7.2.4). Each side sends them once, as the first frame of its control stream,
//! and may send before it knows those of the other: until then the defaults hold.

use crate::h3::error::ErrorCode;
use crate::h3::event::Failure;
use crate::h3::frame;
use crate::limits::table::LIMIT_REQUEST_HEAD;
use crate::qpack::TABLE_SIZE;

const QPACK_MAX_TABLE_CAPACITY: u64 = 0x1;
const MAX_FIELD_SECTION_SIZE: u64 = 0x6;
const QPACK_BLOCKED_STREAMS: u64 = 0x7;
const ENABLE_CONNECT_PROTOCOL: u64 = 0x8; // RFC 9220 section 3
const H3_DATAGRAM: u64 = 0x33; // RFC 9297 section 2.1.1
/// One that means nothing, so that clients learn to ignore it (RFC 9114 section 7.2.4.1).
const RESERVED: u64 = 0x1f * 0x52 + 0x21;

/// The server's settings. One value serves all its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Requests of one connection that are not [released](crate::h3::Connection::release), at a time; beyond:
    /// `H3_REQUEST_REJECTED`. The limit of QUIC should be the same, and must be at most twice as high.
    pub streams: u32,
    /// Bytes of a field section, decoded; each field costs 32 more (RFC 9114 section 4.2.2). Beyond: 431.
    pub fields: u32,
    /// Bytes of the dynamic table of the client's fields, and at most of that of the server's; 0: there is none.
    pub table: u32,
    /// Streams that may wait for entries of the client's table at a time.
    pub blocked: u32,
    /// Whether a stream can become a WebSocket (RFC 9220).
    pub connect_protocol: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            streams: 128,
            fields: LIMIT_REQUEST_HEAD as u32,
            table: TABLE_SIZE as u32,
            blocked: 16,
            connect_protocol: true,
        }
    }
}

impl Settings {
    /// Append the frame that is sent to a client.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let entries = [
            (QPACK_MAX_TABLE_CAPACITY, self.table, 0),
            (MAX_FIELD_SECTION_SIZE, self.fields, u32::MAX),
            (QPACK_BLOCKED_STREAMS, self.blocked, 0),
            (ENABLE_CONNECT_PROTOCOL, u32::from(self.connect_protocol), 0),
            (RESERVED, 1, 0),
        ];
        let mut payload = Vec::new();
        for (identifier, value, default) in entries {
            if value != default {
                frame::put_varint(&mut payload, identifier);
                frame::put_varint(&mut payload, u64::from(value));
            }
        }
        frame::put_head(out, frame::SETTINGS, payload.len());
        out.extend_from_slice(&payload);
    }
}

/// The client's settings, as far as a server cares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Bytes of the table that our encoder may use.
    pub(crate) table: u64,
}

/// Settings in one frame, at most: RFC 9114 forbids a second one of the same kind, so all of them are remembered.
const MAX_SETTINGS: usize = 64;

impl Peer {
    /// Read the payload of the frame.
    pub(crate) fn read(mut payload: &[u8]) -> Result<Self, Failure> {
        let (mut peer, mut seen) = (Self::default(), Vec::new());
        while !payload.is_empty() {
            let identifier = frame::varint(&mut payload).ok_or(Failure::FRAME)?;
            let value = frame::varint(&mut payload).ok_or(Failure::FRAME)?;
            if seen.contains(&identifier) {
                return Err(Failure::new(ErrorCode::Settings, "setting sent twice"));
            }
            if seen.len() == MAX_SETTINGS {
                return Err(Failure::new(ErrorCode::ExcessiveLoad, "too many settings"));
            }
            seen.push(identifier);
            match identifier {
                QPACK_MAX_TABLE_CAPACITY => peer.table = value,
                // Section 7.2.4.1: those of HTTP/2 that have no meaning here.
                0x0 | 0x2..=0x5 => return Err(Failure::new(ErrorCode::Settings, "setting of HTTP/2")),
                ENABLE_CONNECT_PROTOCOL | H3_DATAGRAM if value > 1 => {
                    return Err(Failure::new(ErrorCode::Settings, "setting is neither 0 nor 1"));
                }
                _ => {}
            }
        }
        Ok(peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_what_is_not_known_anyway() {
        let mut out = Vec::new();
        Settings::default().put(&mut out);
        assert_eq!(out, b"\x04\x0f\x01\x50\x00\x06\x80\x02\0\0\x07\x10\x08\x01\x4a\x0f\x01");
        let none = Settings { table: 0, blocked: 0, connect_protocol: false, ..Settings::default() };
        out.clear();
        none.put(&mut out);
        assert_eq!(out, b"\x04\x08\x06\x80\x02\0\0\x4a\x0f\x01");
    }

    /// RFC 9114 sections 7.2.4, 7.2.4.1 and 7.2.4.2, RFC 9220, RFC 9297
    #[test]
    fn settings_are_checked() {
        assert_eq!(Peer::read(b"\x01\x50\0\x06\0\x07\0\x08\x01\x33\0\x21\x3f"), Ok(Peer { table: 4096 }));
        for (payload, code) in [
            (&b"\x01"[..], ErrorCode::Frame),
            (b"\x01\x40", ErrorCode::Frame),
            (b"\x00\x01", ErrorCode::Settings),
            (b"\x02\x00", ErrorCode::Settings),
            (b"\x03\x00", ErrorCode::Settings),
            (b"\x04\x00", ErrorCode::Settings),
            (b"\x05\x00", ErrorCode::Settings),
            (b"\x08\x02", ErrorCode::Settings),
            (b"\x33\x02", ErrorCode::Settings),
            (b"\x21\x00\x21\x00", ErrorCode::Settings),
        ] {
            assert_eq!(Peer::read(payload).unwrap_err().code, code, "{payload:x?}");
        }
        let many: Vec<u8> = (0x40..=0x80_u8).flat_map(|low| [0x50, low, 0]).collect();
        assert_eq!(Peer::read(&many).unwrap_err().code, ErrorCode::ExcessiveLoad);
    }
}
