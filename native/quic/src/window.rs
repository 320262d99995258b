//! The part of a connection in the memory for unread data.

use std::cell::Cell;
use std::rc::Rc;

use crate::settings::Limits;

/// Shared by the connections of an endpoint.
pub(crate) struct Windows {
    total: u64,
    connections: Cell<usize>,
}

impl Windows {
    pub(crate) fn new(limits: &Limits) -> Rc<Self> {
        Rc::new(Self { total: limits.total_window, connections: Cell::new(0) })
    }

    /// Set the number of connections.
    pub(crate) fn divide_by(&self, connections: usize) {
        self.connections.set(connections);
    }

    /// The part of a connection: a power of two, so that it changes seldom.
    pub(crate) fn part(&self) -> u32 {
        let part = self.total / self.connections.get().max(1) as u64;
        let part = u32::try_from(part).unwrap_or(u32::MAX).max(Limits::MIN_WINDOW);
        1 << part.ilog2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_the_total_or_are_the_least() {
        let limits = Limits::default();
        let windows = Windows::new(&limits);
        for connections in [0, 1, 2, 3, 100, 255, 256, 257, 1000, 4096, 5000, usize::MAX] {
            windows.divide_by(connections);
            let part = windows.part();
            assert!(part >= Limits::MIN_WINDOW);
            assert!(part == Limits::MIN_WINDOW || u64::from(part) * connections.max(1) as u64 <= limits.total_window);
        }
    }
}
