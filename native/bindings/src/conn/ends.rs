//! Both ends of a connection.

use pyo3::prelude::*;

/// Who is connected to whom.
pub(crate) struct Ends {
    /// A pair of address and port, or `None`; so is `server`.
    pub(crate) client: Py<PyAny>,
    pub(crate) server: Py<PyAny>,
    /// The connection is encrypted.
    pub(crate) secure: bool,
}
