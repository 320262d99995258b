//! The provider of cryptography: AWS-LC, or ring where that does not build.

#[cfg(feature = "aws-lc")]
pub(crate) use aws_lc_rs::aead;
#[cfg(feature = "aws-lc")]
use aws_lc_rs::rand;
#[cfg(all(feature = "ring", not(feature = "aws-lc")))]
pub(crate) use ring::aead;
#[cfg(all(feature = "ring", not(feature = "aws-lc")))]
use ring::rand;

use rustls::crypto::CryptoProvider;
use rustls::{CipherSuite, SupportedCipherSuite};

#[cfg(feature = "aws-lc")]
use crate::direct;

/// The name of the provider.
pub const PROVIDER: &str = if cfg!(feature = "aws-lc") { "AWS-LC" } else { "ring" };

/// All cipher suites of the provider, in its order.
pub(crate) fn cipher_suites() -> &'static [SupportedCipherSuite] {
    #[cfg(feature = "aws-lc")]
    return &direct::CIPHER_SUITES;
    #[cfg(all(feature = "ring", not(feature = "aws-lc")))]
    return rustls::crypto::ring::ALL_CIPHER_SUITES;
}

/// Everything that a server needs of the provider, in the order of preference.
///
/// X25519MLKEM768, which resists quantum computers, comes first if the provider has it. Of the suites those with
/// AES-128-GCM and SHA-256 do, as in `BoringSSL` and Go: hashing is half of a handshake with SHA-384, for which processors
/// have no instructions, and both suites are out of reach of any attack known.
pub(crate) fn provider() -> CryptoProvider {
    #[cfg(feature = "aws-lc")]
    let mut provider = {
        use rustls::crypto::aws_lc_rs::{default_provider, kx_group};

        let kx_groups = vec![kx_group::X25519MLKEM768, kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1];
        CryptoProvider { kx_groups, ..default_provider() }
    };
    #[cfg(all(feature = "ring", not(feature = "aws-lc")))]
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites = cipher_suites().to_vec();
    // The sort is stable: versions and kinds of certificates do not compete for a client.
    provider.cipher_suites.sort_by_key(|suite| match suite.suite() {
        CipherSuite::TLS13_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => 0,
        CipherSuite::TLS13_AES_256_GCM_SHA384
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => 1,
        _ => 2,
    });
    provider
}

/// Fill `room` at random.
pub(crate) fn random(room: &mut [u8]) -> Option<()> {
    rand::SecureRandom::fill(&rand::SystemRandom::new(), room).ok()
}
