//! Numbers as text for the user.

use srd_watch::text::grouped;

/// Returns a count with commas: `136,812`.
pub fn count(value: f64) -> String {
    grouped(format_args!("{:.0}", value.max(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_commas() {
        assert_eq!(count(136_812.4), "136,812");
        assert_eq!((count(999.0), count(0.0)), ("999".into(), "0".into()));
    }
}
