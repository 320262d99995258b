//! How far things have come on a connection. What excludes each other is one state, with what belongs to it inside.

/// What is waited for from the client, as a connection; streams wait for their bodies themselves.
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
    /// Nothing: it has asked, and is to be answered.
    Nothing,
}

/// What the end of the server means for a connection; it only ever goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    None,
    /// The client is to be told to send no more, once nothing is in its hands, or with its next request.
    Due,
    /// It was told, and pinged: what comes in front of the answer it has sent before.
    Announced,
    /// It has answered: nothing is on its way.
    Heard,
    /// The answer is all that is waited for.
    LastCall,
    /// Which request was the last is to be said, once all are answered, or with the next.
    Last,
    /// No further request is taken.
    Now,
}

/// What is known of a client since it was last looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// Something has come.
    Heard,
    /// Nothing has.
    Quiet,
    /// Nothing has, so it was asked whether it is there, and has not answered.
    Asked,
}

/// What comes on a stream that is a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    Open,
    /// Nothing more comes.
    Ended,
    /// And what stands there was told so.
    Told,
}

/// What was said on a stream that is a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Nothing,
    /// The head of the response.
    Head,
    /// All there is to say.
    All,
}
