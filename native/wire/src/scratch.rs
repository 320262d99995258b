//! Storage for a request being read, which the connections of a thread share, and how nothing stays in it.

use std::ops::{Deref, DerefMut};

/// The result of parsing a request, which can be emptied for the next one: it equals a new one then.
pub trait Reused: Default + PartialEq {
    /// Forget everything, keep the storage.
    fn reset(&mut self);
}

/// The buffer into which connections of one thread parse their requests, one after the other.
///
/// It is empty after each poll, but for one that found a request: then that is in it, up to the next poll or
/// [`clear`](Self::clear). An incomplete request continues in its own connection, never here.
#[derive(Debug, Default)]
pub struct Scratch<H> {
    head: H,
    /// Whether a request was found, and is still there.
    full: bool,
}

impl<H: Reused> Scratch<H> {
    /// The request that the last poll found.
    #[inline]
    pub const fn head(&self) -> &H {
        &self.head
    }

    /// Whether nothing of any request is in it.
    pub fn is_empty(&self) -> bool {
        !self.full && self.head == H::default()
    }

    /// Forget the request.
    #[inline]
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.full) {
            self.head.reset();
        }
    }

    /// Read a request here. The only way in.
    #[inline]
    pub(crate) fn enter(&mut self) -> Entered<'_, H> {
        self.clear();
        debug_assert!(self.is_empty(), "a request is left in the scratch");
        Entered { scratch: self }
    }
}

/// A request being read in a [`Scratch`], which is empty again when this is dropped, by a panic as well, unless the request
/// was [`found`](Self::found).
pub(crate) struct Entered<'a, H: Reused> {
    scratch: &'a mut Scratch<H>,
}

impl<H: Reused> Entered<'_, H> {
    /// The request is complete: it stays for the caller.
    #[inline]
    pub(crate) fn found(self) {
        self.scratch.full = true;
    }

    /// The request is incomplete: its connection takes the part that is there.
    pub(crate) fn leave(self) -> H {
        std::mem::take(&mut self.scratch.head)
    }
}

impl<H: Reused> Deref for Entered<'_, H> {
    type Target = H;

    #[inline]
    fn deref(&self) -> &H {
        &self.scratch.head
    }
}

impl<H: Reused> DerefMut for Entered<'_, H> {
    #[inline]
    fn deref_mut(&mut self) -> &mut H {
        &mut self.scratch.head
    }
}

impl<H: Reused> Drop for Entered<'_, H> {
    #[inline]
    fn drop(&mut self) {
        if !self.scratch.full {
            self.scratch.head.reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::h1::Head;
    use crate::limits::Limits;

    #[test]
    fn whatever_ends_the_reading_nothing_stays() {
        let (limits, mut scratch) = (Limits::default(), Scratch::<Head>::default());
        let _ = scratch.enter().parse(b"PUT /x HTTP/1.1\r\nX: y\r\nZ", &limits);
        assert!(scratch.is_empty());

        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let mut head = scratch.enter();
            let _ = head.parse(b"PUT /x HTTP/1.1\r\nX: y\r\nZ", &limits);
            std::panic::resume_unwind(Box::new("broken"));
        }));
        assert!(panicked.is_err() && scratch.is_empty());
    }

    #[test]
    fn a_head_that_left_goes_on_when_it_enters_again() {
        let (limits, mut scratch) = (Limits::default(), Scratch::<Head>::default());
        let mut head = scratch.enter();
        let _ = head.parse(b"PUT /x HTTP/1.1\r\nHos", &limits);
        let begun = head.leave();
        assert!(scratch.is_empty());
        let mut head = scratch.enter();
        *head = begun;
        assert!(head.has_begun() && head.parse(b"PUT /x HTTP/1.1\r\nHost: a\r\n\r\n", &limits).is_ok());
        head.found();
        assert_eq!(scratch.head().fields.len(), 1);
        scratch.clear();
        assert!(scratch.is_empty());
    }
}
