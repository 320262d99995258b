//! The server's span as the spans of an application see it: the current one of OpenTelemetry's API in the context of a
//! request. Most applications never look at it, so one serves many requests: the shortcut `spans`.
//!
//! ```text
//! contextvars.Context ──▶ variable of the API: its Context, a dict ──▶ RequestSpan, a SpanFields of the request
//! ```
//!
//! The fields are overwritten for the next request if each object of this chain has no holder but the one before it and
//! the server, no weak references, and no content besides.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::ffi::dict;
use super::ffi::refcount::{is_held_by, is_known_to, is_watched};
use super::ffi::referents::{has_alone, refers_to};
use super::ffi::text::ascii;

/// Bytes of a `traceparent`.
const TRACEPARENT: usize = 55;

/// The fields of a span from which the ids of a span of OpenTelemetry are read when they are asked for.
///
/// A subclass has `_span_context`, which makes an object of them.
#[pyclass(module = "uvicorn._native", frozen, subclass)]
pub(crate) struct SpanFields(Mutex<Fields>);

struct Fields {
    traceparent: [u8; TRACEPARENT],
    tracestate: Option<Py<PyString>>,
    /// Made of these fields.
    context: Option<Py<PyAny>>,
}

#[pymethods]
impl SpanFields {
    #[new]
    fn new(traceparent: &Bound<'_, PyString>, tracestate: Option<&Bound<'_, PyString>>) -> PyResult<Self> {
        let fields = Fields { traceparent: [b'0'; TRACEPARENT], tracestate: None, context: None };
        let new = Self(Mutex::new(fields));
        new.fill(traceparent, tracestate)?;
        Ok(new)
    }

    #[getter]
    fn _context(this: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let py = this.py();
        let (traceparent, tracestate) = {
            let fields = this.get().lock();
            if let Some(context) = &fields.context {
                return Ok(context.clone_ref(py));
            }
            (fields.traceparent, fields.tracestate.as_ref().map(|state| state.clone_ref(py)))
        };
        let text = ascii(py, &traceparent)?;
        let context = this.call_method1("_span_context", (text, tracestate))?.unbind();
        let old = this.get().lock().context.replace(context.clone_ref(py));
        drop(old);
        Ok(context)
    }
}

impl SpanFields {
    // No Python code runs while it is locked.
    fn lock(&self) -> MutexGuard<'_, Fields> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Make it the span of another request.
    #[inline]
    fn fill(&self, traceparent: &Bound<'_, PyString>, tracestate: Option<&Bound<'_, PyString>>) -> PyResult<()> {
        let text = traceparent.to_str()?.as_bytes().try_into()?;
        let state = tracestate.map(|state| state.clone().unbind());
        let mut fields = self.lock();
        fields.traceparent = text;
        let old = (std::mem::replace(&mut fields.tracestate, state), fields.context.take());
        drop(fields);
        drop(old);
        Ok(())
    }
}

/// The ids of a span whose request is over.
const POISON: [u8; TRACEPARENT] = *b"00-dddddddddddddddddddddddddddddddd-dddddddddddddddd-00";

/// The `traceparent` of a request, and its `tracestate` if there is one.
pub(crate) type Trace<'py> = (Bound<'py, PyString>, Option<Bound<'py, PyString>>);

/// A span, and the value of the API's variable that makes it the current one.
pub(crate) struct CurrentSpan {
    variable: Py<PyAny>,
    key: Py<PyAny>,
    value: Py<PyAny>,
    /// Of the value, as long as nothing is changed in it.
    version: Option<u64>,
    span: Py<SpanFields>,
}

impl CurrentSpan {
    /// Of the API's `variable`, whose `value` is a dict that holds `span` for `key`.
    pub(crate) fn new(
        variable: &Bound<'_, PyAny>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        span: &Bound<'_, PyAny>,
    ) -> Option<Self> {
        let span = span.cast::<SpanFields>().ok()?;
        Some(Self {
            variable: variable.clone().unbind(),
            key: key.clone().unbind(),
            value: value.clone().unbind(),
            version: value.cast().ok().and_then(dict::version),
            span: span.clone().unbind(),
        })
    }

    pub(crate) fn value<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.value.bind(py)
    }

    /// Make it the span of another request.
    #[inline]
    pub(crate) fn fill(&self, (traceparent, tracestate): &Trace<'_>) -> PyResult<()> {
        self.span.get().fill(traceparent, tracestate.as_ref())
    }

    /// Overwrite it: its request is over.
    #[cold]
    pub(crate) fn poison(&self) {
        self.span.get().lock().traceparent = POISON;
    }

    /// Whether just `context` holds it, and nothing else, and that nothing was added to it.
    #[inline]
    pub(crate) fn is_alone_in(&self, context: &Bound<'_, PyAny>) -> bool {
        let py = context.py();
        // By the variable of the context, and here.
        self.is_known(py, 2) && has_alone(context, self.variable.bind(py), self.value.bind(py))
    }

    /// Whether one context holds it still, and nothing else.
    #[inline]
    pub(crate) fn is_held_once(&self, py: Python<'_>) -> bool {
        is_held_by(self.value.bind(py), 2) && is_held_by(self.span.bind(py), 2)
    }

    /// Whether no context has it any more, and nothing was added to it.
    #[inline]
    pub(crate) fn is_free(&self, py: Python<'_>) -> bool {
        self.is_known(py, 1)
    }

    /// Whether there are weak references to it.
    pub(crate) fn is_watched(&self, py: Python<'_>) -> bool {
        is_watched(self.value.bind(py)) || is_watched(self.span.bind(py))
    }

    #[inline]
    fn is_known(&self, py: Python<'_>, holders: isize) -> bool {
        let (value, span) = (self.value.bind(py), self.span.bind(py).as_any());
        let is_same = |dict: &Bound<'_, PyDict>| match dict::version(dict) {
            Some(version) => self.version == Some(version),
            None => dict.contains(&self.key).unwrap_or_default(),
        };
        is_known_to(value, holders)
            && is_known_to(span, 2)
            && refers_to(value, [span])
            && refers_to(span, [])
            && value.cast::<PyDict>().is_ok_and(is_same)
    }
}
