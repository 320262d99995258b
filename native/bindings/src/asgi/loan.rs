//! The loan of a request: its scope, and the parts of it that an application can change.
//!
//! The exchange owns it for as long as it lives, so a request that comes meanwhile finds none and gets objects of its
//! own. When the exchange is over, each part is checked: the same object, unchanged and without other references, may
//! be lent again. All other parts are dropped at once.

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use crate::base::current_span::Trace;
use crate::base::ffi::text::OwnText;
use crate::base::ffi::{dict, refcount};

/// Keys and values of a dict, in order.
pub(super) type Items = Vec<(Py<PyAny>, Py<PyAny>)>;

/// The content of poisoned dicts and lists.
const POISON: &str = "poison: the request of this object is over";

/// The index of a value in a scope, in the order of its keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ScopeField {
    Asgi = 1,
    HttpVersion,
    Server,
    Client,
    Scheme,
    Method,
    Path = 8,
    RawPath,
    QueryString,
    Headers,
    State,
    /// Where requests have an id.
    RequestId,
}

/// The values of a scope that an application can change. All others are `str`, `bytes` and tuples of them.
const CHANGEABLE: [ScopeField; 3] = [ScopeField::Asgi, ScopeField::Headers, ScopeField::State];

/// The content of a scope, as it was handed out.
pub(crate) struct Loan {
    items: Items,
    /// Of the scope, if it holds nothing else.
    version: Option<u64>,
    is_all: bool,
    asgi_version: Option<u64>,
    /// The list that the headers are a copy of.
    copied: Option<Py<PyList>>,
    /// The state contains that of the lifespan.
    shares_state: bool,
    /// The generated id of the last request.
    pub(super) id: Option<OwnText>,
    /// The `traceparent` of the last request.
    pub(super) traceparent: Option<OwnText>,
    /// The `tracestate` of this request.
    pub(super) tracestate: Option<Py<PyString>>,
}

impl Loan {
    /// Of a copy of the pattern with these items.
    pub(super) fn new(py: Python<'_>, pattern: &Items) -> Self {
        let items = pattern.iter().map(|(key, value)| (key.clone_ref(py), value.clone_ref(py))).collect();
        Self {
            items,
            version: None,
            is_all: false,
            asgi_version: None,
            copied: None,
            shares_state: false,
            id: None,
            traceparent: None,
            tracestate: None,
        }
    }

    /// Start another copy, which gets the remains of the last one.
    pub(super) fn begin_again(&mut self, scope: &Bound<'_, PyDict>, pattern: &Items) -> PyResult<()> {
        let py = scope.py();
        self.copied = None;
        for (at, ((key, value), (_, first))) in self.items.iter_mut().zip(pattern).enumerate() {
            let is_left = (at == ScopeField::Asgi as usize || at == ScopeField::State as usize) && !value.is_none(py);
            if is_left && refcount::is_held_by(value.bind(py), 1) {
                scope.set_item(&*key, &*value)?;
            } else {
                *value = first.clone_ref(py);
            }
        }
        Ok(())
    }

    /// The value of a field, unless it is None.
    #[inline]
    pub(super) fn value<'a, 'py>(&'a self, py: Python<'py>, place: ScopeField) -> Option<&'a Bound<'py, PyAny>> {
        self.items.get(place as usize).map(|(_, value)| value.bind(py)).filter(|value| !value.is_none())
    }

    /// The id in a scope that was just taken, if it was generated for the last request. Its known holders are the
    /// scope, this loan and the caller; any other holder must keep it unchanged. An id that is only remembered, because
    /// its scope was kept or has another id now, has holders that are not known.
    #[inline]
    pub(super) fn take_id(&mut self, py: Python<'_>) -> Option<OwnText> {
        let id = self.id.take();
        id.filter(|id| self.value(py, ScopeField::RequestId).is_some_and(|value| id.is(value.as_unbound())))
    }

    /// The same of its `traceparent`.
    #[inline]
    pub(super) fn take_traceparent(&mut self) -> Option<OwnText> {
        let last = self.traceparent.take();
        last.filter(|last| self.items.last().is_some_and(|(_, value)| last.is(value)))
    }

    /// What a scope has of its trace.
    pub(super) fn trace<'py>(&self, py: Python<'py>) -> Option<Trace<'py>> {
        let state = self.tracestate.as_ref().map(|state| state.bind(py).clone());
        self.traceparent.as_ref().map(|text| (text.get(py), state))
    }

    /// See to it that the scope has `value` in this place.
    #[inline]
    pub(super) fn show<T>(
        &mut self,
        scope: &Bound<'_, PyDict>,
        place: ScopeField,
        value: &Bound<'_, T>,
    ) -> PyResult<()> {
        self.show_at(scope, place as usize, value)
    }

    /// The same of the last place.
    pub(super) fn show_last<T>(&mut self, scope: &Bound<'_, PyDict>, value: &Bound<'_, T>) -> PyResult<()> {
        self.show_at(scope, self.items.len().saturating_sub(1), value)
    }

    #[inline]
    fn show_at<T>(&mut self, scope: &Bound<'_, PyDict>, place: usize, value: &Bound<'_, T>) -> PyResult<()> {
        let Some((key, shown)) = self.items.get_mut(place) else { return Ok(()) };
        if !shown.is(value) {
            scope.set_item(&*key, value.as_any())?;
            // As one that is bound it goes without a look at who holds the interpreter.
            drop(std::mem::replace(shown, value.as_any().clone().unbind()).into_bound(value.py()));
        }
        Ok(())
    }

    /// The list that the headers are a copy of, if they are one.
    #[inline]
    pub(super) fn copied(&self) -> Option<&Py<PyList>> {
        self.copied.as_ref()
    }

    /// Lend headers.
    pub(super) fn lend_headers(
        &mut self,
        scope: &Bound<'_, PyDict>,
        headers: &Bound<'_, PyList>,
        copied: Option<Py<PyList>>,
    ) -> PyResult<()> {
        self.copied = copied;
        self.show(scope, ScopeField::Headers, headers)
    }

    /// Lend a copy of `original`, unless there is one.
    #[inline]
    pub(super) fn lend_asgi(&mut self, scope: &Bound<'_, PyDict>, original: &Bound<'_, PyDict>) -> PyResult<()> {
        if self.value(scope.py(), ScopeField::Asgi).is_some() {
            return Ok(());
        }
        let copy = original.copy()?;
        self.asgi_version = dict::version(&copy);
        self.show(scope, ScopeField::Asgi, &copy)
    }

    /// Lend a copy of the lifespan's state; if that is empty, an empty dict, unless there is one.
    #[inline]
    pub(super) fn lend_state(&mut self, scope: &Bound<'_, PyDict>, shared: &Bound<'_, PyDict>) -> PyResult<()> {
        self.shares_state = !shared.is_empty();
        if self.shares_state {
            self.show(scope, ScopeField::State, &shared.copy()?)
        } else if self.value(scope.py(), ScopeField::State).is_none() {
            self.show(scope, ScopeField::State, &PyDict::new(scope.py()))
        } else {
            Ok(())
        }
    }

    /// The scope is ready to be handed out; `is_all`: all of its content is known here.
    #[inline]
    pub(super) fn seal(&mut self, scope: &Bound<'_, PyDict>, is_all: bool) {
        self.is_all = is_all;
        self.version = dict::version(scope);
    }

    /// Whether the scope is unchanged and has no other holder.
    #[inline]
    pub(super) fn is_back(&self, scope: &Bound<'_, PyDict>) -> bool {
        self.is_all && refcount::is_held_by(scope, 1) && dict::is_unchanged(scope, self.version, &self.items)
    }

    /// Check the content of the scope, which is gone if it was not back. Values that were changed or are held go too.
    #[inline]
    pub(super) fn take_back(
        &mut self,
        py: Python<'_>,
        scope: Option<&Bound<'_, PyDict>>,
        asgi: &Items,
    ) -> PyResult<()> {
        // By the items, and by the scope if that is back.
        let holders = 1 + isize::from(scope.is_some());
        if !self.is_dict_back(py, ScopeField::Asgi, holders, |dict| dict::is_unchanged(dict, self.asgi_version, asgi)) {
            self.clear(py, scope, ScopeField::Asgi)?;
        }
        if !self.is_dict_back(py, ScopeField::State, holders, |state| state.is_empty() && !self.shares_state) {
            self.clear(py, scope, ScopeField::State)?;
        }
        if scope.is_none() || !self.are_headers_back(py, holders) {
            self.copied = None;
            self.clear(py, scope, ScopeField::Headers)?;
        }
        Ok(())
    }

    #[inline]
    fn is_dict_back(
        &self,
        py: Python<'_>,
        place: ScopeField,
        holders: isize,
        is_unchanged: impl FnOnce(&Bound<'_, PyDict>) -> bool,
    ) -> bool {
        self.value(py, place).is_some_and(|value| {
            refcount::is_held_by(value, holders) && value.cast_exact::<PyDict>().is_ok_and(is_unchanged)
        })
    }

    #[inline]
    fn are_headers_back(&self, py: Python<'_>, holders: isize) -> bool {
        let headers = self.value(py, ScopeField::Headers).filter(|headers| refcount::is_held_by(headers, holders));
        let (Some(headers), Some(copied)) = (headers, &self.copied) else { return false };
        headers.cast_exact::<PyList>().is_ok_and(|headers| dict::are_equal(headers, copied.bind(py)))
    }

    /// Drop the value of a field.
    fn clear(&mut self, py: Python<'_>, scope: Option<&Bound<'_, PyDict>>, place: ScopeField) -> PyResult<()> {
        let Some((key, shown)) = self.items.get_mut(place as usize) else { return Ok(()) };
        if let Some(scope) = scope {
            scope.set_item(&*key, py.None())?;
        }
        *shown = py.None();
        Ok(())
    }

    /// Fill objects without other holders with a value that no program takes for its own.
    #[cold]
    pub(super) fn poison(&self, scope: &Bound<'_, PyDict>) -> PyResult<()> {
        if !refcount::is_held_by(scope, 1) {
            return Ok(());
        }
        scope.clear();
        scope.set_item(POISON, POISON)?;
        for place in CHANGEABLE {
            match self.value(scope.py(), place).filter(|value| refcount::is_held_by(value, 1)) {
                Some(value) if let Ok(dict) = value.cast::<PyDict>() => {
                    dict.clear();
                    dict.set_item(POISON, POISON)?;
                }
                Some(value) if let Ok(list) = value.cast::<PyList>() => {
                    list.del_slice(0, list.len())?;
                    list.append(POISON)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Show the collector the objects that may be part of a reference cycle.
    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        for place in CHANGEABLE {
            if let Some((_, value)) = self.items.get(place as usize) {
                visit.call(value)?;
            }
        }
        Ok(())
    }
}
