//! The dates of certificates and revocation lists (RFC 5280 sections 4.1.2.5, 5.1.2.5), in seconds since the epoch.

use std::ops::RangeInclusive;

use pkcs8::der::asn1::{AnyRef, GeneralizedTime, UtcTime};
use pkcs8::der::{Decode as _, Reader as _, Result, SliceReader, Tag, Tagged as _};

/// Between which seconds a certificate is valid.
pub(crate) fn validity(certificate: &[u8]) -> Result<RangeInclusive<u64>> {
    let mut dates = SliceReader::new(AnyRef::decode(&mut behind_issuer(certificate)?)?.value())?;
    Ok(time(&mut dates)?..=time(&mut dates)?)
}

/// When a list was issued.
pub(crate) fn this_update(list: &[u8]) -> Result<u64> {
    time(&mut behind_issuer(list)?)
}

/// The fields of a signed object that follow the name of its issuer.
fn behind_issuer(der: &[u8]) -> Result<SliceReader<'_>> {
    let mut parts = SliceReader::new(AnyRef::from_der(der)?.value())?;
    let mut fields = SliceReader::new(AnyRef::decode(&mut parts)?.value())?;
    // A version and a serial number, if there are any, and the algorithm.
    while AnyRef::decode(&mut fields)?.tag() != Tag::Sequence {}
    AnyRef::decode(&mut fields)?;
    Ok(fields)
}

fn time(fields: &mut SliceReader<'_>) -> Result<u64> {
    let duration = match fields.peek_tag()? {
        Tag::UtcTime => UtcTime::decode(fields)?.to_unix_duration(),
        _ => GeneralizedTime::decode(fields)?.to_unix_duration(),
    };
    Ok(duration.as_secs())
}
