//! Text forms of numbers.

use std::fmt::Display;

/// Returns a number as text with a suitable number of decimals: `0.987`, `9.87`, `98.7`, `987`.
/// Zero and negative zero are `0`.
#[must_use]
pub fn figure(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        "0".to_owned()
    } else if size >= 100.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 1.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

/// Returns a whole number with commas between groups of three digits: `136,812`.
#[must_use]
pub fn grouped(number: impl Display) -> String {
    let text = number.to_string();
    let (sign, digits) = text.strip_prefix('-').map_or(("", text.as_str()), |rest| ("-", rest));
    let mut grouped = sign.to_owned();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Returns the text of a number at a tick: at most four significant digits, without zeros at the
/// end of the fraction. Numbers from 100,000 have the suffix ` k`, from ten million ` M`.
#[must_use]
pub fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".to_owned();
    }
    let (scaled, suffix) = match value.abs() {
        v if v >= 1e7 => (value / 1e6, " M"),
        v if v >= 1e5 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = 3.0 - scaled.abs().log10().floor().clamp(-6.0, 3.0);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to 9
    let text = format!("{scaled:.*}", digits as usize);
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits_and_no_zero_at_the_end() {
        for (value, text) in [
            (0.0, "0"),
            (0.5, "0.5"),
            (12.0, "12"),
            (1234.5, "1234"),
            (0.01234, "0.01234"),
            (250_000.0, "250 k"),
            (2.5e7, "25 M"),
            (-60.0, "-60"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn figures_have_three_digits() {
        assert_eq!([0.9876, 9.876, 98.76, 987.6].map(figure), ["0.988", "9.88", "98.8", "988"]);
        assert_eq!([0.0, -0.0, -0.25].map(figure), ["0", "0", "-0.250"]);
    }
}
