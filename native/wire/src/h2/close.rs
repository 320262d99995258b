//! How streams and connections end.
//!
//! ```text
//!   Open ── announce_end ──▶ Announced ── end ──▶ Ended(last) ── the last stream is over ──▶ is_over
//!     └──────────────────── end ────────────────────▲
//! ```
//!
//! A connection ends twice (RFC 9113 section 6.8): first it says that no more should come, then, when requests that were on
//! their way have come, which was the last. Those after it are refused, so that a client knows that it can send them again.

use crate::budget::streams::Cost;
use crate::h2::connection::{Connection, Reading};
use crate::h2::event::{Event, Failure};
use crate::h2::frame::{self, ErrorCode};
use crate::h2::streams::{Local, MAX_NUMBER, Remote, StreamId};

/// Whether more streams are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Open,
    Announced,
    Ended,
}

impl Ending {
    pub(crate) const fn accepts(self) -> bool {
        !matches!(self, Self::Ended)
    }
}

/// This many numbers before the last one a client gets a GOAWAY.
const LAST_CALL: u32 = 2 * 1000;

impl<K> Connection<K> {
    /// Append a request to send no more requests. Those that are on their way are served.
    pub fn announce_end(&mut self, out: &mut Vec<u8>) {
        if self.ending == Ending::Open && !self.is_closed() {
            self.ending = Ending::Announced;
            frame::put_go_away(out, MAX_NUMBER, ErrorCode::NoError, b"");
        }
    }

    /// Append which request was the last that is served.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        if self.ending != Ending::Ended && !self.is_closed() {
            self.ending = Ending::Ended;
            frame::put_go_away(out, self.streams.last(), ErrorCode::NoError, b"");
        }
    }

    /// Whether it is known which request was the last, and all are over: close it when everything is written.
    pub fn is_over(&self) -> bool {
        self.is_closed() || self.ending == Ending::Ended && self.streams.is_idle()
    }

    /// Whether a GOAWAY was sent.
    pub fn is_ending(&self) -> bool {
        self.ending != Ending::Open
    }

    /// Whether no request is open on the wire.
    pub fn is_idle(&self) -> bool {
        self.streams.is_idle()
    }

    /// Whether reading has stopped.
    pub const fn is_closed(&self) -> bool {
        matches!(self.reading, Reading::Closed)
    }

    /// Numbers of streams run out: a client that is near the last one gets a GOAWAY in time.
    pub(crate) fn note_number(&mut self, number: u32, out: &mut Vec<u8>) {
        if number > MAX_NUMBER - LAST_CALL {
            self.announce_end(out);
        }
        if number == MAX_NUMBER {
            self.end(out);
        }
    }

    /// Append the reason for the connection's end; reading stops, and all streams are over.
    pub fn fail(&mut self, out: &mut Vec<u8>, failure: Failure) {
        if !self.is_closed() {
            self.reading = Reading::Closed;
            while let Some(stream) = self.streams.first() {
                self.close(stream, false);
            }
            frame::put_go_away(out, self.streams.last(), failure.code, failure.reason.as_bytes());
        }
    }

    /// Append a reset of the server's own will; `false` if the stream is over anyway.
    pub fn reset(&mut self, out: &mut Vec<u8>, id: StreamId, code: ErrorCode) -> bool {
        let live = self.is_live(id);
        if live {
            frame::put_reset(out, id.number(), code);
            self.close(id, true);
        }
        live
    }

    /// The client has made it necessary: that costs as much as a reset of its own (H2).
    #[cold]
    pub(crate) fn stream_error(
        &mut self,
        stream: StreamId,
        code: ErrorCode,
        out: &mut Vec<u8>,
    ) -> Result<Event, Failure> {
        self.reset(out, stream, code);
        self.pay(Cost::Reset)?;
        Ok(Event::Reset { stream, code: code as u32, ours: true })
    }

    /// Whether something can be sent or can come.
    pub fn is_live(&self, id: StreamId) -> bool {
        self.streams.get(id).is_some()
    }

    /// The caller has done with a stream: its response is complete, or, after a reset, its application has ended. One that is
    /// still live is reset. Until it is released a stream counts as one of those that a client may have.
    pub fn release(&mut self, out: &mut Vec<u8>, id: StreamId) {
        self.reset(out, id, ErrorCode::Internal);
        self.streams.release(id);
    }

    /// A stream is over on the wire.
    pub(crate) fn close(&mut self, id: StreamId, reset: bool) {
        if let Some(mut stream) = self.streams.close(id, reset) {
            self.turns.leave(&mut stream.waits);
            self.growth.take_back(stream.incoming, self.window);
        }
    }

    /// Close a stream whose halves are both complete.
    pub(crate) fn close_if_ended(&mut self, id: StreamId) {
        let ended = |stream: &crate::h2::streams::Stream| {
            stream.remote == Remote::Ended && matches!(stream.local, Local::Ended)
        };
        if self.streams.get(id).is_some_and(ended) {
            self.close(id, false);
        }
    }
}
