//! The provider of cryptography, as in the crate `tls`.

#[cfg(feature = "aws-lc")]
use aws_lc_rs::rand;
#[cfg(feature = "aws-lc")]
pub(crate) use aws_lc_rs::{hkdf, hmac};
#[cfg(all(feature = "ring", not(feature = "aws-lc")))]
use ring::rand;
#[cfg(all(feature = "ring", not(feature = "aws-lc")))]
pub(crate) use ring::{hkdf, hmac};

#[cfg(feature = "aws-lc")]
pub(crate) use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
#[cfg(all(feature = "ring", not(feature = "aws-lc")))]
pub(crate) use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;

/// Fill `room` at random.
pub(crate) fn random(room: &mut [u8]) -> Option<()> {
    rand::SecureRandom::fill(&rand::SystemRandom::new(), room).ok()
}
