//! TLS for servers (RFC 8446, RFC 5246), by rustls: records in, plaintext out, records out.
//!
//! ```text
//! Settings ──Config::new──▶ Config ──Session::new──▶ Session    the settings of many connections · one connection
//!                                                    Scratch    memory that the sessions of one thread share
//! ```
//!
//! No sockets, no event loop, no Python: `bindings` has these. rustls speaks TLS, AWS-LC encrypts; this crate chooses
//! the settings of a connection by its first message, and moves bytes.
#![forbid(unsafe_code)]

#[cfg(all(test, feature = "aws-lc"))]
#[path = "../tests/common/mod.rs"]
mod common;
// Its name there.
#[cfg(test)]
extern crate self as tls;

mod config;
mod dates;
#[cfg(feature = "aws-lc")]
mod direct;
mod failure;
mod hello;
mod key;
mod pem;
mod provider;
mod scratch;
mod session;
mod tickets;
mod verifier;

pub use config::{Certificate, Config, Settings, TicketPolicy, Verify};
pub use failure::{Failure, FailureKind};
pub use provider::PROVIDER;
pub use scratch::{Output, Scratch};
pub use session::{Received, Session, Shaken};
pub use tickets::{KEY, KeySource, PERIOD, TicketKeys};
