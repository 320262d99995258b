//! PEM (RFC 7468), with the header fields of encrypted keys (RFC 1421 section 4.4).

use base64ct::{Base64, Encoding as _};

/// One object of a text.
pub(crate) struct Section<'a> {
    /// `CERTIFICATE`, `PRIVATE KEY` ...
    pub(crate) label: &'a str,
    /// Name and value of each header field.
    pub(crate) fields: Vec<(&'a str, &'a str)>,
    pub(crate) der: Vec<u8>,
}

impl Section<'_> {
    /// The value of a header field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
    }

    pub(crate) fn is_certificate(&self) -> bool {
        matches!(self.label, "CERTIFICATE" | "X509 CERTIFICATE")
    }
}

/// The objects in `text`, in their order; `None` if one is malformed. Text between them is ignored.
pub(crate) fn sections(text: &[u8]) -> Option<Vec<Section<'_>>> {
    let mut found = Vec::new();
    let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    while let Some(line) = lines.next() {
        let Some(label) = label_of(line, b"-----BEGIN ") else { continue };
        let mut section = Section { label, fields: Vec::new(), der: Vec::new() };
        let mut content = Vec::new();
        loop {
            let line = lines.next()?;
            if let Some(end) = label_of(line, b"-----END ") {
                if end != label {
                    return None;
                }
                break;
            }
            // A colon is no digit of base64.
            match std::str::from_utf8(line).ok()?.split_once(':') {
                Some((name, value)) => section.fields.push((name.trim(), value.trim())),
                None => content.extend_from_slice(line),
            }
        }
        section.der = Base64::decode_vec(std::str::from_utf8(&content).ok()?).ok()?;
        found.push(section);
    }
    Some(found)
}

/// The label of a line that begins or ends an object.
fn label_of<'a>(line: &'a [u8], prefix: &[u8]) -> Option<&'a str> {
    std::str::from_utf8(line.strip_prefix(prefix)?.strip_suffix(b"-----")?).ok()
}
