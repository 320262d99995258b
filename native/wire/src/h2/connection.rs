//! One connection: the meaning of its frames, in their order.
//!
//! ```text
//!   Preface ─▶ Settings ─▶ Frames ─┬─ HEADERS without an end ──▶ Block ── CONTINUATION with one ──▶ Frames
//!                                  ├─ DATA ──▶ Data ── all of its payload ──▶ Frames
//!                                  └─ an error of the connection, on either side ──▶ Closed
//! ```
//!
//! This module defines connections and reads frames. Input for streams is in `receive` and `body`, output in `send`,
//! the end in `close`.

use crate::budget::streams::{Budget, Cost, Gain};
use crate::fields::request::Slot;
use crate::fields::{Key, Scratch};
use crate::h2::close::Ending;
use crate::h2::event::{Event, Failure, Progress};
use crate::h2::flow::{FIRST_WINDOW, Growth, Incoming, Outgoing};
use crate::h2::frame::{self, ErrorCode, Frame, HEAD, Head, MIN_MAX_FRAME, PREFACE, Violation};
use crate::h2::hpack::{Decoder, Encoder, TABLE_SIZE};
use crate::h2::settings::{Peer, Settings};
use crate::h2::streams::{Found, StreamId, Streams};
use crate::limits::Limits;
use crate::priority::{Priority, Turns};

/// The meaning of the next bytes.
#[derive(Debug)]
pub(crate) enum Reading {
    /// The number of bytes of the preface that have come.
    Preface(usize),
    /// The first frame, which has settings.
    Settings,
    Frames,
    /// A header section that goes on in the next frame.
    Block(Box<Block>),
    /// The payload of a `DATA` frame.
    Data(Payload),
    Closed,
}

/// An incomplete header section.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) number: u32,
    pub(crate) end_stream: bool,
    pub(crate) malformed: bool,
    pub(crate) bytes: Vec<u8>,
}

/// The missing rest of a `DATA` frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Payload {
    /// Its stream; without one it is thrown away.
    pub(crate) stream: Option<StreamId>,
    pub(crate) data: usize,
    pub(crate) padding: usize,
    /// The stream ends with the data.
    pub(crate) end: bool,
}

/// The state of one connection. With each entry of the client's table a `K` can be kept: what the caller has made of a field.
#[derive(Debug)]
pub struct Connection<K = ()> {
    pub(crate) settings: Settings,
    pub(crate) reading: Reading,
    pub(crate) decoder: Decoder<Slot<K>>,
    pub(crate) encoder: Encoder,
    pub(crate) streams: Streams,
    pub(crate) turns: Turns,
    pub(crate) incoming: Incoming,
    pub(crate) outgoing: Outgoing,
    /// The store out of which the windows of streams grow.
    pub(crate) growth: Growth,
    pub(crate) peer: Peer,
    /// The initial window of streams: ours when the client knows it.
    pub(crate) window: u32,
    /// The client has acknowledged our settings.
    acknowledged: bool,
    pub(crate) budget: Budget,
    pub(crate) ending: Ending,
    /// Priorities that came before their requests.
    pub(crate) early: Vec<(u32, Priority)>,
}

/// The number of streams whose priorities are kept before they open.
const MAX_EARLY: usize = 16;

/// The bytes that one step has read, and their event if there is one.
pub(crate) type Step = Result<Option<(usize, Option<Event>)>, Failure>;

impl<K> Connection<K> {
    /// A new connection. The server's first frames are appended to `out`.
    pub fn new(settings: Settings, out: &mut Vec<u8>) -> Self {
        let entries: Vec<_> = settings.entries().collect();
        frame::put_settings(out, &entries);
        let window = settings.connection_window.max(FIRST_WINDOW);
        if window > FIRST_WINDOW {
            frame::put_window_update(out, 0, window - FIRST_WINDOW);
        }
        Self {
            settings,
            reading: Reading::Preface(0),
            decoder: Decoder::new(TABLE_SIZE),
            encoder: Encoder::new(),
            streams: Streams::default(),
            turns: Turns::default(),
            incoming: Incoming::new(window),
            outgoing: Outgoing::new(FIRST_WINDOW),
            growth: Growth::new(settings.growth),
            peer: Peer::default(),
            window: FIRST_WINDOW,
            acknowledged: false,
            budget: Budget::new(),
            ending: Ending::Open,
            early: Vec::new(),
        }
    }

    /// Read on from `input`: all bytes that have arrived and are not consumed yet. Frames that must be sent at once are
    /// appended to `out`. `scratch` may be shared by all connections of a thread; it holds the request after
    /// [`Event::Request`], and nothing after anything else. Repeat with the rest until this returns `NeedMore` or
    /// `Closed`.
    ///
    /// A connection error drops the bodies that the caller still holds: call [`fill`](Self::fill) before this if they
    /// must be sent first.
    pub fn poll(&mut self, input: &[u8], out: &mut Vec<u8>, scratch: &mut Scratch, limits: &Limits) -> Progress {
        scratch.clear();
        let mut consumed = 0;
        loop {
            let rest = input.get(consumed..).unwrap_or_default();
            let event = match self.step(rest, out, scratch, limits) {
                Ok(Some((length, None))) => {
                    consumed += length;
                    continue;
                }
                Ok(Some((length, Some(Event::Data { stream, data, end })))) => {
                    let data = consumed + data.start..consumed + data.end;
                    consumed += length;
                    Event::Data { stream, data, end }
                }
                Ok(Some((length, Some(event)))) => {
                    consumed += length;
                    event
                }
                Ok(None) => Event::NeedMore,
                Err(failure) => {
                    consumed = input.len();
                    self.fail(out, failure);
                    Event::Failed(failure)
                }
            };
            return Progress { consumed, event };
        }
    }

    fn step(&mut self, input: &[u8], out: &mut Vec<u8>, scratch: &mut Scratch, limits: &Limits) -> Step {
        match &mut self.reading {
            Reading::Preface(_) => self.preface(input),
            Reading::Data(_) => Ok(self.payload(input)),
            Reading::Closed => Ok(Some((input.len(), Some(Event::Closed)))),
            Reading::Settings | Reading::Frames | Reading::Block(_) => {
                let Some(head) = Head::read(input) else { return Ok(None) };
                self.check_order(head)?;
                let behind = input.get(HEAD..).unwrap_or_default();
                let Some(payload) = behind.get(..head.needs()) else { return Ok(None) };
                let event = match Frame::read(head, payload) {
                    Ok(frame) => self.frame(frame, payload, out, scratch, limits)?,
                    Err(violation) => self.violation(violation, out)?,
                };
                Ok(Some((HEAD + payload.len(), event)))
            }
        }
    }

    /// Section 3.4
    fn preface(&mut self, input: &[u8]) -> Step {
        let Reading::Preface(matched) = self.reading else { return Ok(None) };
        let expected = PREFACE.get(matched..).unwrap_or_default();
        let length = expected.len().min(input.len());
        if input.get(..length) != expected.get(..length) {
            return Err(Failure::protocol("no preface"));
        }
        self.reading = if length == expected.len() { Reading::Settings } else { Reading::Preface(matched + length) };
        Ok(if length == 0 { None } else { Some((length, None)) })
    }

    /// Refuse frames that are out of order, before anything of them is kept.
    fn check_order(&self, head: Head) -> Result<(), Failure> {
        match &self.reading {
            Reading::Settings if !head.is_settings() => {
                return Err(Failure::protocol("no settings behind the preface"));
            }
            Reading::Block(_) if !head.is_continuation() => {
                return Err(Failure::protocol("another frame inside a header section"));
            }
            Reading::Frames if head.is_continuation() => {
                return Err(Failure::protocol("continuation of nothing"));
            }
            _ => {}
        }
        let limit = MIN_MAX_FRAME.max(self.settings.frame as usize);
        head.check(limit).map_err(|violation| Failure::new(violation.code, "frame too large"))
    }

    #[inline]
    fn frame(
        &mut self,
        frame: Frame,
        payload: &[u8],
        out: &mut Vec<u8>,
        scratch: &mut Scratch,
        limits: &Limits,
    ) -> Result<Option<Event>, Failure> {
        match frame {
            Frame::Headers { stream, block, end_stream, end_headers, awaits_itself } => {
                let bytes = payload.get(block).unwrap_or_default();
                let begun = Block { number: stream, end_stream, malformed: awaits_itself, bytes: Vec::new() };
                self.headers(begun, bytes, end_headers, out, scratch, limits)
            }
            Frame::Continuation { stream, end_headers } => {
                self.continuation(stream, payload, end_headers, out, scratch, limits)
            }
            Frame::Data { stream, data, flow, end_stream } => self.data(stream, data, flow, end_stream, out, limits),
            Frame::Reset { stream, code } => self.reset_by_client(stream, code),
            Frame::Settings => self.settings(payload, out).map(|()| None),
            Frame::SettingsAck => self.settings_ack().map(|()| None),
            Frame::Ping(data) => {
                self.pay(Cost::Frame)?;
                frame::put_ping(out, data, true);
                Ok(None)
            }
            Frame::PingAck(data) => self.pay(Cost::Frame).map(|()| Some(Event::Pong(data))),
            Frame::GoAway { code, .. } => self.pay(Cost::Frame).map(|()| Some(Event::GoAway { code })),
            Frame::WindowUpdate { stream: 0, increment } => {
                self.pay(Cost::WindowUpdate)?;
                let opened = self.outgoing.open(i64::from(increment));
                opened.map_err(|code| Failure::new(code, "window too large"))?;
                Ok(None)
            }
            Frame::WindowUpdate { stream, increment } => self.window_update(stream, increment, out),
            Frame::PriorityUpdate { stream, value } => {
                let value = payload.get(value).unwrap_or_default();
                self.priority_update(stream, Priority::parse(value)).map(|()| None)
            }
            Frame::Ignored => self.pay(Cost::Frame).map(|()| None),
        }
    }

    #[inline]
    pub(crate) fn pay(&mut self, cost: Cost) -> Result<(), Failure> {
        if self.budget.pay(cost) { Ok(()) } else { Err(Failure::CALM) }
    }

    /// A frame is invalid by itself: its stream is over, or the connection if there is none.
    #[cold]
    fn violation(&mut self, violation: Violation, out: &mut Vec<u8>) -> Result<Option<Event>, Failure> {
        match self.streams.find(violation.stream) {
            Found::Live(stream) => self.stream_error(stream, violation.code, out).map(Some),
            _ => Err(Failure::new(violation.code, "malformed frame")),
        }
    }

    /// Section 6.5
    fn settings(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
        self.reading = Reading::Frames;
        self.pay(Cost::Settings)?;
        let before = self.peer;
        let changed = before.with(frame::settings(payload));
        self.peer = changed.map_err(|code| Failure::new(code, "invalid settings"))?;
        self.encoder.set_limit(self.peer.table);
        let change = i64::from(self.peer.window) - i64::from(before.window);
        if change != 0 {
            for (id, stream) in self.streams.all() {
                let opened = stream.outgoing.open(change);
                opened.map_err(|code| Failure::new(code, "window too large"))?;
                stream.regulate(&mut self.turns, id);
            }
        }
        frame::put_settings_ack(out);
        Ok(())
    }

    /// Section 6.5.3: from now on the client keeps to our settings.
    fn settings_ack(&mut self) -> Result<(), Failure> {
        if std::mem::replace(&mut self.acknowledged, true) {
            return self.pay(Cost::Frame);
        }
        for (_, stream) in self.streams.all() {
            stream.incoming.shift(self.window, self.settings.window);
        }
        self.window = self.settings.window;
        Ok(())
    }

    /// RFC 9218 section 7.1
    fn priority_update(&mut self, number: u32, priority: Priority) -> Result<(), Failure> {
        self.pay(Cost::Frame)?;
        match self.streams.find(number) {
            Found::Live(id) => {
                if let Some(stream) = self.streams.get_mut(id) {
                    self.turns.change(&mut stream.waits, priority, id.place() as u32);
                }
            }
            Found::Idle => {
                self.early.retain(|&(other, _)| other != number);
                if self.early.len() == MAX_EARLY {
                    self.early.remove(0);
                }
                self.early.push((number, priority));
            }
            Found::Reset | Found::Ended | Found::Closed => {}
        }
        Ok(())
    }

    /// The caller's value of an entry of the client's table, as long as that lives.
    #[inline]
    pub fn kept(&mut self, entry: Key) -> Option<&mut Option<K>> {
        match entry {
            Key::Static(_) => None,
            Key::Dynamic(number) => self.decoder.kept(number).map(|slot| &mut slot.kept),
        }
    }

    /// This much time has passed, which gives back some of the client's budget.
    pub fn pass(&mut self, seconds: u64) {
        self.budget.earn(Gain::Seconds(seconds));
    }

    /// Whether the client has acknowledged our settings: it has some time for that (section 6.5.3).
    pub const fn is_acknowledged(&self) -> bool {
        self.acknowledged
    }

    /// Append a ping, to be answered with the same bytes.
    pub fn ping(&self, out: &mut Vec<u8>, data: [u8; 8]) {
        frame::put_ping(out, data, false);
    }

    /// Whether the client's preface or settings are still missing.
    pub const fn is_opening(&self) -> bool {
        matches!(self.reading, Reading::Preface(_) | Reading::Settings)
    }

    /// Whether a header section has begun, and not ended.
    pub const fn is_in_section(&self) -> bool {
        matches!(self.reading, Reading::Block(_))
    }

    /// Whether the client is in the middle of a unit whose first bytes were consumed: the preface, a header section, a
    /// frame of a body.
    pub const fn is_inside(&self) -> bool {
        !matches!(self.reading, Reading::Frames | Reading::Closed)
    }
}

/// A frame on a stream that does not exist.
pub(crate) const IDLE: Failure = Failure::new(ErrorCode::Protocol, "frame for a stream that was not opened");

/// A frame on a stream that its client has ended.
pub(crate) const ENDED: Failure = Failure::new(ErrorCode::StreamClosed, "frame for a stream that is closed");
