//! The turns in which connections are served, unless the loop serves them one by one.

use std::rc::Rc;
use std::time::Duration;

use pyo3::prelude::*;

/// How long a turn may last before the loop's other callbacks have theirs; one request is never cut short. A request
/// that awaits ten times has to wait for ten turns of a busy loop. Another iteration of the loop costs microseconds.
pub(crate) const TURN: Duration = Duration::from_millis(1);
/// How much of a turn handshakes may take, the last of them apart. One costs 0.1 to 0.7 milliseconds, a request 0.01: a
/// storm of new clients would otherwise take whole turns from those that are served. The rest waits for the next turns.
pub(crate) const HANDSHAKES: Duration = Duration::from_micros(250);

/// Has something to do once for all that a turn did.
pub(crate) trait AfterTurn {
    fn after_turn(&self, py: Python<'_>) -> PyResult<()>;
}

/// Serves many connections in one turn.
pub(crate) trait Turns {
    /// Whether work shared by all connections can wait for [`AfterTurn`].
    fn is_running(&self) -> bool;
    /// Whether this turn serves no other connection after the present one.
    fn serves_last(&self) -> bool;
    /// Call `after` when this turn ends.
    fn after_turn(&self, after: Rc<dyn AfterTurn>);
}
