//! From a request to its application: scope and exchange, the task, or the hand-over to a WebSocket.

use std::cell::RefCell;
use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use wire::h1::connection::Deadline;
use wire::h1::framing::BodyLength;
use wire::h1::request::Head;
use wire::h1::response::CONTINUE;
use wire::texts;

use super::Connection;
use crate::access::format::FormattedLog;
use crate::ffi;
use crate::http::cycle::{Exchange, Served};
use crate::http::scope::Endpoints;
use crate::task::{Keywords, Start, is_empty};

impl Connection {
    /// Build scope and exchange of the request in `head`; and choose who answers it.
    pub(super) fn begin(
        self: &Rc<Self>,
        py: Python<'_>,
        head: &Head,
        input: &[u8],
    ) -> PyResult<(Rc<Exchange>, Py<PyAny>)> {
        let core = &self.core;
        // The last one is over; its scope may serve again.
        let last = self.state.borrow_mut().exchange.take();
        self.retire(py, last);
        let address = |known: &RefCell<Option<Py<PyAny>>>| {
            known.borrow().as_ref().map_or_else(|| py.None(), |known| known.clone_ref(py)).into_bound(py)
        };
        let (client, server) = (address(&self.client), address(&self.server_address));
        let ends =
            Endpoints { client: &client, server: &server, secure: self.secure.get(), state: self.app_state.bind(py) };
        let (scope, loan) = core.scope.build(py, &core.names, head, input, &ends)?;
        let (more_body, expects_continue) = (head.body != BodyLength::None, head.expects_continue);
        let exchange = Rc::new(Exchange::new(self.clone(), scope.unbind(), loan, more_body, expects_continue));
        if self.ended.get() || self.eof.get() && self.state.borrow().pending.is_empty() {
            exchange.disconnect(py, true)?;
        }
        self.first.set(false);
        if core.formatted.is_some() {
            FormattedLog::begin(&exchange);
        }
        {
            let mut state = self.state.borrow_mut();
            state.exchange = Some(exchange.clone());
            state.deadline = None;
            state.waits_for = Deadline::None;
        }
        let app = match &core.direct_app {
            Some(app) if !core.scope.kept.is_forwarded(head) => app,
            _ => &core.app,
        };
        let app = if self.is_over_limit(py)? { &core.unavailable_app } else { app };
        Ok((exchange, app.clone_ref(py)))
    }

    /// Let go of an exchange that is over.
    #[inline]
    pub(super) fn retire(&self, py: Python<'_>, exchange: Option<Rc<Exchange>>) {
        if let Some(Ok(exchange)) = exchange.map(Rc::try_unwrap) {
            let (scope, loan) = exchange.into_loan();
            self.core.scope.give(scope.into_bound(py), loan);
        }
    }

    pub(super) fn is_over_limit(&self, py: Python<'_>) -> PyResult<bool> {
        let Some(limit) = self.core.settings.limit_concurrency else { return Ok(false) };
        let core = &self.core;
        let over = core.connections.len(py)? >= limit || core.tasks.bind(py).len()? >= limit;
        if over {
            core.warn(py, texts::CONCURRENCY_EXCEEDED)?;
        }
        Ok(over)
    }

    /// Run the application in a task, whose first step happens here if it may be eager.
    pub(super) fn start(
        self: &Rc<Self>,
        py: Python<'_>,
        exchange: Rc<Exchange>,
        app: Py<PyAny>,
        eager: bool,
    ) -> PyResult<()> {
        let core = &self.core;
        let served = core.spare_cycles.take(py, exchange, app)?;
        let started = self.task(py, &served, eager);
        if served.cycle.get().is_over() {
            // The task goes first, because it holds cycle and context.
            let keywords = started.map(|(_task, keywords)| keywords);
            core.spare_cycles.give(py, served);
            return keywords?.map_or(Ok(()), |keywords| core.eager_call.give(py, keywords, &core.names));
        }
        let cycle = served.cycle.clone_ref(py);
        core.spare_cycles.part_with(served);
        let (task, keywords) = started?;
        cycle.get().set_task(task.clone().unbind());
        core.tasks.bind(py).call_method1(&core.names.add, (task,))?;
        keywords.map_or(Ok(()), |keywords| core.eager_call.give(py, keywords, &core.names))
    }

    /// The task of a cycle; one that starts eagerly may be over by now, and comes with what it was called with.
    fn task<'py>(
        &self,
        py: Python<'py>,
        served: &Served,
        eager: bool,
    ) -> PyResult<(Bound<'py, PyAny>, Option<Keywords>)> {
        let core = &self.core;
        let names = &core.names;
        let reset = core.settings.reset_contextvars;
        let base = core.context.bind(py);
        let context = || if reset { core.new_context.bind(py).call0() } else { ffi::copy_context(base) };
        let start = self.start.get();
        if eager && start == Start::Eagerly && !core.reentrance.is_given(core, py)? {
            let keywords = core.eager_call.take(py, names, reset || is_empty(base), context)?;
            let task = core.eager_call.start(served.arguments.bind(py), &keywords)?;
            return Ok((task, Some(keywords)));
        }
        let event_loop = core.event_loop.bind(py);
        let cycle = served.cycle.bind(py).as_any();
        let coroutine = match start {
            Start::Inspectably => core.run_asgi.bind(py).call1((cycle,))?,
            Start::Eagerly | Start::Later => cycle.clone(),
        };
        let task = if core.task_context && start == Start::Later {
            let keywords = PyDict::new(py);
            keywords.set_item(&names.context, context()?)?;
            event_loop.call_method(&names.create_task, (coroutine,), Some(&keywords))
        } else {
            // Before 3.11 a task always copies the current context; a factory or a double need not know the keyword.
            context()?.call_method1(&names.run, (event_loop.getattr(&names.create_task)?, coroutine))
        };
        Ok((task?, None))
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

    /// Give the connection to the WebSocket protocol, with the handshake as it was sent and what is behind it.
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
        self.closed.set(true);
        self.state.borrow_mut().deadline = None;
        self.stop_awaiting_reader();
        self.leave_deadlines();
        let keywords = PyDict::new(py);
        keywords.set_item("config", &core.config)?;
        keywords.set_item("server_state", &core.state)?;
        keywords.set_item("app_state", &self.app_state)?;
        let protocol = core.ws_protocol_class.bind(py).call((), Some(&keywords))?;
        protocol.call_method1(&names.connection_made, (transport,))?;
        self.forget(py)?;
        transport.call_method1(&names.set_protocol, (&protocol,))?;
        protocol.call_method1(&names.data_received, (PyBytes::new(py, input),))?;
        let carrier = self.carrier.take();
        drop(carrier);
        Ok(())
    }
}
