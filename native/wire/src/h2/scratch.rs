//! Storage that the connections of a thread share, and how nothing stays in it.

use std::ops::{Deref, DerefMut};

use crate::h2::hpack::Section;
use crate::h2::request::Head;

/// What connections that share a thread read requests into and put responses together in, one after the other.
///
/// There is no request in it after a [`poll`](crate::h2::Connection::poll), but for one that found one: then that is there, up to
/// the next poll or [`clear`](Self::clear). The section of a response is taken out while it is written.
#[derive(Debug, Default)]
pub struct Scratch {
    head: Head,
    /// Whether a request was found, and is still there.
    full: bool,
    section: Section,
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
            self.head.clear();
        }
    }

    /// Read a request here. The only way in.
    #[inline]
    pub(crate) fn enter(&mut self) -> Entered<'_> {
        self.clear();
        debug_assert!(self.is_empty(), "somebody's request is left in the scratch");
        Entered { scratch: self }
    }

    /// Take the section of a response, which is empty.
    pub(crate) fn lend(&mut self) -> Section {
        std::mem::take(&mut self.section)
    }

    /// Give it back, for the next one.
    pub(crate) fn give(&mut self, mut section: Section) {
        section.clear();
        self.section = section;
    }
}

/// A request being read in a [`Scratch`], which is empty again when this is dropped, by a panic as well, unless the request
/// was [`found`](Self::found).
pub(crate) struct Entered<'a> {
    scratch: &'a mut Scratch,
}

impl Entered<'_> {
    /// The request is complete: it stays for the caller.
    #[inline]
    pub(crate) fn found(self) {
        self.scratch.full = true;
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
            self.scratch.head.clear();
        }
    }
}
