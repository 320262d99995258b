//! Abuse limits as values with behaviour.

pub(crate) mod streams;

/// The budget of a peer for waste. Refilled by honest work, never above where it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    left: usize,
    full: usize,
}

impl Budget {
    /// A full budget.
    pub const fn new(full: usize) -> Self {
        Self { left: full, full }
    }

    /// Take `amount`; `false` when there is not enough left.
    #[must_use]
    pub const fn consume(&mut self, amount: usize) -> bool {
        match self.left.checked_sub(amount) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }

    /// Give `amount` back, up to where the budget began.
    pub fn replenish(&mut self, amount: u64) {
        let room = self.full - self.left;
        self.left += usize::try_from(amount).unwrap_or(usize::MAX).min(room);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_budget_passes_and_one_more_does_not() {
        let mut budget = Budget::new(3);
        assert!(budget.consume(3));
        assert!(!budget.consume(1));
    }

    #[test]
    fn replenishing_never_goes_above_the_start() {
        let mut budget = Budget::new(3);
        assert!(budget.consume(1));
        budget.replenish(u64::MAX);
        assert_eq!(budget, Budget::new(3));
    }
}
