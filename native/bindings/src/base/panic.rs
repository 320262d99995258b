//! Panics: kept for the log, and made on demand to test their consequences.

use std::any::Any;
use std::cell::{Cell, RefCell};

thread_local! {
    /// Where and why this thread panicked, until the panic is caught and logged.
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

/// Describe a panic that was caught: its place and its reason, on one line.
#[cold]
pub(crate) fn describe(payload: &(dyn Any + Send)) -> String {
    let text = LAST_PANIC.take().unwrap_or_else(|| match payload.downcast_ref::<String>() {
        Some(text) => text.clone(),
        None => payload.downcast_ref::<&str>().map(|text| (*text).to_owned()).unwrap_or_default(),
    });
    text.replace('\n', " ")
}

/// A panic on request, so that its handling can be tested on the module that is shipped.
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
