//! The server's frames on its streams: interim responses, heads, bodies in turns, trailers.
//!
//! Heads are written in order, because each encoding depends on those before. Bodies stay with the caller: it declares
//! how many bytes there are of each, and [`fill`](Connection::fill) asks it for as many as fit, stream by stream.

use crate::budget::streams::Gain;
use crate::error::AppError;
use crate::fields::response::{self, Framing, Kind};
use crate::fields::{Indexing, Scratch, Section};
use crate::h1::response::Trailers;
use crate::h2::connection::Connection;
use crate::h2::frame::{self, ErrorCode, HEAD, MIN_MAX_FRAME};
use crate::h2::streams::{Local, Remote, ResponseHead, Sending, StreamId, Then};

/// Bytes that a stream has in one slice, at most: every client takes as much in one frame.
const SLICE: usize = MIN_MAX_FRAME;

/// A smaller piece of a longer body is sent because the client's windows let no more through.
const LEAST_PIECE: usize = 1024;

/// A part of a body that is to be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its stream.
    pub stream: StreamId,
    /// The number of bytes, from the front of the waiting body.
    pub length: usize,
    /// The body is complete with it.
    pub end: bool,
}

impl<K> Connection<K> {
    /// Append the interim response the client waits for, the first time the application asks for the body. `false`: the
    /// client does not wait, or it is too late (RFC 9110 section 10.1.1).
    pub fn send_continue(&mut self, out: &mut Vec<u8>, scratch: &mut Scratch, id: StreamId) -> bool {
        let Some(stream) = self.streams.get_mut(id) else { return false };
        let (Remote::Open(expected), Local::Awaiting) = (&mut stream.remote, &stream.local) else {
            return false;
        };
        std::mem::take(&mut expected.awaits_continue) && self.interim(out, scratch, id, 100, []).is_ok()
    }

    /// Append an interim response (RFC 9110 section 15.2): 100, or 103 with its links. After an error nothing has been
    /// appended.
    pub fn interim<'a>(
        &mut self,
        out: &mut Vec<u8>,
        scratch: &mut Scratch,
        id: StreamId,
        status: u16,
        fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<(), AppError> {
        if !response::is_interim(status) {
            return Err(AppError::Status);
        }
        if !matches!(self.streams.get(id).map(|stream| &stream.local), Some(Local::Awaiting)) {
            return Err(AppError::State);
        }
        let mut section = scratch.lend();
        response::put_interim(&mut section, status, fields)?;
        self.put_section(out, id, &section, false);
        scratch.give(section);
        Ok(())
    }

    /// Begin the response of a stream. Give it fields, and [finish](Self::finish_head) it.
    pub fn start_response(&self, scratch: &mut Scratch, id: StreamId, status: u16) -> Result<ResponseHead, AppError> {
        let stream = self.streams.get(id).ok_or(AppError::State)?;
        let Local::Awaiting = stream.local else { return Err(AppError::State) };
        ResponseHead::new(id, stream.kind, status, scratch.lend())
    }

    /// Append the head of a response; `end` says that no content follows. It is complete as well if none may.
    pub fn finish_head(
        &mut self,
        out: &mut Vec<u8>,
        scratch: &mut Scratch,
        head: ResponseHead,
        end: bool,
    ) -> Result<(), AppError> {
        let id = head.stream;
        let stream = self.streams.get_mut(id).ok_or(AppError::State)?;
        let Local::Awaiting = stream.local else { return Err(AppError::State) };
        let framing = head.content(stream.kind);
        let end = match framing {
            Framing::Content(Some(1..)) if end => return Err(AppError::TooShort),
            Framing::Content(declared) if !end => {
                stream.local = Local::Body(Sending::new(declared));
                false
            }
            Framing::Content(_) | Framing::None => true,
        };
        self.put_section(out, id, &head.section, end);
        scratch.give(head.section);
        if end {
            self.end_local(out, id);
        }
        Ok(())
    }

    fn put_section(&mut self, out: &mut Vec<u8>, id: StreamId, section: &Section, end: bool) {
        let start = out.len();
        frame::put_headers(out, id.number(), &[], end, self.peer.frame);
        let behind = out.len();
        self.encoder.block(out, section);
        let length = out.len() - behind;
        if length <= self.peer.frame {
            frame::set_length(out, start, length);
        } else {
            let block = out.split_off(behind);
            out.truncate(start);
            frame::put_headers(out, id.number(), &block, end, self.peer.frame);
        }
    }

    /// Whether the head of the response has left, and content may follow it.
    pub fn takes_body(&self, id: StreamId) -> bool {
        self.streams.get(id).is_some_and(|stream| matches!(stream.local, Local::Body(_)))
    }

    /// Whether `length` bytes more can be the last ones of the body, given its declared length.
    pub fn check_end(&self, id: StreamId, length: usize) -> Result<(), AppError> {
        match self.streams.get(id).map(|stream| &stream.local) {
            Some(Local::Body(sending)) => sending.check_end(length),
            Some(Local::Awaiting) => Err(AppError::State),
            Some(Local::Ended) | None => Ok(()),
        }
    }

    /// The application gives `length` bytes of the body, the last ones if `last`. `false`: the response has no content,
    /// or the stream is over, and the bytes are dropped. Otherwise they wait with the caller until [`fill`](Self::fill)
    /// asks for them.
    pub fn body(&mut self, out: &mut Vec<u8>, id: StreamId, length: usize, last: bool) -> Result<bool, AppError> {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(false) };
        let sending = match &mut stream.local {
            Local::Body(sending) => sending,
            // A response that has no content has ended with its head.
            Local::Ended => return Ok(false),
            Local::Awaiting => return Err(AppError::State),
        };
        sending.give(length, last)?;
        if last && sending.waiting == 0 {
            frame::put_data_head(out, id.number(), 0, true);
            self.end_local(out, id);
            return Ok(false);
        }
        stream.regulate(&mut self.turns, id);
        Ok(length > 0)
    }

    /// Append a piece of a body without a turn, if no stream waits for one and the windows let all of it through:
    /// `false` if not, or if there is nothing to append. Then it is for [`body`](Self::body).
    #[inline]
    pub fn body_at_once(
        &mut self,
        out: &mut Vec<u8>,
        id: StreamId,
        piece: &[u8],
        last: bool,
    ) -> Result<bool, AppError> {
        let length = piece.len();
        if length == 0 || length > SLICE || self.turns.first().is_some() || self.outgoing.room() < length {
            return Ok(false);
        }
        let Some(stream) = self.streams.get_mut(id) else { return Ok(false) };
        let Local::Body(sending) = &mut stream.local else { return Ok(false) };
        if sending.waiting > 0 || stream.outgoing.room() < length {
            return Ok(false);
        }
        sending.give(length, last)?;
        sending.waiting = 0;
        stream.outgoing.take(length);
        self.outgoing.take(length);
        frame::put_data_head(out, id.number(), length, last);
        out.extend_from_slice(piece);
        self.budget.earn(Gain::Sent(length));
        if last {
            self.end_local(out, id);
        }
        Ok(true)
    }

    /// The body is complete, and these trailers follow it (RFC 9110 section 6.5). A response without content has no
    /// trailers, nor has a stream that is over.
    pub fn trailers(
        &mut self,
        out: &mut Vec<u8>,
        scratch: &mut Scratch,
        id: StreamId,
        trailers: &Trailers,
    ) -> Result<(), AppError> {
        let mut section = scratch.lend();
        for (name, value) in trailers.fields() {
            section.push(name, value, Indexing::Without);
        }
        if section.iter().next().is_none() {
            scratch.give(section);
            return self.body(out, id, 0, true).map(drop);
        }
        let Some(stream) = self.streams.get_mut(id) else { return Ok(()) };
        let sending = match &mut stream.local {
            Local::Body(sending) => sending,
            Local::Ended => return Ok(()),
            Local::Awaiting => return Err(AppError::State),
        };
        sending.give(0, true)?;
        if sending.waiting > 0 {
            sending.then = Then::Trailers(Box::new(section));
            return Ok(());
        }
        self.put_section(out, id, &section, true);
        scratch.give(section);
        self.end_local(out, id);
        Ok(())
    }

    /// Append frames of waiting bodies, about `most` bytes at most: the most urgent first, equals in turns. `source`
    /// appends each part; nothing else. The rest is asked for later: call again when these were written, and when
    /// windows may have been opened. Returns whether more could be sent at once.
    pub fn fill(&mut self, out: &mut Vec<u8>, most: usize, mut source: impl FnMut(Part, &mut Vec<u8>)) -> bool {
        let start = out.len();
        loop {
            let Some((id, stream)) = self.turns.first().and_then(|place| self.streams.at(place)) else { return false };
            let room = self.outgoing.room();
            let budget = most.saturating_sub(out.len() - start).saturating_sub(HEAD);
            if room == 0 || budget == 0 {
                return room > 0;
            }
            let length = stream.ready().min(room).min(budget).min(SLICE);
            let Local::Body(sending) = &mut stream.local else { return false };
            stream.outgoing.take(length);
            self.outgoing.take(length);
            sending.waiting -= length;
            let last = sending.waiting == 0;
            let then = if last { std::mem::replace(&mut sending.then, Then::More) } else { Then::More };
            let end = matches!(then, Then::End);
            let more = stream.ready() > 0;
            self.turns.served(&mut stream.waits, length, more);
            frame::put_data_head(out, id.number(), length, end);
            let behind = out.len() + length;
            source(Part { stream: id, length, end: last && !matches!(then, Then::More) }, out);
            debug_assert_eq!(out.len(), behind, "a part is as long as was asked for");
            out.resize(behind, 0);
            // A client that lets us send a little at a time makes work (CVE-2019-9511).
            if last || length >= LEAST_PIECE {
                self.budget.earn(Gain::Sent(length));
            }
            match then {
                Then::More => continue,
                Then::End => {}
                Then::Trailers(section) => self.put_section(out, id, &section, true),
            }
            self.end_local(out, id);
        }
    }

    /// Whether output waits that neither window lets through: a client has some time to open them.
    pub fn is_blocked(&self, id: StreamId) -> bool {
        self.streams.get(id).is_some_and(|stream| {
            let waits = matches!(&stream.local, Local::Body(sending) if sending.waiting > 0);
            waits && (stream.outgoing.room() == 0 || self.outgoing.room() == 0)
        })
    }

    /// Our half is complete. The client need not send the rest of its body, which is unwanted (RFC 9113 section 8.1).
    fn end_local(&mut self, out: &mut Vec<u8>, id: StreamId) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        stream.local = Local::Ended;
        self.turns.leave(&mut stream.waits);
        if !stream.refused {
            self.budget.earn(Gain::Response);
        }
        match (stream.remote, stream.kind) {
            (Remote::Ended, _) => self.close(id, false),
            (_, Kind::Tunnel) => {}
            (Remote::Open(_) | Remote::Dropped, _) => {
                frame::put_reset(out, id.number(), ErrorCode::NoError);
                self.close(id, true);
            }
        }
    }
}
