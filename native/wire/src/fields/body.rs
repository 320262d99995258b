//! The body of a request, as it was declared and as it is allowed.

/// A body that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    /// The missing bytes of the declared ones.
    declared: Option<u64>,
    /// The number of bytes that may come.
    allowed: Option<u64>,
    /// The client waits for `100 Continue`.
    pub(crate) awaits_continue: bool,
}

/// Why a part of a body is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unexpected {
    /// It is longer or shorter than was declared (RFC 9113 section 8.1.1, RFC 9114 section 4.1.2).
    Length,
    /// The body is longer than is allowed.
    TooLarge,
}

impl Expected {
    pub(crate) const fn new(declared: Option<u64>, allowed: Option<u64>, awaits_continue: bool) -> Self {
        Self { declared, allowed, awaits_continue }
    }

    /// Whether some of the declared bytes are missing.
    pub(crate) const fn is_short(&self) -> bool {
        matches!(self.declared, Some(1..))
    }

    /// `length` bytes more, the last ones if `end`.
    #[inline]
    pub(crate) fn take(&mut self, length: u64, end: bool) -> Result<(), Unexpected> {
        self.awaits_continue = false;
        if let Some(left) = &mut self.declared {
            match left.checked_sub(length) {
                Some(less) if !end || less == 0 => *left = less,
                _ => return Err(Unexpected::Length), // F22
            }
        }
        if let Some(left) = &mut self.allowed {
            *left = left.checked_sub(length).ok_or(Unexpected::TooLarge)?;
        }
        Ok(())
    }
}
