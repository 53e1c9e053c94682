//! Versions of drivers.

/// Parses a driver version, such as `2.8.3g` to [2, 8, 3].
pub(super) fn version(text: &str) -> Option<[u64; 3]> {
    let plain = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let mut parts = plain.split('.').map(|part| part.parse().ok());
    Some([parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_letters_are_versions() {
        assert_eq!(version("2.8.3g"), Some([2, 8, 3]));
        assert_eq!(version("2.10"), Some([2, 10, 0]));
        assert_eq!(version("6.1.0-13-amd64"), None);
        assert_eq!(version("new"), None);
    }
}
