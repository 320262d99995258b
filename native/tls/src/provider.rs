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

#[cfg(feature = "aws-lc")]
pub(crate) use rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;
#[cfg(all(feature = "ring", not(feature = "aws-lc")))]
pub(crate) use rustls::crypto::ring::ALL_CIPHER_SUITES;

/// Everything that a server needs of the provider, in the order of preference.
///
/// X25519MLKEM768, which resists quantum computers, comes first if the provider has it.
pub(crate) fn provider() -> CryptoProvider {
    #[cfg(feature = "aws-lc")]
    {
        use rustls::crypto::aws_lc_rs::{default_provider, kx_group};

        let kx_groups = vec![kx_group::X25519MLKEM768, kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1];
        CryptoProvider { kx_groups, ..default_provider() }
    }
    #[cfg(all(feature = "ring", not(feature = "aws-lc")))]
    rustls::crypto::ring::default_provider()
}

/// Fill `room` at random.
pub(crate) fn random(room: &mut [u8]) -> Option<()> {
    rand::SecureRandom::fill(&rand::SystemRandom::new(), room).ok()
}
