//! The client's frames on its streams: requests, trailers, windows and resets. Bodies are in `body`.

use crate::budget::streams::Cost;
use crate::fields::Scratch;
use crate::fields::body::Expected;
use crate::fields::request::{Fault, Rules};
use crate::fields::response::Kind;
use crate::h2::connection::{Block, Connection, ENDED, IDLE, Reading};
use crate::h2::event::{Event, Failure};
use crate::h2::flow::{Incoming, Outgoing};
use crate::h2::frame::{self, ErrorCode};
use crate::h2::hpack;
use crate::h2::request;
use crate::h2::streams::{Found, Local, Remote, Stream, StreamId};
use crate::limits::Limits;
use crate::method::Method;
use crate::priority::Waits;

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

    /// A whole header section: of a request, trailers, or for no stream. It is decoded in any case, for the table's
    /// sake.
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
        let read = request::read(&mut self.decoder, bytes, &mut head, rules).map_err(compression)?;
        let refused = match read {
            Ok(()) if !block.malformed => None,
            Err(Fault::Refused(error)) if !block.malformed => Some(error),
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
            None => Remote::Open(Expected::new(head.length, limits.body.filter(|_| !tunnel), head.expects_continue)),
        };
        let early = self.early.iter().position(|&(number, _)| number == block.number);
        if let Some(early) = early {
            head.priority = self.early.remove(early).1;
        }
        let kind = Kind::of(head.verb);
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
        let read = request::read_trailers(&mut self.decoder, bytes, limits).map_err(compression)?;
        let remote = self.streams.get(id).map_or(Remote::Ended, |stream| stream.remote);
        let wrong = match remote {
            Remote::Ended => Some(ErrorCode::StreamClosed),
            _ if !block.end_stream || block.malformed || read == Err(Fault::Malformed) => Some(ErrorCode::Protocol),
            Remote::Open(expected) if expected.is_short() => Some(ErrorCode::Protocol), // F22
            Remote::Open(_) | Remote::Dropped => None,
        };
        match (wrong, remote, read) {
            (Some(code), ..) => self.stream_error(id, code, out).map(Some),
            (None, Remote::Open(_), Err(Fault::Refused(error))) => self.refuse_body(id, error, true).map(Some),
            (None, Remote::Open(_), _) => Ok(Some(self.end_body(id))),
            // The application does not wait for it.
            (None, ..) => {
                self.end_body(id);
                Ok(None)
            }
        }
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
}

fn compression(error: hpack::Error) -> Failure {
    let code = if error == hpack::Error::Bomb { ErrorCode::EnhanceYourCalm } else { ErrorCode::Compression };
    Failure::new(code, error.text())
}
