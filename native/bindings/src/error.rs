//! Mistakes of the application become exceptions; a panic is logged once and costs one connection its life.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use wire::error::AppError;

use crate::http::connection::Connection;
use crate::server::Core;

/// The exception an application gets for what it sent.
#[cold]
pub(crate) fn exception(error: AppError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

/// Do what may fail where nobody is left to be told, because an object is being freed: an exception that is on its way
/// goes on, and one of `body` is reported as that of a destructor.
pub(crate) fn undisturbed(py: Python<'_>, body: impl FnOnce() -> PyResult<()>) {
    let pending = PyErr::take(py);
    if let Err(error) = body() {
        error.write_unraisable(py, None);
    }
    if let Some(pending) = pending {
        pending.restore(py);
    }
}

thread_local! {
    /// Where and why this thread panicked, until whoever catches the panic logs it.
    static LAST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keep panics for the log instead of printing them. Rust's runtime is part of this module, so no other module is meant.
///
/// A second panic before the first was caught ends the process: then both are printed.
pub(crate) fn keep_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if let Some(first) = LAST_PANIC.replace(Some(panic.to_string())) {
            eprintln!("{first}");
            print(panic);
        }
    }));
}

/// What to say about a panic that was caught: where it was and why, on one line.
#[cold]
pub(crate) fn describe(payload: &(dyn Any + Send)) -> String {
    let text = LAST_PANIC.take().unwrap_or_else(|| match payload.downcast_ref::<String>() {
        Some(text) => text.clone(),
        None => payload.downcast_ref::<&str>().map(|text| (*text).to_owned()).unwrap_or_default(),
    });
    text.replace('\n', " ")
}

/// Run an entry point of `connection`, called `entry`. A panic is logged and ends this connection, and nothing else; the
/// caller gets the default.
#[inline]
pub(crate) fn guard<R: Default>(
    py: Python<'_>,
    connection: &Rc<Connection>,
    entry: &str,
    body: impl FnOnce(&Rc<Connection>) -> PyResult<R>,
) -> PyResult<R> {
    contain(&connection.core, entry, || body(connection)).unwrap_or_else(|text| {
        // It may be the very state of the connection that is broken.
        let ended = catch_unwind(AssertUnwindSafe(|| connection.abandon(py))).unwrap_or_else(|payload| {
            describe(&*payload);
            Ok(())
        });
        log(py, &connection.core, "Native core panicked in %s, closing the connection: %s", entry, text)?;
        ended.map(|()| R::default())
    })
}

/// Run what belongs to no connection. A panic is logged; the caller gets the default.
#[inline]
pub(crate) fn guard_server<R: Default>(
    py: Python<'_>,
    core: &Core,
    entry: &str,
    body: impl FnOnce() -> PyResult<R>,
) -> PyResult<R> {
    contain(core, entry, body).unwrap_or_else(|text| {
        log(py, core, "Native core panicked in %s: %s", entry, text)?;
        Ok(R::default())
    })
}

#[inline]
fn contain<R>(core: &Core, entry: &str, body: impl FnOnce() -> R) -> Result<R, String> {
    let run = || {
        core.rehearsal.happen_in(entry);
        body()
    };
    // Whatever was left half done is only ever looked at by `abandon`.
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| describe(&*payload))
}

fn log(py: Python<'_>, core: &Core, line: &str, entry: &str, text: String) -> PyResult<()> {
    core.logger.bind(py).call_method1(&core.names.error, (line, entry, text)).map(drop)
}

/// A panic that was asked for, so that what becomes of one can be tested on the module that is shipped.
#[derive(Default)]
pub(crate) struct Rehearsal {
    armed: Cell<bool>,
    entry: RefCell<String>,
}

impl Rehearsal {
    /// The next call of `entry` panics.
    pub(crate) fn arm(&self, entry: String) {
        *self.entry.borrow_mut() = entry;
        self.armed.set(true);
    }

    #[inline]
    pub(crate) fn happen_in(&self, entry: &str) {
        if self.armed.get() {
            self.happen_if(entry);
        }
    }

    #[cold]
    #[expect(clippy::panic, reason = "it was asked for")]
    fn happen_if(&self, entry: &str) {
        if *self.entry.borrow() == entry {
            self.armed.set(false);
            panic!("rehearsal");
        }
    }
}
