//! Windows (RFC 9113 section 5.2): how many bytes of bodies may be on their way.
//!
//! ```text
//!   Incoming of size S, at any time:   left + held + owed = S
//!
//!     left ── the client sends ──▶ held ── the application has read ──▶ owed ── WINDOW_UPDATE ──▶ left
//!             Incoming::take              Incoming::release                   Incoming::update
//! ```
//!
//! A connection releases at once all it takes, padding and unwanted data included, so nothing of its window can be
//! lost, and no stream can keep another from sending. The windows of streams bound memory, and a [`Growth`], out of
//! which those grow that are used.

use crate::h2::frame::{ErrorCode, MAX_WINDOW};

/// The initial window of both sides (section 6.9.2).
pub(crate) const FIRST_WINDOW: u32 = 65_535;

/// The window for the client's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Incoming {
    size: u32,
    /// The bytes that the client may still send. Below zero if the window was made smaller than the bytes on their way.
    left: i64,
    /// The bytes that can be given back to it.
    owed: u32,
}

impl Incoming {
    pub(crate) const fn new(size: u32) -> Self {
        Self { size, left: size as i64, owed: 0 }
    }

    /// The client has sent `length` bytes.
    #[inline]
    pub(crate) fn take(&mut self, length: u32) -> Result<(), ErrorCode> {
        if self.left < i64::from(length) {
            return Err(ErrorCode::FlowControl);
        }
        self.left -= i64::from(length);
        Ok(())
    }

    /// Bytes that were taken and not released.
    pub(crate) fn held(&self) -> u32 {
        u32::try_from(i64::from(self.size) - self.left - i64::from(self.owed)).unwrap_or(0)
    }

    /// Release bytes that were taken: at most as many as are held.
    #[inline]
    pub(crate) fn release(&mut self, length: u32) {
        self.owed += length.min(self.held());
    }

    /// Make the window larger.
    fn grow(&mut self, by: u32) {
        self.size += by;
        self.owed += by;
    }

    /// A change of the setting that windows begin with, which the client makes as well.
    pub(crate) fn shift(&mut self, from: u32, to: u32) {
        self.left += i64::from(to) - i64::from(from);
        self.size = (self.size + to).saturating_sub(from);
    }

    #[cfg(test)]
    pub(crate) const fn size(&self) -> u32 {
        self.size
    }

    /// Whether half of the window is owed: smaller updates are not worth a frame.
    #[inline]
    pub(crate) const fn is_due(&self) -> bool {
        self.owed > 0 && self.owed >= self.size / 2
    }

    /// The increment of the client's window, when that is due.
    #[inline]
    pub(crate) fn update(&mut self) -> Option<u32> {
        if !self.is_due() {
            return None;
        }
        self.left += i64::from(self.owed);
        Some(std::mem::take(&mut self.owed))
    }
}

/// The bytes by which the windows of a connection's streams may grow, all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Growth {
    left: u32,
}

impl Growth {
    pub(crate) const fn new(size: u32) -> Self {
        Self { left: size }
    }

    /// Double a window whose stream is read as fast as it comes, up to `most`, if there is so much left.
    pub(crate) fn grow(&mut self, window: &mut Incoming, most: u32) {
        let wanted = window.size.saturating_mul(2).min(most).saturating_sub(window.size);
        if wanted > 0 && wanted <= self.left && window.held() <= window.size / 4 {
            self.left -= wanted;
            window.grow(wanted);
        }
    }

    /// Take back the growth of a window that began with `first`.
    pub(crate) fn take_back(&mut self, window: Incoming, first: u32) {
        self.left += window.size.saturating_sub(first);
    }
}

/// The window for our data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outgoing {
    left: i64,
}

impl Outgoing {
    pub(crate) const fn new(size: u32) -> Self {
        Self { left: size as i64 }
    }

    /// Bytes that may be sent now: none of a window below zero, which a setting can make (section 6.9.2).
    #[inline]
    pub(crate) fn room(self) -> usize {
        usize::try_from(self.left).unwrap_or(0)
    }

    /// `length` bytes are sent, of those that there is room for.
    #[inline]
    pub(crate) fn take(&mut self, length: usize) {
        self.left -= i64::try_from(length.min(self.room())).unwrap_or(0);
    }

    /// The client takes `increment` bytes more, or less. A window may not become larger than the largest (section
    /// 6.9.1).
    pub(crate) fn open(&mut self, increment: i64) -> Result<(), ErrorCode> {
        self.left += increment;
        if self.left > i64::from(MAX_WINDOW) { Err(ErrorCode::FlowControl) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_whole(window: &Incoming) {
        assert_eq!(window.left + i64::from(window.held()) + i64::from(window.owed), i64::from(window.size));
    }

    /// H7
    #[test]
    fn what_is_taken_comes_back_and_no_more() {
        let mut window = Incoming::new(100);
        let (mut sent, mut told) = (0_u64, 100_u64);
        for round in 1..500_u32 {
            let length = round * 7 % 40;
            if window.take(length).is_ok() {
                sent += u64::from(length);
            }
            window.release(round * 5 % 60);
            told += u64::from(window.update().unwrap_or(0));
            is_whole(&window);
            assert!(sent <= told && told <= sent + 100);
        }
        window.release(u32::MAX);
        told += u64::from(window.update().unwrap_or(0));
        assert_eq!((window.held(), window.left + i64::from(window.owed)), (0, 100));
        assert!(told - sent >= 50);
    }

    #[test]
    fn one_byte_more_than_the_window_is_an_error() {
        let mut window = Incoming::new(10);
        assert_eq!((window.take(10), window.take(0), window.take(1)), (Ok(()), Ok(()), Err(ErrorCode::FlowControl)));
    }

    #[test]
    fn a_setting_moves_a_window_that_is_in_use() {
        let mut window = Incoming::new(FIRST_WINDOW);
        window.take(60_000).unwrap();
        window.shift(FIRST_WINDOW, 10_000);
        assert_eq!((window.left, window.held(), window.size()), (-50_000, 60_000, 10_000));
        assert!(window.take(1).is_err());
        window.release(60_000);
        assert_eq!(window.update(), Some(60_000));
        is_whole(&window);
        assert_eq!((window.take(10_000), window.take(1)), (Ok(()), Err(ErrorCode::FlowControl)));
    }

    #[test]
    fn a_window_that_is_used_grows_by_what_is_left_and_gives_it_back() {
        let (mut growth, mut window) = (Growth::new(300), Incoming::new(100));
        window.take(30).unwrap();
        growth.grow(&mut window, 1000);
        assert_eq!((window.size(), growth.left), (100, 300)); // more is held than a fourth
        window.release(30);
        growth.grow(&mut window, 1000);
        assert_eq!((window.size(), growth.left, window.update()), (200, 200, Some(130)));
        growth.grow(&mut window, 350);
        assert_eq!((window.size(), growth.left), (350, 50));
        growth.grow(&mut window, 1000);
        assert_eq!((window.size(), growth.left), (350, 50)); // as much is not there
        is_whole(&window);
        growth.take_back(window, 100);
        assert_eq!(growth, Growth::new(300));
    }

    /// RFC 9113 sections 6.9.1 and 6.9.2
    #[test]
    fn what_we_may_send_can_be_less_than_nothing_but_not_too_much() {
        let mut window = Outgoing::new(100);
        window.take(80);
        assert_eq!((window.open(-90), window.room()), (Ok(()), 0));
        assert_eq!((window.open(71), window.room()), (Ok(()), 1));
        assert_eq!(window.open(i64::from(MAX_WINDOW) - 1), Ok(()));
        assert_eq!(window.open(1), Err(ErrorCode::FlowControl));
    }
}
