//! Which shortcuts the server takes, each in place of what asyncio or the interpreter would do: the rows of
//! `uvicorn/shortcuts.py`, which says what they are.

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
}

const ALL: [(Shortcut, &str); 8] = [
    (Shortcut::Coroutines, "coroutines"),
    (Shortcut::Eager, "eager"),
    (Shortcut::Waiters, "waiters"),
    (Shortcut::Wakeups, "wakeups"),
    (Shortcut::Steps, "steps"),
    (Shortcut::Reuse, "reuse"),
    (Shortcut::Texts, "texts"),
    (Shortcut::Bytes, "bytes"),
];

/// Those that a server takes: a bit for each.
#[derive(Clone, Copy)]
pub(crate) struct Shortcuts(u32);

impl Shortcuts {
    /// What the environment says now.
    pub(crate) fn chosen(py: Python<'_>) -> PyResult<Self> {
        let module = py.import("uvicorn.shortcuts")?;
        let known = module.getattr("Shortcut")?;
        let chosen = module.call_method0("chosen")?;
        let mut bits = 0;
        for (shortcut, name) in ALL {
            let row = known.call1((name,)).map_err(|_| PyAssertionError::new_err(format!("no shortcut {name}")))?;
            bits |= u32::from(chosen.contains(row)?) << shortcut as u32;
        }
        Ok(Self(bits))
    }

    /// Whether the server takes this one.
    #[inline]
    pub(crate) fn take(self, shortcut: Shortcut) -> bool {
        self.0 & 1 << shortcut as u32 != 0
    }
}
