//! Connection ids that say which worker a packet is for.
//!
//! ```text
//! byte 0   1             2            3 to 11
//!      slot MARK ^ slot  generation   random
//! ```
//!
//! The mark tells the ids of ours from those that clients choose for their first packets. A program of the kernel reads
//! slot and mark; an observer can as well, and learns which connections share a worker (RFC 9000 section 5.1 has the
//! general case).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};

use crate::provider::random;

/// Bytes of an id.
pub const ID_LENGTH: usize = 12;
/// Byte 1 of an id, if the slot is 0.
pub const MARK: u8 = 0x9d;

/// Ids for which random bytes are drawn at once.
const BATCH: usize = 64;
const RANDOM: usize = ID_LENGTH - 3;

/// Makes connection ids.
pub(crate) struct Identifiers {
    slot: u8,
    generation: u8,
    /// Ids are made for no worker in particular.
    unmarked: Arc<AtomicBool>,
    random: Vec<u8>,
}

impl Identifiers {
    pub(crate) fn new(slot: u8, generation: u8, unmarked: Arc<AtomicBool>) -> Self {
        Self { slot, generation, unmarked, random: Vec::new() }
    }

    fn fill(&mut self) {
        self.random.resize(BATCH * RANDOM, 0);
        // Without random bytes ids repeat, which quinn-proto notices: it asks again. AWS-LC ends the process before.
        let _ = random(&mut self.random);
    }
}

/// Whether packets with this id are steered to a slot.
pub(crate) fn is_marked(id: &[u8]) -> bool {
    id.len() == ID_LENGTH && id.first().zip(id.get(1)).is_some_and(|(slot, mark)| *mark == MARK ^ slot)
}

impl ConnectionIdGenerator for Identifiers {
    fn generate_cid(&mut self) -> ConnectionId {
        if self.random.len() < RANDOM {
            self.fill();
        }
        let mut id = [0; ID_LENGTH];
        let rest = self.random.len().saturating_sub(RANDOM);
        for (place, byte) in id.iter_mut().skip(3).zip(self.random.drain(rest..)) {
            *place = byte;
        }
        id[0] = self.slot;
        id[1] = MARK ^ self.slot;
        id[2] = self.generation;
        if self.unmarked.load(Ordering::Relaxed) {
            // Steered by a hash, like the ids that clients choose.
            id[0] = id[3];
            id[1] = !(MARK ^ id[0]);
        }
        ConnectionId::new(&id)
    }

    /// An id of any worker's is answered by a stateless reset if it is unknown.
    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        if is_marked(id) { Ok(()) } else { Err(InvalidCid) }
    }

    fn cid_len(&self) -> usize {
        ID_LENGTH
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_have_slot_mark_and_generation() {
        let unmarked = Arc::new(AtomicBool::new(false));
        let mut ids = Identifiers::new(7, 3, unmarked.clone());
        let mut seen = HashSet::new();
        for _ in 0..3 * BATCH {
            let id = ids.generate_cid();
            assert_eq!(id[..3], [7, MARK ^ 7, 3]);
            assert!(ids.validate(&id).is_ok() && seen.insert(id[3..].to_vec()));
        }
        unmarked.store(true, Ordering::Relaxed);
        for _ in 0..BATCH {
            let id = ids.generate_cid();
            assert!(id.len() == ID_LENGTH && !is_marked(&id) && ids.validate(&id).is_err());
        }
        assert!(!is_marked(&[7, MARK ^ 7]));
    }
}
