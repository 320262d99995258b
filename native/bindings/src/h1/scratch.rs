//! The buffers that heads are parsed into.

use wire::h1::Scratch;

use crate::base::reuse::{Reuse, Single};

/// One for all connections of a loop. A connection that is served inside the turn of another has one of its own.
pub(super) struct SpareScratch(Single<Box<Scratch>>);

impl SpareScratch {
    pub(super) fn new(reuse: Reuse) -> Self {
        Self(Single::new(reuse))
    }

    /// Run `body` with scratch that is empty, and empty it.
    #[inline]
    pub(super) fn with<R>(&self, body: impl FnOnce(&mut Scratch) -> R) -> R {
        let mut scratch = self.0.take().unwrap_or_default();
        let result = body(&mut scratch);
        scratch.clear();
        self.0.give(scratch);
        result
    }
}
