//! The turns in which connections are served, unless the loop serves them one by one.

use std::rc::Rc;

use pyo3::prelude::*;

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
