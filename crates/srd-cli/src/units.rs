//! Sizes, rates and times, in the form that users write and read.

pub(crate) use srd_daemon::units::parse_rate;
use std::time::Duration;

/// Parses a number of bytes in powers of 1024, such as `512`, `64K`, `2M` or `1G`. A trailing `B`
/// or `iB` is accepted.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let expected = "write a size as 1500, 64K, 2M or 1G";
    let plain = text.trim_end_matches("iB").trim_end_matches('B');
    let (digits, shift) = match plain.char_indices().last() {
        Some((at, 'k' | 'K')) => (&plain[..at], 10),
        Some((at, 'm' | 'M')) => (&plain[..at], 20),
        Some((at, 'g' | 'G')) => (&plain[..at], 30),
        _ => (plain, 0),
    };
    let number: u64 = digits.parse().map_err(|_| expected.to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("too large; {expected}"))
}

/// Parses a time, such as `5`, `5s`, `500ms`, `2m` or `1.5h`; a number without a unit is in
/// seconds.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let expected = "write a time as 10, 0.5, 500ms, 10s, 2m or 1.5h";
    let (digits, unit_s) = if let Some(digits) = text.strip_suffix("us") {
        (digits, 1e-6)
    } else if let Some(digits) = text.strip_suffix("ms") {
        (digits, 1e-3)
    } else if let Some(digits) = text.strip_suffix('s') {
        (digits, 1.0)
    } else if let Some(digits) = text.strip_suffix('m') {
        (digits, 60.0)
    } else if let Some(digits) = text.strip_suffix('h') {
        (digits, 3600.0)
    } else {
        (text, 1.0)
    };
    let number: f64 = digits.parse().map_err(|_| expected.to_owned())?;
    let seconds = number * unit_s;
    if !(0.001..=86_400.0).contains(&seconds) {
        return Err(format!("must be between 1ms and a day; {expected}"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Formats bytes as `1.95 GB`: in powers of 1000, like rates.
pub(crate) fn bytes(count: u64) -> String {
    let value = count as f64;
    match count {
        0..1_000 => format!("{count} B"),
        1_000..1_000_000 => format!("{:.1} KB", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", value / 1e6),
        _ => format!("{:.2} GB", value / 1e9),
    }
}

/// Formats a rate as `9.87 Gb/s` or `247.4 Mb/s`.
pub(crate) fn rate(bps: f64) -> String {
    if bps < 1e3 {
        return format!("{bps:.0} b/s");
    }
    if bps >= 1e9 {
        format!("{:.2} Gb/s", bps / 1e9)
    } else if bps >= 1e6 {
        format!("{:.1} Mb/s", bps / 1e6)
    } else {
        format!("{:.1} kb/s", bps / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_rates_and_times_as_people_write_them() {
        assert_eq!(parse_bytes("1500"), Ok(1500));
        assert_eq!(parse_bytes("64K"), Ok(65_536));
        assert_eq!(parse_bytes("2MiB"), Ok(2 << 20));
        assert_eq!(parse_rate("250M"), Ok(250_000_000));
        assert_eq!(parse_rate("2.5Gbit/s"), Ok(2_500_000_000));
        assert_eq!(parse_time("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_time("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_time("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_time("1.5h"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_time("2500us"), Ok(Duration::from_micros(2500)));
        let short = parse_time("500us").expect_err("too short");
        assert!(short.contains("between 1ms and a day"), "{short}");
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for text in ["", "K", "-1", "1.5K", "99999999999999999999", "18446744073709551615G"] {
            assert!(parse_bytes(text).expect_err(text).contains("64K"), "{text}");
        }
        for text in ["", "fast", "0", "-1G", "inf", "NaN"] {
            assert!(parse_rate(text).expect_err(text).contains("100G"), "{text}");
        }
        for text in ["", "soon", "0", "-1", "inf", "NaNs", "2d"] {
            assert!(parse_time(text).expect_err(text).contains("500ms"), "{text}");
        }
    }

    #[test]
    fn figures_read_well() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(2_097_152), "2.1 MB");
        assert_eq!(rate(9.876e9), "9.88 Gb/s");
        assert_eq!(rate(247.4e6), "247.4 Mb/s");
        assert_eq!(rate(10.0), "10 b/s");
    }
}
