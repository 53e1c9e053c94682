//! Errors in configuration files that a person writes: the fault, its position, and its remedy.
//!
//! | module | contents |
//! |---|---|
//! | `kind` | the kinds of files, to name one that is given in place of another |
#![forbid(unsafe_code)]

mod kind;

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

pub use kind::FileKind;

/// Largest number of characters that are shown of a line.
const SHOWN_CHARS_MAX: usize = 100;

/// Reason why a configuration was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// Path of the file.
    pub file: PathBuf,
    /// Position of the fault; `None` if the fault is not at one position.
    pub place: Option<Location>,
    /// Description of the fault.
    pub what: String,
    /// Advice how the user can correct the fault.
    pub remedy: String,
}

/// Position in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Location {
    /// Number of the line, counted from 1.
    pub line: usize,
    /// Column in characters, counted from 1.
    pub column: usize,
    /// Number of characters to mark in the line.
    pub width: usize,
    /// Text of the line.
    pub text: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, place, what, remedy } = self;
        write!(f, "{}:", file.display())?;
        if let Some(Location { line, column, .. }) = place {
            write!(f, "{line}:{column}:")?;
        }
        write!(f, " {what}")?;
        if let Some(Location { line, column, width, text }) = place
            && text.chars().count() <= SHOWN_CHARS_MAX
        {
            let (number, indent) = (line.to_string(), column.saturating_sub(1));
            write!(f, "\n  {number} | {text}\n  {:1$} | ", "", number.len())?;
            write!(f, "{}{}", " ".repeat(indent), "^".repeat((*width).max(1)))?;
        }
        if remedy.is_empty() { Ok(()) } else { write!(f, "\n  remedy: {remedy}") }
    }
}

impl std::error::Error for ConfigError {}

/// Path and text of a file, to which errors refer.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Path of the file.
    pub path: &'a Path,
    /// Text of the file.
    pub text: &'a str,
}

impl Source<'_> {
    /// Returns an error whose position is `span`, a range of bytes of the text. `None`: the error
    /// has no position.
    pub fn error(
        &self,
        span: Option<Range<usize>>,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> ConfigError {
        ConfigError {
            file: self.path.to_path_buf(),
            place: span.map(|span| self.place(&span)),
            what: what.into(),
            remedy: remedy.into(),
        }
    }

    /// Returns the error for a key of the table `[expert]` that stands in another table; `None` if
    /// `message`, a message of the TOML parser about `span`, has another cause. `keys` are the keys
    /// of `[expert]`.
    pub fn moved_to_expert(
        &self,
        span: Option<Range<usize>>,
        message: &str,
        keys: &[&str],
    ) -> Option<ConfigError> {
        let key = message.strip_prefix("unknown field `")?.split('`').next()?;
        let key = keys.iter().find(|expert| **expert == key)?;
        let what = format!("`{key}` is a key of the table [expert], not of this one");
        let remedy = format!("take it out here, and write `{key}` under a line [expert]");
        Some(self.error(span, what, remedy))
    }

    fn place(&self, span: &Range<usize>) -> Location {
        let begin = span.start.min(self.text.len());
        let before = self.text.get(..begin).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let line_begin = before.rfind('\n').map_or(0, |at| at + 1);
        let rest = self.text.get(line_begin..).unwrap_or_default();
        let text = rest.lines().next().unwrap_or_default();
        let line_end = line_begin + text.len();
        let meant = self.text.get(begin..span.end.min(line_end)).unwrap_or_default();
        // A tab counts as one character, but would be shown with the width of several.
        let text = text.replace('\t', " ");
        let column = before.get(line_begin..).unwrap_or_default().chars().count() + 1;
        Location { line, column, width: meant.chars().count(), text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "mtu = 9000\n\tpeers = [\"é\", 7]\nlast";

    fn source() -> Source<'static> {
        Source { path: Path::new("/etc/srd.toml"), text: TEXT }
    }

    /// Returns the error about the only place where the text contains `part`.
    fn about(part: &str) -> ConfigError {
        let begin = TEXT.find(part).unwrap();
        source().error(Some(begin..begin + part.len()), "no address", "give an address")
    }

    #[test]
    fn a_position_counts_lines_and_characters_from_one() {
        let place = about("9000").place.unwrap();
        assert_eq!((place.line, place.column, place.width), (1, 7, 4));
        // A tab and a character of two bytes count as one column each.
        let place = about("7").place.unwrap();
        assert_eq!((place.line, place.column, place.width), (2, 16, 1));
        assert_eq!(place.text, " peers = [\"é\", 7]");
    }

    #[test]
    fn the_message_marks_the_fault_below_its_line() {
        let text = about("7").to_string();
        let wanted = "/etc/srd.toml:2:16: no address\n  2 |  peers = [\"é\", 7]\n    | \
                      \u{20}              ^\n  remedy: give an address";
        assert_eq!(text, wanted);
    }

    #[test]
    fn a_fault_of_several_lines_is_marked_to_the_end_of_the_first() {
        let begin = TEXT.find("7").unwrap();
        let place = source().error(Some(begin..TEXT.len()), "", "").place.unwrap();
        assert_eq!((place.line, place.width), (2, 2));
    }

    #[test]
    fn a_position_beyond_the_text_is_its_end() {
        let place = source().error(Some(500..900), "", "").place.unwrap();
        assert_eq!((place.line, place.column, place.width), (3, 5, 0));
    }

    /// A regression: the message stated that a key `was moved` that its table has never had.
    #[test]
    fn regression_a_key_of_the_experts_is_named_as_such_in_each_table() {
        let text = "[control]\npaths = 8\n";
        let source = Source { path: Path::new("f"), text };
        let at = text.find("paths").map(|at| at..at + 5);
        let of_parser = "unknown field `paths`, expected `socket`";
        let error = source.moved_to_expert(at, of_parser, &["paths"]).unwrap();
        assert_eq!(error.what, "`paths` is a key of the table [expert], not of this one");
        assert_eq!(error.remedy, "take it out here, and write `paths` under a line [expert]");
        assert_eq!(error.place.unwrap().line, 2);
        let unknown = "unknown field `pathes`, expected `socket`";
        assert_eq!(source.moved_to_expert(None, unknown, &["paths"]), None);
    }

    #[test]
    fn a_message_without_position_or_remedy_has_neither() {
        let error = source().error(None, "too large", "");
        assert_eq!(error.to_string(), "/etc/srd.toml: too large");
        // A long line is not shown.
        let text = "x".repeat(SHOWN_CHARS_MAX + 1);
        let error = Source { text: &text, ..source() }.error(Some(0..1), "bad", "");
        assert_eq!(error.to_string(), "/etc/srd.toml:1:1: bad");
    }
}
