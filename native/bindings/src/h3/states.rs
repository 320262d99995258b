//! The states of a connection and its streams. States that exclude each other are one enum.

/// The input that a connection waits for; streams wait for theirs themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaits {
    /// The first request.
    Beginning,
    /// The next request.
    Idle,
    /// The rest of its acknowledgements: the last response was given to QUIC.
    Acknowledgements,
    /// Nothing: the client awaits a response, or a stream awaits the client.
    Nothing,
}

/// The way of a connection to its end when the server stops, or has too many connections; it only ever goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    None,
    /// A GOAWAY asks for no more requests; those on their way are served.
    Announced,
    /// These have a moment to arrive.
    LastCall,
    /// No further request is taken.
    Now,
}

/// Whether a stream is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// QUIC tells when there is something.
    Open,
    /// There may be more, and the application has enough.
    Paused,
    /// Nothing more comes, or is wanted.
    Over,
}
