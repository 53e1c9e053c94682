//! The time of a signature.

use std::time::{SystemTime, UNIX_EPOCH};

/// The present time in the form of a signature, such as `20150830T123600Z`.
pub fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format(since.as_secs())
}

/// Returns the time in this form for seconds since 1970.
pub fn format(seconds: u64) -> String {
    let (mut days, second) = (seconds / 86_400, seconds % 86_400);
    let mut year = 1970;
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let length = |year: u64| if is_leap(year) { 366 } else { 365 };
    while days >= length(year) {
        days -= length(year);
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute) = (second / 3600, second / 60 % 60);
    let (day, second) = (days + 1, second % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_leap_years_are_counted() {
        for (seconds, text) in [
            (0, "19700101T000000Z"),
            (951_782_400, "20000229T000000Z"),
            (1_440_938_160, "20150830T123600Z"),
            (1_709_251_199, "20240229T235959Z"),
            (1_709_251_200, "20240301T000000Z"),
            (1_735_689_599, "20241231T235959Z"),
            (4_107_542_400, "21000301T000000Z"),
        ] {
            assert_eq!(format(seconds), text);
        }
    }
}
