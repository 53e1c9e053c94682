//! Signature Version 4 of AWS for a form that is posted to the path `/`.

use ring::{digest, hmac};

use super::key::Access;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// Media type of a form.
const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";

/// Returns the headers of a signed request. `time` has the form of [`super::time::format`].
pub fn headers(
    access: &Access,
    region: &str,
    host: &str,
    body: &[u8],
    time: &str,
) -> Vec<(&'static str, String)> {
    let day = time.get(..8).unwrap_or_default();
    let scope = format!("{day}/{region}/ec2/aws4_request");
    let signed = "content-type;host;x-amz-date";
    let canonical = format!(
        "POST\n/\n\ncontent-type:{FORM}\nhost:{host}\nx-amz-date:{time}\n\n{signed}\n{}",
        sha256(body)
    );
    let text = format!("{ALGORITHM}\n{time}\n{scope}\n{}", sha256(canonical.as_bytes()));
    let mut key = format!("AWS4{}", access.secret).into_bytes();
    for part in [day, region, "ec2", "aws4_request"] {
        key = mac(&key, part.as_bytes());
    }
    let signature = hex(&mac(&key, text.as_bytes()));
    let id = &access.id;
    let authorization = format!(
        "{ALGORITHM} Credential={id}/{scope}, SignedHeaders={signed}, Signature={signature}"
    );
    vec![
        ("host", host.to_owned()),
        ("x-amz-date", time.to_owned()),
        ("content-type", FORM.to_owned()),
        ("authorization", authorization),
    ]
}

fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text).as_ref().to_vec()
}

/// The SHA-256 digest of bytes, in hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// Bytes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Encodes the value of a parameter of a form.
pub fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}
