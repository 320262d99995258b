//! Private keys in PEM: PKCS#8, PKCS#1 and SEC1, encrypted or not.

use aes::cipher::{BlockDecryptMut as _, KeyIvInit as _, block_padding::Pkcs7};
use md5::{Digest as _, Md5};
use pkcs8::EncryptedPrivateKeyInfo;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};

use crate::pem::{Section, sections};

/// Bytes of the salt, which is the beginning of the initialization vector (`EVP_BytesToKey` of OpenSSL).
const SALT: usize = 8;

/// Why a private key cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyError {
    /// There is none.
    Missing,
    Malformed,
    /// It is encrypted, and there is no password.
    NeedsPassword,
    WrongPassword,
    /// It is encrypted in a way that is not supported.
    UnknownEncryption,
}

impl KeyError {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Missing => "the PEM data contains no private key",
            Self::Malformed => "the private key is malformed",
            Self::NeedsPassword => "the private key is encrypted, and there is no password",
            Self::WrongPassword => "the password does not fit the private key",
            Self::UnknownEncryption => "the encryption of the private key is not supported",
        }
    }
}

/// The first private key of a PEM text.
pub(crate) fn read(text: &[u8], password: Option<&[u8]>) -> Result<PrivateKeyDer<'static>, KeyError> {
    let sections = sections(text).ok_or(KeyError::Malformed)?;
    let key = sections.into_iter().find(|section| section.label.ends_with("PRIVATE KEY"));
    let key = key.ok_or(KeyError::Missing)?;
    if key.label == "ENCRYPTED PRIVATE KEY" {
        return decrypt_pkcs8(&key.der, password);
    }
    let der = match key.field("DEK-Info") {
        Some(how) => decrypt_legacy(&key, how, password)?,
        None => key.der,
    };
    match key.label {
        "PRIVATE KEY" => Ok(PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der))),
        "RSA PRIVATE KEY" => Ok(PrivateKeyDer::Pkcs1(PrivatePkcs1KeyDer::from(der))),
        "EC PRIVATE KEY" => Ok(PrivateKeyDer::Sec1(PrivateSec1KeyDer::from(der))),
        _ => Err(KeyError::Malformed),
    }
}

/// RFC 5958 section 3, with the algorithms of RFC 8018 and RFC 7914.
fn decrypt_pkcs8(der: &[u8], password: Option<&[u8]>) -> Result<PrivateKeyDer<'static>, KeyError> {
    let info = EncryptedPrivateKeyInfo::try_from(der).map_err(|_| KeyError::UnknownEncryption)?;
    if info.encryption_algorithm.pbes2().is_none() {
        return Err(KeyError::UnknownEncryption);
    }
    let password = password.ok_or(KeyError::NeedsPassword)?;
    let plain = info.decrypt(password).map_err(|error| match error {
        pkcs8::Error::EncryptedPrivateKey(pkcs8::pkcs5::Error::UnsupportedAlgorithm { .. }) => {
            KeyError::UnknownEncryption
        }
        _ => KeyError::WrongPassword,
    })?;
    Ok(PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(plain.as_bytes().to_vec())))
}

/// OpenSSL's form of encryption before PKCS#8: the name of a cipher, and an initialization vector in hexadecimal digits.
fn decrypt_legacy(key: &Section<'_>, how: &str, password: Option<&[u8]>) -> Result<Vec<u8>, KeyError> {
    let (cipher, vector) = how.split_once(',').ok_or(KeyError::Malformed)?;
    let vector = unhex(vector.trim()).ok_or(KeyError::Malformed)?;
    let password = password.ok_or(KeyError::NeedsPassword)?;
    let salt = vector.get(..SALT).ok_or(KeyError::Malformed)?;
    let derived = derive(password, salt);
    macro_rules! decrypt {
        ($cipher:ty, $size:literal) => {
            cbc::Decryptor::<$cipher>::new_from_slices(derived.get(..$size).unwrap_or_default(), &vector)
                .map_err(|_| KeyError::Malformed)?
                .decrypt_padded_vec_mut::<Pkcs7>(&key.der)
                .map_err(|_| KeyError::WrongPassword)
        };
    }
    match cipher.trim() {
        "AES-128-CBC" => decrypt!(aes::Aes128, 16),
        "AES-192-CBC" => decrypt!(aes::Aes192, 24),
        "AES-256-CBC" => decrypt!(aes::Aes256, 32),
        "DES-EDE3-CBC" => decrypt!(des::TdesEde3, 24),
        _ => Err(KeyError::UnknownEncryption),
    }
}

/// 32 bytes for a cipher: MD5, once.
fn derive(password: &[u8], salt: &[u8]) -> Vec<u8> {
    let first = Md5::new().chain_update(password).chain_update(salt).finalize();
    let second = Md5::new().chain_update(first).chain_update(password).chain_update(salt).finalize();
    [first.as_slice(), second.as_slice()].concat()
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}
