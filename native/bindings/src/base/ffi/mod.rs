//! The only place that may say `unsafe`: calls of the C API that PyO3 does not wrap, the slots of our classes, who may touch
//! what in which thread, descriptors, and memory that others see.

pub(crate) mod allocators;
pub(crate) mod bytes;
pub(crate) mod call;
#[cfg(target_os = "linux")]
pub(crate) mod clocks;
pub(crate) mod descriptor;
pub(crate) mod dict;
#[cfg(target_os = "linux")]
pub(crate) mod end_timer;
pub(crate) mod origin;
#[cfg(target_os = "linux")]
pub(crate) mod pending;
pub(crate) mod refcount;
pub(crate) mod referents;
pub(crate) mod slots;
pub(crate) mod text;
pub(crate) mod thread_bound;
pub(crate) mod words;
