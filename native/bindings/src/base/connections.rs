//! The set of live connections that a server keeps, `state.ConnectionSet`: entered and left by every connection. Those that
//! have sent their last response, and only wait for their client to end, too, are in another one as well.

use pyo3::prelude::*;
use pyo3::types::PySet;

use super::names::Names;

pub(crate) struct Connections {
    set: Py<PyAny>,
    /// The same, if its methods only do a set's work and announce the first and the last connection.
    plain: Option<Py<PySet>>,
    lingering: Py<PySet>,
}

impl Connections {
    pub(crate) fn new(state: &Bound<'_, PyAny>) -> PyResult<Self> {
        let set = &state.getattr("connections")?;
        let class = set.py().import("uvicorn.serving.state")?.getattr("ConnectionSet")?;
        let plain = if set.get_type().is(&class) { Some(set.cast::<PySet>()?.clone().unbind()) } else { None };
        let lingering = state.getattr("lingering")?.cast_into::<PySet>()?.unbind();
        Ok(Self { set: set.clone().unbind(), plain, lingering })
    }

    /// A connection has sent its last response.
    pub(crate) fn linger(&self, protocol: &Bound<'_, PyAny>) -> PyResult<()> {
        self.lingering.bind(protocol.py()).add(protocol)
    }

    pub(crate) fn add(&self, protocol: &Bound<'_, PyAny>, names: &Names) -> PyResult<()> {
        match &self.plain {
            // The first one, too.
            Some(set) if !set.bind(protocol.py()).is_empty() => set.bind(protocol.py()).add(protocol),
            _ => self.set.bind(protocol.py()).call_method1(&names.add, (protocol,)).map(drop),
        }
    }

    pub(crate) fn discard(&self, protocol: &Bound<'_, PyAny>, names: &Names) -> PyResult<()> {
        let py = protocol.py();
        let lingering = self.lingering.bind(py);
        if !lingering.is_empty() {
            lingering.discard(protocol)?;
        }
        if let Some(set) = &self.plain {
            let set = set.bind(py);
            // The class itself removes the last one, because it has to announce that.
            if set.len() > 1 {
                return set.discard(protocol).map(drop);
            }
        }
        self.set.bind(py).call_method1(&names.discard, (protocol,)).map(drop)
    }
}
