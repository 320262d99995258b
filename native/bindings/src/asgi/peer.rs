//! Both ends of a connection, as its requests show them.

use std::cell::OnceCell;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::base::level::Level;
use crate::base::names::Names;

/// What is the same for all requests of one connection.
pub(crate) struct Peer {
    /// `(host, port)`, or None.
    pub(crate) client: Py<PyAny>,
    /// `host:port` of it, made when the first line is logged.
    client_text: OnceCell<String>,
    /// The address of this end, as scopes have it.
    pub(crate) server: Py<PyAny>,
    pub(crate) secure: bool,
    /// What the lifespan left.
    pub(crate) app_state: Py<PyDict>,
}

impl Peer {
    pub(crate) fn new(client: Py<PyAny>, server: Py<PyAny>, secure: bool, app_state: Py<PyDict>) -> Self {
        Self { client, client_text: OnceCell::new(), server, secure, app_state }
    }

    /// Append the client's address if `client` is it; the middleware may have put another in its place.
    pub(crate) fn push_client(&self, line: &mut String, client: &Bound<'_, PyAny>) -> bool {
        let own = self.client.is(client);
        if own {
            line.push_str(self.client_text(client.py()));
        }
        own
    }

    /// One line about its connection, with the client in front.
    pub(crate) fn note(&self, py: Python<'_>, names: &Names, level: &Level, text: &str) -> PyResult<()> {
        if !level.is_enabled(py, names)? {
            return Ok(());
        }
        let mut prefix = self.client_text(py).to_owned();
        if !prefix.is_empty() {
            prefix.push_str(" - ");
        }
        level.log(py, &prefix, text)
    }

    /// `host:port`, or nothing.
    pub(crate) fn client_text(&self, py: Python<'_>) -> &str {
        self.client_text.get_or_init(|| match self.client.extract::<(String, u16)>(py) {
            Ok((host, port)) => format!("{host}:{port}"),
            Err(_) => String::new(),
        })
    }
}
