//! The client's bytes on its request streams: requests, bodies and trailers (RFC 9114 section 4.1).

use crate::budget::streams::{Cost, Gain};
use crate::error::{Error, Refusal};
use crate::fields::body::{Expected, Unexpected};
use crate::fields::request::{Fault, Reader, Rules, TrailerReader};
use crate::fields::response::Kind;
use crate::fields::{Key, Scratch};
use crate::h3::connection::Connection;
use crate::h3::error::ErrorCode;
use crate::h3::event::{Event, Failure, Progress};
use crate::h3::frame;
use crate::h3::streams::{Local, Reading, Remote, StreamId};
use crate::limits::Limits;
use crate::method::Method;
use crate::qpack::{Decoded, Size, static_table};

/// How many bytes of a stream one step has read, and their event if there is one. `None`: more are needed, and all of these are
/// held.
type Step = Result<Option<(usize, Option<Event>)>, Failure>;

/// A lower limit of the bytes that are held counts as this one.
const LEAST_HELD: usize = 64 * 1024;

/// The result of a section.
enum Outcome {
    Read(Option<Event>),
    /// It waits until the client's table has had this number of entries.
    Blocked(u64),
}

impl<K> Connection<K> {
    /// Read on from a request stream: `input` is all that has arrived since the last call, and `end` says that the stream ends
    /// with it. `scratch` may be shared by all connections of a thread; it holds the request after [`Event::Request`], and
    /// nothing after anything but that and [`Event::Refused`]. Repeat with the rest until this returns `NeedMore`, `Blocked`,
    /// `Reset`, `Failed` or `Closed`.
    pub fn receive(
        &mut self,
        id: StreamId,
        input: &[u8],
        end: bool,
        scratch: &mut Scratch,
        limits: &Limits,
    ) -> Progress {
        scratch.clear();
        if self.closed {
            return Progress { consumed: input.len(), event: Event::Closed };
        }
        let mut consumed = 0;
        loop {
            let rest = input.get(consumed..).unwrap_or_default();
            let event = match self.step(id, rest, end, scratch, limits) {
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
                Ok(None) if end && self.is_inside(id) => Event::Failed(self.fail(Failure::FRAME)),
                Ok(None) => Event::NeedMore,
                Err(failure) => Event::Failed(self.fail(failure)),
            };
            if matches!(event, Event::NeedMore | Event::Failed(_) | Event::Reset { .. }) {
                consumed = input.len();
            }
            return Progress { consumed, event };
        }
    }

    /// Whether a stream is open on which no request has come yet: its client has some time for that. A blocked one is as well.
    pub fn awaits_request(&self, id: StreamId) -> bool {
        self.streams.get(id).is_some_and(|stream| stream.remote == Remote::Head)
    }

    /// Whether the client is in the middle of a frame that is wanted, whose first bytes have come.
    pub fn is_inside(&self, id: StreamId) -> bool {
        self.streams.get(id).is_some_and(|stream| {
            let dropped = matches!(stream.remote, Remote::Dropped | Remote::Ended);
            !dropped && (stream.reading != Reading::Frame || !stream.held.is_empty())
        })
    }

    #[inline]
    fn step(&mut self, id: StreamId, input: &[u8], end: bool, scratch: &mut Scratch, limits: &Limits) -> Step {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(None) };
        if matches!(stream.remote, Remote::Dropped | Remote::Ended) {
            return Ok(None);
        }
        match stream.reading {
            Reading::Frame if input.is_empty() && !end => Ok(None),
            Reading::Frame if input.is_empty() && stream.held.is_empty() => {
                self.end_stream(id).map(|event| Some((0, Some(event))))
            }
            Reading::Frame => {
                let Some((kind, length, taken)) = frame::read_head(&mut stream.held, input) else { return Ok(None) };
                Ok(Some((taken, self.begin_frame(id, kind, length, limits)?)))
            }
            Reading::Section(length) => self.section(id, length, input, end, scratch, limits),
            Reading::Blocked => self.blocked_section(id, end && input.is_empty(), scratch, limits),
            Reading::Data(left) => Ok(self.payload(id, left, input, end)),
            Reading::Skip(0) => {
                stream.reading = Reading::Frame;
                Ok(Some((0, None)))
            }
            Reading::Skip(_) if input.is_empty() => Ok(None),
            Reading::Skip(left) => {
                let taken = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                stream.reading = Reading::Skip(left - taken as u64);
                self.pay(Cost::Skipped(taken))?;
                Ok(Some((taken, None)))
            }
        }
    }

    /// The head of a frame: whether the frame may come now (sections 4.1 and 7).
    #[inline]
    fn begin_frame(&mut self, id: StreamId, kind: u64, length: u64, limits: &Limits) -> Result<Option<Event>, Failure> {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(None) };
        match kind {
            frame::HEADERS => match stream.remote {
                // Section 4.4
                Remote::Open(_) if stream.kind == Kind::Tunnel => Err(Failure::UNEXPECTED),
                Remote::Head | Remote::Open(_) => {
                    // Encoded, fields take less than they are counted for, so all that can be served is far below.
                    if length > u64::from(self.settings.fields) * 2 {
                        let fields = self.settings.fields;
                        let is_head = stream.remote == Remote::Head;
                        let error = if is_head {
                            Error::over(Refusal::HeadTooLarge, fields)
                        } else {
                            Error::over(Refusal::TrailersTooLarge, limits.trailers)
                        };
                        return self.refuse(id, error).map(Some);
                    }
                    stream.reading = Reading::Section(length as usize);
                    Ok(None)
                }
                _ => Err(Failure::UNEXPECTED),
            },
            frame::DATA => self.begin_data(id, length, limits),
            frame::CANCEL_PUSH
            | frame::SETTINGS
            | frame::PUSH_PROMISE
            | frame::GOAWAY
            | frame::MAX_PUSH_ID
            | frame::PRIORITY_UPDATE
            | frame::PRIORITY_UPDATE_PUSH => Err(Failure::UNEXPECTED),
            kind if frame::is_of_http2(kind) => Err(Failure::UNEXPECTED),
            _ => {
                stream.reading = Reading::Skip(length);
                self.pay(Cost::Frame)?;
                Ok(None)
            }
        }
    }

    /// A part of a section, or the rest of it.
    #[inline]
    fn section(
        &mut self,
        id: StreamId,
        length: usize,
        input: &[u8],
        end: bool,
        scratch: &mut Scratch,
        limits: &Limits,
    ) -> Step {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(None) };
        let mut held = std::mem::take(&mut stream.held);
        let before = held.len();
        let Some((section, taken)) = frame::gather(&mut held, input, length) else {
            self.held += held.len() - before;
            stream.held = held;
            return self.check_held().map(|()| None);
        };
        stream.reading = Reading::Frame;
        self.held -= before;
        match self.decode(id, section, end && taken == input.len(), scratch, limits)? {
            Outcome::Read(event) => Ok(Some((taken, event))),
            Outcome::Blocked(required) => {
                if self.blocked.len() >= self.settings.blocked as usize {
                    return Err(Failure::new(ErrorCode::Decompression, "more blocked streams than allowed"));
                }
                self.blocked.push((id, required));
                self.held += length;
                let held = section.to_vec();
                if let Some(stream) = self.streams.get_mut(id) {
                    stream.held = held;
                    stream.reading = Reading::Blocked;
                }
                self.check_held()?;
                Ok(Some((taken, Some(Event::Blocked { stream: id }))))
            }
        }
    }

    /// All streams together hold little more than one that sends the largest section, or than many that send usual ones.
    fn check_held(&self) -> Result<(), Failure> {
        let most = (self.settings.fields as usize).saturating_mul(4).max(LEAST_HELD);
        if self.held > most {
            return Err(Failure::new(ErrorCode::ExcessiveLoad, "too many incomplete field sections"));
        }
        Ok(())
    }

    fn blocked_section(&mut self, id: StreamId, last: bool, scratch: &mut Scratch, limits: &Limits) -> Step {
        if self.blocked.iter().any(|&(blocked, _)| blocked == id) {
            return Ok(Some((0, Some(Event::Blocked { stream: id }))));
        }
        let Some(stream) = self.streams.get_mut(id) else { return Ok(None) };
        let section = std::mem::take(&mut stream.held);
        stream.reading = Reading::Frame;
        self.held -= section.len();
        match self.decode(id, &section, last, scratch, limits)? {
            Outcome::Read(event) => Ok(Some((0, event))),
            Outcome::Blocked(_) => Err(Failure::new(ErrorCode::Internal, "blocked again")),
        }
    }

    /// A stream that waits for nothing any longer.
    pub(crate) fn next_unblocked(&mut self) -> Option<StreamId> {
        if self.blocked.is_empty() {
            return None;
        }
        let inserted = self.decoder.inserted();
        let place = self.blocked.iter().position(|&(_, required)| required <= inserted)?;
        Some(self.blocked.remove(place).0)
    }

    /// A whole section: of a request, or trailers.
    #[inline]
    fn decode(
        &mut self,
        id: StreamId,
        section: &[u8],
        last: bool,
        scratch: &mut Scratch,
        limits: &Limits,
    ) -> Result<Outcome, Failure> {
        match self.streams.get(id).map(|stream| stream.remote) {
            Some(Remote::Head) => self.request(id, section, last, scratch, limits),
            Some(Remote::Open(expected)) => self.trailers_of(id, section, expected, last, limits),
            _ => Ok(Outcome::Read(None)),
        }
    }

    #[inline]
    fn request(
        &mut self,
        id: StreamId,
        section: &[u8],
        last: bool,
        scratch: &mut Scratch,
        limits: &Limits,
    ) -> Result<Outcome, Failure> {
        let rules = Rules {
            limits,
            size: self.settings.fields as usize,
            connect_protocol: self.settings.connect_protocol,
            end_stream: last,
        };
        let mut head = scratch.enter();
        let mut reader = Reader::new(&mut head, limits);
        let decoded = self.decoder.decode(id.number(), section, rules.size, |field| {
            let kind = match (field.kept, field.whole) {
                (Some(slot), _) => *slot.kind.get_or_insert_with(|| crate::fields::Kind::of(field.name, field.value)),
                (None, Some(Key::Static(index))) => static_table::kind(index),
                (None, _) => crate::fields::Kind::of(field.name, field.value),
            };
            reader.field(kind, field.name, field.value, field.whole);
        })?;
        let size = match decoded {
            Decoded::Blocked(required) => return Ok(Outcome::Blocked(required)),
            Decoded::Whole(size) => size,
        };
        let refused = match reader.end(size == Size::Over, rules) {
            Ok(()) => None,
            Err(Fault::Refused(error)) => Some(error),
            Err(Fault::Malformed) => {
                drop(head);
                return Ok(Outcome::Read(Some(self.stream_error(id, ErrorCode::Message)?)));
            }
        };
        if let Some(early) = self.early.iter().position(|&(number, _)| number == id.number()) {
            head.priority = self.early.remove(early).1;
        }
        let Some(stream) = self.streams.get_mut(id) else { return Ok(Outcome::Read(None)) };
        let tunnel = head.verb == Method::Connect;
        stream.kind = Kind::of(head.verb);
        self.turns.change(&mut stream.waits, head.priority, id.place() as u32);
        stream.refused = refused.is_some();
        stream.remote = match refused {
            _ if last => Remote::Ended,
            Some(_) => Remote::Dropped,
            None => Remote::Open(Expected::new(head.length, limits.body.filter(|_| !tunnel), head.expects_continue)),
        };
        head.found();
        Ok(Outcome::Read(Some(match refused {
            None => Event::Request { stream: id, end: last },
            Some(error) => {
                if !last {
                    self.decoder.cancel(id.number());
                }
                self.pay(Cost::Reset)?;
                Event::Refused { stream: id, error }
            }
        })))
    }

    /// A second section: nothing may follow it.
    fn trailers_of(
        &mut self,
        id: StreamId,
        section: &[u8],
        expected: Expected,
        last: bool,
        limits: &Limits,
    ) -> Result<Outcome, Failure> {
        let mut reader = TrailerReader::default();
        let decoded = self.decoder.decode(id.number(), section, limits.trailers, |field| {
            reader.field(crate::fields::Kind::of(field.name, field.value));
        })?;
        let size = match decoded {
            Decoded::Blocked(required) => return Ok(Outcome::Blocked(required)),
            Decoded::Whole(size) => size,
        };
        let event = match reader.end(size == Size::Over, limits) {
            Err(Fault::Malformed) => Some(self.stream_error(id, ErrorCode::Message)?),
            Ok(()) | Err(Fault::Refused(_)) if expected.is_short() => {
                Some(self.stream_error(id, ErrorCode::Message)?) // F22
            }
            Err(Fault::Refused(error)) => Some(self.refuse(id, error)?),
            Ok(()) if last => Some(self.end_body(id)),
            Ok(()) => {
                if let Some(stream) = self.streams.get_mut(id) {
                    stream.remote = Remote::Trailers;
                }
                None
            }
        };
        Ok(Outcome::Read(event))
    }

    /// The head of a `DATA` frame.
    #[inline]
    fn begin_data(&mut self, id: StreamId, length: u64, limits: &Limits) -> Result<Option<Event>, Failure> {
        self.pay(Cost::Data(usize::try_from(length).unwrap_or(usize::MAX)))?;
        let Some(stream) = self.streams.get_mut(id) else { return Ok(None) };
        let Remote::Open(expected) = &mut stream.remote else { return Err(Failure::UNEXPECTED) };
        match expected.take(length, false) {
            Ok(()) => {
                if length > 0 {
                    stream.reading = Reading::Data(length);
                }
                Ok(None)
            }
            Err(Unexpected::Length) => self.stream_error(id, ErrorCode::Message).map(Some),
            Err(Unexpected::TooLarge) => {
                let limit = limits.body.unwrap_or_default();
                self.refuse(id, Error { refusal: Refusal::BodyTooLarge, limit }).map(Some)
            }
        }
    }

    /// The available payload of a `DATA` frame.
    #[inline]
    fn payload(&mut self, id: StreamId, left: u64, input: &[u8], end: bool) -> Option<(usize, Option<Event>)> {
        let stream = self.streams.get_mut(id)?;
        if input.is_empty() {
            return None;
        }
        let taken = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
        let left = left - taken as u64;
        stream.reading = if left == 0 { Reading::Frame } else { Reading::Data(left) };
        let is_short = matches!(stream.remote, Remote::Open(expected) if expected.is_short());
        // A body that is too short is an error behind its last piece, however it is cut.
        let last = end && left == 0 && taken == input.len() && !is_short;
        if last {
            self.end_body(id);
        }
        Some((taken, Some(Event::Data { stream: id, data: 0..taken, end: last })))
    }

    /// The stream ends between two frames (section 4.1).
    fn end_stream(&mut self, id: StreamId) -> Result<Event, Failure> {
        match self.streams.get(id).map(|stream| stream.remote) {
            Some(Remote::Head) => self.stream_error(id, ErrorCode::RequestIncomplete),
            Some(Remote::Open(expected)) if expected.is_short() => self.stream_error(id, ErrorCode::Message), // F22
            _ => Ok(self.end_body(id)),
        }
    }

    /// The body is complete.
    fn end_body(&mut self, id: StreamId) -> Event {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.remote = Remote::Ended;
            if stream.local == Local::Complete {
                self.close(id);
            }
        }
        Event::Data { stream: id, data: 0..0, end: true }
    }

    /// No more of the request is wanted.
    fn refuse(&mut self, id: StreamId, error: Error) -> Result<Event, Failure> {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.remote = Remote::Dropped;
            stream.refused = true;
            self.decoder.cancel(id.number());
        }
        self.pay(Cost::Reset)?;
        Ok(Event::Refused { stream: id, error })
    }

    /// Bytes of a body have been read, which came in this many pieces.
    pub fn consume(&mut self, length: usize, pieces: usize) {
        self.budget.earn(Gain::Read { length, pieces });
    }
}
