//! Whether logging is still exactly as uvicorn set it up, so that lines may be formatted here: the shortcut `logging`.
//!
//! Asked for each record and not for each turn of the loop: an application runs between two requests, and may change
//! logging there. So the questions must be cheap: attributes are looked up in the dicts that hold them, which costs a
//! third of asking the objects. These dicts belong to their objects for life. (Having the interpreter tell when a dict
//! changes would cost less still, but version 3.13 does not report `logger.disabled = True`.)

use std::cell::Cell;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyType};

use crate::base::ffi::dict::class_version;
use crate::base::names::Names;
use crate::base::objects::same;

pub(super) const INFO: u8 = 20;

/// Logger, handler and formatter of the default configuration, and their parts.
pub(super) struct Untouched {
    functions: Functions,
    logger_fields: Py<PyDict>,
    handler: Py<PyAny>,
    handler_fields: Py<PyDict>,
    handler_level: Py<PyAny>,
    pub(super) formatter: Py<PyAny>,
    formatter_fields: Py<PyDict>,
    colors: Py<PyAny>,
    logging: Py<PyDict>,
    record_class: Py<PyAny>,
}

impl Untouched {
    /// The Python side's `LineBuffer`; `None` if logging is not as uvicorn sets it up.
    pub(super) fn new(python: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let py = python.py();
        let handler = python.getattr("handler")?;
        if handler.is_none() || handler.getattr("level")?.extract::<i64>()? > INFO.into() {
            return Ok(None);
        }
        let formatter = python.getattr("formatter")?;
        let logging = py.import("logging")?;
        Ok(Some(Self {
            functions: Functions::new(python)?,
            logger_fields: fields(&py.import("uvicorn.access.log")?.getattr("logger")?)?,
            handler_fields: fields(&handler)?,
            handler_level: handler.getattr("level")?.unbind(),
            handler: handler.unbind(),
            formatter_fields: fields(&formatter)?,
            colors: formatter.getattr("use_colors")?.unbind(),
            formatter: formatter.unbind(),
            record_class: logging.getattr("LogRecord")?.unbind(),
            logging: logging.dict().unbind(),
        }))
    }

    /// Whether everything is as it was.
    #[inline]
    pub(super) fn holds(&self, py: Python<'_>, names: &Names) -> PyResult<bool> {
        let logger = self.logger_fields.bind(py);
        let handler = self.handler_fields.bind(py);
        Ok(holds_only(logger, &names.handlers, &self.handler)?
            && is_empty(logger, &names.filters)?
            && is_false(logger, &names.propagate)?
            && is_false(logger, &names.disabled)?
            && is_empty(handler, &names.filters)?
            && is(handler, &names.formatter, &self.formatter)?
            && is(handler, &names.level, &self.handler_level)?
            && is(self.formatter_fields.bind(py), &names.use_colors, &self.colors)?
            && is(self.logging.bind(py), &names.log_record_factory, &self.record_class)?
            && self.functions.are_own(logger)?)
    }
}

/// The functions of `logging` that a record passes: monitoring agents replace them in the class, or in the logger.
struct Functions {
    /// The Python side, which compares them.
    python: Py<PyAny>,
    logger: Py<PyAny>,
    class: Py<PyType>,
    /// The version of the class and the number of the logger's attributes at the last comparison.
    seen: Cell<(u32, usize)>,
    are_own: Cell<bool>,
}

impl Functions {
    fn new(python: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = python.py();
        let logger = py.import("uvicorn.access.log")?.getattr("logger")?;
        Ok(Self {
            python: python.clone().unbind(),
            class: logger.get_type().unbind(),
            logger: logger.unbind(),
            seen: Cell::default(),
            are_own: Cell::default(),
        })
    }

    /// Whether they are; `fields` are the attributes of the logger.
    #[inline]
    fn are_own(&self, fields: &Bound<'_, PyDict>) -> PyResult<bool> {
        let py = fields.py();
        let class = self.class.bind(py);
        if !std::ptr::eq(self.logger.bind(py).get_type_ptr(), class.as_type_ptr()) {
            return Ok(false);
        }
        let now = (class_version(class), fields.len());
        if now.0 == 0 || now != self.seen.get() { self.look(fields) } else { Ok(self.are_own.get()) }
    }

    #[cold]
    fn look(&self, fields: &Bound<'_, PyDict>) -> PyResult<bool> {
        let py = fields.py();
        self.are_own.set(self.python.bind(py).call_method0("calls_own_functions")?.extract()?);
        self.seen.set((class_version(self.class.bind(py)), fields.len()));
        Ok(self.are_own.get())
    }
}

fn fields(object: &Bound<'_, PyAny>) -> PyResult<Py<PyDict>> {
    Ok(object.getattr("__dict__")?.cast_into::<PyDict>()?.unbind())
}

#[inline]
fn is(fields: &Bound<'_, PyDict>, name: &Py<PyString>, value: &Py<PyAny>) -> PyResult<bool> {
    Ok(fields.get_item(name)?.is_some_and(|found| same(&found, value)))
}

#[inline]
fn is_false(fields: &Bound<'_, PyDict>, name: &Py<PyString>) -> PyResult<bool> {
    fields.get_item(name)?.map_or(Ok(false), |found| Ok(!found.is_truthy()?))
}

#[inline]
fn is_empty(fields: &Bound<'_, PyDict>, name: &Py<PyString>) -> PyResult<bool> {
    let Some(found) = fields.get_item(name)? else { return Ok(false) };
    Ok(found.cast_exact::<PyList>().is_ok_and(PyListMethods::is_empty))
}

#[inline]
fn holds_only(fields: &Bound<'_, PyDict>, name: &Py<PyString>, item: &Py<PyAny>) -> PyResult<bool> {
    let Some(found) = fields.get_item(name)? else { return Ok(false) };
    let Ok(list) = found.cast_exact::<PyList>() else { return Ok(false) };
    Ok(list.len() == 1 && list.get_item(0).is_ok_and(|first| same(&first, item)))
}
