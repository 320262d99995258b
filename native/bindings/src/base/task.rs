//! How tasks are started: mostly so that they take their first step while they are made, as they can since 3.12, by
//! `asyncio.Task(cycle, eager_start=True)`.

use std::cell::Cell;
use std::time::{Duration, Instant};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use super::current_span::{CurrentSpan, Trace};
use super::ffi::{call, dict, refcount};
use super::home::Home;
use super::names::Names;
use super::reuse::{Reuse, Single};
use super::settings::Settings;
use super::shortcuts::Shortcut;

/// How the tasks of a connection are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// Inside the call that reads the connection.
    Eagerly,
    /// When the loop gets to it.
    Later,
    /// So too, and as a coroutine of Python's: the loop has a task factory or is in debug mode, which look into it; or it
    /// is a test's double, of which little is known.
    Inspectably,
}

impl Start {
    /// The same, but not now.
    pub(crate) fn later(self) -> Self {
        if self == Self::Eagerly { Self::Later } else { self }
    }

    /// How it is done in the loop as it is now.
    pub(crate) fn of(home: &Home, py: Python<'_>) -> PyResult<Self> {
        if !home.is_real {
            return Ok(Self::Inspectably);
        }
        let event_loop = home.event_loop.bind(py);
        if !home.settings.shortcuts.take(Shortcut::Coroutines) {
            return Ok(Self::Inspectably);
        }
        let is_plain = event_loop.call_method0(&home.names.get_task_factory)?.is_none()
            && !event_loop.call_method0(&home.names.get_debug)?.is_truthy()?;
        Ok(match is_plain {
            false => Self::Inspectably,
            true if home.eager && home.settings.shortcuts.take(Shortcut::Eager) => Self::Eagerly,
            true => Self::Later,
        })
    }
}

/// Whether tasks are to start eagerly, by how long their first steps are: `Pace` of `protocols/http/pace.py`.
pub(crate) struct StepPace {
    longest: Duration,
    period: u32,
    left: Cell<u32>,
    average: Cell<Duration>,
}

impl StepPace {
    pub(crate) fn new(settings: &Settings) -> Self {
        let (longest, period) = (settings.longest_eager_step, settings.eager_steps_per_look);
        Self { longest, period, left: Cell::new(period), average: Cell::default() }
    }

    /// Whether the next task is to start eagerly; and when, if its first step is to be measured.
    #[inline]
    pub(crate) fn next(&self) -> (bool, Option<Instant>) {
        let left = self.left.get().saturating_sub(1);
        if left == 0 {
            self.left.set(self.period);
            return (true, Some(Instant::now()));
        }
        self.left.set(left);
        (self.average.get() <= self.longest, None)
    }

    /// A step that began then has ended.
    pub(crate) fn end(&self, begun: Instant) {
        let step = begun.elapsed().min(self.longest * 2);
        self.average.set((self.average.get() * 7 + step) / 8);
    }
}

/// Creates eager tasks, and keeps the keywords for the next one.
pub(crate) struct EagerCall {
    class: Py<PyType>,
    pattern: Py<PyDict>,
    /// A task that starts inside another has keywords and a context of its own.
    spare: Single<Keywords>,
}

/// The keywords of one call, which only the caller holds, and the context among them.
pub(crate) struct Keywords {
    dict: Py<PyDict>,
    context: Option<Py<PyAny>>,
    /// The only content of the context, if it has any.
    span: Option<CurrentSpan>,
}

impl EagerCall {
    pub(crate) fn new(
        class: &Bound<'_, PyType>,
        event_loop: &Bound<'_, PyAny>,
        names: &Names,
        reuse: Reuse,
    ) -> PyResult<Self> {
        let py = class.py();
        // Interned, as the names of parameters are: they are found by identity then, with no comparison of texts.
        let pattern = PyDict::new(py);
        pattern.set_item(intern!(py, "loop"), event_loop)?;
        pattern.set_item(&names.context, py.None())?;
        pattern.set_item(intern!(py, "eager_start"), true)?;
        Ok(Self { class: class.clone().unbind(), pattern: pattern.unbind(), spare: Single::new(reuse) })
    }

    /// Keywords with a context that is empty but for the span of `trace`, if one `may_be_empty` and is at hand, and
    /// otherwise with a `new` one.
    #[inline]
    pub(crate) fn take<'py>(
        &self,
        py: Python<'py>,
        names: &Names,
        may_be_empty: bool,
        trace: Option<&Trace<'py>>,
        new: impl FnOnce() -> PyResult<(Bound<'py, PyAny>, Option<CurrentSpan>)>,
    ) -> PyResult<Keywords> {
        let spare = self.spare.take().filter(|keywords| refcount::is_held_by(keywords.dict.bind(py), 1));
        let dict = match spare {
            Some(keywords) if may_be_empty && keywords.span.is_some() == trace.is_some() && keywords.are_still(py) => {
                if let (Some(span), Some(trace)) = (&keywords.span, trace) {
                    span.fill(trace)?;
                }
                return Ok(keywords);
            }
            Some(keywords) => keywords.dict,
            None => self.pattern.bind(py).copy()?.unbind(),
        };
        let (context, span) = new()?;
        dict.bind(py).set_item(&names.context, &context)?;
        Ok(Keywords { dict, context: Some(context.unbind()), span })
    }

    /// Start a task.
    #[inline]
    pub(crate) fn start<'py>(
        &self,
        arguments: &Bound<'py, PyTuple>,
        keywords: &Keywords,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = arguments.py();
        call::instantiate(self.class.bind(py), arguments, keywords.dict.bind(py))
    }

    /// Take back the arguments of a task's start. If the task is over and gone, its context serves the next one,
    /// provided that it is empty but for its span, and has no other holder. Returns the span if the context has one.
    #[inline]
    pub(crate) fn give(&self, py: Python<'_>, mut keywords: Keywords, names: &Names) -> PyResult<Option<CurrentSpan>> {
        if !refcount::is_held_by(keywords.dict.bind(py), 1) {
            return Ok(keywords.span);
        }
        let dict = keywords.dict.bind(py);
        let stands = dict.get_item(&names.context)?;
        let is_same = matches!((&stands, &keywords.context), (Some(stands), Some(context)) if stands.is(context));
        drop(stands);
        let is_fit = is_same && keywords.are_fit(py);
        let mut span = None;
        if !is_fit {
            dict.set_item(&names.context, py.None())?;
            let context = keywords.context.take();
            let is_over = context.is_some_and(|context| refcount::is_held_by(context.bind(py), 1));
            span = keywords.span.take().filter(|_| !is_over);
        } else if self.spare.poisons()
            && let Some(span) = &keywords.span
        {
            span.poison();
        }
        self.spare.give(keywords);
        Ok(span)
    }
}

impl Keywords {
    /// Whether it still has no other holder, so that its content is what it was.
    #[inline]
    fn are_still(&self, py: Python<'_>) -> bool {
        match (&self.context, &self.span) {
            (Some(context), Some(span)) => refcount::is_known_to(context.bind(py), 2) && span.is_held_once(py),
            _ => self.are_fit(py),
        }
    }

    /// Whether the context has no other holder, and is empty but for the span.
    #[inline]
    fn are_fit(&self, py: Python<'_>) -> bool {
        let Some(context) = self.context.as_ref().map(|context| context.bind(py)) else { return false };
        refcount::is_known_to(context, 2)
            && match &self.span {
                Some(span) => span.is_alone_in(context),
                None => is_empty(context),
            }
    }
}

/// Whether the event loop can be run from inside one of its own callbacks. Libraries make those of asyncio so at any
/// time, by changing their class; then a task must not start inside the call that reads its connection.
pub(crate) struct Reentrance {
    /// If it is one of asyncio's.
    class: Option<Py<PyType>>,
    /// The version of the class at the last check.
    version: Cell<u32>,
    is_given: Cell<bool>,
}

impl Reentrance {
    pub(crate) fn of(event_loop: &Bound<'_, PyAny>) -> PyResult<Self> {
        let base = event_loop.py().import("asyncio")?.getattr("BaseEventLoop")?;
        let class = if event_loop.is_instance(&base)? { Some(event_loop.get_type().unbind()) } else { None };
        Ok(Self { class, version: Cell::new(0), is_given: Cell::new(false) })
    }

    /// Whether it is so now.
    #[inline]
    pub(crate) fn is_given(&self, home: &Home, py: Python<'_>) -> PyResult<bool> {
        let Some(class) = &self.class else { return Ok(false) };
        let class = class.bind(py);
        let version = dict::class_version(class);
        if version == 0 || version != self.version.get() { self.look(home, class) } else { Ok(self.is_given.get()) }
    }

    #[cold]
    fn look(&self, home: &Home, class: &Bound<'_, PyType>) -> PyResult<bool> {
        let utils = class.py().import("uvicorn.protocols.utils")?;
        self.is_given.set(utils.call_method1("is_reentrant", (&home.event_loop,))?.extract()?);
        self.version.set(dict::class_version(class));
        Ok(self.is_given.get())
    }
}

/// Whether no variable has a value in `context`.
#[inline]
pub(crate) fn is_empty(context: &Bound<'_, PyAny>) -> bool {
    context.len().is_ok_and(|length| length == 0)
}
