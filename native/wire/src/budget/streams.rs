//! The amount of useless work that a client of HTTP/2 or HTTP/3 may cause.
//!
//! Anything cheap to send that advances no request costs something here: a stream that the server has to reset costs
//! the same as one that the client resets. Answered requests, accepted bytes and time give back, so an honest client
//! never exhausts it. Each connection has one, of 10,000:
//!
//! | what | costs | | what | gives back |
//! |---|---|---|---|---|
//! | a stream that is reset or refused, by whichever side | 50 | | a response that is complete | 100 |
//! | `SETTINGS` | 50 | | a `DATA` frame that we send, unless a window leaves it less than 1 KiB | 20, and one for each 64 bytes |
//! | `PING`, `PRIORITY`, `PRIORITY_UPDATE`, `CONTINUATION`, `MAX_PUSH_ID`, unknown frames and streams | 10 | | a piece of a body that was read | 1, and one for each 64 bytes |
//! | `DATA` that is empty | 10 | | a second | 500 |
//! | `WINDOW_UPDATE` | 2 | | | |
//! | `DATA` of fewer than 5 bytes | 1 | | | |
//! | an instruction of QPACK that changes nothing, or the size of the table | 10 | | | |
//! | 64 bytes of unknown frames of HTTP/3 | 1 | | | |
//! | an entry that is added to QPACK's table | 2, and one for each 64 bytes | | | |

/// The initial and the largest value.
const FULL: usize = 10_000;
/// `DATA` of fewer bytes costs something. The smallest messages that are sent one in a frame have no fewer, gRPC's, or 6, of a
/// WebSocket's client: however many of those a window lets through before its application has a turn, they are no flood.
const TINY: usize = 5;
/// Bytes that give back one.
const BYTES: usize = 64;

/// Something that costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cost {
    /// A stream ended before its time, by whichever side.
    Reset,
    Settings,
    /// A frame that changes little.
    Frame,
    WindowUpdate,
    /// `DATA` that does not end the stream.
    Data(usize),
    /// Bytes of a frame that means nothing.
    Skipped(usize),
    /// An entry of this many bytes, added to QPACK's table.
    Insert(usize),
}

impl Cost {
    const fn amount(self) -> usize {
        match self {
            Self::Reset | Self::Settings => 50,
            Self::Frame | Self::Data(0) => 10,
            Self::WindowUpdate => 2,
            Self::Data(length) if length < TINY => 1,
            Self::Data(_) => 0,
            Self::Skipped(length) => length / BYTES,
            Self::Insert(length) => 2 + length / BYTES,
        }
    }
}

/// Something that shows that the client is in earnest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gain {
    Response,
    /// A frame of this many bytes that was sent; not one that a window has made small.
    Sent(usize),
    /// Bytes that an application has read, and in how many pieces they came.
    Read {
        length: usize,
        pieces: usize,
    },
    Seconds(u64),
}

impl Gain {
    fn amount(self) -> u64 {
        match self {
            Self::Response => 100,
            Self::Sent(length) => 20 + (length / BYTES) as u64,
            Self::Read { length, pieces } => (pieces + length / BYTES) as u64,
            Self::Seconds(seconds) => seconds.saturating_mul(500),
        }
    }
}

/// The rest of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget(crate::budget::Budget);

impl Budget {
    pub(crate) const fn new() -> Self {
        Self(crate::budget::Budget::new(FULL))
    }

    /// Pay; `false` if there is not as much left: the connection is to end with `ENHANCE_YOUR_CALM`.
    #[must_use]
    #[inline]
    pub(crate) const fn pay(&mut self, cost: Cost) -> bool {
        self.0.consume(cost.amount())
    }

    /// Give back, never more than there was.
    #[inline]
    pub(crate) fn earn(&mut self, gain: Gain) {
        self.0.replenish(gain.amount());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(cost: Cost) -> usize {
        let mut budget = Budget::new();
        (0..100_000).take_while(|_| budget.pay(cost)).count()
    }

    #[test]
    fn each_flood_ends() {
        assert_eq!((times(Cost::Reset), times(Cost::Settings), times(Cost::Frame)), (200, 200, 1000));
        assert_eq!((times(Cost::WindowUpdate), times(Cost::Data(0)), times(Cost::Data(4))), (5000, 1000, 10_000));
        assert_eq!(times(Cost::Data(5)), 100_000);
        assert_eq!((times(Cost::Insert(36)), times(Cost::Insert(4096)), times(Cost::Skipped(64_000))), (5000, 151, 10));
    }

    #[test]
    fn honest_work_pays_for_what_goes_with_it() {
        let mut budget = Budget::new();
        for _ in 0..10_000 {
            // A response of two frames, for which a client opens both windows, pings, and gives up another request.
            assert!(budget.pay(Cost::WindowUpdate) && budget.pay(Cost::WindowUpdate) && budget.pay(Cost::Frame));
            assert!(budget.pay(Cost::Reset));
            budget.earn(Gain::Sent(2));
            budget.earn(Gain::Sent(2));
            budget.earn(Gain::Response);
            // A message of one byte that is read.
            assert!(budget.pay(Cost::Data(1)));
            budget.earn(Gain::Read { length: 1, pieces: 1 });
        }
        assert_eq!(budget, Budget::new());
    }

    #[test]
    fn it_never_holds_more_than_in_the_beginning() {
        let mut budget = Budget::new();
        budget.earn(Gain::Seconds(u64::MAX));
        assert_eq!(budget, Budget::new());
        assert!(budget.pay(Cost::Reset));
        budget.earn(Gain::Seconds(1));
        assert_eq!(budget, Budget::new());
    }
}
