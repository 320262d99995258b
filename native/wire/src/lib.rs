//! Sans-IO HTTP for servers.
#![forbid(unsafe_code)]

pub mod budget;
pub mod error;
pub mod h1;
pub mod headers;
pub mod limits;
mod scan;

pub use error::{AppError, Error, ErrorKind};
pub use headers::{Field, Name, Span};
pub use limits::Limits;
