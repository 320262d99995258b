//! The amount of useless work that a peer may cause by packets: the events of streams have a budget of their own, in HTTP/3.
//!
//! There are two accounts, which both begin full: one of `STREAM` frames with 100,000, and one of all others with 10,000.
//!
//! | what | costs | | what | gives back, to both |
//! |---|---|---|---|---|
//! | a frame, without padding | 1 | | a piece of a stream that was read | 4, and one for each 64 bytes |
//! | a datagram, for one of its frames | 1 | | a write that no window has cut short | 4 |
//! | | | | 64 bytes that were written | 1 |
//! | | | | a stream whose end was written | 8 |
//! | | | | a second | 500 |
//!
//! So requests, responses and messages of any size pay for their datagrams, acknowledgements and windows; what makes no progress
//! does not. It is looked at every 16 datagrams.
//!
//! `STREAM` frames pay when they come, and are paid back when they are read: one whose application reads nothing may fill its
//! windows with small ones, and then has to wait as over HTTP/2.
//!
//! Above 16 of a datagram they cost 8 each. Their account gets back 8 for a piece that was read, and one for each two
//! bytes: small frames with gaps between them are sorted again and again, so that few datagrams keep a processor busy.
//!
//! Datagrams without frames cost nothing: an observer of the connection's ids can forge them, and the peer must not pay.

use std::time::{Duration, Instant};

use quinn_proto::FrameStats;

/// The initial and the largest balance of `STREAM` frames: 50,000 in datagrams of their own.
const STREAMS: u64 = 100_000;
/// The same of all others.
const OTHERS: u64 = 10_000;
const BYTES: u64 = 64;
/// The time that gives back 1: 500 a second.
const TIME: Duration = Duration::from_millis(2);
/// Datagrams between two looks.
const PACE: u64 = 16;
/// `STREAM` frames of a datagram, on average, that cost 1.
const USUAL: u64 = 16;
/// The cost of each above, and what their account gets back for a piece that was read.
const CROWDED: u64 = 8;
/// What both get back for it.
const PIECE: u64 = 4;
/// Bytes that were read for which `STREAM` frames alone get back 1.
const CROWDED_BYTES: u64 = 2;

/// The budget of one connection.
pub(crate) struct Flood {
    streams: u64,
    others: u64,
    /// Given back since the last look.
    earned: u64,
    /// The same for `STREAM` frames alone.
    more: u64,
    /// Datagrams since then.
    datagrams: u64,
    /// `STREAM` frames and others up to then.
    frames: (u64, u64),
    looked: Instant,
    is_over: bool,
}

impl Flood {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            streams: STREAMS,
            others: OTHERS,
            earned: 0,
            more: 0,
            datagrams: 0,
            frames: (0, 0),
            looked: now,
            is_over: false,
        }
    }

    /// A datagram has come.
    #[inline]
    pub(crate) const fn note_datagram(&mut self) {
        self.datagrams += 1;
    }

    /// A stream was read.
    #[inline]
    pub(crate) const fn note_read(&mut self, pieces: usize, bytes: usize) {
        self.earned = self.earned.saturating_add(pieces as u64 * PIECE + bytes as u64 / BYTES);
        self.more = self.more.saturating_add(pieces as u64 * (CROWDED - PIECE) + bytes as u64 / CROWDED_BYTES);
    }

    /// A stream was written to; all was taken, or a window has cut it short.
    #[inline]
    pub(crate) const fn note_written(&mut self, bytes: usize, is_whole: bool) {
        self.earned = self.earned.saturating_add(bytes as u64 / BYTES + if is_whole { 4 } else { 0 });
    }

    /// The end of a stream was written.
    #[inline]
    pub(crate) const fn note_finished(&mut self) {
        self.earned = self.earned.saturating_add(8);
    }

    /// Whether it is time to look.
    #[inline]
    pub(crate) const fn is_due(&self) -> bool {
        self.datagrams >= PACE && !self.is_over
    }

    /// Draw the balance, with all frames that have ever come; whether nothing is left, which is said once.
    pub(crate) fn look(&mut self, now: Instant, all: &FrameStats) -> bool {
        let frames = (all.stream, count_others(all));
        let before = std::mem::replace(&mut self.frames, frames);
        let (streams, others) = (frames.0 - before.0, frames.1 - before.1);
        let datagrams = std::mem::take(&mut self.datagrams);
        let for_streams = streams.min(datagrams);
        // The rest of the time counts at the next look: a busy connection is looked at more often than each `TIME`.
        let passed = now.saturating_duration_since(self.looked).as_nanos() / TIME.as_nanos();
        let passed = u32::try_from(passed).unwrap_or(u32::MAX);
        self.looked += TIME * passed;
        // Work and its reward come together.
        let earned = std::mem::take(&mut self.earned).saturating_add(passed.into());
        let more = std::mem::take(&mut self.more);
        let crowded = streams.saturating_sub(datagrams.saturating_mul(USUAL)).saturating_mul(CROWDED - 1);
        let left = |account: u64, spent: u64| account.saturating_add(earned).checked_sub(spent);
        let streams = left(self.streams.saturating_add(more), streams + for_streams + crowded);
        let others = left(self.others, others + others.min(datagrams - for_streams));
        self.is_over = streams.is_none() || others.is_none();
        self.streams = streams.unwrap_or_default().min(STREAMS);
        self.others = others.unwrap_or_default().min(OTHERS);
        self.is_over
    }
}

/// All but `STREAM`, padding and the frames of an end.
const fn count_others(all: &FrameStats) -> u64 {
    all.acks
        + all.ack_frequency
        + all.crypto
        + all.data_blocked
        + all.immediate_ack
        + all.max_data
        + all.max_stream_data
        + all.max_streams_bidi
        + all.max_streams_uni
        + all.new_connection_id
        + all.path_challenge
        + all.path_response
        + all.ping
        + all.reset_stream
        + all.retire_connection_id
        + all.stream_data_blocked
        + all.streams_blocked_bidi
        + all.streams_blocked_uni
        + all.stop_sending
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many `PING` frames as `STREAM` and `ACK` frames.
    fn frames(number: u64) -> FrameStats {
        let mut all = FrameStats::default();
        (all.ping, all.acks, all.stream) = (number / 3, number / 3, number - number / 3 * 2);
        all
    }

    fn pings(number: u64) -> FrameStats {
        let mut all = FrameStats::default();
        all.ping = number;
        all
    }

    fn streams(number: u64) -> FrameStats {
        let mut all = FrameStats::default();
        all.stream = number;
        all
    }

    /// The rounds of 16 datagrams, of `of` frames each, until the flood is over; `earn` gives back for each datagram.
    fn rounds(of: u64, kind: fn(u64) -> FrameStats, earn: impl Fn(&mut Flood), pause: Duration) -> u64 {
        let mut now = Instant::now();
        let mut flood = Flood::new(now);
        for round in 1..8000 {
            for _ in 0..PACE {
                flood.note_datagram();
                earn(&mut flood);
            }
            now += pause;
            assert!(flood.is_due());
            if flood.look(now, &kind(round * PACE * of)) {
                assert!(!flood.is_due());
                return round;
            }
            assert!(!flood.is_due());
        }
        8000
    }

    #[test]
    fn floods_end_and_work_does_not() {
        let none = |_: &mut Flood| {};
        assert_eq!(rounds(1200, pings, none, Duration::ZERO), 1);
        assert_eq!(rounds(1, pings, none, Duration::ZERO), 313);
        // 50,000 that are not read
        assert_eq!(rounds(1, streams, none, Duration::ZERO), 3126);
        assert_eq!(rounds(16, streams, none, Duration::ZERO), 368);
        // 64 crowded ones, and such that are read, by the piece or merged
        assert_eq!(rounds(230, streams, none, Duration::ZERO), 4);
        assert_eq!(rounds(48, streams, |flood| flood.note_read(2, 48 * 20), Duration::ZERO), 8000);
        assert_eq!(rounds(230, streams, |flood| flood.note_read(230, 230), Duration::ZERO), 8000);
        assert_eq!(rounds(1200, streams, none, Duration::ZERO), 1);
        // forged or padding
        assert_eq!(rounds(0, frames, none, Duration::ZERO), 8000);
        // 62 a second
        assert_eq!(rounds(1, pings, none, Duration::from_millis(256)), 8000);
        assert_eq!(rounds(1, streams, none, Duration::from_millis(256)), 8000);
        // a window that grows by a byte
        assert_eq!(rounds(2, pings, |flood| flood.note_written(1, false), Duration::ZERO), 209);
        // messages by the byte, and their acknowledgements; a small request in two datagrams, an upload, a download
        assert_eq!(rounds(2, frames, |flood| flood.note_read(1, 1), Duration::ZERO), 8000);
        assert_eq!(rounds(2, frames, |flood| flood.note_written(1, true), Duration::ZERO), 8000);
        assert_eq!(rounds(3, frames, Flood::note_finished, Duration::ZERO), 8000);
        assert_eq!(rounds(1, frames, |flood| flood.note_read(1, 1200), Duration::ZERO), 8000);
        assert_eq!(rounds(2, frames, |flood| flood.note_written(1200, false), Duration::ZERO), 8000);
    }

    #[test]
    fn time_gives_back_however_often_it_is_looked_at() {
        let mut now = Instant::now();
        let mut flood = Flood::new(now);
        flood.others = 0;
        for _ in 0..1000 {
            now += Duration::from_millis(1);
            assert!(!flood.look(now, &FrameStats::default()));
        }
        assert_eq!(flood.others, 500);
    }
}
