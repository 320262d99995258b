//! The client's unidirectional streams (RFC 9114 section 6.2, RFC 9204 section 4.2).
//!
//! ```text
//!   Type ─┬─ 0x0 ──▶ Control      once; never ends
//!         ├─ 0x2 ──▶ Encoder      once; never ends
//!         ├─ 0x3 ──▶ Decoder      once; never ends
//!         ├─ 0x1 ──▶ an error of the connection: clients do not push
//!         └─ any other ──▶ Ignored, and stopped
//! ```

use std::mem;

use crate::budget::streams::Cost;
use crate::h3::connection::Connection;
use crate::h3::control::Reading;
use crate::h3::error::ErrorCode;
use crate::h3::event::{Event, Failure, Progress};
use crate::h3::frame;
use crate::qpack::Inserted;

pub(crate) const CONTROL: u64 = 0x0;
const PUSH: u64 = 0x1;
pub(crate) const ENCODER: u64 = 0x2;
pub(crate) const DECODER: u64 = 0x3;

/// The state of one unidirectional stream of the client's, which the caller keeps with the stream.
#[derive(Debug, Default)]
pub struct UniStream {
    role: Role,
    /// The beginning of something that is incomplete.
    held: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Role {
    #[default]
    Type,
    Control(Reading),
    Encoder,
    Decoder,
    Ignored,
}

impl UniStream {
    /// Whether the connection depends on it.
    const fn is_critical(&self) -> bool {
        matches!(self.role, Role::Control(_) | Role::Encoder | Role::Decoder)
    }
}

impl<K> Connection<K> {
    /// Read on from a unidirectional stream: `input` is all that has arrived since the last call, and `end` says that the
    /// stream ends with it. Repeat with the rest until this returns `NeedMore` or `Closed`.
    pub fn receive_uni(&mut self, stream: &mut UniStream, input: &[u8], end: bool) -> Progress {
        let mut consumed = 0;
        loop {
            if self.closed {
                return Progress { consumed: input.len(), event: Event::Closed };
            }
            if let Some(stream) = self.next_unblocked() {
                return Progress { consumed, event: Event::Unblocked { stream } };
            }
            let rest = input.get(consumed..).unwrap_or_default();
            let event = match self.step_uni(stream, rest) {
                Ok(Some((length, event))) => {
                    consumed += length;
                    match event {
                        Some(event) => event,
                        None => continue,
                    }
                }
                Ok(None) if end => self.end_uni(stream),
                Ok(None) => Event::NeedMore,
                Err(failure) => Event::Failed(self.fail(failure)),
            };
            if matches!(event, Event::NeedMore | Event::Failed(_)) {
                consumed = input.len();
            }
            return Progress { consumed, event };
        }
    }

    fn step_uni(&mut self, stream: &mut UniStream, input: &[u8]) -> Result<Option<(usize, Option<Event>)>, Failure> {
        match &mut stream.role {
            Role::Type => self.stream_type(stream, input),
            Role::Control(reading) => self.control(reading, &mut stream.held, input),
            Role::Encoder => self.instructions(&mut stream.held, input, Self::encoder_instruction),
            Role::Decoder => self.instructions(&mut stream.held, input, Self::decoder_instruction),
            Role::Ignored => Ok(None),
        }
    }

    fn stream_type(&mut self, stream: &mut UniStream, input: &[u8]) -> Result<Option<(usize, Option<Event>)>, Failure> {
        const TWICE: Failure = Failure::new(ErrorCode::StreamCreation, "critical stream opened twice");
        const NO_PUSH: Failure = Failure::new(ErrorCode::StreamCreation, "push stream of a client");
        for (taken, &byte) in (1..).zip(input) {
            stream.held.push(byte);
            let Some(kind) = frame::varint(&mut stream.held.as_slice()) else { continue };
            stream.held.clear();
            let (role, before) = match kind {
                CONTROL => (Role::Control(Reading::Frame), mem::replace(&mut self.control.is_open, true)),
                ENCODER => (Role::Encoder, mem::replace(&mut self.has_encoder, true)),
                DECODER => (Role::Decoder, mem::replace(&mut self.has_decoder, true)),
                PUSH => return Err(NO_PUSH),
                _ => {
                    self.pay(Cost::Frame)?;
                    stream.role = Role::Ignored;
                    return Ok(Some((taken, Some(Event::Stop { code: ErrorCode::StreamCreation }))));
                }
            };
            if before {
                return Err(TWICE);
            }
            stream.role = role;
            return Ok(Some((taken, None)));
        }
        Ok(None)
    }

    /// Carry out all instructions that are complete; `one` reads one from the front, and returns its length.
    fn instructions(
        &mut self,
        held: &mut Vec<u8>,
        input: &[u8],
        one: impl Fn(&mut Self, &[u8]) -> Result<Option<usize>, Failure>,
    ) -> Result<Option<(usize, Option<Event>)>, Failure> {
        if input.is_empty() {
            return Ok(None);
        }
        let whole = if held.is_empty() {
            input
        } else {
            held.extend_from_slice(input);
            held.as_slice()
        };
        let mut at = 0;
        while let Some(length) = one(self, whole.get(at..).unwrap_or_default())? {
            at += length;
        }
        if held.is_empty() {
            held.extend_from_slice(input.get(at..).unwrap_or_default());
        } else {
            held.drain(..at);
        }
        self.check_output()?;
        Ok(Some((input.len(), None)))
    }

    /// RFC 9204 section 4.3
    fn encoder_instruction(&mut self, input: &[u8]) -> Result<Option<usize>, Failure> {
        match self.decoder.instruction(input)? {
            None => Ok(None),
            Some((length, Inserted::Entry(size))) => self.pay(Cost::Insert(size)).map(|()| Some(length)),
            Some((length, Inserted::Nothing)) => self.pay(Cost::Frame).map(|()| Some(length)),
        }
    }

    /// RFC 9204 section 4.4
    fn decoder_instruction(&mut self, input: &[u8]) -> Result<Option<usize>, Failure> {
        let Some((length, is_useful)) = self.encoder.instruction(input)? else { return Ok(None) };
        if !is_useful {
            self.pay(Cost::Frame)?;
        }
        Ok(Some(length))
    }

    /// The client has reset a unidirectional stream.
    pub fn reset_uni(&mut self, stream: &UniStream) -> Event {
        if self.closed { Event::Closed } else { self.end_uni(stream) }
    }

    /// One is over. Those that have never said what they are cost something, like those that are ignored.
    fn end_uni(&mut self, stream: &UniStream) -> Event {
        let outcome = match stream.role {
            _ if stream.is_critical() => Err(Failure::CRITICAL),
            Role::Type => self.pay(Cost::Frame),
            _ => Ok(()),
        };
        outcome.map_or_else(|failure| Event::Failed(self.fail(failure)), |()| Event::NeedMore)
    }

    /// The client wants nothing of one of the server's own streams, which all are critical.
    pub fn stopped_own(&mut self) -> Event {
        if self.closed { Event::Closed } else { Event::Failed(self.fail(Failure::CRITICAL)) }
    }
}
