//! One entry for each request: nothing, a line as upstream prints it, or one in a format of the user's.

pub(crate) mod entry;
mod escape;
mod formatted;
pub(crate) mod lines;
mod plain;
mod untouched;
