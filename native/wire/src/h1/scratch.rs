//! Storage for the head being read, which the connections of a thread share, and how nothing stays in it.

use std::ops::{Deref, DerefMut};

use crate::h1::request::Head;

/// What connections that share a thread read their heads into, one after the other.
///
/// It is empty after each [`poll`](crate::h1::Connection::poll), but for one that found a request: then that request is in
/// it, up to the next poll or [`clear`](Self::clear). A head that is cut off goes on in its own connection, never here.
#[derive(Debug, Default)]
pub struct Scratch {
    head: Head,
    /// Whether a request was found, and is still there.
    full: bool,
}

impl Scratch {
    /// The request that the last poll found.
    #[inline]
    pub const fn head(&self) -> &Head {
        &self.head
    }

    /// Whether nothing of any request is in it.
    pub fn is_empty(&self) -> bool {
        !self.full && self.head == Head::default()
    }

    /// Forget the request.
    #[inline]
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.full) {
            self.head.reset();
        }
    }

    /// Read a head here, one that is `begun` or a new one. The only way in.
    #[inline]
    pub(crate) fn enter(&mut self, begun: Option<Box<Head>>) -> Entered<'_> {
        self.clear();
        debug_assert!(self.is_empty(), "somebody's request is left in the scratch");
        if let Some(begun) = begun {
            self.head = *begun;
        }
        Entered { scratch: self }
    }
}

/// A head being read in a [`Scratch`], which is empty again when this is dropped, by a panic as well, unless a request
/// was [`found`](Self::found).
pub(crate) struct Entered<'a> {
    scratch: &'a mut Scratch,
}

impl Entered<'_> {
    /// The head is complete: it stays for the caller.
    #[inline]
    pub(crate) fn found(self) {
        self.scratch.full = true;
    }

    /// The head is cut off: its connection takes it.
    pub(crate) fn leave(self) -> Box<Head> {
        Box::new(std::mem::take(&mut self.scratch.head))
    }
}

impl Deref for Entered<'_> {
    type Target = Head;

    #[inline]
    fn deref(&self) -> &Head {
        &self.scratch.head
    }
}

impl DerefMut for Entered<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Head {
        &mut self.scratch.head
    }
}

impl Drop for Entered<'_> {
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
    use crate::limits::Limits;

    #[test]
    fn whatever_ends_the_reading_nothing_stays() {
        let (limits, mut scratch) = (Limits::default(), Scratch::default());
        let _ = scratch.enter(None).parse(b"PUT /x HTTP/1.1\r\nX: y\r\nZ", &limits);
        assert!(scratch.is_empty());

        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let mut head = scratch.enter(None);
            let _ = head.parse(b"PUT /x HTTP/1.1\r\nX: y\r\nZ", &limits);
            std::panic::resume_unwind(Box::new("broken"));
        }));
        assert!(panicked.is_err() && scratch.is_empty());
    }

    #[test]
    fn a_head_that_left_goes_on_when_it_enters_again() {
        let (limits, mut scratch) = (Limits::default(), Scratch::default());
        let mut head = scratch.enter(None);
        let _ = head.parse(b"PUT /x HTTP/1.1\r\nHos", &limits);
        let begun = head.leave();
        assert!(scratch.is_empty());
        let mut head = scratch.enter(Some(begun));
        assert!(head.has_begun() && head.parse(b"PUT /x HTTP/1.1\r\nHost: a\r\n\r\n", &limits).is_ok());
        head.found();
        assert_eq!(scratch.head().fields.len(), 1);
        scratch.clear();
        assert!(scratch.is_empty());
    }
}
