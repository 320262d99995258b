//! What a client sends on its streams: requests, their bodies, windows and resets.

use std::ops::Range;

use crate::error::{Error, Refusal};
use crate::h2::budget::{Cost, Gain};
use crate::h2::connection::{Block, Connection, IDLE, Payload, Reading};
use crate::h2::event::{Event, Failure};
use crate::h2::flow::{Incoming, Outgoing};
use crate::h2::frame::{self, ErrorCode};
use crate::h2::hpack;
use crate::h2::priority::Waits;
use crate::h2::request::{self, Fault, Rules};
use crate::h2::scratch::Scratch;
use crate::h2::streams::{Found, Kind, Local, Remote, Stream, StreamId};
use crate::limits::Limits;
use crate::method::Method;

/// A frame on a stream that its client has ended.
const ENDED: Failure = Failure::new(ErrorCode::StreamClosed, "frame for a stream that is closed");

impl<K> Connection<K> {
    /// Section 6.2
    pub(crate) fn headers(
        &mut self,
        mut begun: Block,
        bytes: &[u8],
        end: bool,
        out: &mut Vec<u8>,
        scratch: &mut Scratch,
        limits: &Limits,
    ) -> Result<Option<Event>, Failure> {
        if begun.number.is_multiple_of(2) {
            return Err(Failure::protocol("even number of a client's stream"));
        }
        if end {
            return self.section(&begun, bytes, out, scratch, limits);
        }
        begun.bytes.extend_from_slice(bytes);
        self.reading = Reading::Block(Box::new(begun));
        Ok(None)
    }

    /// Section 6.10. H3: each frame costs, and so do bytes.
    pub(crate) fn continuation(
        &mut self,
        number: u32,
        bytes: &[u8],
        end: bool,
        out: &mut Vec<u8>,
        scratch: &mut Scratch,
        limits: &Limits,
    ) -> Result<Option<Event>, Failure> {
        self.pay(Cost::Frame)?;
        let Reading::Block(block) = &mut self.reading else { return Ok(None) };
        if block.number != number {
            return Err(Failure::protocol("another stream inside a header section"));
        }
        // Encoded, fields take less than they are counted for, so all that can be served is far below.
        if block.bytes.len() + bytes.len() > self.settings.fields as usize * 2 {
            return Err(Failure::new(ErrorCode::EnhanceYourCalm, "header section too large"));
        }
        block.bytes.extend_from_slice(bytes);
        if !end {
            return Ok(None);
        }
        let Reading::Block(block) = std::mem::replace(&mut self.reading, Reading::Frames) else { return Ok(None) };
        self.section(&block, &block.bytes, out, scratch, limits)
    }

    /// A whole header section: of a request, or trailers, or of nobody. It is decoded in any case, for the table's sake.
    #[inline]
    fn section(
        &mut self,
        block: &Block,
        bytes: &[u8],
        out: &mut Vec<u8>,
        scratch: &mut Scratch,
        limits: &Limits,
    ) -> Result<Option<Event>, Failure> {
        match self.streams.find(block.number) {
            Found::Idle if self.accepts() => self.request(block, bytes, out, scratch, limits),
            Found::Idle => {
                self.skip_section(bytes)?;
                self.refuse(block.number, ErrorCode::RefusedStream, out)?;
                Ok(None)
            }
            Found::Live(id) => self.request_trailers(id, block, bytes, out, limits),
            Found::Reset => {
                self.skip_section(bytes)?;
                self.pay(Cost::Frame).map(|()| None)
            }
            Found::Ended => Err(ENDED),
            Found::Closed => Err(Failure::protocol("number of a stream that is over")),
        }
    }

    /// Whether a request is taken: the client can send others again.
    fn accepts(&self) -> bool {
        self.ending.accepts() && self.streams.count() < self.settings.streams as usize
    }

    fn skip_section(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.decoder.decode(bytes, 0, |_| {}).map(drop).map_err(compression)
    }

    /// A stream that never was one of ours.
    fn refuse(&mut self, number: u32, code: ErrorCode, out: &mut Vec<u8>) -> Result<(), Failure> {
        self.streams.refuse(number);
        frame::put_reset(out, number, code);
        self.pay(Cost::Reset)
    }

    #[inline]
    fn request(
        &mut self,
        block: &Block,
        bytes: &[u8],
        out: &mut Vec<u8>,
        scratch: &mut Scratch,
        limits: &Limits,
    ) -> Result<Option<Event>, Failure> {
        let rules = Rules {
            limits,
            size: self.settings.fields as usize,
            connect_protocol: self.settings.connect_protocol,
            end_stream: block.end_stream,
        };
        let mut head = scratch.enter();
        let read = request::read(&mut self.decoder, bytes, &mut head, rules);
        let refused = match read {
            Ok(()) if !block.malformed => None,
            Err(Fault::Refused(error)) if !block.malformed => Some(error),
            Err(Fault::Compression(error)) => return Err(compression(error)),
            _ => {
                drop(head);
                self.refuse(block.number, ErrorCode::Protocol, out)?;
                return Ok(None);
            }
        };
        if refused.is_some() {
            self.pay(Cost::Reset)?;
        }
        let tunnel = head.verb == Method::Connect;
        let remote = match refused {
            _ if block.end_stream => Remote::Ended,
            Some(_) => Remote::Dropped,
            None => Remote::Open {
                declared: head.length,
                allowed: limits.body.filter(|_| !tunnel),
                awaits_continue: head.expects_continue,
            },
        };
        let early = self.early.iter().position(|&(number, _)| number == block.number);
        if let Some(early) = early {
            head.priority = self.early.remove(early).1;
        }
        let kind = match head.verb {
            Method::Head => Kind::Head,
            Method::Connect => Kind::Tunnel,
            _ => Kind::Request,
        };
        let stream = Stream {
            remote,
            local: Local::Awaiting,
            incoming: Incoming::new(self.window),
            outgoing: Outgoing::new(self.peer.window),
            waits: Waits::new(head.priority),
            kind,
            refused: refused.is_some(),
        };
        head.found();
        let stream = self.streams.open(block.number, stream);
        self.note_number(block.number, out);
        Ok(Some(match refused {
            None => Event::Request { stream, end: block.end_stream },
            Some(error) => Event::Refused { stream, error },
        }))
    }

    /// A second section ends the request (section 8.1).
    fn request_trailers(
        &mut self,
        id: StreamId,
        block: &Block,
        bytes: &[u8],
        out: &mut Vec<u8>,
        limits: &Limits,
    ) -> Result<Option<Event>, Failure> {
        let read = request::read_trailers(&mut self.decoder, bytes, limits);
        if let Err(Fault::Compression(error)) = read {
            return Err(compression(error));
        }
        let remote = self.streams.get(id).map_or(Remote::Ended, |stream| stream.remote);
        let wrong = match remote {
            Remote::Ended => Some(ErrorCode::StreamClosed),
            _ if !block.end_stream || block.malformed || read == Err(Fault::Malformed) => Some(ErrorCode::Protocol),
            Remote::Open { declared: Some(1..), .. } => Some(ErrorCode::Protocol), // F22
            Remote::Open { .. } | Remote::Dropped => None,
        };
        match (wrong, remote, read) {
            (Some(code), ..) => self.stream_error(id, code, out).map(Some),
            (None, Remote::Open { .. }, Err(Fault::Refused(error))) => self.refuse_body(id, error, true).map(Some),
            (None, Remote::Open { .. }, _) => Ok(Some(self.end_body(id))),
            // Nobody waits for it.
            (None, ..) => {
                self.end_body(id);
                Ok(None)
            }
        }
    }

    /// The body is complete.
    fn end_body(&mut self, id: StreamId) -> Event {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.remote = Remote::Ended;
        }
        self.close_if_ended(id);
        Event::Data { stream: id, data: 0..0, end: true }
    }

    /// No more of the body is wanted: it is too large.
    fn refuse_body(&mut self, id: StreamId, error: Error, end: bool) -> Result<Event, Failure> {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.remote = if end { Remote::Ended } else { Remote::Dropped };
            stream.refused = true;
        }
        self.close_if_ended(id);
        self.pay(Cost::Reset)?;
        Ok(Event::Refused { stream: id, error })
    }

    /// Section 6.1: the beginning of a frame, which decides what becomes of all of it.
    pub(crate) fn data(
        &mut self,
        number: u32,
        data: Range<usize>,
        flow: usize,
        end: bool,
        out: &mut Vec<u8>,
        limits: &Limits,
    ) -> Result<Option<Event>, Failure> {
        let found = self.streams.find(number);
        match found {
            Found::Idle => return Err(IDLE),
            Found::Ended | Found::Closed => return Err(ENDED),
            Found::Live(_) | Found::Reset => {}
        }
        if !end {
            self.pay(Cost::Data(data.len()))?;
        }
        // Of the connection's window nothing is held, whatever becomes of the frame (H7).
        let flow = flow as u32;
        self.incoming.take(flow).map_err(|code| Failure::new(code, "more than the window of the connection"))?;
        self.incoming.release(flow);
        if let Some(increment) = self.incoming.update() {
            frame::put_window_update(out, 0, increment);
        }
        let padding = flow as usize - data.end;
        self.reading = Reading::Data(Payload { stream: None, data: data.len(), padding, end });
        let Found::Live(id) = found else { return Ok(None) };
        match self.accept(id, data.len(), flow, end) {
            Verdict::Dropped => {
                if end {
                    self.end_body(id);
                }
                Ok(None)
            }
            Verdict::Wrong(code) => self.stream_error(id, code, out).map(Some),
            Verdict::TooLarge => {
                let limit = limits.body.unwrap_or_default();
                self.refuse_body(id, Error { refusal: Refusal::BodyTooLarge, limit }, end).map(Some)
            }
            Verdict::Wanted if data.is_empty() => {
                self.update(id, out);
                Ok(end.then(|| self.end_body(id)))
            }
            Verdict::Wanted => {
                self.reading = Reading::Data(Payload { stream: Some(id), data: data.len(), padding, end });
                Ok(None)
            }
        }
    }

    /// What is to be done with a frame of so many bytes of a body, which takes `flow` of the window.
    #[inline]
    fn accept(&mut self, id: StreamId, length: usize, flow: u32, end: bool) -> Verdict {
        let Some(stream) = self.streams.get_mut(id) else { return Verdict::Dropped };
        let Remote::Open { declared, allowed, awaits_continue } = &mut stream.remote else {
            let ended = stream.remote == Remote::Ended;
            return if ended { Verdict::Wrong(ErrorCode::StreamClosed) } else { Verdict::Dropped };
        };
        if let Err(code) = stream.incoming.take(flow) {
            return Verdict::Wrong(code);
        }
        stream.incoming.release(flow - length as u32); // padding
        *awaits_continue = false;
        if let Some(left) = declared {
            match left.checked_sub(length as u64) {
                Some(less) if !end || less == 0 => *left = less,
                _ => return Verdict::Wrong(ErrorCode::Protocol), // F22
            }
        }
        if let Some(left) = allowed {
            match left.checked_sub(length as u64) {
                Some(less) => *left = less,
                None => return Verdict::TooLarge,
            }
        }
        Verdict::Wanted
    }

    /// What there is of the payload of a `DATA` frame, for whoever still wants it.
    #[inline]
    pub(crate) fn payload(&mut self, input: &[u8]) -> Option<(usize, Option<Event>)> {
        let Reading::Data(payload) = &mut self.reading else { return None };
        if payload.data == 0 {
            let length = payload.padding.min(input.len());
            payload.padding -= length;
            if payload.padding == 0 {
                self.reading = Reading::Frames;
            } else if length == 0 {
                return None;
            }
            return Some((length, None));
        }
        let length = payload.data.min(input.len());
        if length == 0 {
            return None;
        }
        payload.data -= length;
        let (stream, end) = (payload.stream, payload.end && payload.data == 0);
        let wanted =
            |id: &StreamId| self.streams.get(*id).is_some_and(|stream| matches!(stream.remote, Remote::Open { .. }));
        let event = stream.filter(wanted).map(|stream| {
            if end {
                self.end_body(stream);
            }
            Event::Data { stream, data: 0..length, end }
        });
        Some((length, event))
    }

    /// Section 6.9, on a stream
    pub(crate) fn window_update(
        &mut self,
        number: u32,
        increment: u32,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, Failure> {
        self.pay(Cost::WindowUpdate)?;
        let id = match self.streams.find(number) {
            Found::Idle => return Err(IDLE),
            Found::Live(id) => id,
            Found::Reset | Found::Ended | Found::Closed => return Ok(None),
        };
        let Some(stream) = self.streams.get_mut(id) else { return Ok(None) };
        if let Err(code) = stream.outgoing.open(i64::from(increment)) {
            return self.stream_error(id, code, out).map(Some);
        }
        stream.regulate(&mut self.turns, id);
        Ok(None)
    }

    /// Section 6.4. H1: each costs.
    pub(crate) fn reset_by_client(&mut self, number: u32, code: u32) -> Result<Option<Event>, Failure> {
        match self.streams.find(number) {
            Found::Idle => Err(IDLE),
            Found::Live(stream) => {
                self.close(stream, false);
                self.pay(Cost::Reset)?;
                Ok(Some(Event::Reset { stream, code, ours: false }))
            }
            Found::Reset | Found::Ended | Found::Closed => self.pay(Cost::Frame).map(|()| None),
        }
    }

    /// Bytes of a body have been read: give them back to the window of the stream, and more if it is read as fast as it comes.
    /// What the client is to be told is appended.
    pub fn consume(&mut self, out: &mut Vec<u8>, id: StreamId, length: usize) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        stream.incoming.release(u32::try_from(length).unwrap_or(u32::MAX));
        self.budget.earn(Gain::Read(length));
        self.update(id, out);
    }

    /// Tell the client what it may send on a stream, when that has become much.
    fn update(&mut self, id: StreamId, out: &mut Vec<u8>) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if !matches!(stream.remote, Remote::Open { .. }) {
            return;
        }
        if stream.incoming.is_due() {
            self.pool.grow(&mut stream.incoming, self.settings.largest_window);
        }
        if let Some(increment) = stream.incoming.update() {
            frame::put_window_update(out, id.number(), increment);
        }
    }

    /// Bytes of a body that the caller has and has not [consumed](Self::consume).
    pub fn held(&self, id: StreamId) -> usize {
        self.streams.get(id).map_or(0, |stream| stream.incoming.held() as usize)
    }
}

/// What becomes of a frame of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Wanted,
    Dropped,
    Wrong(ErrorCode),
    /// More than [`Limits::body`].
    TooLarge,
}

fn compression(error: hpack::Error) -> Failure {
    Failure::new(ErrorCode::Compression, error.text())
}
