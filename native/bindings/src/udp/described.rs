//! What programs see of the encryption of a connection.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::connection::Connection;
use crate::base::encrypted::Described;

/// TLS 1.3, as a record has it.
const TLS13: u16 = 0x0304;

impl Described for Connection {
    fn describe(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if let Some(object) = &*self.object.borrow() {
            return Ok(Some(object.clone_ref(py)));
        }
        let (Some(describe), Some(handshake)) = (&self.settings.describe, self.handshake()) else { return Ok(None) };
        let chain: Vec<_> = handshake.chain.iter().map(|der| PyBytes::new(py, der)).collect();
        let protocol = handshake.protocol.as_deref().map(|name| String::from_utf8_lossy(name).into_owned());
        let arguments = (
            TLS13,
            handshake.suite,
            protocol,
            handshake.server_name,
            PyTuple::new(py, chain)?,
            handshake.resumed,
            handshake.group,
            handshake.error,
            handshake.host,
        );
        let made = describe.bind(py).call1(arguments)?;
        if made.is_none() {
            return Ok(None);
        }
        // Making it may have come here.
        let mut object = self.object.borrow_mut();
        Ok(Some(object.get_or_insert_with(|| made.unbind()).clone_ref(py)))
    }
}
