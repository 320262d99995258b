//! From a request to its exchange, or the hand-over to a WebSocket.

use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use wire::h1::connection::Awaits;
use wire::h1::framing::BodyLength;
use wire::h1::request::{Head, Version};
use wire::h1::response::CONTINUE;
use wire::texts;

use super::connection::Connection;
use super::headers::HeadFields;
use super::states::End;
use crate::asgi::exchange::Exchange;
use crate::asgi::scope::Request;
use crate::conn::carried::{Carried, Life};

/// A request whose application has not started.
pub(super) struct Begun {
    exchange: Rc<Exchange>,
    app: Py<PyAny>,
}

impl Connection {
    /// Build scope and exchange of the request in `head`; and choose who answers it.
    pub(super) fn begin(self: &Rc<Self>, py: Python<'_>, head: &Head, input: &[u8]) -> PyResult<Begun> {
        let core = &self.core;
        let runner = &core.runner;
        let is_of_1_0 = head.version == Version::Http10;
        // The last one is over; its scope may serve again.
        let last = self.state.borrow_mut().exchange.take();
        runner.retire(py, last);
        let peer = self.peer.borrow().clone();
        let path = head.target.effective_path(input, head.verb);
        let look = runner.look(path, || core.headers.is_forwarded(head));
        let request = Request {
            http_version: if is_of_1_0 { &core.names.http_1_0 } else { &core.names.http_1_1 },
            is_of_1_0,
            method: head.verb,
            method_text: head.method.of(input),
            path,
            query: head.target.query.of(input),
            fields: HeadFields { kept: &core.headers, head, input },
            has_body: head.body != BodyLength::None,
            expects_continue: head.expects_continue,
        };
        let exchange = runner.begin(py, &request, peer, self.clone())?;
        if self.end.get() != End::Open {
            exchange.disconnect(py, true)?;
        }
        self.first.set(false);
        self.deadline.set(None);
        {
            let mut state = self.state.borrow_mut();
            state.exchange = Some(exchange.clone());
            state.waits_for = Awaits::Nothing;
        }
        let app = runner.app_for(py, &exchange, look)?;
        Ok(Begun { exchange, app })
    }

    /// Run the application in a task, whose first step happens here if it may be eager.
    #[inline]
    pub(super) fn start(&self, py: Python<'_>, begun: Begun, eager: bool) -> PyResult<()> {
        self.core.runner.serve(py, begun.exchange, begun.app, self.start.get(), eager)
    }

    /// Whether the connection is to become a WebSocket; log why not.
    pub(super) fn wants_websocket(&self, py: Python<'_>, websocket: bool, body: BodyLength) -> PyResult<bool> {
        let websocket = websocket && body == BodyLength::None;
        if websocket && !self.core.ws_protocol_class.is_none(py) {
            return Ok(true);
        }
        self.core.warn(py, texts::UPGRADE_UNSUPPORTED)?;
        if websocket {
            self.core.warn(py, texts::WEBSOCKET_UNSUPPORTED)?;
        }
        Ok(false)
    }

    /// Give the connection to the WebSocket protocol, with the original handshake and the input after it.
    pub(super) fn hand_over(&self, py: Python<'_>, input: &[u8], expects_continue: bool) -> PyResult<()> {
        let core = &self.core;
        let names = &core.names;
        self.note(py, &self.core.trace, "Upgrading to WebSocket")?;
        if expects_continue {
            // RFC 9110 section 7.8: the one in front of the other.
            self.put(|_, out| {
                out.extend_from_slice(CONTINUE);
                Ok(())
            })?;
        }
        self.flush(py)?;
        self.resume_reading(py)?;
        let Some(transport) = self.transport(py)? else { return Ok(()) };
        let transport = transport.bind(py);
        self.life.set(Life::Closed);
        self.deadline.set(None);
        self.reader.stop();
        self.leave_deadlines();
        let keywords = PyDict::new(py);
        keywords.set_item("config", &core.config)?;
        keywords.set_item("server_state", &core.host.state)?;
        keywords.set_item("app_state", &self.peer.borrow().app_state)?;
        let protocol = core.ws_protocol_class.bind(py).call((), Some(&keywords))?;
        protocol.call_method1(&names.connection_made, (transport,))?;
        self.forget(py)?;
        transport.call_method1(&names.set_protocol, (&protocol,))?;
        protocol.call_method1(&names.data_received, (PyBytes::new(py, input),))?;
        self.sides.drop_carrier();
        Ok(())
    }
}
