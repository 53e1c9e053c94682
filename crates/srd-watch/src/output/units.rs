//! Rates, bytes and times as text for the user.

pub use srd_chart::grouped;

/// Returns a rate as text: `9.53 Gb/s`.
pub fn rate(bps: u64) -> String {
    let value = bps as f64;
    match bps {
        0..1_000 => format!("{bps} b/s"),
        1_000..1_000_000 => format!("{:.1} kb/s", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} Mb/s", value / 1e6),
        _ => format!("{:.2} Gb/s", value / 1e9),
    }
}

/// Returns bytes in powers of 1000: `1.95 GB`.
pub fn bytes(count: u64) -> String {
    let value = count as f64;
    match count {
        0..1_000 => format!("{count} B"),
        1_000..1_000_000 => format!("{:.1} kB", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", value / 1e6),
        _ => format!("{:.2} GB", value / 1e9),
    }
}

/// Returns a duration as text: `700 us`, `12.3 ms`, `6.01 s`, `15.2 min`, `8.2 h`.
pub fn time(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..1_000_000 => format!("{:.0} us", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", value / 1e6),
        1_000_000_000..600_000_000_000 => format!("{:.2} s", value / 1e9),
        600_000_000_000..7_200_000_000_000 => format!("{:.1} min", value / 60e9),
        _ => format!("{:.1} h", value / 3600e9),
    }
}

/// Returns a time of day in UTC, to 100 us: `14:03:07.1234`.
pub fn clock(ns: u64) -> String {
    let (seconds, rest) = (ns / 1_000_000_000 % 86_400, ns % 1_000_000_000);
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{:04}", seconds % 60, rest / 100_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_commas() {
        assert_eq!([0, 999, 1000, 136_812].map(grouped), ["0", "999", "1,000", "136,812"]);
    }

    #[test]
    fn long_times_are_minutes_and_hours() {
        let times = [0, 900_000, 12_300_000, 6_010_000_000, 60_000_000_000, 912_000_000_000];
        let said = ["0 us", "900 us", "12.3 ms", "6.01 s", "60.00 s", "15.2 min"];
        assert_eq!(times.map(time), said);
        assert_eq!(time(29_552_530_000_000), "8.2 h");
    }
}
