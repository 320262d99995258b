//! The amount of useless work that a peer may cause by packets: the events of streams have a budget of their own, in HTTP/3.
//!
//! | what | costs | | what | gives back |
//! |---|---|---|---|---|
//! | a frame, without padding | 1 | | a piece of a stream that was read | 4, and one for each 64 bytes |
//! | a datagram, for one of its frames | 1 | | a write that no window has cut short | 4 |
//! | | | | 64 bytes that were written | 1 |
//! | | | | a stream whose end was written | 8 |
//! | | | | a second | 500 |
//!
//! So requests, responses and messages of any size pay for their datagrams, acknowledgements and windows; what moves nothing on
//! does not. It is looked at every 64 datagrams.
//!
//! Datagrams without frames cost nothing: an observer of the connection's ids can forge them, and the peer must not pay.

use std::time::Instant;

use quinn_proto::FrameStats;

/// The initial and the largest value.
const FULL: u64 = 10_000;
const BYTES: u64 = 64;
const SECOND: u64 = 500;
/// Datagrams between two looks.
const PACE: u64 = 64;

/// The budget of one connection.
pub(crate) struct Flood {
    left: u64,
    /// Given back since the last look.
    earned: u64,
    /// Datagrams since then.
    datagrams: u64,
    /// Frames up to then.
    frames: u64,
    looked: Instant,
    is_over: bool,
}

impl Flood {
    pub(crate) const fn new(now: Instant) -> Self {
        Self { left: FULL, earned: 0, datagrams: 0, frames: 0, looked: now, is_over: false }
    }

    /// A datagram has come.
    #[inline]
    pub(crate) const fn note_datagram(&mut self) {
        self.datagrams += 1;
    }

    /// A stream was read.
    #[inline]
    pub(crate) const fn note_read(&mut self, pieces: usize, bytes: usize) {
        self.earned = self.earned.saturating_add(pieces as u64 * 4 + bytes as u64 / BYTES);
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
        let frames = count(all);
        let new = frames - std::mem::replace(&mut self.frames, frames);
        let spent = new + new.min(std::mem::take(&mut self.datagrams));
        let passed = now.saturating_duration_since(self.looked).as_millis() as u64;
        self.looked = now;
        let earned = std::mem::take(&mut self.earned).saturating_add(passed.saturating_mul(SECOND) / 1000);
        // Work and its reward come together.
        let left = self.left.saturating_add(earned).checked_sub(spent);
        self.is_over = left.is_none();
        self.left = left.unwrap_or_default().min(FULL);
        self.is_over
    }
}

/// All but padding and the frames of an end.
const fn count(all: &FrameStats) -> u64 {
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
        + all.stream
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn frames(number: u64) -> FrameStats {
        let mut all = FrameStats::default();
        (all.ping, all.acks, all.stream) = (number / 3, number / 3, number - number / 3 * 2);
        all
    }

    /// The rounds of 64 datagrams, of `of` frames each, until the flood is over; `earn` gives back for each datagram.
    fn rounds(of: u64, earn: impl Fn(&mut Flood), pause: Duration) -> u64 {
        let mut now = Instant::now();
        let mut flood = Flood::new(now);
        for round in 1..1000 {
            for _ in 0..PACE {
                flood.note_datagram();
                earn(&mut flood);
            }
            now += pause;
            assert!(flood.is_due());
            if flood.look(now, &frames(round * PACE * of)) {
                assert!(!flood.is_due());
                return round;
            }
            assert!(!flood.is_due());
        }
        1000
    }

    #[test]
    fn floods_end_and_work_does_not() {
        let none = |_: &mut Flood| {};
        assert_eq!(rounds(1200, none, Duration::ZERO), 1);
        assert_eq!(rounds(1, none, Duration::ZERO), 79);
        // forged or padding
        assert_eq!(rounds(0, none, Duration::ZERO), 1000);
        // 128 of a quarter of a second
        assert_eq!(rounds(1, none, Duration::from_millis(256)), 1000);
        // a window that grows by a byte
        assert_eq!(rounds(2, |flood| flood.note_written(1, false), Duration::ZERO), 53);
        // messages by the byte, and their acknowledgements; a small request in two datagrams, an upload, a download
        assert_eq!(rounds(2, |flood| flood.note_read(1, 1), Duration::ZERO), 1000);
        assert_eq!(rounds(2, |flood| flood.note_written(1, true), Duration::ZERO), 1000);
        assert_eq!(rounds(3, Flood::note_finished, Duration::ZERO), 1000);
        assert_eq!(rounds(1, |flood| flood.note_read(1, 1200), Duration::ZERO), 1000);
        assert_eq!(rounds(2, |flood| flood.note_written(1200, false), Duration::ZERO), 1000);
    }
}
