//! Status codes and their reason phrases (RFC 9110 section 15). They are in [`table`], which is written from those of Python.

mod table;

macro_rules! phrases {
    ($($code:literal $phrase:literal)*) => {
        /// The reason phrase of a status, or nothing.
        pub const fn phrase(status: u16) -> &'static str {
            match status {
                $($code => $phrase,)*
                _ => "",
            }
        }
    };
}

pub(crate) use table::statuses;

statuses!(phrases);
