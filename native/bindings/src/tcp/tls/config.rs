//! The settings of rustls, as Python makes them.

#[cfg(target_os = "linux")]
use std::sync::{Arc, Mutex, PoisonError};

#[cfg(target_os = "linux")]
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
#[cfg(target_os = "linux")]
use pyo3::{PyTraverseError, gc::PyVisit};

/// The settings of new connections.
#[cfg(target_os = "linux")]
pub(crate) struct Current {
    pub(crate) config: Arc<tls::Config>,
    /// Makes what programs see of a connection.
    pub(crate) describe: Option<Py<PyAny>>,
    /// Gives the keys of tickets, which the settings have as well: shown to the garbage collector.
    keys: Option<Arc<Py<PyAny>>>,
}

/// The TLS settings of a listener, for connections that rustls encrypts.
#[pyclass(module = "uvicorn._native", frozen)]
pub struct TLSConfig {
    #[cfg(target_os = "linux")]
    current: Mutex<Option<Arc<Current>>>,
}

#[cfg(target_os = "linux")]
impl TLSConfig {
    /// The settings of a connection that begins now; `None` if OpenSSL encrypts it.
    pub(crate) fn current(&self) -> Option<Arc<Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Host, chain and key.
#[cfg(target_os = "linux")]
type Certificate = (Option<String>, Vec<u8>, Vec<u8>);

#[pymethods]
#[cfg(target_os = "linux")]
impl TLSConfig {
    #[new]
    #[pyo3(signature = (*, certificates, password, alpn, min_version, max_version, suites, verify, authorities, revoked,
                        serves_unverified, tickets, ticket_keys, describe))]
    #[expect(clippy::too_many_arguments, clippy::needless_pass_by_value, reason = "keywords of Python's")]
    fn new(
        py: Python<'_>,
        certificates: Vec<Certificate>,
        password: Option<Vec<u8>>,
        alpn: Vec<String>,
        min_version: u16,
        max_version: u16,
        suites: Option<Vec<u16>>,
        verify: u8,
        authorities: Option<Vec<u8>>,
        revoked: Option<Vec<u8>>,
        serves_unverified: bool,
        tickets: &str,
        ticket_keys: Option<Py<PyAny>>,
        describe: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let keys = ticket_keys.map(Arc::new);
        let settings = tls::Settings {
            certificates: certificates
                .iter()
                .map(|(host, chain, key)| tls::Certificate { host: host.clone(), chain, key })
                .collect(),
            password: password.as_deref(),
            alpn: alpn.into_iter().map(String::into_bytes).collect(),
            versions: (min_version, max_version),
            suites,
            verify: match verify {
                0 => tls::Verify::None,
                1 => tls::Verify::Optional,
                2 => tls::Verify::Required,
                other => return Err(PyValueError::new_err(format!("`verify` must be 0, 1 or 2, not {other}."))),
            },
            authorities: authorities.as_deref(),
            revoked: revoked.as_deref(),
            serves_unverified,
            tickets: match (tickets, &keys) {
                ("none", _) => tls::TicketPolicy::None,
                ("own", _) => tls::TicketPolicy::Own,
                ("shared", Some(keys)) => tls::TicketPolicy::Shared(source(keys.clone())),
                _ => {
                    return Err(PyValueError::new_err(
                        "`tickets` must be 'own', 'none', or 'shared' with `ticket_keys`.",
                    ));
                }
            },
        };
        // Decrypting a key may take long.
        let config = py.detach(|| tls::Config::new(settings)).map_err(|error| PyValueError::new_err(error + "."))?;
        let current = Current { config: Arc::new(config), describe, keys };
        Ok(Self { current: Mutex::new(Some(Arc::new(current))) })
    }

    /// Use the settings of `other` for new connections, or leave them to OpenSSL; those that exist keep theirs.
    #[pyo3(signature = (other))]
    fn replace(&self, other: Option<&Self>) {
        let new = other.and_then(Self::current);
        let old = std::mem::replace(&mut *self.current.lock().unwrap_or_else(PoisonError::into_inner), new);
        drop(old);
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(current) = self.current.try_lock() else { return Ok(()) };
        // Only a single owner may show them to the collector, and connections own them as well.
        if let Some(current) = current.as_ref().filter(|current| Arc::strong_count(current) == 1) {
            visit.call(&current.describe)?;
            if let Some(keys) = &current.keys {
                visit.call(&**keys)?;
            }
        }
        Ok(())
    }
}

/// Keys of a function of Python's.
#[cfg(target_os = "linux")]
fn source(function: Arc<Py<PyAny>>) -> tls::KeySource {
    Box::new(move || {
        Python::attach(|py| {
            let keys = function.bind(py).call0().and_then(|keys| keys.extract::<(u64, Vec<u8>, Option<Vec<u8>>)>());
            match keys {
                Ok((period, current, before)) => {
                    Some(tls::TicketKeys { period, current: current.into(), before: before.map(Vec::into_boxed_slice) })
                }
                Err(error) => {
                    // Clients do without tickets.
                    error.write_unraisable(py, Some(function.bind(py)));
                    None
                }
            }
        })
    })
}

#[pymethods]
#[cfg(not(target_os = "linux"))]
impl TLSConfig {
    #[new]
    #[pyo3(signature = (**_settings))]
    fn new(_settings: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        Err(pyo3::exceptions::PyNotImplementedError::new_err("rustls serves on Linux only"))
    }

    /// Use the settings of `other` for new connections.
    #[pyo3(signature = (_other))]
    fn replace(&self, _other: Option<&Self>) {}
}
