//! Both ends of a connection, as its requests show them.

use std::cell::OnceCell;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::base::encrypted::SslObject;
use crate::base::level::Level;
use crate::base::names::Names;

/// The facts that all requests of one connection share.
pub(crate) struct Peer {
    /// `(host, port)`, or None.
    pub(crate) client: Py<PyAny>,
    /// `host:port` of it, made when the first line is logged.
    client_text: OnceCell<String>,
    /// The address of this end, as scopes have it.
    pub(crate) server: Py<PyAny>,
    pub(crate) secure: bool,
    /// The `ssl.SSLObject` of an encrypted connection, or a description of the encryption that ended at a proxy.
    pub(crate) ssl_object: Option<SslObject>,
    /// The value of the extension `tls`, made when it is first asked for.
    tls: OnceCell<Py<PyDict>>,
    /// The state that the lifespan left.
    pub(crate) app_state: Py<PyDict>,
    /// Whether the client's forwarded headers are trusted; once that was asked.
    trusted: OnceCell<bool>,
}

impl Peer {
    pub(crate) fn new(client: Py<PyAny>, server: Py<PyAny>, secure: bool, app_state: Py<PyDict>) -> Self {
        Self {
            client,
            client_text: OnceCell::new(),
            server,
            secure,
            ssl_object: None,
            tls: OnceCell::new(),
            app_state,
            trusted: OnceCell::new(),
        }
    }

    /// Of a connection that `ssl_object` encrypts.
    pub(crate) fn with_tls(self, ssl_object: Option<SslObject>) -> Self {
        Self { ssl_object, ..self }
    }

    /// A copy of the extension `tls`, if the connection is encrypted; its values cannot be changed.
    #[cold]
    pub(crate) fn tls<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(object) = &self.ssl_object else { return Ok(None) };
        if let Some(said) = self.tls.get() {
            return said.bind(py).copy().map(Some);
        }
        let Some(object) = object.get(py)? else { return Ok(None) };
        let describe = py.import("uvicorn.tls.extension")?.getattr("describe")?;
        let said = describe.call1((object,))?.cast_into::<PyDict>()?;
        let copy = said.copy()?;
        let _ = self.tls.set(said.unbind());
        Ok(Some(copy))
    }

    /// Whether the client's forwarded headers are trusted, which `decide` is asked once.
    #[inline]
    pub(crate) fn is_trusted(&self, decide: impl FnOnce(&Py<PyAny>) -> PyResult<bool>) -> PyResult<bool> {
        if let Some(&trusted) = self.trusted.get() {
            return Ok(trusted);
        }
        let trusted = decide(&self.client)?;
        let _ = self.trusted.set(trusted);
        Ok(trusted)
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
