//! Storage that the connections of a thread share, and how nothing stays in it.

use crate::fields::{Head, Section};
use crate::scratch::{self, Entered};

/// The buffers in which connections of one thread parse requests and build responses, one after the other.
///
/// There is no request in it after a poll, but for one that found one: then that is there, up to the next poll or [`clear`](Self::clear). The section of a response is taken out while it is written.
#[derive(Debug, Default)]
pub struct Scratch {
    request: scratch::Scratch<Head>,
    section: Section,
}

impl Scratch {
    /// The request that the last poll found.
    #[inline]
    pub const fn head(&self) -> &Head {
        self.request.head()
    }

    /// Whether nothing of any request is in it.
    pub fn is_empty(&self) -> bool {
        self.request.is_empty()
    }

    /// Forget the request.
    #[inline]
    pub fn clear(&mut self) {
        self.request.clear();
    }

    /// Read a request here. The only way in.
    #[inline]
    pub(crate) fn enter(&mut self) -> Entered<'_, Head> {
        self.request.enter()
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
