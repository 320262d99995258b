//! One connection: the next thing to read or to write, and whether another request may follow.
//!
//! It owns the order of messages and nothing else. Bytes, time, sockets and the application belong to the caller, who
//! polls with the bytes that have arrived, writes the bytes appended to its buffers, and closes on request.

use std::ops::Range;

use crate::error::{AppError, Error};
use crate::h1::Scratch;
use crate::h1::body::{Decoded, Decoder};
use crate::h1::request::{Head, Status, Version};
use crate::h1::response::{BodyWriter, CONTINUE, Exchange, HeadWriter, Trailers, put_interim, put_text};
use crate::h1::sections::Sections;
use crate::limits::Limits;
use crate::method::Method;

/// The result of [`Connection::poll`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// No further event before more bytes arrive.
    NeedMore,
    /// A request; all about it is in the [`Head`] of the scratch, whose spans are offsets into this poll's input. If
    /// `head.body` is `None` it is complete; else `Body` events follow.
    Request,
    /// A part of the body, as a range of this poll's input (it may be empty), and whether it is the last.
    Body {
        /// Where the bytes lie.
        data: Range<usize>,
        /// Whether the body is complete with it.
        end: bool,
    },
    /// Bytes of an unwanted body were thrown away: poll again with the rest.
    Skipped,
    /// The request in hand is complete and its response is not: keep the bytes, poll again after the response.
    Busy,
    /// The bytes belong to another protocol since [`Connection::switch`].
    Switched,
    /// Nothing will be read from this connection again: close it once everything is written.
    Closed,
}

/// The event, and how many bytes of the input were used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Drop this many bytes from the front of the input.
    pub consumed: usize,
    /// Their meaning.
    pub event: Event,
}

/// The input that the connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaits {
    /// A request may come; no byte of one has.
    Idle,
    /// The rest of a request head.
    Head,
    /// More of a request body.
    Body,
    /// The end of a body that is thrown away, or the peer's end.
    Discard,
    /// Nothing: it is the application's turn.
    Nothing,
}

/// The part that the end of the peer's stream cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eof {
    /// Nothing: no request was under way.
    Clean,
    /// A head or a body, which will never be complete: the application must learn of the disconnect.
    Truncated,
    /// Nothing: the request in hand is complete and may still be answered.
    Complete,
}

#[derive(Debug)]
enum Reading {
    Head,
    Body(Decoder),
    Complete,
    /// Throw away what the decoder says is body (without one: everything), at most `left` bytes.
    Discard {
        decoder: Option<Decoder>,
        left: u64,
    },
    Switched,
    Closed,
}

#[derive(Debug)]
enum Writing {
    Idle,
    Awaiting,
    Body(BodyWriter),
    Complete,
}

/// The state of one connection.
#[derive(Debug)]
pub struct Connection {
    reading: Reading,
    writing: Writing,
    /// Facts about the request in hand. `close` is the keep-alive state: once set it stays.
    exchange: Exchange,
    /// The next head that is written contains `close`.
    last: bool,
    /// Whether the client still waits for `100 Continue`.
    expects_continue: bool,
    /// Whether the peer will send nothing more than what the caller holds.
    eof: bool,
    /// A head that is not complete yet. Only such connections hold one.
    partial: Option<Box<Head>>,
}

impl Default for Connection {
    fn default() -> Self {
        Self::new()
    }
}

impl Connection {
    /// A new connection.
    pub const fn new() -> Self {
        Self {
            reading: Reading::Head,
            writing: Writing::Idle,
            exchange: Exchange { head: false, version: Version::Http11, close: false },
            last: false,
            expects_continue: false,
            eof: false,
            partial: None,
        }
    }

    /// Read on from `input`: all bytes that have arrived and are not consumed yet. `scratch` may be shared by all
    /// connections of a thread; it holds the request after [`Event::Request`], and nothing after anything else. After an
    /// error nothing is read any more: answer with [`refuse`](Self::refuse), or abort if the response has begun.
    #[inline]
    pub fn poll(&mut self, input: &[u8], scratch: &mut Scratch, limits: &Limits) -> Result<Progress, Error> {
        self.poll_recalling(input, scratch, limits, None)
    }

    /// [`poll`](Self::poll), which reads a field section only if it is not in `sections`; see [`Head::parse_recalling`].
    #[inline]
    pub fn poll_recalling(
        &mut self,
        input: &[u8],
        scratch: &mut Scratch,
        limits: &Limits,
        sections: Option<&mut Sections>,
    ) -> Result<Progress, Error> {
        scratch.clear();
        let progress = match &mut self.reading {
            Reading::Head => self.read_head(input, scratch, limits, sections),
            Reading::Body(decoder) => match decoder.decode(input, limits) {
                Ok(found) => Ok(self.read_body(found, input.len())),
                Err(error) => Err(error),
            },
            Reading::Complete => Ok(Progress { consumed: 0, event: Event::Busy }),
            Reading::Discard { .. } => Ok(self.discard(input, limits)),
            Reading::Switched => Ok(Progress { consumed: 0, event: Event::Switched }),
            Reading::Closed => Ok(Progress { consumed: input.len(), event: Event::Closed }),
        };
        if progress.is_err() {
            self.reading = Reading::Closed;
            self.exchange.close = true;
        }
        debug_assert!(scratch.is_empty() || matches!(progress, Ok(Progress { event: Event::Request, .. })));
        progress
    }

    #[inline]
    fn read_head(
        &mut self,
        input: &[u8],
        scratch: &mut Scratch,
        limits: &Limits,
        sections: Option<&mut Sections>,
    ) -> Result<Progress, Error> {
        let mut head = scratch.enter();
        if let Some(begun) = self.partial.take() {
            *head = *begun;
        }
        let parsed = head.parse_recalling(input, limits, sections);
        // Also of a malformed request: its refusal is an answer to it.
        self.exchange.head = head.verb == Method::Head;
        let Status::Complete(consumed) = parsed? else {
            if self.eof {
                self.reading = Reading::Closed;
                return Ok(Progress { consumed: input.len(), event: Event::Closed });
            }
            self.partial = Some(Box::new(head.leave()));
            return Ok(Progress { consumed: 0, event: Event::NeedMore });
        };
        self.exchange.version = head.version;
        self.exchange.close |= !head.persistent || (self.eof && consumed == input.len());
        self.expects_continue = head.expects_continue;
        self.writing = Writing::Awaiting;
        self.reading = Decoder::new(head.body, limits).map_or(Reading::Complete, Reading::Body);
        head.found();
        Ok(Progress { consumed, event: Event::Request })
    }

    #[inline]
    fn read_body(&mut self, decoded: Decoded, input: usize) -> Progress {
        let Decoded { consumed, data, done: end } = decoded;
        if consumed > 0 {
            self.expects_continue = false;
        }
        if end {
            self.reading = Reading::Complete;
        }
        // Nothing follows it, or its missing part will never come.
        self.exchange.close |= self.eof && (consumed == input || !end && data.is_empty());
        let event = if data.is_empty() && !end { Event::NeedMore } else { Event::Body { data, end } };
        Progress { consumed, event }
    }

    /// The rest of a body after its response is dropped within a bound, and never read as a request. Mistakes in it
    /// need no answer any more: the connection ends.
    fn discard(&mut self, input: &[u8], limits: &Limits) -> Progress {
        let closed = Progress { consumed: input.len(), event: Event::Closed };
        let Reading::Discard { mut decoder, left } = std::mem::replace(&mut self.reading, Reading::Closed) else {
            return closed;
        };
        let (consumed, done) = match decoder.as_mut().map(|decoder| decoder.decode(input, limits)) {
            None => (input.len(), false),
            Some(Ok(decoded)) => (decoded.consumed, decoded.done),
            Some(Err(_)) => return closed,
        };
        let Some(left) = left.checked_sub(consumed as u64) else { return closed };
        if done {
            self.next();
        } else {
            self.reading = Reading::Discard { decoder, left };
        }
        Progress { consumed, event: if consumed > 0 { Event::Skipped } else { Event::NeedMore } }
    }

    /// The peer will send nothing more. Poll until nothing moves, or a request is over, before calling this; `pending` says
    /// whether input is left even so, which may hold further requests. An idle connection is closed, and one whose request
    /// can never be complete; a complete request can still be answered (RFC 9112 section 9.6 allows a half-close).
    pub fn receive_eof(&mut self, pending: bool) -> Eof {
        self.eof = true;
        match self.reading {
            Reading::Complete => {
                self.exchange.close |= !pending;
                return Eof::Complete;
            }
            // The rest was not read yet: polling finds out whether there are requests in it.
            Reading::Head if pending && self.partial.is_none() => return Eof::Complete,
            _ => {}
        }
        let cut = matches!(self.awaits(), Awaits::Head | Awaits::Body);
        self.exchange.close = true;
        self.reading = Reading::Closed;
        if cut { Eof::Truncated } else { Eof::Clean }
    }

    /// Append the interim response the client waits for, the first time the application asks for the body. `false`: the
    /// client does not wait, or it is too late (RFC 9110 section 10.1.1).
    pub fn send_continue(&mut self, out: &mut Vec<u8>) -> bool {
        let wanted = self.awaits_continue() && matches!(self.writing, Writing::Awaiting);
        if wanted {
            out.extend_from_slice(CONTINUE);
            self.expects_continue = false;
        }
        wanted
    }

    /// Append an interim response, 103 for instance. `Ok(false)`: the client speaks 1.0 and knows none (RFC 9110 section
    /// 15.2). It goes in front of the response: the caller knows how much of that it has sent.
    pub fn send_interim<'a>(
        &mut self,
        out: &mut Vec<u8>,
        status: u16,
        fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<bool, AppError> {
        if matches!(self.writing, Writing::Idle | Writing::Complete) {
            return Err(AppError::State);
        }
        let start = out.len();
        put_interim(out, status, fields)?;
        let known = self.exchange.version != Version::Http10;
        if !known {
            out.truncate(start);
        }
        Ok(known)
    }

    /// Begin the response to the request in hand: append its status line and `defaults` (ready-made field lines). Add the
    /// application's fields to the writer, then give it to [`finish_head`](Self::finish_head).
    #[inline]
    pub fn start_response(&self, out: &mut Vec<u8>, status: u16, defaults: &[u8]) -> Result<HeadWriter, AppError> {
        if !matches!(self.writing, Writing::Awaiting) {
            return Err(AppError::State);
        }
        let mut exchange = self.exchange;
        // The body may come or not, so it is unknown where the next request begins.
        exchange.close |= self.awaits_continue() || self.last;
        HeadWriter::begin(out, exchange, status, defaults)
    }

    /// Append the rest of the head. `body` as in [`HeadWriter::end`].
    #[inline]
    pub fn finish_head(&mut self, head: HeadWriter, out: &mut Vec<u8>, body: Option<u64>) -> Result<(), AppError> {
        let (body, persistent) = head.close_if(self.exchange.close || self.last).end(out, body)?;
        self.exchange.close |= !persistent;
        self.writing = Writing::Body(body);
        Ok(())
    }

    /// Put `close` into the head that ends `out`, which is not sent yet, if that is certain by now: the response is
    /// complete with its body, and more of the request is announced than will be thrown away (RFC 9112 section 9.6).
    pub fn announce_certain_close(&mut self, out: &mut Vec<u8>, limits: &Limits) {
        let Reading::Body(decoder) = &self.reading else { return };
        if decoder.certain() > limits.discard && !self.exchange.close && out.ends_with(b"\r\n\r\n") {
            self.exchange.close = true;
            out.truncate(out.len() - 2);
            out.extend_from_slice(b"connection: close\r\n\r\n");
        }
    }

    /// The writer of the response body, once the head is finished: parts go through it.
    #[inline]
    pub fn body(&mut self) -> Result<&mut BodyWriter, AppError> {
        match &mut self.writing {
            Writing::Body(body) => Ok(body),
            _ => Err(AppError::State),
        }
    }

    /// Append the end of the response. The next poll reads the next request, the rest of this one's body, or closes.
    /// After an error the response is cut off: abort the connection.
    #[inline]
    pub fn finish(&mut self, out: &mut Vec<u8>, limits: &Limits) -> Result<(), AppError> {
        self.body()?.finish(out)?;
        self.complete(limits);
        Ok(())
    }

    /// [`finish`](Self::finish), with trailers where the framing can carry them.
    pub fn finish_with_trailers(
        &mut self,
        out: &mut Vec<u8>,
        limits: &Limits,
        trailers: &Trailers,
    ) -> Result<(), AppError> {
        self.body()?.finish_with_trailers(out, trailers)?;
        self.complete(limits);
        Ok(())
    }

    /// Append a whole response of the server's own that ends the connection: for an [`Error`] of a poll, a deadline, an
    /// application that failed before its response. `Ok(false)`: a response has begun, so there can be no other.
    pub fn refuse(
        &mut self,
        out: &mut Vec<u8>,
        limits: &Limits,
        status: u16,
        defaults: &[u8],
        text: &[u8],
    ) -> Result<bool, AppError> {
        if !matches!(self.writing, Writing::Idle | Writing::Awaiting) {
            return Ok(false);
        }
        self.exchange.close = true;
        put_text(out, self.exchange, status, defaults, text)?;
        if matches!(self.reading, Reading::Closed | Reading::Head) {
            // The peer may still be sending: closing on it could destroy the answer before it is read. Nothing it sends
            // is a request any more.
            self.partial = None;
            self.reading = Reading::Discard { decoder: None, left: limits.discard };
        }
        self.complete(limits);
        Ok(true)
    }

    /// Hand the connection to another protocol: nothing is read or written as HTTP after this.
    pub fn switch(&mut self) -> Result<(), AppError> {
        if !matches!((&self.reading, &self.writing), (Reading::Complete, Writing::Awaiting)) {
            return Err(AppError::State);
        }
        (self.reading, self.writing) = (Reading::Switched, Writing::Complete);
        Ok(())
    }

    /// The next response whose head is written is the last, and announces that. After one whose head is out, which
    /// promised to go on, another request is taken.
    pub fn announce_close(&mut self) {
        self.last = true;
    }

    /// Take no further request. An idle connection is closed at once; another finishes its response, announcing the close
    /// if its head is still to be written.
    pub fn shutdown(&mut self) {
        self.exchange.close = true;
        if self.awaits() == Awaits::Idle {
            self.reading = Reading::Closed;
        }
    }

    /// The deadline of the caller's that applies.
    pub fn awaits(&self) -> Awaits {
        match &self.reading {
            Reading::Head if self.partial.as_ref().is_some_and(|head| head.has_begun()) => Awaits::Head,
            Reading::Head => Awaits::Idle,
            Reading::Body(_) => Awaits::Body,
            Reading::Discard { .. } => Awaits::Discard,
            Reading::Complete | Reading::Switched | Reading::Closed => Awaits::Nothing,
        }
    }

    /// Whether the connection will end after the request in hand, as far as is known.
    pub fn is_closing(&self) -> bool {
        self.exchange.close
    }

    /// Whether reading has stopped: close the transport once everything is written.
    pub fn is_closed(&self) -> bool {
        matches!(self.reading, Reading::Closed)
    }

    /// Whether the client holds its body back until `100 Continue`.
    pub fn awaits_continue(&self) -> bool {
        self.expects_continue && matches!(self.reading, Reading::Body(_))
    }

    /// The response is complete: go on to the next request, get rid of this one's body first, or close.
    #[inline]
    fn complete(&mut self, limits: &Limits) {
        self.writing = Writing::Complete;
        if matches!(self.reading, Reading::Complete) {
            self.next();
        } else if matches!(self.reading, Reading::Body(_)) {
            self.leave_body(limits);
        }
    }

    /// RFC 9112 section 9.3: a server that answers before it has read the body reads the rest, or closes.
    fn leave_body(&mut self, limits: &Limits) {
        if self.awaits_continue() {
            self.reading = Reading::Closed;
        } else if let Reading::Body(decoder) = std::mem::replace(&mut self.reading, Reading::Closed) {
            self.exchange.close |= decoder.certain() > limits.discard;
            self.reading = Reading::Discard { decoder: Some(decoder), left: limits.discard };
        }
    }

    /// Both sides of an exchange are done.
    #[inline]
    fn next(&mut self) {
        if self.exchange.close {
            self.reading = Reading::Closed;
        } else {
            (self.reading, self.writing) = (Reading::Head, Writing::Idle);
            self.expects_continue = false;
            self.exchange.head = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Refusal;

    const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    const POST: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
    const CHUNKED: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    const EXPECTING: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";

    /// A connection with the buffers a caller would hold.
    struct Peer {
        connection: Connection,
        scratch: Scratch,
        limits: Limits,
        input: Vec<u8>,
        out: Vec<u8>,
    }

    impl Peer {
        fn new(input: &[u8]) -> Self {
            let limits = Limits { discard: 20, ..Limits::default() };
            Self {
                connection: Connection::new(),
                scratch: Scratch::default(),
                limits,
                input: input.to_vec(),
                out: Vec::new(),
            }
        }

        fn send(&mut self, bytes: &[u8]) -> &mut Self {
            self.input.extend_from_slice(bytes);
            self
        }

        /// One poll; body data is shown as text.
        fn poll(&mut self) -> Result<Event, Error> {
            let progress = self.connection.poll(&self.input, &mut self.scratch, &self.limits)?;
            self.input.drain(..progress.consumed);
            Ok(progress.event)
        }

        #[track_caller]
        fn expect(&mut self, event: &Event) -> &mut Self {
            assert_eq!(self.poll().as_ref(), Ok(event));
            self
        }

        #[track_caller]
        fn respond(&mut self) -> &mut Self {
            self.start();
            self.connection.finish(&mut self.out, &self.limits).unwrap();
            self
        }

        #[track_caller]
        fn start(&mut self) -> &mut Self {
            let head = self.connection.start_response(&mut self.out, 204, b"").unwrap();
            self.connection.finish_head(head, &mut self.out, None).unwrap();
            self
        }

        fn output(&mut self) -> String {
            String::from_utf8(std::mem::take(&mut self.out)).unwrap()
        }
    }

    const PLAIN: &str = "HTTP/1.1 204 No Content\r\n\r\n";
    const CLOSE: &str = "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";

    #[test]
    fn a_complete_request_takes_one_poll_and_its_response_makes_way_for_the_next() {
        let mut peer = Peer::new(&[GET, GET].concat());
        peer.expect(&Event::Request).expect(&Event::Busy).respond().expect(&Event::Request).respond();
        assert_eq!(peer.output(), PLAIN.repeat(2));
        peer.expect(&Event::NeedMore);
        assert_eq!(peer.connection.awaits(), Awaits::Idle);
    }

    #[test]
    fn a_body_comes_in_ranges_and_then_ends() {
        let mut peer = Peer::new(&[POST, b"he"].concat());
        peer.expect(&Event::Request).expect(&Event::Body { data: 0..2, end: false }).expect(&Event::NeedMore);
        assert_eq!(peer.connection.awaits(), Awaits::Body);
        peer.send(b"lloGET").expect(&Event::Body { data: 0..3, end: true }).expect(&Event::Busy);
        assert_eq!(peer.input, b"GET");
    }

    #[test]
    fn an_empty_chunked_body_ends_without_data() {
        let mut peer = Peer::new(&[CHUNKED, b"0\r\n\r\n"].concat());
        peer.expect(&Event::Request);
        assert!(matches!(peer.poll(), Ok(Event::Body { data, end: true }) if data.is_empty()));
    }

    #[test]
    fn a_head_in_pieces_goes_on_where_it_was_and_leaves_the_scratch_free() {
        let mut peer = Peer::new(&GET[..10]);
        peer.expect(&Event::NeedMore);
        assert_eq!(peer.connection.awaits(), Awaits::Head);
        let mut other = Connection::new();
        assert!(other.poll(POST, &mut peer.scratch, &peer.limits).is_ok(), "another connection uses the scratch");
        peer.send(&GET[10..]).expect(&Event::Request);
        assert_eq!(peer.scratch.head().fields.len(), 1);
    }

    /// Cut off at each byte, by the end of input, by a refusal, by a shutdown, or by what cannot be a request.
    #[test]
    fn a_head_that_is_never_complete_leaves_nothing_to_the_next_connection() {
        let head = b"PUT /secret HTTP/1.1\r\nCookie: mine\r\nContent-Length: 5\r\n\r\n";
        let ends: [fn(&mut Peer); 5] = [
            |peer| {
                peer.connection.receive_eof(true);
                peer.respond().expect(&Event::Closed);
            },
            |peer| {
                peer.respond().expect(&Event::NeedMore);
                peer.connection.receive_eof(true);
                peer.expect(&Event::Closed);
            },
            |peer| {
                peer.respond().expect(&Event::NeedMore);
                peer.connection.refuse(&mut peer.out, &peer.limits, 408, b"", b"").unwrap();
                peer.poll().unwrap();
            },
            |peer| {
                peer.respond().expect(&Event::NeedMore);
                peer.connection.shutdown();
                peer.poll().unwrap();
            },
            |peer| assert!(peer.respond().send(b"\0").poll().is_err()),
        ];
        for end in ends {
            for cut in 1..head.len() {
                let mut peer = Peer::new(&[GET, &head[..cut]].concat());
                peer.expect(&Event::Request).expect(&Event::Busy);
                end(&mut peer);
                assert!(peer.scratch.is_empty(), "cut at {cut}");
                let mut other = Connection::new();
                let found = other.poll(POST, &mut peer.scratch, &peer.limits).unwrap();
                assert_eq!(found, Progress { consumed: POST.len(), event: Event::Request });
                assert_eq!((peer.scratch.head().verb, peer.scratch.head().fields.len()), (Method::Post, 2));
            }
        }
    }

    /// K2
    #[test]
    fn after_close_nothing_more_is_read() {
        let mut peer = Peer::new(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        peer.send(GET).expect(&Event::Request).respond().expect(&Event::Closed);
        assert_eq!((peer.output().as_str(), peer.input.len()), (CLOSE, 0));
        assert!(peer.connection.is_closed());
    }

    /// F15
    #[test]
    fn a_body_nobody_read_is_thrown_away_and_not_taken_for_a_request() {
        let mut peer = Peer::new(CHUNKED);
        peer.expect(&Event::Request).respond().expect(&Event::NeedMore);
        assert_eq!(peer.connection.awaits(), Awaits::Discard);
        peer.send(b"5\r\nGET /\r\n0").expect(&Event::Skipped).expect(&Event::NeedMore);
        peer.send(b"\r\n\r\n").send(GET).expect(&Event::Skipped).expect(&Event::Request);
        assert_eq!(peer.output(), PLAIN);
    }

    /// F15
    #[test]
    fn a_body_too_long_to_throw_away_ends_the_connection() {
        for (length, last) in [(20, Event::Skipped), (21, Event::Closed)] {
            let request = format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
            let mut peer = Peer::new(request.as_bytes());
            peer.expect(&Event::Request).respond();
            assert_eq!(peer.connection.is_closing(), last == Event::Closed, "known before the bytes come");
            peer.send(&vec![b'x'; length]).expect(&last);
            assert_eq!(peer.connection.is_closed(), last == Event::Closed);
        }
        let mut peer = Peer::new(CHUNKED);
        peer.expect(&Event::Request).respond().send(b"5\r\nhello\r\n").expect(&Event::Skipped);
        peer.send(b"5\r\nhello\r\n").expect(&Event::Skipped).send(b"0").expect(&Event::Closed);
    }

    #[test]
    fn a_broken_body_nobody_read_ends_the_connection_without_a_word() {
        let mut peer = Peer::new(CHUNKED);
        peer.expect(&Event::Request).respond().send(b"x").expect(&Event::Closed);
        assert_eq!(peer.output(), PLAIN);
    }

    /// R12
    #[test]
    fn a_client_that_expects_100_gets_it_once_when_the_body_is_wanted() {
        let mut peer = Peer::new(EXPECTING);
        peer.expect(&Event::Request).expect(&Event::NeedMore);
        assert!(peer.connection.send_continue(&mut peer.out));
        assert!(!peer.connection.send_continue(&mut peer.out));
        assert_eq!(peer.output(), "HTTP/1.1 100 Continue\r\n\r\n");
        peer.send(b"hello").expect(&Event::Body { data: 0..5, end: true }).respond();
        assert_eq!(peer.output(), PLAIN);
    }

    /// R12
    #[test]
    fn a_client_that_still_expects_100_gets_the_answer_and_a_close() {
        let mut peer = Peer::new(EXPECTING);
        peer.expect(&Event::Request).start();
        assert!(!peer.connection.send_continue(&mut peer.out), "too late");
        peer.connection.finish(&mut peer.out, &peer.limits).unwrap();
        assert_eq!(peer.output(), CLOSE);
        peer.send(b"GET /").expect(&Event::Closed);
    }

    #[test]
    fn a_client_that_sent_its_body_waits_for_no_100() {
        let mut peer = Peer::new(EXPECTING);
        peer.send(b"h").expect(&Event::Request).expect(&Event::Body { data: 0..1, end: false });
        assert!(!peer.connection.send_continue(&mut peer.out));
        peer.respond().send(b"ello").expect(&Event::Skipped).expect(&Event::NeedMore);
        assert_eq!(peer.output(), PLAIN);
    }

    #[test]
    fn a_bad_request_is_answered_in_its_turn() {
        let mut peer = Peer::new(&[GET, b"bad\r\n"].concat());
        peer.expect(&Event::Request).expect(&Event::Busy).respond();
        let error = peer.poll().unwrap_err();
        assert_eq!(error.refusal, Refusal::Method);
        assert_eq!(peer.connection.refuse(&mut peer.out, &peer.limits, error.status(), b"", b"No."), Ok(true));
        let output = peer.output();
        assert!(output.starts_with(&format!("{PLAIN}HTTP/1.1 400 ")) && output.contains("connection: close\r\n"));
        peer.input.clear();
        peer.send(b"more").expect(&Event::Skipped).send(&[b'x'; 17]).expect(&Event::Closed);
    }

    #[test]
    fn behind_a_refusal_nothing_is_a_request() {
        for cut in [0, 10] {
            let mut peer = Peer::new(&GET[..cut]);
            peer.expect(&Event::NeedMore);
            assert_eq!(peer.connection.refuse(&mut peer.out, &peer.limits, 408, b"", b""), Ok(true));
            assert_eq!(peer.connection.awaits(), Awaits::Discard);
            peer.send(&GET[cut..14]).expect(&Event::Skipped).send(GET).expect(&Event::Closed);
        }
    }

    #[test]
    fn a_bad_body_is_refused_unless_the_response_has_begun() {
        for started in [false, true] {
            let mut peer = Peer::new(CHUNKED);
            peer.expect(&Event::Request);
            if started {
                peer.start();
            }
            let before = peer.output();
            assert_eq!(before.is_empty(), !started);
            assert!(peer.send(b"x").poll().is_err());
            assert_eq!(peer.connection.refuse(&mut peer.out, &peer.limits, 400, b"", b""), Ok(!started));
            assert_eq!(peer.out.is_empty(), started);
            assert!(peer.connection.is_closing());
        }
    }

    #[test]
    fn a_refusal_of_head_has_no_body() {
        let mut peer = Peer::new(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
        peer.expect(&Event::Request);
        assert_eq!(peer.connection.refuse(&mut peer.out, &peer.limits, 500, b"", b"text"), Ok(true));
        assert!(peer.output().ends_with("content-length: 4\r\nconnection: close\r\n\r\n"));
        peer.expect(&Event::Closed);
    }

    #[test]
    fn a_refusal_has_a_body_unless_it_is_of_a_head() {
        for (before, refused, has_body) in [
            ("", "HEAD / HTTP/1.1\r\n\r\n", false),
            ("", "HEAD / HTTP/2.0\r\n", false),
            ("", "HEAD  /", false),
            ("", "HEADER / HTTP/1.1\r\n\r\n", true),
            ("HEAD", "GET / HTTP/1.1\r\n\r\n", true),
            ("HEAD", "nonsense", true),
            ("GET", "HEAD / HTTP/1.1\r\n\r\n", false),
        ] {
            let mut peer = Peer::new(b"");
            if !before.is_empty() {
                peer.send(format!("{before} / HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
                peer.expect(&Event::Request).respond().output();
            }
            peer.send(refused.as_bytes());
            let error = peer.poll().unwrap_err();
            peer.connection.refuse(&mut peer.out, &peer.limits, error.status(), b"", b"text").unwrap();
            assert_eq!(peer.output().ends_with("\r\n\r\ntext"), has_body, "{refused}");
        }
    }

    #[test]
    fn a_head_that_is_late_is_refused_for_what_it_is() {
        for (method, has_body) in [("HEAD", false), ("GET", true)] {
            let mut peer = Peer::new(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
            peer.expect(&Event::Request).respond().output();
            peer.send(format!("{method} / HTTP/1.1\r\nHo").as_bytes()).expect(&Event::NeedMore);
            peer.connection.refuse(&mut peer.out, &peer.limits, 408, b"", b"text").unwrap();
            assert_eq!(peer.output().ends_with("\r\n\r\ntext"), has_body, "{method}");
        }
    }

    /// F15
    #[test]
    fn a_close_is_announced_when_too_much_is_left_to_read() {
        for (length, announced) in [(20, false), (21, true)] {
            let request = format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
            let mut peer = Peer::new(request.as_bytes());
            peer.expect(&Event::Request).start();
            peer.connection.announce_certain_close(&mut peer.out, &peer.limits);
            peer.connection.announce_certain_close(&mut peer.out, &peer.limits);
            assert_eq!(peer.output(), if announced { CLOSE } else { PLAIN });
            assert_eq!(peer.connection.is_closing(), announced);
        }
    }

    /// K5
    #[test]
    fn at_the_end_of_input_complete_requests_are_answered() {
        let mut peer = Peer::new(&[GET, GET].concat());
        peer.expect(&Event::Request).expect(&Event::Busy);
        assert_eq!(peer.connection.receive_eof(true), Eof::Complete);
        peer.respond().expect(&Event::Request).respond().expect(&Event::Closed);
        assert_eq!(peer.output(), [PLAIN, CLOSE].concat());

        let mut peer = Peer::new(GET);
        peer.expect(&Event::Request);
        assert_eq!(peer.connection.receive_eof(false), Eof::Complete);
        peer.respond().expect(&Event::Closed);
        assert_eq!(peer.output(), CLOSE);

        let mut peer = Peer::new(&[GET, POST, b"hello"].concat());
        peer.expect(&Event::Request);
        assert_eq!(peer.connection.receive_eof(true), Eof::Complete);
        peer.respond().expect(&Event::Request).expect(&Event::Body { data: 0..5, end: true });
        peer.respond().expect(&Event::Closed);
        assert_eq!(peer.output(), [PLAIN, CLOSE].concat());

        let mut peer = Peer::new(&[GET, POST, b"hell"].concat());
        peer.expect(&Event::Request);
        assert_eq!(peer.connection.receive_eof(true), Eof::Complete);
        peer.respond().expect(&Event::Request).expect(&Event::Body { data: 0..4, end: false }).respond();
        assert_eq!(peer.output(), [PLAIN, CLOSE].concat());

        let mut peer = Peer::new(&[GET, b"GET"].concat());
        peer.expect(&Event::Request);
        assert_eq!(peer.connection.receive_eof(true), Eof::Complete);
        peer.respond().expect(&Event::Closed);
    }

    /// F16
    #[test]
    fn at_the_end_of_input_a_cut_request_is_told_from_an_idle_connection() {
        for (input, expected) in [
            (&b""[..], Eof::Clean),
            (b"\r\n", Eof::Clean),
            (b"GET", Eof::Truncated),
            (POST, Eof::Truncated),
            (GET, Eof::Complete),
        ] {
            let mut peer = Peer::new(input);
            assert!(peer.poll().is_ok());
            assert_eq!(peer.connection.receive_eof(false), expected, "{input:?}");
            assert_eq!(peer.connection.is_closed(), expected != Eof::Complete);
        }
    }

    /// K7
    #[test]
    fn shutdown_closes_idle_connections_and_announces_it_on_busy_ones() {
        let mut peer = Peer::new(b"");
        peer.connection.shutdown();
        peer.send(GET).expect(&Event::Closed);

        let mut peer = Peer::new(GET);
        peer.expect(&Event::Request);
        let head = peer.connection.start_response(&mut peer.out, 204, b"").unwrap();
        peer.connection.shutdown();
        peer.connection.finish_head(head, &mut peer.out, None).unwrap();
        peer.connection.finish(&mut peer.out, &peer.limits).unwrap();
        assert_eq!(peer.output(), CLOSE);
        peer.expect(&Event::Closed);
    }

    /// K7
    #[test]
    fn an_announced_close_comes_with_the_next_head() {
        let mut peer = Peer::new(GET);
        peer.connection.announce_close();
        peer.expect(&Event::Request).respond();
        assert_eq!(peer.output(), CLOSE);
        peer.expect(&Event::Closed);

        let mut peer = Peer::new(GET);
        peer.expect(&Event::Request).start();
        peer.connection.announce_close();
        assert!(!peer.connection.is_closing());
        peer.connection.finish(&mut peer.out, &peer.limits).unwrap();
        assert_eq!(peer.output(), PLAIN);
        peer.send(GET).expect(&Event::Request).respond();
        assert_eq!(peer.output(), CLOSE);
        peer.send(GET).expect(&Event::Closed);
    }

    #[test]
    fn a_close_of_the_applications_ends_the_connection() {
        let mut peer = Peer::new(&[GET, GET].concat());
        peer.expect(&Event::Request);
        let mut head = peer.connection.start_response(&mut peer.out, 204, b"").unwrap();
        head.field(&mut peer.out, b"connection", b"close").unwrap();
        peer.connection.finish_head(head, &mut peer.out, None).unwrap();
        assert!(peer.connection.is_closing());
        peer.connection.finish(&mut peer.out, &peer.limits).unwrap();
        assert_eq!(peer.output(), CLOSE);
        peer.expect(&Event::Closed);
    }

    #[test]
    fn a_switched_connection_leaves_the_bytes_alone() {
        let mut peer = Peer::new(&[GET, b"frame"].concat());
        assert_eq!(peer.connection.switch(), Err(AppError::State));
        peer.expect(&Event::Request);
        peer.connection.switch().unwrap();
        peer.expect(&Event::Switched);
        assert_eq!(peer.input, b"frame");
        assert_eq!(peer.connection.switch(), Err(AppError::State));
    }

    #[test]
    fn calls_out_of_order_change_nothing() {
        let mut peer = Peer::new(b"");
        assert_eq!(peer.connection.start_response(&mut peer.out, 200, b"").unwrap_err(), AppError::State);
        assert_eq!(peer.connection.body().unwrap_err(), AppError::State);
        assert_eq!(peer.connection.finish(&mut peer.out, &peer.limits), Err(AppError::State));
        assert_eq!(peer.connection.send_interim(&mut peer.out, 103, []), Err(AppError::State));
        peer.send(GET).expect(&Event::Request).start();
        assert_eq!(peer.connection.start_response(&mut peer.out, 200, b"").unwrap_err(), AppError::State);
        peer.connection.finish(&mut peer.out, &peer.limits).unwrap();
        assert_eq!(peer.output(), PLAIN);
    }

    #[test]
    fn interim_responses_go_to_1_1_only() {
        for (version, sent) in [("1.1", true), ("1.0", false)] {
            let mut peer = Peer::new(format!("GET / HTTP/{version}\r\nHost: a\r\n\r\n").as_bytes());
            peer.expect(&Event::Request);
            let link = [(&b"link"[..], &b"</a>"[..])];
            assert_eq!(peer.connection.send_interim(&mut peer.out, 103, link), Ok(sent));
            assert_eq!(peer.out.is_empty(), !sent);
            peer.start().output();
            assert_eq!(
                peer.connection.send_interim(&mut peer.out, 103, link),
                Ok(sent),
                "the head may not be sent yet"
            );
            assert_eq!(peer.out.is_empty(), !sent);
        }
    }

    #[test]
    fn trailers_end_a_chunked_response() {
        let mut peer = Peer::new(GET);
        peer.expect(&Event::Request);
        let head = peer.connection.start_response(&mut peer.out, 200, b"").unwrap();
        peer.connection.finish_head(head, &mut peer.out, None).unwrap();
        peer.connection.body().unwrap().write(&mut peer.out, b"a").unwrap();
        let mut trailers = Trailers::default();
        trailers.add(b"x-sum", b"1").unwrap();
        peer.connection.finish_with_trailers(&mut peer.out, &peer.limits, &trailers).unwrap();
        assert!(peer.output().ends_with("\r\n\r\n1\r\na\r\n0\r\nx-sum: 1\r\n\r\n"));
        peer.send(GET).expect(&Event::Request);
    }

    #[test]
    fn an_idle_connection_is_small() {
        assert!(size_of::<Connection>() <= 128, "{}", size_of::<Connection>());
    }
}
