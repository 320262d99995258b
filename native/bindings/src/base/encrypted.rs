//! What programs see as the `ssl_object` of an encrypted connection.

use std::rc::Rc;

use pyo3::prelude::*;

/// A connection that is described when a program asks for it.
pub(crate) trait Described {
    /// The description, which is made once; `None` if there is none.
    fn describe(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>>;
}

/// An `ssl.SSLObject`, or an object with its methods.
pub(crate) enum SslObject {
    Made(Py<PyAny>),
    /// Few programs ask for it.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "OpenSSL has an object"))]
    Later(Rc<dyn Described>),
}

impl SslObject {
    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::Made(object) => Self::Made(object.clone_ref(py)),
            Self::Later(described) => Self::Later(described.clone()),
        }
    }

    /// The object.
    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match self {
            Self::Made(object) => Ok(Some(object.clone_ref(py))),
            Self::Later(described) => described.describe(py),
        }
    }
}
