//! Forms (`application/x-www-form-urlencoded`), and percent-encoding.

use crate::error::{ApiError, ApiResult};

/// Largest number of parameters of a request.
pub const PARAMETERS_MAX: usize = 20_000;

fn malformed(message: &str) -> ApiError {
    ApiError::new("MalformedQueryString", message)
}

/// Returns the names and values of a form in their order.
///
/// # Errors
/// If an escape is incomplete, the text is not UTF-8, or there are too many parameters.
pub fn parse(form: &str) -> ApiResult<Vec<(String, String)>> {
    let mut parameters = Vec::new();
    for pair in form.split('&').filter(|pair| !pair.is_empty()) {
        if parameters.len() == PARAMETERS_MAX {
            return Err(malformed("The request has too many parameters"));
        }
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        parameters.push((decode(name)?, decode(value)?));
    }
    Ok(parameters)
}

/// Decodes percent-encoding; `+` is a space.
fn decode(text: &str) -> ApiResult<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digit = |byte: Option<u8>| byte.and_then(|b| char::from(b).to_digit(16));
                let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else {
                    return Err(malformed("A percent sign is not followed by two digits"));
                };
                bytes.push(u8::try_from(high * 16 + low).unwrap_or_default());
            }
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).map_err(|_| malformed("A parameter is not UTF-8"))
}

/// Encodes as Signature Version 4 requires: all bytes but letters, digits and `-._~`.
pub fn encode(text: &str) -> String {
    use std::fmt::Write;
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_decoded_and_hostile_forms_are_refused() {
        let of = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect::<Vec<_>>()
        };
        assert_eq!(
            parse("a=1&b=x+y%2Fz&&c").unwrap(),
            of(&[("a", "1"), ("b", "x y/z"), ("c", "")])
        );
        for bad in ["a=%", "a=%4", "a=%zz", "a=%ff", "%c3%28=1"] {
            assert_eq!(parse(bad).unwrap_err().code, "MalformedQueryString", "{bad}");
        }
        let many = "a=1&".repeat(PARAMETERS_MAX + 1);
        assert!(parse(&many).is_err());
        assert_eq!(encode("a b/ü~"), "a%20b%2F%C3%BC~");
    }
}
