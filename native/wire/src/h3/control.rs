//! The client's control stream (RFC 9114 sections 6.2.1 and 7.2).
//!
//! ```text
//!   SETTINGS ─▶ GOAWAY, MAX_PUSH_ID, CANCEL_PUSH, PRIORITY_UPDATE, unknown frames …       it never ends
//! ```

use crate::budget::streams::Cost;
use crate::h3::connection::Connection;
use crate::h3::error::ErrorCode;
use crate::h3::event::{Event, Failure};
use crate::h3::frame;
use crate::h3::settings::Peer;
use crate::priority::Priority;

/// Bytes of a frame that is read as a whole, at most: many settings, or a priority with unknown parameters.
const MAX_PAYLOAD: u64 = 1024;

const ID: Failure = Failure::new(ErrorCode::Id, "identifier not allowed");

/// The state of the control stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Control {
    /// There is one.
    pub(crate) is_open: bool,
    peer: Option<Peer>,
    /// The last identifier of a GOAWAY and of a `MAX_PUSH_ID`.
    go_away: Option<u64>,
    max_push: Option<u64>,
}

impl Control {
    pub(crate) const fn has_settings(&self) -> bool {
        self.peer.is_some()
    }
}

/// The meaning of the next bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// The head of a frame.
    Frame,
    Payload {
        kind: u64,
        length: usize,
    },
    /// This many bytes of a frame that means nothing.
    Skip(u64),
}

impl<K> Connection<K> {
    /// Read on: how many bytes were used, and their event. `None`: more bytes are needed, and all of these are held.
    pub(crate) fn control(
        &mut self,
        reading: &mut Reading,
        held: &mut Vec<u8>,
        input: &[u8],
    ) -> Result<Option<(usize, Option<Event>)>, Failure> {
        match *reading {
            Reading::Frame => {
                let Some((kind, length, taken)) = frame::read_head(held, input) else { return Ok(None) };
                *reading = self.begin(kind, length)?;
                Ok(Some((taken, None)))
            }
            Reading::Payload { kind, length } => {
                let Some((payload, taken)) = frame::gather(held, input, length) else { return Ok(None) };
                let event = self.control_frame(kind, payload)?;
                held.clear();
                *reading = Reading::Frame;
                Ok(Some((taken, event)))
            }
            Reading::Skip(0) => {
                *reading = Reading::Frame;
                Ok(Some((0, None)))
            }
            Reading::Skip(_) if input.is_empty() => Ok(None),
            Reading::Skip(left) => {
                let taken = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                self.pay(Cost::Skipped(taken))?;
                *reading = Reading::Skip(left - taken as u64);
                Ok(Some((taken, None)))
            }
        }
    }

    fn begin(&mut self, kind: u64, length: u64) -> Result<Reading, Failure> {
        let has_settings = self.control.has_settings();
        if !has_settings && kind != frame::SETTINGS {
            return Err(Failure::new(ErrorCode::MissingSettings, "no settings at the beginning"));
        }
        if frame::is_of_http2(kind) {
            return Err(Failure::UNEXPECTED);
        }
        match kind {
            frame::SETTINGS if !has_settings => {}
            frame::SETTINGS | frame::DATA | frame::HEADERS | frame::PUSH_PROMISE => return Err(Failure::UNEXPECTED),
            frame::GOAWAY
            | frame::MAX_PUSH_ID
            | frame::CANCEL_PUSH
            | frame::PRIORITY_UPDATE
            | frame::PRIORITY_UPDATE_PUSH => self.pay(Cost::Frame)?,
            _ => {
                self.pay(Cost::Frame)?;
                return Ok(Reading::Skip(length));
            }
        }
        match usize::try_from(length) {
            Ok(length) if length as u64 <= MAX_PAYLOAD => Ok(Reading::Payload { kind, length }),
            _ => Err(Failure::new(ErrorCode::ExcessiveLoad, "frame too large")),
        }
    }

    fn control_frame(&mut self, kind: u64, mut payload: &[u8]) -> Result<Option<Event>, Failure> {
        if kind == frame::SETTINGS {
            let peer = Peer::read(payload)?;
            self.control.peer = Some(peer);
            self.encoder.set_limit(peer.table, &mut self.encoder_output);
            return Ok(None);
        }
        let identifier = frame::varint(&mut payload).ok_or(Failure::FRAME)?;
        let with_value = matches!(kind, frame::PRIORITY_UPDATE | frame::PRIORITY_UPDATE_PUSH);
        if !payload.is_empty() && !with_value {
            return Err(Failure::FRAME);
        }
        match kind {
            // A push of the server's: there is none. It may take fewer, never more (section 5.2).
            frame::GOAWAY => {
                if self.control.go_away.replace(identifier).is_some_and(|before| identifier > before) {
                    return Err(ID);
                }
                Ok(Some(Event::GoAway))
            }
            // Section 7.2.7
            frame::MAX_PUSH_ID => {
                if self.control.max_push.replace(identifier).is_some_and(|before| identifier < before) {
                    return Err(ID);
                }
                Ok(None)
            }
            // RFC 9218 section 7.2: of a request stream, which the client may open.
            frame::PRIORITY_UPDATE if identifier.is_multiple_of(4) && identifier < self.stream_limit() => {
                self.priority_update(identifier, Priority::parse(payload));
                Ok(None)
            }
            // Nothing was ever pushed (RFC 9114 section 7.2.3, RFC 9218 section 7.2).
            _ => Err(ID),
        }
    }
}
