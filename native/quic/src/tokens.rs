//! The tokens of `NEW_TOKEN` frames that clients have used: each is good once (RFC 9000 section 8.1.4).
//!
//! Memory is bounded. When tokens have to be forgotten, all that are as old are refused: their clients have to validate
//! their address, and no token is good twice. Another worker does not know which are used here.

use std::collections::HashSet;
use std::mem;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use quinn_proto::{TokenLog, TokenReuseError};

/// Tokens of a period.
const MOST: usize = 4096;

#[derive(Default)]
struct Period {
    used: HashSet<u64>,
    /// When the newest of them was made.
    newest: Option<SystemTime>,
}

#[derive(Default)]
struct Periods {
    current: Period,
    before: Period,
    /// Tokens that were made no later may have been used.
    forgotten: Option<SystemTime>,
}

/// Remembers the used tokens.
#[derive(Default)]
pub(crate) struct UsedTokens(Mutex<Periods>);

impl TokenLog for UsedTokens {
    fn check_and_insert(&self, nonce: u128, issued: SystemTime, _lifetime: Duration) -> Result<(), TokenReuseError> {
        let mut periods = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The server has chosen it at random.
        let token = nonce as u64;
        let is_forgotten = periods.forgotten.is_some_and(|forgotten| issued <= forgotten);
        if is_forgotten || periods.before.used.contains(&token) || !periods.current.used.insert(token) {
            return Err(TokenReuseError);
        }
        periods.current.newest = periods.current.newest.max(Some(issued));
        if periods.current.used.len() >= MOST {
            periods.forgotten = periods.forgotten.max(periods.before.newest);
            periods.before = mem::take(&mut periods.current);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_token_is_good_twice() {
        let log = UsedTokens::default();
        let begin = SystemTime::UNIX_EPOCH;
        let use_it = |n: u64| log.check_and_insert(n.into(), begin + Duration::from_secs(n), Duration::ZERO).is_ok();
        let total = 3 * MOST as u64;
        assert!((0..total).all(use_it));
        assert!(!(0..total).any(use_it), "those that are forgotten are refused as well");
        assert!(use_it(total));
        let periods = log.0.lock().unwrap();
        assert!(periods.current.used.len() + periods.before.used.len() <= 2 * MOST);
    }
}
