//! The states of a connection. States that exclude each other are one enum, with their data inside.

/// The end of the client's input: no other state repeats it. It only ever goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// More may come.
    Open,
    /// Nothing more comes, beyond the bytes that the system still holds.
    Known,
    /// All that there is was received.
    Here,
}

/// Whether input is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    On,
    Paused {
        /// The descriptor of its transport's socket, if that is watched for the client's end.
        heeded: Option<i32>,
    },
}

/// The end of the server's output. One that is not at once leaves the client time to read it: if its input came to a closed
/// socket, the kernel would reset the connection, and the last responses could be lost (RFC 9112 section 9.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    /// Nothing was sent that the client may still be reading, or it is to notice that the rest is missing.
    AtOnce,
    /// A response was the last thing sent.
    AfterResponse,
    /// The same, and the client is sending a body, perhaps with pauses.
    AmidBody,
}

/// The effect of the server's shutdown on a connection; it only ever goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    None,
    /// The next head contains `close`.
    Announced,
    /// And its request has to come soon.
    LastCall,
    /// No further request is taken.
    Now,
}
