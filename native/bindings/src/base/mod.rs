//! The base of all rooms, without any protocol: Python objects, the event loop, buffers, errors.

pub(crate) mod clock;
pub(crate) mod connections;
pub(crate) mod coroutine;
pub(crate) mod end_timer;
pub(crate) mod error;
pub(crate) mod ffi;
pub(crate) mod home;
pub(crate) mod level;
pub(crate) mod line;
pub(crate) mod memory;
pub(crate) mod metrics;
pub(crate) mod names;
pub(crate) mod objects;
pub(crate) mod orphan;
pub(crate) mod panic;
pub(crate) mod places;
pub(crate) mod probe;
pub(crate) mod pulse;
pub(crate) mod queued_bytes;
pub(crate) mod reuse;
pub(crate) mod settings;
pub(crate) mod shortcuts;
pub(crate) mod task;
pub(crate) mod turns;
pub(crate) mod waiter;
pub(crate) mod watchdog;
