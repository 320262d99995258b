//! Request bodies: which parts are wanted, how they come, and how their windows are given back.

use std::ops::Range;

use crate::budget::streams::{Cost, Gain};
use crate::error::{Error, Refusal};
use crate::fields::body::Unexpected;
use crate::h2::connection::{Connection, ENDED, IDLE, Payload, Reading};
use crate::h2::event::{Event, Failure};
use crate::h2::frame::{self, ErrorCode};
use crate::h2::streams::{Found, Remote, StreamId};
use crate::limits::Limits;

/// The treatment of a frame of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Wanted,
    Dropped,
    Wrong(ErrorCode),
    /// More than [`Limits::body`].
    TooLarge,
}

impl<K> Connection<K> {
    /// Section 6.1: the beginning of a frame, which decides how all of it is treated.
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

    /// Decide on a frame of `length` bytes of a body, which takes `flow` of the window.
    #[inline]
    fn accept(&mut self, id: StreamId, length: usize, flow: u32, end: bool) -> Verdict {
        let Some(stream) = self.streams.get_mut(id) else { return Verdict::Dropped };
        let Remote::Open(expected) = &mut stream.remote else {
            let ended = stream.remote == Remote::Ended;
            return if ended { Verdict::Wrong(ErrorCode::StreamClosed) } else { Verdict::Dropped };
        };
        if let Err(code) = stream.incoming.take(flow) {
            return Verdict::Wrong(code);
        }
        stream.incoming.release(flow - length as u32); // padding
        match expected.take(length as u64, end) {
            Ok(()) => Verdict::Wanted,
            Err(Unexpected::Length) => Verdict::Wrong(ErrorCode::Protocol),
            Err(Unexpected::TooLarge) => Verdict::TooLarge,
        }
    }

    /// The available payload of a `DATA` frame, as far as its stream still wants it.
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
            |id: &StreamId| self.streams.get(*id).is_some_and(|stream| matches!(stream.remote, Remote::Open(_)));
        let event = stream.filter(wanted).map(|stream| {
            if end {
                self.end_body(stream);
            }
            Event::Data { stream, data: 0..length, end }
        });
        Some((length, event))
    }

    /// The body is complete.
    pub(crate) fn end_body(&mut self, id: StreamId) -> Event {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.remote = Remote::Ended;
        }
        self.close_if_ended(id);
        Event::Data { stream: id, data: 0..0, end: true }
    }

    /// No more of the body is wanted: it is too large.
    pub(crate) fn refuse_body(&mut self, id: StreamId, error: Error, end: bool) -> Result<Event, Failure> {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.remote = if end { Remote::Ended } else { Remote::Dropped };
            stream.refused = true;
        }
        self.close_if_ended(id);
        self.pay(Cost::Reset)?;
        Ok(Event::Refused { stream: id, error })
    }

    /// Bytes of a body have been read: give them back to the window of the stream, and more if it is read as fast as it
    /// comes. Frames for the client are appended.
    pub fn consume(&mut self, out: &mut Vec<u8>, id: StreamId, length: usize) {
        self.consume_pieces(out, id, length, 1);
    }

    /// As [`consume`](Self::consume), of bytes that came in this many pieces and were read together.
    pub fn consume_pieces(&mut self, out: &mut Vec<u8>, id: StreamId, length: usize, pieces: usize) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        stream.incoming.release(u32::try_from(length).unwrap_or(u32::MAX));
        self.budget.earn(Gain::Read { length, pieces });
        self.update(id, out);
    }

    /// Enlarge the client's window of a stream, when enough is owed.
    fn update(&mut self, id: StreamId, out: &mut Vec<u8>) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if !matches!(stream.remote, Remote::Open(_)) {
            return;
        }
        if stream.incoming.is_due() {
            self.growth.grow(&mut stream.incoming, self.settings.largest_window);
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
