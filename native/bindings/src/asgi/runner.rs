//! From a request to its application: the scope, the exchange and the task, for the connections of one event loop.

use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};
use wire::texts;

use super::awaitable::Callable;
use super::conversation::{Conversation, Function};
use super::cycle::{self, RequestResponseCycle};
use super::exchange::Exchange;
use super::host::Host;
use super::peer::Peer;
use super::scope::{Fields, Request, ScopeTemplate};
use super::stream::Stream;
use crate::base::connections::Connections;
use crate::base::ffi::call::copy_context;
use crate::base::ffi::refcount::{is_held_by, is_known_to};
use crate::base::ffi::thread_bound::bury;
use crate::base::reuse::{SpareObject, Stats, Stock};
use crate::base::task::{EagerCall, Keywords, Reentrance, Start, is_empty};

/// As many as applications that run inside one another, which are few.
const MAX_SPARE_CYCLES: usize = 8;

/// What makes exchanges, and starts their applications.
pub(crate) struct Runner {
    pub(crate) host: Rc<Host>,
    scope: ScopeTemplate,
    /// Cycles whose application ended in its first turn and kept nothing of them: they serve the next requests.
    spare_cycles: Stock<Served>,
    eager_call: EagerCall,
    reentrance: Reentrance,
    new_context: Py<PyAny>,
    /// `utils.run_asgi`
    run_asgi: Py<PyAny>,
    /// The set of live connections.
    connections: Connections,
    pub(crate) app: Py<PyAny>,
    /// What is behind the proxy headers middleware, which does nothing for a request without such headers.
    direct_app: Option<Py<PyAny>>,
    unavailable_app: Py<PyAny>,
}

/// Who answers what comes above the limit of concurrency.
fn unavailable_app<'py>(config: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let configured = config.getattr("unavailable_app")?;
    if configured.is_none() {
        config.py().import("uvicorn.protocols.http.flow_control")?.getattr("service_unavailable")
    } else {
        Ok(configured)
    }
}

impl Runner {
    pub(crate) fn new(host: Rc<Host>, config: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = config.py();
        let app = config.getattr("loaded_app")?;
        let middleware = py.import("uvicorn.middleware.proxy_headers")?.getattr("ProxyHeadersMiddleware")?;
        let direct_app = if app.get_type().is(&middleware) { Some(app.getattr("app")?.unbind()) } else { None };
        let task_class = py.import("asyncio")?.getattr("Task")?.cast_into::<PyType>()?;
        let poison = host.settings.poison;
        let event_loop = host.event_loop.bind(py);
        Ok(Self {
            scope: ScopeTemplate::new(config, &host.settings, &host.names)?,
            spare_cycles: Stock::new(MAX_SPARE_CYCLES, poison),
            eager_call: EagerCall::new(&task_class, event_loop, &host.names, poison)?,
            reentrance: Reentrance::of(event_loop)?,
            new_context: py.import("contextvars")?.getattr("Context")?.unbind(),
            run_asgi: py.import("uvicorn.protocols.utils")?.getattr("run_asgi")?.unbind(),
            connections: Connections::new(&host.state.bind(py).getattr("connections")?)?,
            app: app.unbind(),
            direct_app,
            unavailable_app: unavailable_app(config)?.unbind(),
            host,
        })
    }

    /// The exchange of `request`, with its scope.
    pub(crate) fn begin(
        &self,
        py: Python<'_>,
        request: &Request<'_, impl Fields>,
        peer: Rc<Peer>,
        stream: Rc<dyn Stream>,
    ) -> PyResult<Rc<Exchange>> {
        let (scope, loan) = self.scope.build(py, &self.host.names, request, &peer)?;
        let (more_body, expects_continue) = (request.has_body, request.expects_continue);
        let lent = (scope.unbind(), loan);
        Ok(Rc::new(Exchange::new(self.host.clone(), stream, peer, lent, request.method, more_body, expects_continue)))
    }

    /// The scope of a request to open a WebSocket; see [`ScopeTemplate::websocket`].
    pub(crate) fn websocket_scope<'py>(
        &self,
        target: (&[u8], &[u8]),
        headers: &Bound<'py, PyList>,
        subprotocols: &[&str],
        peer: &Peer,
    ) -> PyResult<Bound<'py, PyDict>> {
        self.scope.websocket(headers.py(), &self.host.names, target, headers, subprotocols, peer)
    }

    /// Who answers a request; `is_forwarded`: it has a field that the proxy headers middleware looks at.
    #[inline]
    pub(crate) fn app_for(&self, py: Python<'_>, is_forwarded: impl FnOnce() -> bool) -> PyResult<Py<PyAny>> {
        let app = match &self.direct_app {
            Some(app) if !is_forwarded() => app,
            _ => &self.app,
        };
        let app = if self.is_over_limit(py)? { &self.unavailable_app } else { app };
        Ok(app.clone_ref(py))
    }

    /// Let go of an exchange that is over.
    #[inline]
    pub(crate) fn retire(&self, py: Python<'_>, exchange: Option<Rc<Exchange>>) {
        if let Some(Ok(exchange)) = exchange.map(Rc::try_unwrap) {
            let (scope, loan) = exchange.into_loan();
            self.scope.give(scope.into_bound(py), loan);
        }
    }

    /// Figures of the cycles that are used again.
    pub(crate) fn stats(&self) -> Stats {
        self.spare_cycles.stats()
    }

    /// Whether an application may take a step inside a callback of the loop: not where another task is at work, of whom the
    /// callback is a part. asyncio would refuse, too, with a text about both tasks that costs more than ten steps.
    #[inline]
    pub(crate) fn may_step(&self, py: Python<'_>) -> PyResult<bool> {
        let host = &self.host;
        let at_work = host.current_task.bind(py).call1((&host.event_loop,))?;
        Ok(at_work.is_none() && !self.reentrance.is_given(host, py)?)
    }

    fn is_over_limit(&self, py: Python<'_>) -> PyResult<bool> {
        let Some(limit) = self.host.settings.limit_concurrency else { return Ok(false) };
        let over = self.connections.len(py)? >= limit || self.host.tasks.bind(py).len()? >= limit;
        if over {
            self.host.warn(py, texts::CONCURRENCY_EXCEEDED)?;
        }
        Ok(over)
    }

    /// Run the application in a task, whose first step happens here if it may be eager.
    pub(crate) fn start(
        self: &Rc<Self>,
        py: Python<'_>,
        conversation: Rc<dyn Conversation>,
        app: Py<PyAny>,
        start: Start,
    ) -> PyResult<()> {
        let host = &self.host;
        bury();
        let spare = self.spare_cycles.take(|served| served.is_forgotten(py));
        let served = spare.map_or_else(|| Served::new(py, &self.host.spare_calls), Ok)?;
        served.prepare(py, conversation, app);
        let started = self.task(py, &served, start);
        if served.cycle.get().is_over() {
            // The task goes first, because it holds cycle and context.
            let keywords = started.map(|(_task, keywords)| keywords);
            // One that somebody holds keeps its conversation, of which `receive()` tells that it is over.
            let is_fit = served.is_forgotten(py);
            self.spare_cycles.give(served, is_fit, |served| served.cycle.get().reset());
            return keywords?.map_or(Ok(()), |keywords| self.eager_call.give(py, keywords, &host.names));
        }
        let cycle = served.cycle.clone_ref(py);
        // It is left to its task.
        self.spare_cycles.give(served, false, |_| {});
        let (task, keywords) = started?;
        cycle.get().set_task(task.clone().unbind());
        host.tasks.bind(py).call_method1(&host.names.add, (task,))?;
        keywords.map_or(Ok(()), |keywords| self.eager_call.give(py, keywords, &host.names))
    }

    /// The task of a cycle; one that starts eagerly may be over by now, and comes with what it was called with.
    fn task<'py>(
        &self,
        py: Python<'py>,
        served: &Served,
        start: Start,
    ) -> PyResult<(Bound<'py, PyAny>, Option<Keywords>)> {
        let host = &self.host;
        let names = &host.names;
        let reset = host.settings.reset_contextvars;
        let base = host.context.bind(py);
        let context = || if reset { self.new_context.bind(py).call0() } else { copy_context(base) };
        if start == Start::Eagerly && !self.reentrance.is_given(host, py)? {
            let keywords = self.eager_call.take(py, names, reset || is_empty(base), context)?;
            let task = self.eager_call.start(served.arguments.bind(py), &keywords)?;
            return Ok((task, Some(keywords)));
        }
        let event_loop = host.event_loop.bind(py);
        let cycle = served.cycle.bind(py).as_any();
        let coroutine = match start {
            Start::Inspectably => {
                let coroutine = self.run_asgi.bind(py).call1((cycle,))?;
                coroutine.setattr("__qualname__", cycle.getattr("__qualname__")?)?;
                coroutine
            }
            Start::Eagerly | Start::Later => cycle.clone(),
        };
        let task = if host.task_context && start == Start::Later {
            let keywords = PyDict::new(py);
            keywords.set_item(&names.context, context()?)?;
            event_loop.call_method(&names.create_task, (coroutine,), Some(&keywords))
        } else {
            // Before 3.11 a task always copies the current context; a factory or a double need not know the keyword.
            context()?.call_method1(&names.run, (event_loop.getattr(&names.create_task)?, coroutine))
        };
        Ok((task?, None))
    }
}

/// A cycle with the two callables that its application gets.
struct Served {
    cycle: Py<RequestResponseCycle>,
    receive: Py<Callable>,
    send: Py<Callable>,
    /// `(cycle,)`, what its task is called with.
    arguments: Py<PyTuple>,
}

impl Served {
    fn new(py: Python<'_>, spare_calls: &Rc<SpareObject>) -> PyResult<Self> {
        let cycle = Bound::new(py, RequestResponseCycle::new(spare_calls.clone()))?;
        let receive = Py::new(py, Callable::new(&cycle, Function::Receive))?;
        let send = Py::new(py, Callable::new(&cycle, Function::Send))?;
        let arguments = PyTuple::new(py, [&cycle])?.unbind();
        Ok(Self { cycle: cycle.unbind(), receive, send, arguments })
    }

    /// Have it run `app` for `conversation`.
    #[inline]
    fn prepare(&self, py: Python<'_>, conversation: Rc<dyn Conversation>, app: Py<PyAny>) {
        let receive = self.receive.clone_ref(py).into_any();
        let send = self.send.clone_ref(py).into_any();
        self.cycle.get().prepare(conversation, cycle::Start { app, receive, send });
    }

    /// Whether it is as it was made, and nobody else holds anything of it.
    #[inline]
    fn is_forgotten(&self, py: Python<'_>) -> bool {
        // The cycle is held by itself, its callables and the arguments of its task.
        is_known_to(self.cycle.bind(py), 4)
            && is_held_by(self.arguments.bind(py), 1)
            && [&self.receive, &self.send].into_iter().all(|callable| is_known_to(callable.bind(py), 1))
    }
}
