//! How streams and connections end.
//!
//! ```text
//!   Open ── announce_end ──▶ Announced ── end ──▶ Ended(next) ── the last stream is over ──▶ is_over
//!     └──────────────────── end ────────────────────▲
//! ```
//!
//! A connection ends twice (RFC 9114 section 5.2): first it says that no more requests should come, then, when those that were
//! on their way have come, which are not served. Their streams are rejected, so that a client knows that it can send them
//! again.

use crate::budget::streams::{Cost, Gain};
use crate::fields::response::Kind;
use crate::h3::connection::Connection;
use crate::h3::error::ErrorCode;
use crate::h3::event::{Event, Failure};
use crate::h3::frame::{self, MAX_VARINT};
use crate::h3::streams::{Local, Reading, Remote, Stream, StreamId};

/// Whether more streams are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Open,
    Announced,
    /// None from this number on.
    Ended(u64),
}

impl Ending {
    pub(crate) const fn accepts(self, number: u64) -> bool {
        match self {
            Self::Open | Self::Announced => true,
            Self::Ended(next) => number < next,
        }
    }
}

/// The number of the last request stream that could ever be.
const LAST: u64 = MAX_VARINT - 3;

impl<K> Connection<K> {
    fn put_go_away(&mut self, number: u64) {
        let mut payload = Vec::new();
        frame::put_varint(&mut payload, number);
        frame::put_head(&mut self.control_output, frame::GOAWAY, payload.len());
        self.control_output.extend_from_slice(&payload);
    }

    /// Ask the client to send no more requests. Those that are on their way are served.
    pub fn announce_end(&mut self) {
        if self.ending == Ending::Open && !self.closed {
            self.ending = Ending::Announced;
            self.put_go_away(LAST);
        }
    }

    /// Say which requests are not served: all from the next stream on.
    pub fn end(&mut self) {
        if !matches!(self.ending, Ending::Ended(_)) && !self.closed {
            self.ending = Ending::Ended(self.next);
            self.put_go_away(self.next);
        }
    }

    /// Whether it is known which request was the last, and all are over: close the connection, with `H3_NO_ERROR`, when
    /// everything is written.
    pub fn is_over(&self) -> bool {
        self.closed || matches!(self.ending, Ending::Ended(_)) && self.streams.is_idle()
    }

    /// Whether a GOAWAY was made.
    pub fn is_ending(&self) -> bool {
        self.ending != Ending::Open
    }

    /// Whether no request stream is open.
    pub fn is_idle(&self) -> bool {
        self.streams.is_idle()
    }

    /// Whether the connection has failed.
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Reading stops, and all streams are over: because of this, which is returned.
    #[cold]
    pub fn fail(&mut self, failure: Failure) -> Failure {
        if !self.closed {
            self.closed = true;
            let all: Vec<_> = self.streams.all().collect();
            for id in all {
                self.close(id);
            }
        }
        failure
    }

    /// End a stream by the server's own will: reset and stop the stream of QUIC. `false` if it is over anyway.
    pub fn reset(&mut self, id: StreamId) -> bool {
        let live = self.is_live(id);
        self.close(id);
        live
    }

    /// The client has made it necessary: that costs as much as a reset of its own (H2).
    #[cold]
    pub(crate) fn stream_error(&mut self, stream: StreamId, code: ErrorCode) -> Result<Event, Failure> {
        self.close(stream);
        self.pay(Cost::Reset)?;
        Ok(Event::Reset { stream, code: code.number(), ours: true })
    }

    /// The client has reset its half of a stream before its end. `NeedMore`: the stream is over anyway. H1: each costs.
    pub fn reset_by_client(&mut self, stream: StreamId, code: u64) -> Event {
        if !self.is_live(stream) {
            return Event::NeedMore;
        }
        self.close(stream);
        match self.pay(Cost::Reset) {
            Ok(()) => Event::Reset { stream, code, ours: false },
            Err(failure) => Event::Failed(self.fail(failure)),
        }
    }

    /// The client wants no response on a stream, or no more of it. `NeedMore`: the stream is over anyway.
    pub fn stopped_by_client(&mut self, stream: StreamId, code: u64) -> Event {
        self.reset_by_client(stream, code)
    }

    /// Whether something can be sent or can come.
    pub fn is_live(&self, id: StreamId) -> bool {
        self.streams.get(id).is_some()
    }

    /// All of the response was given to QUIC, with the end of the stream. The code with which the rest of the request, which is
    /// unwanted, is to be stopped (RFC 9114 section 4.1).
    pub fn complete(&mut self, id: StreamId) -> Option<ErrorCode> {
        let stream = self.streams.get_mut(id)?;
        if stream.local != Local::Ended {
            return None;
        }
        stream.local = Local::Complete;
        self.turns.leave(&mut stream.waits);
        let (remote, kind) = (stream.remote, stream.kind);
        if !stream.refused {
            self.budget.earn(Gain::Response);
        }
        match (remote, kind) {
            (Remote::Ended | Remote::Dropped, _) => {
                self.close(id);
                None
            }
            (_, Kind::Tunnel) => None,
            _ => {
                self.close(id);
                Some(ErrorCode::NoError)
            }
        }
    }

    /// The caller has done with a stream: its response is complete, or, after a reset, its application has ended. One that is
    /// still live must be reset. Until it is released a stream counts as one of those that a client may have.
    pub fn release(&mut self, id: StreamId) {
        self.close(id);
        self.streams.release(id);
    }

    /// A stream is over on the wire.
    pub(crate) fn close(&mut self, id: StreamId) {
        if let Some(mut stream) = self.streams.close(id) {
            self.turns.leave(&mut stream.waits);
            self.forget_section(id, &stream);
            // RFC 9204 section 4.4.2; a dropped one was cancelled then.
            if !matches!(stream.remote, Remote::Ended | Remote::Dropped) {
                self.decoder.cancel(id.number());
            }
        }
    }

    fn forget_section(&mut self, id: StreamId, stream: &Stream) {
        match stream.reading {
            Reading::Section(_) => self.held -= stream.held.len(),
            Reading::Blocked => {
                self.held -= stream.held.len();
                self.blocked.retain(|&(blocked, _)| blocked != id);
            }
            Reading::Frame | Reading::Data(_) | Reading::Skip(_) => {}
        }
    }
}
