//! The shortcuts that the server takes past asyncio and the interpreter: the rows of `uvicorn/rules/shortcuts.py`,
//! which describes them.

use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::exceptions::PyAssertionError;
use pyo3::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortcut {
    Coroutines,
    Eager,
    Waiters,
    Wakeups,
    Steps,
    Reuse,
    Texts,
    Bytes,
    Versions,
    Classes,
    Walks,
    Slots,
    Calls,
    Handles,
    Logging,
    Heads,
    Events,
    Spans,
}

const ALL: [(Shortcut, &str); 18] = [
    (Shortcut::Coroutines, "coroutines"),
    (Shortcut::Eager, "eager"),
    (Shortcut::Waiters, "waiters"),
    (Shortcut::Wakeups, "wakeups"),
    (Shortcut::Steps, "steps"),
    (Shortcut::Reuse, "reuse"),
    (Shortcut::Texts, "texts"),
    (Shortcut::Bytes, "bytes"),
    (Shortcut::Versions, "versions"),
    (Shortcut::Classes, "classes"),
    (Shortcut::Walks, "walks"),
    (Shortcut::Slots, "slots"),
    (Shortcut::Calls, "calls"),
    (Shortcut::Handles, "handles"),
    (Shortcut::Logging, "logging"),
    (Shortcut::Heads, "heads"),
    (Shortcut::Events, "events"),
    (Shortcut::Spans, "spans"),
];

/// The shortcuts of this process outside of any server: as on import, and then as its last server.
static TAKEN: AtomicU32 = AtomicU32::new(0);

/// Whether this process takes a shortcut.
#[inline]
pub(crate) fn is_taken(shortcut: Shortcut) -> bool {
    Shortcuts(TAKEN.load(Ordering::Relaxed)).take(shortcut)
}

/// Those that a server takes: a bit for each.
#[derive(Clone, Copy)]
pub(crate) struct Shortcuts(u32);

impl Shortcuts {
    /// Read the environment.
    pub(crate) fn chosen(py: Python<'_>) -> PyResult<Self> {
        let module = py.import("uvicorn.rules.shortcuts")?;
        let known = module.getattr("Shortcut")?;
        let chosen = module.call_method0("chosen")?;
        let mut bits = 0;
        for (shortcut, name) in ALL {
            let row = known.call1((name,)).map_err(|_| PyAssertionError::new_err(format!("no shortcut {name}")))?;
            bits |= u32::from(chosen.contains(row)?) << shortcut as u32;
        }
        TAKEN.store(bits, Ordering::Relaxed);
        Ok(Self(bits))
    }

    /// Whether the server takes this one.
    #[inline]
    pub(crate) fn take(self, shortcut: Shortcut) -> bool {
        self.0 & 1 << shortcut as u32 != 0
    }
}
