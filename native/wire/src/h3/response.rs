//! The server's frames on request streams: interim responses, heads, bodies, trailers; and whose output is written next.
//!
//! Every method appends to `out` what belongs behind all that was appended for the same stream before: the caller has one
//! sequence of bytes for each stream, and adds the pieces of a body to it itself.

use crate::budget::streams::Gain;
use crate::error::AppError;
use crate::fields::response::{self, Framing, Promised};
use crate::fields::{Indexing, Scratch, Section};
use crate::h1::response::Trailers;
use crate::h3::connection::Connection;
use crate::h3::frame;
use crate::h3::streams::{Local, Remote, ResponseHead, StreamId};

/// Bytes that a stream has in one slice, at most.
const SLICE: usize = 16 * 1024;

/// A smaller piece of a longer body is sent because the client's flow control lets no more through.
const LEAST_PIECE: usize = 1024;

/// A stream that is to be written to now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Which.
    pub stream: StreamId,
    /// Bytes to write, at most.
    pub most: usize,
}

impl<K> Connection<K> {
    /// Append the interim response the client waits for, the first time the application asks for the body. `false`: the
    /// client does not wait, or it is too late (RFC 9110 section 10.1.1).
    pub fn send_continue(&mut self, out: &mut Vec<u8>, scratch: &mut Scratch, id: StreamId) -> bool {
        let Some(stream) = self.streams.get_mut(id) else { return false };
        let (Remote::Open(expected), Local::Awaiting) = (&mut stream.remote, stream.local) else { return false };
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
        if !matches!(self.streams.get(id).map(|stream| stream.local), Some(Local::Awaiting)) {
            return Err(AppError::State);
        }
        let mut section = scratch.lend();
        response::put_interim(&mut section, status, fields)?;
        self.put_section(out, id, &section);
        scratch.give(section);
        Ok(())
    }

    /// Begin the response of a stream. Give it fields, and [finish](Self::finish_head) it.
    pub fn start_response(&self, scratch: &mut Scratch, id: StreamId, status: u16) -> Result<ResponseHead, AppError> {
        let stream = self.streams.get(id).ok_or(AppError::State)?;
        let Local::Awaiting = stream.local else { return Err(AppError::State) };
        ResponseHead::new(id, stream.kind, status, scratch.lend())
    }

    /// Append the head of a response; `end` says that no content follows. It is complete as well if none may: see
    /// [`has_ended`](Self::has_ended).
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
        stream.local = match head.content(stream.kind) {
            Framing::Content(Some(1..)) if end => return Err(AppError::TooShort),
            Framing::Content(declared) if !end => Local::Body(Promised::new(declared)),
            Framing::Content(_) | Framing::None => Local::Ended,
        };
        self.put_section(out, id, &head.section);
        scratch.give(head.section);
        Ok(())
    }

    #[inline]
    fn put_section(&mut self, out: &mut Vec<u8>, id: StreamId, section: &Section) {
        frame::put_headers(out, |out| self.encoder.section(id.number(), section, out, &mut self.encoder_output));
    }

    /// Whether the head of the response was appended, and content may follow it.
    pub fn takes_body(&self, id: StreamId) -> bool {
        self.streams.get(id).is_some_and(|stream| matches!(stream.local, Local::Body(_)))
    }

    /// Whether the response is complete in the output: the stream of QUIC ends behind it.
    pub fn has_ended(&self, id: StreamId) -> bool {
        self.streams.get(id).is_none_or(|stream| matches!(stream.local, Local::Ended | Local::Complete))
    }

    /// Whether `length` bytes more can be the last ones of the body, given its declared length.
    pub fn check_end(&self, id: StreamId, length: usize) -> Result<(), AppError> {
        match self.streams.get(id).map(|stream| stream.local) {
            Some(Local::Body(promised)) => promised.check_end(length),
            Some(Local::Awaiting) => Err(AppError::State),
            Some(Local::Ended | Local::Complete) | None => Ok(()),
        }
    }

    /// The application gives `length` bytes of the body, the last ones if `last`: append the head of their frame, behind which
    /// they belong. `false`: nothing was appended, and the bytes are dropped, because there are none, the response has no
    /// content, or the stream is over.
    pub fn body(&mut self, out: &mut Vec<u8>, id: StreamId, length: usize, last: bool) -> Result<bool, AppError> {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(false) };
        let promised = match &mut stream.local {
            Local::Body(promised) => promised,
            // A response that has no content has ended with its head.
            Local::Ended | Local::Complete => return Ok(false),
            Local::Awaiting => return Err(AppError::State),
        };
        promised.give(length, last)?;
        if last {
            stream.local = Local::Ended;
        }
        if length > 0 {
            frame::put_head(out, frame::DATA, length);
        }
        Ok(length > 0)
    }

    /// The body is complete, and these trailers follow it (RFC 9110 section 6.5): append them. A response without content has
    /// no trailers, nor has a stream that is over.
    pub fn trailers(
        &mut self,
        out: &mut Vec<u8>,
        scratch: &mut Scratch,
        id: StreamId,
        trailers: &Trailers,
    ) -> Result<(), AppError> {
        let takes_some = self.takes_body(id);
        self.body(out, id, 0, true)?;
        let mut section = scratch.lend();
        for (name, value) in trailers.fields() {
            section.push(name, value, Indexing::Without);
        }
        if takes_some && section.length() > 0 {
            self.put_section(out, id, &section);
        }
        scratch.give(section);
        Ok(())
    }

    /// A stream has output that can be written: let it have turns. Call this again when a stream that was blocked can be
    /// written to.
    #[inline]
    pub fn ready(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(id) {
            self.turns.enter(&mut stream.waits, id.place() as u32);
        }
    }

    /// Whose turn it is (RFC 9218 section 10): the most urgent first, equals in turns. Write some of its output, and say how much
    /// with [`sent`](Self::sent).
    #[inline]
    pub fn turn(&self) -> Option<Turn> {
        let stream = self.turns.first().and_then(|place| self.streams.at(place))?;
        Some(Turn { stream, most: SLICE })
    }

    /// `length` bytes of a stream's output were given to QUIC, in its turn, or without one while no stream waits for one. `more`: more of it could be given at once. Otherwise it has no
    /// turns until it is [`ready`](Self::ready): because nothing waits, or, if `blocked`, because QUIC takes no more of it.
    pub fn sent(&mut self, id: StreamId, length: usize, more: bool, blocked: bool) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        self.turns.served(&mut stream.waits, length, more);
        // A client that lets us send a little at a time makes work (CVE-2019-9511).
        if length >= LEAST_PIECE || length > 0 && !blocked {
            self.budget.earn(Gain::Sent(length));
        }
    }
}
