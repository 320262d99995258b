//! Failures of a connection that are the client's fault.

#[rustfmt::skip]
mod table;

pub use table::Failure;

use crate::ws::limits::Limits;

/// The close code after which the client's frame boundaries are lost (RFC 6455 section 7.4.1).
const PROTOCOL_ERROR: u16 = 1002;

impl Failure {
    /// The reason for the client and the application: never holds bytes of the client's.
    pub fn reason(self, limits: &Limits) -> String {
        self.text().replace("{limit}", &limits.message.to_string())
    }

    /// Whether the client's close frame can still come: frame boundaries are known, and this was not it.
    pub const fn leaves_close(self) -> bool {
        self.code() != PROTOCOL_ERROR && !matches!(self, Self::CloseReason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ws::close::{MAX_REASON, is_close_code};

    #[test]
    fn every_failure_fits_into_a_close_frame() {
        let limits = Limits { message: usize::MAX, ..Limits::default() };
        for failure in Failure::ALL {
            assert!(is_close_code(failure.code()));
            assert!(failure.reason(&limits).len() <= MAX_REASON);
        }
    }

    #[test]
    fn a_limit_is_named() {
        let limits = Limits { message: 4, ..Limits::default() };
        assert_eq!(Failure::TooBig.reason(&limits), "Message exceeds the maximum size (4 bytes)");
        assert_eq!(Failure::Masking.reason(&limits), "incorrect masking");
    }
}
