//! Finds the numbers that the user has selected in the output of a command.

use anyhow::{Context, Result, bail};
use regex::Regex;
use serde_json::Value;
use std::str::FromStr;

/// Largest number of characters of a command's output in an error message.
const SHOWN_CHARS: usize = 200;

/// The rule that finds one number in an output, written as `NAME=REGEX` or `NAME=/JSON/POINTER`.
#[derive(Clone, Debug)]
pub struct Source {
    /// Name of the figure. It may contain a unit after a comma, as in `rate, Mb/s`.
    pub name: String,
    place: Selector,
}

#[derive(Clone, Debug)]
enum Selector {
    /// The first group of a regular expression. If the expression matches several times, the last
    /// match counts.
    Text(Regex),
    /// A JSON pointer (RFC 6901) into the output, which must be JSON.
    Json(String),
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Source, String> {
        let Some((name, place)) = text.split_once('=') else {
            return Err(format!(
                "`{text}` has no `=`: write NAME=REGEX, with the number in its first group, or \
                 NAME=/JSON/POINTER"
            ));
        };
        let name = name.trim().to_owned();
        if name.is_empty() || name == "time" || name == "failed" {
            return Err(format!("`{name}` is no name for a figure: `time` and `failed` are ours"));
        }
        if place.starts_with('/') {
            return Ok(Source { name, place: Selector::Json(place.to_owned()) });
        }
        let regex = Regex::new(place).map_err(|error| error.to_string())?;
        if regex.captures_len() < 2 {
            return Err(format!(
                "`{place}` has no group: put the number in brackets, as ([0-9.]+)"
            ));
        }
        Ok(Source { name, place: Selector::Text(regex) })
    }
}

impl Source {
    /// Finds the number in the output of a command.
    ///
    /// # Errors
    /// If the output does not contain the number, or the text found is not a finite number.
    pub fn find(&self, printed: &str) -> Result<f64> {
        let found = match &self.place {
            Selector::Text(regex) => of_text(regex, printed),
            Selector::Json(pointer) => of_json(pointer, printed),
        };
        found.with_context(|| {
            let shown: String = printed.trim().chars().take(SHOWN_CHARS).collect();
            if shown.is_empty() {
                return format!(
                    "the figure `{}` is not there: the command printed nothing",
                    self.name
                );
            }
            format!("the figure `{}` is not in what the command printed: {shown}", self.name)
        })
    }
}

fn of_text(regex: &Regex, printed: &str) -> Result<f64> {
    let last = regex.captures_iter(printed).last();
    let group = last.and_then(|captures| captures.get(1));
    let text = group.with_context(|| format!("nothing matches `{regex}`"))?.as_str();
    number(text)
}

fn of_json(pointer: &str, printed: &str) -> Result<f64> {
    let json: Value = serde_json::from_str(printed).context("its output is no JSON")?;
    match json.pointer(pointer) {
        None => bail!("nothing stands at {pointer}"),
        Some(Value::String(text)) => number(text),
        Some(value) => value.as_f64().with_context(|| format!("{pointer} is no number")),
    }
}

fn number(text: &str) -> Result<f64> {
    let plain = without_commas(text.trim()).with_context(|| {
        format!("a comma in `{text}` does not separate thousands; decimals follow a point")
    })?;
    let number: f64 = plain.parse().with_context(|| format!("`{text}` is no number"))?;
    if !number.is_finite() {
        bail!("`{text}` is not finite");
    }
    Ok(number)
}

/// Returns a number without the commas that separate its thousands, as in 12,345.6; `None` if a
/// comma stands elsewhere.
fn without_commas(text: &str) -> Option<String> {
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut groups = whole.split(',');
    let first = groups.next().unwrap_or_default();
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_group = |group: &str| group.len() == 3 && is_digits(group);
    let begins = first.trim_start_matches(['+', '-']);
    let begins_well = (1..=3).contains(&begins.len()) && is_digits(begins);
    let is_plain = whole == first;
    let is_good = is_plain || (begins_well && groups.all(is_group));
    (is_good && !rest.contains(',')).then(|| text.replace(',', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        text.parse().unwrap()
    }

    #[test]
    fn the_last_match_counts_and_thousands_may_be_separated() {
        let set = source("SET, 1/s=SET: ([0-9.,]+) requests");
        assert_eq!(set.name, "SET, 1/s");
        let printed = "SET: 12.5 requests\nGET: 7 requests\nSET: 12,345.5 requests\n";
        assert_eq!(set.find(printed).unwrap(), 12_345.5);
        let error = format!("{:#}", set.find("nothing").unwrap_err());
        assert!(error.contains("`SET, 1/s`") && error.contains("nothing matches"), "{error}");
    }

    #[test]
    fn json_is_pointed_into() {
        let printed = r#"{"end": {"streams": [{"bps": 5}, {"bps": "6.5"}], "word": true}}"#;
        assert_eq!(source("a=/end/streams/0/bps").find(printed).unwrap(), 5.0);
        assert_eq!(source("a=/end/streams/1/bps").find(printed).unwrap(), 6.5);
        for (wrong, said) in [("/end/none", "nothing stands"), ("/end/word", "no number")] {
            let error = source(&format!("a={wrong}")).find(printed).unwrap_err();
            assert!(format!("{error:#}").contains(said), "{error:#}");
        }
        assert!(format!("{:#}", source("a=/b").find("text").unwrap_err()).contains("no JSON"));
    }

    #[test]
    fn what_cannot_be_looked_for_is_refused() {
        let error = |text: &str| text.parse::<Source>().unwrap_err();
        assert!(error("rate").contains("NAME=REGEX"));
        assert!(error("rate=[0-9]+").contains("no group"));
        assert!(error("rate=([0-9").contains("regex"));
        assert!(error("time=(.)").contains("ours"));
        assert!(source("a=(inf)").find("inf").is_err());
    }

    /// In an earlier version, a decimal comma was removed, and `0,25` was the number 25.
    #[test]
    fn regression_a_comma_separates_thousands_or_is_an_error() {
        let find = |printed: &str| source("a=(\\S+)").find(printed);
        for (text, value) in
            [("1,234,567", 1_234_567.0), ("-12,345.5", -12_345.5), ("1e3", 1000.0), ("7", 7.0)]
        {
            assert_eq!(find(text).unwrap(), value);
        }
        for wrong in ["0,25", "1234,567", "1,23,456", ",5", "1,", "1.234,5", "1,2e3"] {
            let error = format!("{:#}", find(wrong).unwrap_err());
            assert!(error.contains("does not separate thousands"), "{error}");
        }
    }
}
