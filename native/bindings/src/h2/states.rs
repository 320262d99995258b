//! The states of a connection. States that exclude each other are one enum, with their data inside.

/// The input that a connection waits for; streams wait for their bodies themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaits {
    /// All that a connection begins with, and the first request.
    Beginning,
    /// The next request.
    Idle,
    /// The rest of a header section.
    Section,
    /// The rest of a frame.
    Frame,
    /// Nothing: the client awaits a response.
    Nothing,
}

/// The way of a connection to its end when the server stops, or has too many connections; it only ever goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    None,
    /// A GOAWAY is due once no response is in progress, or with the client's next request.
    Due,
    /// GOAWAY and PING were sent: frames before the answer were sent before the client knew.
    Announced,
    /// It has answered: nothing is on its way.
    Heard,
    /// The answer is all that is waited for.
    LastCall,
    /// The GOAWAY with the last request is due, once all are answered, or with the next one.
    Last,
    /// No further request is taken.
    Now,
}

/// Signs of life from a client since the last check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// Something has come.
    Heard,
    /// Nothing has.
    Quiet,
    /// Silent: it was pinged, and has not answered.
    Asked,
}
