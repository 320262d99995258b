//! Request methods (RFC 9110 section 9), the same in every version of HTTP.

use crate::headers::token_byte;

macro_rules! methods {
    ($($method:ident $text:literal)*) => {
        /// The methods worth telling apart without comparing text.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Method {
            $(#[doc = $text] $method,)*
            /// Any other; its text is in the head.
            #[default]
            Other,
        }

        impl Method {
            /// Every method but [`Method::Other`], in order.
            pub const ALL: &'static [Method] = &[$(Method::$method),*];

            /// The method's text; empty for [`Method::Other`].
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Method::$method => $text,)*
                    Method::Other => "",
                }
            }

            #[inline]
            pub(crate) fn classify(text: &[u8]) -> Self {
                $(if text == $text.as_bytes() { return Method::$method; })*
                Method::Other
            }
        }
    };
}

methods! {
    Get "GET"
    Post "POST"
    Head "HEAD"
    Put "PUT"
    Delete "DELETE"
    Options "OPTIONS"
    Patch "PATCH"
    Trace "TRACE"
    Connect "CONNECT"
}

/// Methods are case-sensitive tokens (RFC 9110 section 9.1); every registered one is upper case. Lower case and `#`,
/// which indicate a confused or hostile sender, are refused.
#[inline]
pub(crate) fn is_method_byte(byte: u8) -> bool {
    token_byte(byte) != 0 && !byte.is_ascii_lowercase() && byte != b'#'
}
