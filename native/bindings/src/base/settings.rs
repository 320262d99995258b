//! What the native core reads of the configuration and of `uvicorn.rules.limits`, once per server. The names are
//! theirs, verbatim.

use std::time::Duration;

use pyo3::prelude::*;
use wire::limits::Limits;

use super::reuse::Reuse;
use super::shortcuts::{Shortcut, Shortcuts};

/// In seconds. Nothing waits longer: a point in time must be able to lie that far ahead.
const CENTURY: f64 = 100.0 * 365.0 * 24.0 * 3600.0;

/// The settings, as plain data.
pub(crate) struct Settings {
    pub(crate) limits: Limits,
    pub(crate) limit_concurrency: Option<usize>,
    pub(crate) timeout_keep_alive: Duration,
    pub(crate) timeout_request_head: Option<Duration>,
    pub(crate) timeout_request_body: Option<Duration>,
    pub(crate) timeout_write: Option<Duration>,
    pub(crate) reset_contextvars: bool,
    pub(crate) root_path: String,
    /// Names of the extensions that are offered.
    pub(crate) extensions: Vec<String>,
    pub(crate) body_bytes_per_second: u32,
    read_bytes_per_second: f64,
    pub(crate) linger: Duration,
    pub(crate) last_call: Duration,
    pub(crate) max_eager_requests: usize,
    pub(crate) longest_eager_step: Duration,
    pub(crate) eager_steps_per_look: u32,
    /// `UVICORN_POISON=1` in the environment poisons.
    pub(crate) reuse: Reuse,
    pub(crate) shortcuts: Shortcuts,
}

impl Settings {
    /// Whether a client that has taken this many bytes in that time reads fast enough.
    pub(crate) fn is_enough(&self, taken: usize, time: Duration) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "how many bytes a socket holds is known to the byte")]
        let taken = taken as f64;
        taken >= time.as_secs_f64() * self.read_bytes_per_second
    }

    /// Whether scopes offer this extension.
    #[cold]
    pub(crate) fn offers(&self, extension: &str) -> bool {
        self.extensions.iter().any(|name| name == extension)
    }

    /// Read the attributes of `config`.
    pub(crate) fn from_config(config: &Bound<'_, PyAny>) -> PyResult<Self> {
        let constants = config.py().import("uvicorn.rules.limits")?;
        let shortcuts = Shortcuts::chosen(config.py())?;
        let limits = Limits {
            head: config.getattr("limit_request_head")?.extract()?,
            fields: config.getattr("limit_request_fields")?.extract()?,
            target: config.getattr("limit_request_target")?.extract()?,
            body: config.getattr("limit_request_body")?.extract()?,
            method: constants.getattr("MAX_METHOD_LENGTH")?.extract()?,
            empty_lines: constants.getattr("MAX_EMPTY_LINES")?.extract()?,
            chunk_waste: constants.getattr("MAX_CHUNK_WASTE")?.extract()?,
            trailers: constants.getattr("MAX_TRAILER_BYTES")?.extract()?,
            discard: constants.getattr("MAX_DISCARDED")?.extract()?,
        };
        Ok(Self {
            limits,
            limit_concurrency: config.getattr("limit_concurrency")?.extract()?,
            timeout_keep_alive: seconds(config, "timeout_keep_alive")?.unwrap_or_default(),
            timeout_request_head: seconds(config, "timeout_request_head")?,
            timeout_request_body: seconds(config, "timeout_request_body")?,
            timeout_write: seconds(config, "timeout_write")?,
            reset_contextvars: config.getattr("reset_contextvars")?.is_truthy()?,
            root_path: config.getattr("root_path")?.extract()?,
            extensions: config.getattr("asgi_extensions")?.extract()?,
            body_bytes_per_second: constants.getattr("BODY_BYTES_PER_SECOND")?.extract()?,
            read_bytes_per_second: constants.getattr("READ_BYTES_PER_SECOND")?.extract()?,
            linger: seconds(&constants, "LINGER_SECONDS")?.unwrap_or_default(),
            last_call: seconds(&constants, "LAST_REQUEST_SECONDS")?.unwrap_or_default(),
            max_eager_requests: constants.getattr("MAX_EAGER_REQUESTS")?.extract()?,
            longest_eager_step: seconds(&constants, "LONGEST_EAGER_STEP")?.unwrap_or_default(),
            eager_steps_per_look: constants.getattr("EAGER_STEPS_PER_LOOK")?.extract()?,
            reuse: match std::env::var_os("UVICORN_POISON") {
                Some(value) if value == "1" => Reuse::Poison,
                _ if shortcuts.take(Shortcut::Reuse) => Reuse::On,
                _ => Reuse::Off,
            },
            shortcuts,
        })
    }
}

/// A setting in seconds; `None` if it is zero or less, which means that there is no deadline.
pub(crate) fn seconds(config: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<Duration>> {
    let value: f64 = config.getattr(name)?.extract()?;
    let duration = Duration::try_from_secs_f64(value.min(CENTURY)).ok();
    Ok(duration.filter(|duration| !duration.is_zero()))
}
