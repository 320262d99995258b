//! The keys that workers share: each is derived from the secret of the server, under a name.

use std::sync::Arc;

use quinn_proto::crypto::{HandshakeTokenKey, HmacKey};

use crate::provider::{hkdf, hmac};

/// Makes the tokens of stateless resets (RFC 9000 section 10.3.2): one worker resets the connections of another.
pub(crate) fn reset_key(secret: &[u8; 32]) -> Arc<dyn HmacKey> {
    Arc::new(hmac::Key::new(hmac::HMAC_SHA256, derived(secret, b"uvicorn quic stateless reset").as_ref()))
}

/// Encrypts address validation tokens (RFC 9000 section 8.1): one worker reads those of another.
pub(crate) fn token_key(secret: &[u8; 32]) -> Arc<dyn HandshakeTokenKey> {
    let key = derived(secret, b"uvicorn quic address validation");
    Arc::new(hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(key.as_ref()))
}

fn derived(secret: &[u8; 32], name: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), name)
}
