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
