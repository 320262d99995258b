//! The log lines of a WebSocket, with the same texts as in Python.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use wire::texts;

use super::session::Session;

impl Session {
    /// The log of frames, if debug lines are wanted.
    #[inline]
    pub(super) fn frame_log(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.any_rare()?.log.borrow().as_ref().map(|log| log.clone_ref(py))
    }

    pub(super) fn open_frame_log(&self, py: Python<'_>) -> PyResult<()> {
        if !self.core.debug.is_enabled(py, &self.core.names)? {
            return Ok(());
        }
        let class = py.import("uvicorn.protocols.websockets.frame_log")?.getattr("FrameLog")?;
        self.rare().log.replace(Some(class.call1((&self.core.logger,))?.unbind()));
        Ok(())
    }

    /// One line about this connection, with the client in front.
    pub(super) fn trace(&self, py: Python<'_>, text: &str) -> PyResult<()> {
        if !self.core.trace.is_enabled(py, &self.core.names)? {
            return Ok(());
        }
        self.core.trace.log(py, &self.client_prefix(py), text)
    }

    fn client_prefix(&self, py: Python<'_>) -> String {
        let peer = self.peer.borrow().clone();
        match peer.client_text(py) {
            "" => String::new(),
            client => format!("{client} - "),
        }
    }

    /// Why a handshake is refused, as the HTTP protocols say it of requests.
    pub(super) fn note_refusal(&self, py: Python<'_>, status: u16, reason: &str) -> PyResult<()> {
        if !self.core.debug.is_enabled(py, &self.core.names)? {
            return Ok(());
        }
        let line = texts::request_refused(status, wire::status::phrase(status), reason);
        self.core.debug.log(py, &self.client_prefix(py), &line)
    }

    /// The client and the target.
    fn asked<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        if let Some(scope) = self.scope.get() {
            let utils = py.import("uvicorn.protocols.utils")?;
            let client = utils.call_method1("get_client_addr", (scope,))?;
            return Ok((client, utils.call_method1("get_path_with_query_string", (scope,))?));
        }
        let peer = self.peer.borrow().clone();
        let client = PyString::new(py, peer.client_text(py)).into_any();
        let handshake = py.import("uvicorn.protocols.websockets.handshake")?;
        let head = PyBytes::new(py, &self.inflow.input.borrow());
        Ok((client, handshake.call_method1("requested_target", (head,))?))
    }

    /// Log the outcome of the handshake; in the access log if that has a format of the user's.
    pub(super) fn log_handshake(
        &self,
        py: Python<'_>,
        status: u16,
        head: &Bound<'_, PyBytes>,
        is_accepted: bool,
    ) -> PyResult<()> {
        if let Some(span) = self.span(py) {
            span.call_method1(&self.core.names.respond, (status,))?;
            span.call_method0(&self.core.names.send)?;
        }
        if let Some(entry) = self.entry(py) {
            let method = if is_accepted { "conclude" } else { "start" };
            return entry.bind(py).call_method1(method, (status, head)).map(drop);
        }
        if !self.core.info.is_enabled(py, &self.core.names)? {
            return Ok(());
        }
        let (client, target) = self.asked(py)?;
        if is_accepted {
            return self.say(py, ("%s - \"WebSocket %s\" [accepted]", client, target));
        }
        self.say(py, ("%s - \"WebSocket %s\" %d", client, target, status))
    }

    /// Log the end of an open connection, with the code that the application gets.
    pub(super) fn log_end(&self, py: Python<'_>, code: u16) -> PyResult<()> {
        if !self.core.info.is_enabled(py, &self.core.names)? {
            return Ok(());
        }
        let (client, target) = self.asked(py)?;
        self.say(py, ("%s - \"WebSocket %s\" [closed %d]", client, target, code))
    }

    /// Log at INFO.
    pub(super) fn say<'py>(&self, py: Python<'py>, arguments: impl pyo3::call::PyCallArgs<'py>) -> PyResult<()> {
        self.core.logger.bind(py).call_method1(&self.core.names.info, arguments).map(drop)
    }

    /// Nothing more is sent: the line of the access log is due.
    pub(super) fn end_entry(&self, py: Python<'_>) -> PyResult<()> {
        self.entry(py).map_or(Ok(()), |entry| entry.bind(py).call_method0("end").map(drop))
    }
}
