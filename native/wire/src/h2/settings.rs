//! The settings of each side (RFC 9113 section 6.5).
//!
//! ```text
//!   ours:     Sent ── SETTINGS of the client's, acknowledged ──▶ Known      until then the defaults hold for the client
//!   theirs:   as they come; each frame is acknowledged when all of it holds
//! ```

use crate::h2::flow::FIRST_WINDOW;
use crate::h2::frame::{ErrorCode, MAX_WINDOW, MIN_MAX_FRAME};
use crate::h2::hpack::TABLE_SIZE;
use crate::limits::table::LIMIT_REQUEST_HEAD;

const HEADER_TABLE_SIZE: u16 = 0x1;
const ENABLE_PUSH: u16 = 0x2;
const MAX_CONCURRENT_STREAMS: u16 = 0x3;
const INITIAL_WINDOW_SIZE: u16 = 0x4;
const MAX_FRAME_SIZE: u16 = 0x5;
const MAX_HEADER_LIST_SIZE: u16 = 0x6;
const ENABLE_CONNECT_PROTOCOL: u16 = 0x8; // RFC 8441 section 3
const NO_RFC7540_PRIORITIES: u16 = 0x9; // RFC 9218 section 2.1

/// The largest frame size that can be set (section 4.2).
pub(crate) const MAX_MAX_FRAME: u32 = (1 << 24) - 1;

/// The server's settings. One value serves all its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Requests of one connection at a time; beyond: `REFUSED_STREAM`. Clients assume 100 until they know.
    pub streams: u32,
    /// Bytes of a request body that can be on their way to an application, in the beginning. It grows with use.
    pub window: u32,
    /// Up to this.
    pub largest_window: u32,
    /// By as much all windows of a connection together.
    pub growth: u32,
    /// The window of a connection, which only bounds bytes on their way: it is given back as soon as they are read.
    pub connection_window: u32,
    /// Bytes of a frame's payload that are taken, at least 16,384.
    pub frame: u32,
    /// Bytes of a field section, decoded; each field costs 32 more (section 6.5.2). Beyond: 431.
    pub fields: u32,
    /// Whether a stream can become a WebSocket (RFC 8441).
    pub connect_protocol: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            streams: 128,
            window: 1 << 16,
            largest_window: 8 << 20,
            growth: 16 << 20,
            connection_window: 16 << 20,
            frame: MIN_MAX_FRAME as u32,
            fields: LIMIT_REQUEST_HEAD as u32,
            connect_protocol: true,
        }
    }
}

impl Settings {
    /// The settings sent to a client.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u16, u32)> {
        [
            (MAX_CONCURRENT_STREAMS, self.streams, None),
            (INITIAL_WINDOW_SIZE, self.window, Some(FIRST_WINDOW)),
            (MAX_FRAME_SIZE, self.frame, Some(MIN_MAX_FRAME as u32)),
            (MAX_HEADER_LIST_SIZE, self.fields, None),
            (ENABLE_CONNECT_PROTOCOL, u32::from(self.connect_protocol), Some(0)),
            (NO_RFC7540_PRIORITIES, 1, None),
        ]
        .into_iter()
        .filter(|&(_, value, default)| Some(value) != default)
        .map(|(identifier, value, _)| (identifier, value))
    }
}

/// The client's settings, as far as a server cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Bytes of the table that our encoder may use.
    pub(crate) table: usize,
    /// The initial window of streams.
    pub(crate) window: u32,
    /// Bytes of a frame's payload that it takes.
    pub(crate) frame: usize,
    /// Whether it uses no priorities of the old scheme. It may not change that.
    no_old_priorities: Option<bool>,
}

impl Default for Peer {
    fn default() -> Self {
        Self { table: TABLE_SIZE, window: FIRST_WINDOW, frame: MIN_MAX_FRAME, no_old_priorities: None }
    }
}

impl Peer {
    /// The settings after a frame: each holds when it comes, the last of several. Unknown ones are ignored.
    pub(crate) fn with(mut self, settings: impl Iterator<Item = (u16, u32)>) -> Result<Self, ErrorCode> {
        let first = self.no_old_priorities;
        for (identifier, value) in settings {
            match identifier {
                HEADER_TABLE_SIZE => self.table = value as usize,
                INITIAL_WINDOW_SIZE if value > MAX_WINDOW => return Err(ErrorCode::FlowControl),
                INITIAL_WINDOW_SIZE => self.window = value,
                MAX_FRAME_SIZE if !(MIN_MAX_FRAME as u32..=MAX_MAX_FRAME).contains(&value) => {
                    return Err(ErrorCode::Protocol);
                }
                MAX_FRAME_SIZE => self.frame = value as usize,
                ENABLE_PUSH | ENABLE_CONNECT_PROTOCOL | NO_RFC7540_PRIORITIES if value > 1 => {
                    return Err(ErrorCode::Protocol);
                }
                NO_RFC7540_PRIORITIES => self.no_old_priorities = Some(value == 1),
                _ => {}
            }
        }
        if first.is_some() && first != self.no_old_priorities {
            return Err(ErrorCode::Protocol);
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(settings: &[(u16, u32)]) -> Result<Peer, ErrorCode> {
        Peer::default().with(settings.iter().copied())
    }

    #[test]
    fn what_is_sent_is_what_is_not_known_anyway() {
        let said: Vec<_> = Settings::default().entries().collect();
        assert_eq!(said, [(3, 128), (4, 65_536), (6, 131_072), (8, 1), (9, 1)]);
        let plain = Settings { window: FIRST_WINDOW, frame: 20_000, connect_protocol: false, ..Settings::default() };
        assert_eq!(plain.entries().collect::<Vec<_>>(), [(3, 128), (5, 20_000), (6, 131_072), (9, 1)]);
    }

    /// RFC 9113 section 6.5.2
    #[test]
    fn settings_are_checked() {
        let expected = Peer { table: 1 << 30, window: MAX_WINDOW, frame: 1 << 14, no_old_priorities: None };
        let said = [(1, 9), (1, 1 << 30), (2, 0), (3, 0), (4, MAX_WINDOW), (5, 1 << 14), (6, 0), (0xfa, u32::MAX)];
        assert_eq!(with(&said), Ok(expected));
        for (identifier, value, code) in [
            (2, 2, ErrorCode::Protocol),
            (4, MAX_WINDOW + 1, ErrorCode::FlowControl),
            (5, (1 << 14) - 1, ErrorCode::Protocol),
            (5, 1 << 24, ErrorCode::Protocol),
            (8, 2, ErrorCode::Protocol),
            (9, 2, ErrorCode::Protocol),
        ] {
            assert_eq!(with(&[(identifier, value)]), Err(code), "{identifier}");
        }
    }

    /// RFC 9218 section 2.1
    #[test]
    fn old_priorities_are_used_always_or_never() {
        let peer = with(&[(9, 1)]).unwrap();
        assert_eq!(peer.with([(9, 1)].into_iter()), Ok(peer));
        assert_eq!(peer.with([].into_iter()), Ok(peer));
        assert_eq!(peer.with([(9, 0)].into_iter()), Err(ErrorCode::Protocol));
    }
}
