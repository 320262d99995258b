//! What a client can push. A value of exactly the limit passes; one more does not. The numbers are in [`table`], which is
//! written from those of Python.

#[rustfmt::skip]
pub mod table;

/// Bounds on what one connection may make the server hold or do. One value serves a whole server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a message, after inflation; beyond: 1009.
    pub message: usize,
    /// Bytes of frame headers a message may have beyond the bytes that it carries; beyond: 1008.
    pub overhead: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { message: table::WS_MAX_SIZE, overhead: table::MAX_OVERHEAD }
    }
}

impl Limits {
    /// Bytes a compressed message may have on the wire: what does not compress grows by a few bytes for each block.
    pub(crate) const fn deflated(&self) -> usize {
        self.message.saturating_add(self.message >> 4).saturating_add(64)
    }
}
