//! Both ends of a connection.

use pyo3::prelude::*;

use crate::base::encrypted::SslObject;

/// The two ends of a connection.
pub(crate) struct Ends {
    /// A pair of address and port, or `None`; so is `server`.
    pub(crate) client: Py<PyAny>,
    pub(crate) server: Py<PyAny>,
    /// The client has encrypted the connection, here or at a proxy that says so.
    pub(crate) secure: bool,
    /// The `ssl.SSLObject`, or its substitute (`uvicorn.tls.extension.describe`), if it is encrypted and there is one.
    pub(crate) ssl_object: Option<SslObject>,
}
