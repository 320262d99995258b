//! From a request to its application: the scope, the exchange and the task, for the connections of one event loop.

use std::rc::Rc;
use std::time::Instant;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use wire::texts;

use super::awaitable::Callable;
use super::conversation::{Conversation, Function};
use super::cycle::{self, RequestResponseCycle};
use super::exchange::{Client, Exchange, Inflow, State};
use super::gate::{Decision, Gate, TicketHolder, Waiting};
use super::host::Host;
use super::mounts::Mounts;
use super::peer::Peer;
use super::scope::{Fields, Lent, Request, ScopeTemplate};
use super::stream::Stream;
use super::tracing::Api;
use crate::base::ffi::call::copy_context;
use crate::base::ffi::refcount::{is_held_by, is_known_to};
use crate::base::ffi::thread_bound::bury;
use crate::base::reuse::{SpareObject, Stats, Stock};
use crate::base::task::{EagerCall, Keywords, Reentrance, Start, StepPace, is_empty};

/// Cycles kept: as many as applications that run inside one another, which are few.
const MAX_SPARE_CYCLES: usize = 8;

/// Creates exchanges, and starts their applications.
pub(crate) struct Runner {
    pub(crate) host: Rc<Host>,
    scope: ScopeTemplate,
    /// Cycles whose application ended in its first turn and kept no reference: they serve the next requests.
    spare_cycles: Stock<Served>,
    eager_call: EagerCall,
    /// Without it every task may start eagerly: limits count those that have not, and a place is handed on inside the
    /// end of another request.
    pace: Option<StepPace>,
    reentrance: Reentrance,
    new_context: Py<PyAny>,
    /// `utils.run_asgi` and `utils.end_with`
    run_asgi: Py<PyAny>,
    end_with: Py<PyAny>,
    pub(crate) app: Py<PyAny>,
    /// The application behind the proxy headers middleware, which does nothing for a request without such headers.
    direct_app: Option<Py<PyAny>>,
    unavailable_app: Py<PyAny>,
    /// The files that the server answers with itself.
    mounts: Option<Box<Mounts>>,
    /// Admits requests, if `limit_active_requests` is set.
    pub(crate) gate: Option<Gate>,
}

/// The properties of a request's head that decide which application answers.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    /// It has no field that the proxy headers middleware looks at.
    is_direct: bool,
    /// Its path may be that of a file which the server answers with.
    may_be_mounted: bool,
}

/// The application that answers requests above the limit of concurrency.
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
        let direct_app = py.import("uvicorn.middleware.proxy_headers")?.call_method1("app_without_fields", (&app,))?;
        let reuse = host.settings.reuse;
        let event_loop = host.event_loop.bind(py);
        let gate = Gate::of_state(host.state.bind(py), config, event_loop)?;
        let is_limited = gate.is_some() || host.settings.limit_concurrency.is_some();
        Ok(Self {
            pace: (!is_limited).then(|| StepPace::new(&host.settings)),
            scope: ScopeTemplate::new(config, &host.settings, &host.names, host.tracing.is_some())?,
            spare_cycles: Stock::new(MAX_SPARE_CYCLES, reuse),
            eager_call: EagerCall::new(host.task_class.bind(py), event_loop, &host.names, reuse)?,
            reentrance: Reentrance::of(event_loop)?,
            new_context: py.import("contextvars")?.getattr("Context")?.unbind(),
            run_asgi: py.import("uvicorn.protocols.utils")?.getattr("run_asgi")?.unbind(),
            end_with: py.import("uvicorn.protocols.utils")?.getattr("end_with")?.unbind(),
            gate,
            app: host.wrapped(app)?,
            direct_app: if direct_app.is_none() { None } else { Some(host.wrapped(direct_app)?) },
            unavailable_app: unavailable_app(config)?.unbind(),
            mounts: Mounts::of_config(config)?.map(Box::new),
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
        let Host { identity, tracing, .. } = &*self.host;
        let lent = self.scope.build(py, &self.host.names, request, &peer, identity.as_ref(), tracing.as_deref())?;
        let body = Inflow::new(request.has_body, request.expects_continue);
        Ok(Rc::new(Exchange::new(py, self.host.clone(), stream, peer, lent, request.method, body)))
    }

    /// The scope of a request to open a WebSocket, see [`ScopeTemplate::websocket`]; and its id, if it has one.
    pub(crate) fn websocket_scope<'py>(
        &self,
        target: (&[u8], &[u8]),
        headers: &Bound<'py, PyList>,
        subprotocols: &[&str],
        peer: &Peer,
    ) -> PyResult<(Bound<'py, PyDict>, Option<Bound<'py, PyString>>)> {
        let py = headers.py();
        let names = &self.host.names;
        let scope = self.scope.websocket(py, names, target, headers, subprotocols, peer)?;
        let Some(identity) = &self.host.identity else { return Ok((scope, None)) };
        let id = identity.of(py, peer, Some(headers.as_any()), || true, &mut None)?;
        scope.set_item(&names.request_id, &id)?;
        Ok((scope, Some(id)))
    }

    /// Check a request's head for `path` to choose the application; `is_forwarded`: it has a field that the proxy
    /// headers middleware looks at.
    #[inline]
    pub(crate) fn look(&self, path: &[u8], is_forwarded: impl FnOnce() -> bool) -> Look {
        Look {
            is_direct: self.direct_app.is_some() && !is_forwarded(),
            may_be_mounted: self.mounts.as_ref().is_some_and(|mounts| mounts.may_have(path)),
        }
    }

    /// Choose who answers a request, now that it is its turn: to find the server's own answer is work.
    #[inline]
    pub(crate) fn app_for(&self, py: Python<'_>, exchange: &Exchange, look: Look) -> PyResult<Py<PyAny>> {
        if look.may_be_mounted || self.host.settings.limit_concurrency.is_some() {
            return self.app_by_rules(py, exchange, look);
        }
        Ok(self.application(look).clone_ref(py))
    }

    /// The application, or the one behind the proxy headers middleware.
    #[inline]
    fn application(&self, look: Look) -> &Py<PyAny> {
        self.direct_app.as_ref().filter(|_| look.is_direct).unwrap_or(&self.app)
    }

    /// The server's own answer, if it has one.
    #[cold]
    fn app_by_rules(&self, py: Python<'_>, exchange: &Exchange, look: Look) -> PyResult<Py<PyAny>> {
        if self.is_over_limit(py)? {
            return Ok(self.unavailable_app.clone_ref(py));
        }
        if look.may_be_mounted
            && let Some(mounts) = &self.mounts
            && let Some(answer) = mounts.answer(exchange.scope.bind(py), !look.is_direct)?
        {
            return Ok(answer);
        }
        Ok(self.application(look).clone_ref(py))
    }

    /// Have a request answered: at once, if that is the server's own complete answer, and its turn has come (`eager`);
    /// otherwise in a task, when there is room for it.
    #[inline]
    pub(crate) fn serve(
        self: &Rc<Self>,
        py: Python<'_>,
        exchange: Rc<Exchange>,
        app: Py<PyAny>,
        start: Start,
        eager: bool,
    ) -> PyResult<()> {
        let start = if start == Start::Eagerly && !eager { Start::Later } else { start };
        if self.mounts.is_none() && self.gate.is_none() {
            return self.start(py, exchange, app, start);
        }
        self.serve_by_rules(py, exchange, app, start, eager)
    }

    /// The same, if not every request goes to the application at once.
    #[cold]
    fn serve_by_rules(
        self: &Rc<Self>,
        py: Python<'_>,
        exchange: Rc<Exchange>,
        app: Py<PyAny>,
        start: Start,
        eager: bool,
    ) -> PyResult<()> {
        if let Some(mounts) = &self.mounts
            && eager
            && exchange.stream.capacity().takes_more(false)
            && let Some((status, headers, body)) = mounts.whole(app.bind(py))?
        {
            return exchange.guard(py, "send", || exchange.answer(status, &headers, &body));
        }
        match &self.gate {
            Some(gate) if !self.is_its_own(py, &app) => self.ask(py, gate, exchange, app, start),
            _ => self.start(py, exchange, app, start),
        }
    }

    /// The server has ended.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.mounts.as_ref().map_or(Ok(()), |mounts| mounts.close(py))
    }

    /// Let go of an exchange that is over.
    #[inline]
    pub(crate) fn retire(&self, py: Python<'_>, exchange: Option<Rc<Exchange>>) {
        if let Some(Ok(exchange)) = exchange.map(Rc::try_unwrap) {
            let Lent { scope, loan, id, .. } = exchange.into_lent();
            drop(id.map(|id| id.into_bound(py)));
            self.scope.give(scope.into_bound(py), loan);
        }
    }

    /// Tell an exchange that its client is gone, and let go of it.
    pub(crate) fn part(&self, py: Python<'_>, exchange: Option<Rc<Exchange>>) -> PyResult<()> {
        let told = exchange.as_ref().map_or(Ok(()), |exchange| exchange.leave(py, false));
        self.retire(py, exchange);
        told
    }

    /// Figures of the pool of cycles.
    pub(crate) fn stats(&self) -> Stats {
        self.spare_cycles.stats()
    }

    /// Whether an application may take a step inside a callback of the loop: not while another task runs that callback.
    /// asyncio would refuse, too, with a text about both tasks that costs more than ten steps.
    #[inline]
    pub(crate) fn may_step(&self, py: Python<'_>) -> PyResult<bool> {
        let host = &self.host;
        let at_work = host.current_task.bind(py).call1((&host.event_loop,))?;
        Ok(at_work.is_none() && !self.reentrance.is_given(host, py)?)
    }

    /// Whether [`app_for`](Self::app_for) found no room for the request.
    #[inline]
    pub(crate) fn turns_away(&self, app: &Py<PyAny>) -> bool {
        app.is(&self.unavailable_app)
    }

    fn is_over_limit(&self, py: Python<'_>) -> PyResult<bool> {
        let Some(limit) = self.host.settings.limit_concurrency else { return Ok(false) };
        let over = self.host.state.bind(py).call_method1(intern!(py, "is_full"), (limit,))?.is_truthy()?;
        if over {
            self.host.warn(py, texts::CONCURRENCY_EXCEEDED)?;
        }
        Ok(over)
    }

    #[cold]
    fn ask(
        self: &Rc<Self>,
        py: Python<'_>,
        gate: &Gate,
        exchange: Rc<Exchange>,
        app: Py<PyAny>,
        start: Start,
    ) -> PyResult<()> {
        // Once all input was read, so that their number is known.
        let later = start.later();
        match gate.enter(exchange.scope.bind(py), exchange.client.get() == Client::Here)? {
            Decision::Uncounted => self.start(py, exchange, app, start),
            Decision::Refused => self.refuse(py, &exchange, later),
            Decision::Admitted(ticket) => {
                exchange.take_ticket(ticket);
                self.start(py, exchange, app, later)
            }
            Decision::Waits(ticket) => {
                let waiting = Later { runner: self.clone(), exchange: exchange.clone(), app, start };
                ticket.hold(&Bound::new(py, TicketHolder::new(waiting))?)?;
                exchange.take_ticket(ticket);
                Ok(())
            }
        }
    }

    /// Whether the server answers instead of an application.
    fn is_its_own(&self, py: Python<'_>, app: &Py<PyAny>) -> bool {
        self.turns_away(app) || self.mounts.as_ref().is_some_and(|mounts| mounts.has_made(app.bind(py)))
    }

    /// Answer a request for which there is no room, if that is still possible: once its client has read all output, so
    /// that refusals do not pile up.
    fn refuse(self: &Rc<Self>, py: Python<'_>, exchange: &Rc<Exchange>, later: Start) -> PyResult<()> {
        let Some(gate) = &self.gate else { return Ok(()) };
        if exchange.state() != State::Idle || exchange.is_disconnected() {
            return Ok(());
        }
        if exchange.stream.capacity().takes_more(false) {
            return exchange.refuse(py, gate);
        }
        self.start(py, exchange.clone(), gate.refuse.clone_ref(py), later)
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
        let (start, begun) = self.paced(py, start)?;
        bury();
        let spare = self.spare_cycles.take(|served| served.is_forgotten(py));
        let served = spare.map_or_else(|| Served::new(py, &self.host.spare_calls), Ok)?;
        served.prepare(py, conversation, app);
        let started = self.task(py, &served, start);
        if let (Some(pace), Some(begun)) = (&self.pace, begun) {
            pace.end(begun);
        }
        if served.cycle.get().is_over() {
            // The task goes first, because it holds cycle and context.
            let keywords = started.map(|(_task, keywords)| keywords);
            // A cycle that a program holds keeps its conversation, whose `receive()` reports the end.
            let is_fit = served.is_forgotten(py);
            self.spare_cycles.give(served, is_fit, |served| served.cycle.get().reset());
            return keywords?.map_or(Ok(()), |keywords| self.give(py, keywords));
        }
        let cycle = served.cycle.clone_ref(py);
        // It is left to its task.
        self.spare_cycles.give(served, false, |_| {});
        let (task, keywords) = started?;
        cycle.get().set_task(task.clone().unbind());
        host.tasks.bind(py).call_method1(&host.names.add, (&task,))?;
        if start == Start::Inspectably && host.is_real {
            let end = self.end_with.bind(py).call1((&cycle,))?;
            task.call_method1("add_done_callback", (end,))?;
        }
        keywords.map_or(Ok(()), |keywords| self.give(py, keywords))
    }

    /// How a task starts by the pace of those before it; and when it begins, if its first step is to be measured.
    #[inline]
    fn paced(&self, py: Python<'_>, start: Start) -> PyResult<(Start, Option<Instant>)> {
        let Some(pace) = self.pace.as_ref().filter(|_| start == Start::Eagerly) else { return Ok((start, None)) };
        match pace.next() {
            (true, begun) => Ok((start, begun)),
            // The loop may have got a task factory since the connection was made.
            (false, _) => Ok((Start::of(&self.host, py)?.later(), None)),
        }
    }

    /// Take back the keywords of a task's start.
    #[inline]
    fn give(&self, py: Python<'_>, keywords: Keywords) -> PyResult<()> {
        if let Some(span) = self.eager_call.give(py, keywords, &self.host.names)?
            && let Some(api) = self.api()
        {
            api.keep(span);
        }
        Ok(())
    }

    /// What makes the spans of requests the current ones of their contexts.
    #[inline]
    fn api(&self) -> Option<&Api> {
        self.host.tracing.as_ref().and_then(|tracing| tracing.api.as_ref())
    }

    /// The task of a cycle; one that starts eagerly may be over by now, and returns its arguments.
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
        let api = self.api();
        let trace = if api.is_some() { served.cycle.get().conversation()?.trace(py)? } else { None };
        let context = || {
            let context = if reset { self.new_context.bind(py).call0() } else { copy_context(base) }?;
            let span = match (api, &trace) {
                (Some(api), Some(trace)) => api.enter(&context, trace)?,
                _ => None,
            };
            Ok((context, span))
        };
        if start == Start::Eagerly && !self.reentrance.is_given(host, py)? {
            let keywords = self.eager_call.take(py, names, reset || is_empty(base), trace.as_ref(), context)?;
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
        let (context, span) = context()?;
        if let (Some(api), Some(span)) = (api, span) {
            api.keep(span);
        }
        let task = if host.task_context && start == Start::Later {
            let keywords = PyDict::new(py);
            keywords.set_item(&names.context, context)?;
            event_loop.call_method(&names.create_task, (coroutine,), Some(&keywords))
        } else {
            // Before 3.11 a task always copies the current context; a factory or a double need not know the keyword.
            context.call_method1(&names.run, (event_loop.getattr(&names.create_task)?, coroutine))
        };
        Ok((task?, None))
    }
}

/// A request that is served once there is room for it.
struct Later {
    runner: Rc<Runner>,
    exchange: Rc<Exchange>,
    app: Py<PyAny>,
    start: Start,
}

impl Waiting for Later {
    fn admit(&self, py: Python<'_>, eagerly: bool) -> PyResult<()> {
        let Self { runner, exchange, app, start } = self;
        let start = if eagerly { *start } else { start.later() };
        exchange.guard(py, "admit", || runner.start(py, exchange.clone(), app.clone_ref(py), start))
    }

    fn refuse(&self, py: Python<'_>) -> PyResult<()> {
        self.exchange.guard(py, "refuse", || self.runner.refuse(py, &self.exchange, self.start.later()))
    }

    /// Do nothing: it has no application yet.
    fn evict(&self, _py: Python<'_>) -> PyResult<()> {
        Ok(())
    }
}

/// A cycle with the two callables that its application gets.
struct Served {
    cycle: Py<RequestResponseCycle>,
    receive: Py<Callable>,
    send: Py<Callable>,
    /// `(cycle,)`, the arguments of its task.
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

    /// Prepare it to run `app` for `conversation`.
    #[inline]
    fn prepare(&self, py: Python<'_>, conversation: Rc<dyn Conversation>, app: Py<PyAny>) {
        let receive = self.receive.clone_ref(py).into_any();
        let send = self.send.clone_ref(py).into_any();
        self.cycle.get().prepare(conversation, cycle::Start { app, receive, send });
    }

    /// Whether it is unchanged, and no other object refers to any part of it.
    #[inline]
    fn is_forgotten(&self, py: Python<'_>) -> bool {
        // The cycle is held by itself, its callables and the arguments of its task.
        is_known_to(self.cycle.bind(py), 4)
            && is_held_by(self.arguments.bind(py), 1)
            && [&self.receive, &self.send].into_iter().all(|callable| is_known_to(callable.bind(py), 1))
    }
}
