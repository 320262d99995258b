//! The parts that connections of several streams share, whichever their version of HTTP.

pub(crate) mod deadlines;
pub(crate) mod headers;
pub(crate) mod open;
pub(crate) mod pairs;
pub(crate) mod response;
pub(crate) mod seconds;
pub(crate) mod sections;
pub(crate) mod starting;
pub(crate) mod tunnel;
