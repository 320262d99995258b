//! What heads are read into.

use std::cell::Cell;

use wire::h1::Scratch;

/// One for all connections of a loop. It is taken out while it is used: a connection that is served inside the turn of another
/// has one of its own, and what a panic leaves is thrown away.
pub(super) struct SpareScratch {
    place: Cell<Option<Box<Scratch>>>,
    poison: bool,
}

impl SpareScratch {
    pub(super) fn new(poison: bool) -> Self {
        Self { place: Cell::default(), poison }
    }

    /// Run `body` with scratch that is empty, and empty it.
    #[inline]
    pub(super) fn with<R>(&self, body: impl FnOnce(&mut Scratch) -> R) -> R {
        let mut scratch = self.place.take().unwrap_or_default();
        let result = body(&mut scratch);
        if !self.poison {
            scratch.clear();
            self.place.set(Some(scratch));
        }
        result
    }
}
