//! The span of a request, with the setting `otel_endpoint`: the fast path of `uvicorn.tracing.tracer.Tracer` for HTTP.
//! `WebSocket`s use that itself.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use chacha20::ChaCha12Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use wire::method::Method;
use wire::otlp::{OTHER, ServerSpan, authority};
use wire::trace_context::{self, SAMPLED, TraceParent};

use super::loan::{Loan, ScopeField};
use crate::base::course::nanoseconds;
use crate::base::current_span::{CurrentSpan, Trace};
use crate::base::ffi::call::in_context;
use crate::base::ffi::text::{OwnText, ascii};
use crate::base::home::Home;
use crate::base::metrics::Metrics;
use crate::base::names::Names;
use crate::base::reuse::Reuse;
use crate::base::settings::Settings;
use crate::base::shortcuts::Shortcut;

const TRACEPARENT: &[u8] = b"traceparent";
const TRACESTATE: &[u8] = b"tracestate";
const HOST: &[u8] = b"host";
const USER_AGENT: &[u8] = b"user-agent";
/// References to an unused `traceparent` that is in a scope: the scope, its `Loan`, and the caller who may overwrite it.
const HOLDERS: isize = 3;

/// The tracer of one event loop, if requests are traced.
pub(crate) struct Tracing {
    /// The `Tracer` of Python.
    python: Py<PyAny>,
    /// Encoded spans that wait for the exporter.
    spans: Py<PyList>,
    most_pending: usize,
    batch: usize,
    /// If OpenTelemetry's API is in this process.
    pub(super) api: Option<Api>,
    route_of: Py<PyAny>,
    follows_parent: bool,
    /// A request without a parent is sampled if the low 64 bits of its trace id are below.
    bound: u128,
    has_query: bool,
    /// Knows how long the connection has waited that is being served.
    metrics: Metrics,
    random: RefCell<Ids>,
    /// Where a span is encoded: no borrow is held meanwhile.
    scratch: Cell<Vec<u8>>,
}

/// Ids at random, of traces and spans.
struct Ids {
    random: ChaCha12Rng,
    made: [[u8; 24]; 64],
    used: usize,
}

impl Ids {
    fn new(random: ChaCha12Rng) -> Self {
        Self { random, made: [[0; 24]; 64], used: usize::MAX }
    }

    /// Of a trace and a span.
    #[inline]
    fn next(&mut self) -> ([u8; 16], [u8; 8]) {
        if self.used >= self.made.len() {
            self.random.fill_bytes(self.made.as_flattened_mut());
            self.used = 0;
        }
        let made = self.made.get(self.used).and_then(|made| made.split_first_chunk::<16>());
        self.used += 1;
        let (trace, id) = made.unwrap_or((&[1; 16], &[1; 8]));
        (*trace, id.first_chunk().copied().unwrap_or([1; 8]))
    }
}

/// Contexts of requests that wait for their end, at most: their spans serve others then.
const MAX_KEPT: usize = 64;

/// What makes a span the current one of a context: a `Current` of Python.
pub(super) struct Api {
    attach: Py<PyAny>,
    context_class: Py<PyAny>,
    key: Py<PyAny>,
    span_class: Py<PyAny>,
    /// That `attach` sets, if it does nothing else, and the shortcut `spans` is taken.
    variable: Option<Py<PyAny>>,
    reuse: Reuse,
    /// Those that may be free by now, the oldest first.
    kept: RefCell<VecDeque<CurrentSpan>>,
}

/// The span of a request that is sampled.
pub(crate) struct RequestSpan {
    trace: [u8; 16],
    id: [u8; 8],
    parent: Option<[u8; 8]>,
    state: Option<Py<PyString>>,
    flags: u8,
    method: Method,
    /// In nanoseconds since the epoch, and by a clock that is never set back.
    begin: u64,
    since: Instant,
    called: Cell<u64>,
    first_byte: Cell<u64>,
    status: Cell<u16>,
    error: RefCell<Option<String>>,
    has_ended: Cell<bool>,
}

/// What the scope of a request has of its trace, and the span, if the request is sampled.
pub(super) struct Begun<'py> {
    pub(super) traceparent: Bound<'py, PyString>,
    pub(super) tracestate: Option<Bound<'py, PyString>>,
    pub(super) span: Option<Box<RequestSpan>>,
}

impl Tracing {
    /// That of a `ServerState`, if it traces.
    pub(super) fn of_state(state: &Bound<'_, PyAny>, home: &Home) -> PyResult<Option<Self>> {
        let py = state.py();
        let Some(python) = state.getattr_opt("tracer")?.filter(|tracer| !tracer.is_none()) else { return Ok(None) };
        let seed = py.import("os")?.call_method1("urandom", (size_of::<<ChaCha12Rng as SeedableRng>::Seed>(),))?;
        let current = python.getattr("current")?;
        let api = if current.is_none() { None } else { Some(Api::of(&current, &home.settings)?) };
        Ok(Some(Self {
            spans: python.getattr("spans")?.cast_into()?.unbind(),
            most_pending: python.getattr("most_pending")?.extract()?,
            batch: python.getattr("batch")?.extract()?,
            api,
            route_of: python.getattr("route_of")?.unbind(),
            follows_parent: python.getattr("follows_parent")?.extract()?,
            bound: python.getattr("bound")?.extract()?,
            has_query: python.getattr("has_query")?.extract()?,
            metrics: Metrics::new(&python.getattr("page")?.getattr("words")?)?,
            random: RefCell::new(Ids::new(ChaCha12Rng::from_seed(seed.cast::<PyBytes>()?.as_bytes().try_into()?))),
            scratch: Cell::default(),
            python: python.unbind(),
        }))
    }

    /// Begin the span of a request; `headers` are given if one of them may name its parent. The text is put into `last`,
    /// which holds that of the previous request if it is still in the scope.
    pub(super) fn begin<'py>(
        &self,
        py: Python<'py>,
        method: Method,
        headers: Option<&Bound<'py, PyAny>>,
        last: &mut Option<OwnText>,
    ) -> PyResult<Begun<'py>> {
        let (made, id) = self.random.borrow_mut().next();
        let (parent, tracestate) = headers.map_or((None, None), named_parent);
        let trace = parent.map_or(made, |parent| parent.trace);
        let flags = self.flags(&trace, parent);
        let text = trace_context::format(&trace, &id, flags);
        let traceparent = match last {
            Some(last) if last.rewrite(py, HOLDERS, &text) => last.get(py),
            _ => last.insert(OwnText::new(py, &text)?).get(py),
        };
        let span = (flags & SAMPLED != 0).then(|| {
            let waited = self.metrics.read_delay();
            let (wall, now) = (SystemTime::now(), Instant::now());
            Box::new(RequestSpan {
                trace,
                id,
                parent: parent.map(|parent| parent.span),
                state: tracestate.as_ref().map(|state| state.clone().unbind()),
                flags,
                method,
                begin: nanoseconds(wall.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(waited)),
                since: now.checked_sub(waited).unwrap_or(now),
                called: Cell::new(0),
                first_byte: Cell::new(0),
                status: Cell::new(0),
                error: RefCell::new(None),
                has_ended: Cell::new(false),
            })
        });
        Ok(Begun { traceparent, tracestate, span })
    }

    #[inline]
    fn flags(&self, trace: &[u8; 16], parent: Option<TraceParent>) -> u8 {
        match parent {
            Some(parent) if self.follows_parent => parent.flags,
            _ => {
                let low = trace.last_chunk().map_or(0, |low| u64::from_be_bytes(*low));
                let is_sampled = u128::from(low) < self.bound;
                parent.map_or(0, |parent| parent.flags & !SAMPLED) | if is_sampled { SAMPLED } else { 0 }
            }
        }
    }

    /// The `ServerSpan` of a WebSocket with this scope, if it is sampled.
    pub(crate) fn begin_session(&self, scope: &Bound<'_, PyDict>) -> PyResult<Option<Py<PyAny>>> {
        let span = self.python.bind(scope.py()).call_method1("begin_session", (scope,))?;
        Ok((!span.is_none()).then(|| span.unbind()))
    }

    /// A request has ended: buffer its span.
    pub(super) fn end(
        &self,
        span: &RequestSpan,
        scope: &Bound<'_, PyDict>,
        loan: &Loan,
        names: &Names,
    ) -> PyResult<()> {
        let (py, end) = (scope.py(), span.now());
        let spans = self.spans.bind(py);
        if spans.len() >= self.most_pending {
            return self.python.bind(py).call_method0("overflow").map(drop);
        }
        let route = self.route(scope)?;
        let [mut host, mut user_agent] = [const { None }; 2];
        if let Some(headers) = loan.value(py, ScopeField::Headers) {
            each_field(headers, |name, value| match name.as_bytes() {
                HOST => host = Some(value),
                USER_AGENT => user_agent = Some(value),
                _ => {}
            });
        }
        let own = |place| loan.value(py, place);
        let (scheme, client) = (scope.get_item(&names.scheme)?, scope.get_item(&names.client)?);
        let status = span.status.get();
        let mut number = itoa::Buffer::new();
        let error = span.error.borrow();
        let mut scratch = self.scratch.take();
        let encoded = ServerSpan {
            trace: span.trace,
            span: span.id,
            parent: span.parent,
            state: span.state.as_ref().map_or(b"", |state| state.bind(py).to_str().unwrap_or_default().as_bytes()),
            flags: span.flags,
            begin: span.begin,
            called: span.called.get(),
            first_byte: span.first_byte.get(),
            end,
            method: span.method,
            method_text: bytes_of(own(ScopeField::Method)),
            scheme: bytes_of(scheme.as_ref()),
            route: bytes_of(route.as_ref()),
            status,
            version: bytes_of(own(ScopeField::HttpVersion)),
            host: match &host {
                Some(host) if !host.as_bytes().is_empty() => authority(host.as_bytes()),
                _ => address(own(ScopeField::Server)),
            },
            path: bytes_of(own(ScopeField::RawPath)),
            query: if self.has_query { bytes_of(own(ScopeField::QueryString)) } else { b"" },
            client: {
                let (host, port) = address(client.as_ref());
                (host, port.unwrap_or_default())
            },
            user_agent: user_agent.as_ref().map_or(b"", |value| value.as_bytes()),
            error: match &*error {
                Some(error) => error.as_bytes(),
                None if status >= 500 => number.format(status).as_bytes(),
                None => b"",
            },
        }
        .encode(&mut scratch);
        let encoded = PyBytes::new(py, encoded);
        self.scratch.set(scratch);
        spans.append(encoded)?;
        if spans.len() == self.batch {
            self.python.bind(py).call_method0("wake")?;
        }
        Ok(())
    }

    /// The route that the application has matched, if it has left any trace of it.
    fn route<'py>(&self, scope: &Bound<'py, PyDict>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = scope.py();
        for name in [intern!(py, "route"), intern!(py, "endpoint"), intern!(py, "path_template")] {
            if scope.contains(name)? {
                return self.route_of.bind(py).call1((scope,)).map(Some);
            }
        }
        Ok(None)
    }
}

impl Api {
    fn of(current: &Bound<'_, PyAny>, settings: &Settings) -> PyResult<Self> {
        let part = |name| current.getattr(name).map(Bound::unbind);
        let takes = settings.shortcuts.take(Shortcut::Spans) && settings.reuse != Reuse::Off;
        let variable = current.getattr("variable")?;
        Ok(Self {
            attach: part("attach")?,
            context_class: part("context_class")?,
            key: part("key")?,
            span_class: part("span_class")?,
            variable: (takes && !variable.is_none()).then(|| variable.unbind()),
            reuse: settings.reuse,
            kept: RefCell::default(),
        })
    }

    /// Make the server's span the current one in the `context` of a request or WebSocket. Returns it, if it can be that
    /// of another one afterwards.
    #[inline(never)]
    pub(super) fn enter(&self, context: &Bound<'_, PyAny>, trace: &Trace<'_>) -> PyResult<Option<CurrentSpan>> {
        let py = context.py();
        let attach = |value: &Bound<'_, PyAny>| in_context(context, || self.attach.bind(py).call1((value,)).map(drop))?;
        let kept = self.kept.borrow_mut().pop_front();
        match kept {
            Some(kept) if kept.is_free(py) && self.reuse == Reuse::Poison => kept.poison(),
            Some(kept) if kept.is_free(py) => {
                kept.fill(trace)?;
                attach(kept.value(py))?;
                return Ok(Some(kept));
            }
            Some(kept) if !kept.is_watched(py) => self.keep(kept),
            _ => {}
        }
        let (traceparent, tracestate) = trace;
        let span = self.span_class.bind(py).call1((traceparent, tracestate))?;
        let content = PyDict::new(py);
        content.set_item(&self.key, &span)?;
        let value = self.context_class.bind(py).call1((content,))?;
        attach(&value)?;
        let Some(variable) = &self.variable else { return Ok(None) };
        Ok(CurrentSpan::new(variable.bind(py), self.key.bind(py), &value, &span))
    }

    /// Keep a span whose request may last longer.
    pub(super) fn keep(&self, span: CurrentSpan) {
        let mut kept = self.kept.borrow_mut();
        kept.push_back(span);
        let oldest = if kept.len() > MAX_KEPT { kept.pop_front() } else { None };
        drop(kept);
        drop(oldest);
    }
}

impl RequestSpan {
    fn now(&self) -> u64 {
        self.begin.saturating_add(nanoseconds(self.since.elapsed()))
    }

    /// The application is called now.
    #[inline]
    pub(super) fn call(&self) {
        self.called.set(self.now());
    }

    /// The response has begun.
    #[inline]
    pub(super) fn respond(&self, status: u16) {
        self.status.set(status);
    }

    /// Bytes of the response leave.
    #[inline]
    pub(super) fn send(&self) {
        if self.first_byte.get() == 0 {
            self.first_byte.set(self.now());
        }
    }

    /// The application has raised this, or returned without a whole response.
    #[cold]
    pub(super) fn fail(&self, py: Python<'_>, error: Option<&PyErr>) {
        let name = error.and_then(|error| error.get_type(py).fully_qualified_name().ok());
        let name = name.map_or_else(|| OTHER.to_owned(), |name| name.to_string_lossy().into_owned());
        self.error.replace(Some(name));
    }

    /// Whether this is the first call: the span ends once.
    pub(super) fn ends(&self) -> bool {
        !self.has_ended.replace(true)
    }
}

/// Use each field of a scope that is a pair of byte strings.
fn each_field<'py>(headers: &Bound<'py, PyAny>, mut with: impl FnMut(&Bound<'py, PyBytes>, Bound<'py, PyBytes>)) {
    let Ok(headers) = headers.cast_exact::<PyList>() else { return };
    for header in headers.iter() {
        let Ok(header) = header.cast_exact::<PyTuple>() else { continue };
        if let [name, value] = header.as_slice()
            && let (Ok(name), Ok(value)) = (name.cast_exact::<PyBytes>(), value.cast_exact::<PyBytes>())
        {
            with(name, value.clone());
        }
    }
}

/// The parent that headers name, and the `tracestate` to pass on.
#[cold]
fn named_parent<'py>(headers: &Bound<'py, PyAny>) -> (Option<TraceParent>, Option<Bound<'py, PyString>>) {
    let (mut parents, mut states) = (Vec::new(), Vec::new());
    each_field(headers, |name, value| match name.as_bytes() {
        TRACEPARENT => parents.push(value),
        TRACESTATE => states.push(value),
        _ => {}
    });
    let [parent] = parents.as_slice() else { return (None, None) };
    let Some(parent) = trace_context::parse(parent.as_bytes()) else { return (None, None) };
    let state = states.iter().map(PyBytesMethods::as_bytes).collect::<Vec<_>>().join(&b","[..]);
    let is_passed_on = !state.is_empty() && trace_context::is_passed_on(&state);
    let state = is_passed_on.then(|| ascii(headers.py(), &state).ok()).flatten();
    (Some(parent), state)
}

/// A text or bytes; empty if it is anything else.
fn bytes_of<'a>(value: Option<&'a Bound<'_, PyAny>>) -> &'a [u8] {
    let Some(value) = value else { return b"" };
    if let Ok(text) = value.cast::<PyString>() {
        return text.to_str().unwrap_or_default().as_bytes();
    }
    value.cast::<PyBytes>().map_or(b"", |bytes| bytes.as_bytes())
}

/// The host and port of an address as scopes have it.
fn address<'a>(value: Option<&'a Bound<'_, PyAny>>) -> (&'a [u8], Option<u16>) {
    let Some(Ok(pair)) = value.map(|value| value.cast::<PyTuple>()) else { return (b"", None) };
    let [host, port] = pair.as_slice() else { return (b"", None) };
    (bytes_of(Some(host)), port.extract().ok())
}

/// Encode a span for the implementations in Python: see `uvicorn/tracing/otlp.py`.
#[pyfunction]
#[expect(
    clippy::too_many_arguments,
    clippy::type_complexity,
    clippy::needless_pass_by_value,
    reason = "those of its twin"
)]
#[pyo3(signature = (trace, span, parent, state, flags, times, server, path, query, client, user_agent, error, /))]
pub(crate) fn encode_span<'py>(
    py: Python<'py>,
    trace: &str,
    span: &str,
    parent: &str,
    state: &str,
    flags: u8,
    times: (u64, u64, u64, u64),
    server: (
        Bound<'py, PyString>,
        Bound<'py, PyBytes>,
        Bound<'py, PyBytes>,
        u16,
        Bound<'py, PyBytes>,
        Bound<'py, PyBytes>,
        Option<u16>,
    ),
    path: &[u8],
    query: &[u8],
    client: (Bound<'py, PyBytes>, u16),
    user_agent: &[u8],
    error: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let (begin, called, first_byte, end) = times;
    let (method, scheme, route, status, version, host, port) = &server;
    let method = method.to_str()?;
    let mut scratch = Vec::with_capacity(512);
    let encoded = ServerSpan {
        trace: id_of(trace)?,
        span: id_of(span)?,
        parent: if parent.is_empty() { None } else { Some(id_of(parent)?) },
        state: state.as_bytes(),
        flags,
        begin,
        called,
        first_byte,
        end,
        method: Method::ALL.iter().copied().find(|known| known.as_str() == method).unwrap_or_default(),
        method_text: method.as_bytes(),
        scheme: scheme.as_bytes(),
        route: route.as_bytes(),
        status: *status,
        version: version.as_bytes(),
        host: (host.as_bytes(), *port),
        path,
        query,
        client: (client.0.as_bytes(), client.1),
        user_agent,
        error,
    }
    .encode(&mut scratch);
    Ok(PyBytes::new(py, encoded))
}

fn id_of<const N: usize>(text: &str) -> PyResult<[u8; N]> {
    trace_context::digits(text.as_bytes())
        .filter(|_| text.len() == 2 * N)
        .ok_or_else(|| PyValueError::new_err("an id is hexadecimal"))
}
