//! Tokens of a GOAL file: words, numbers and marks.

use std::fmt;

/// A token of a GOAL file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token<'a> {
    /// A keyword or a label.
    Word(&'a str),
    /// A number that is not negative.
    Number(u64),
    /// The number `-1`, which stands for any rank or any tag.
    Any,
    /// A brace or a colon.
    Mark(char),
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => f.write_str(word),
            Self::Number(number) => write!(f, "{number}"),
            Self::Any => f.write_str("-1"),
            Self::Mark(mark) => write!(f, "{mark}"),
        }
    }
}

/// The text of a file, with the position up to which it was read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Text<'a> {
    rest: &'a str,
    // Lines of the last token and of the reading position, from 0.
    line: usize,
    ahead: usize,
}

impl<'a> Text<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text, line: 0, ahead: 0 }
    }

    /// Returns the line of the last token, from 1.
    pub(super) fn line(&self) -> usize {
        self.line + 1
    }

    /// Returns the next token without removing it; `None` if there is no valid token.
    pub(super) fn peek(&self) -> Option<Token<'a>> {
        let mut copy = *self;
        copy.next().ok().flatten()
    }

    /// Removes and returns the next token; `None` at the end of the text.
    ///
    /// # Errors
    /// If no token begins with the next character, or a number is too large.
    pub(super) fn next(&mut self) -> Result<Option<Token<'a>>, String> {
        self.skip()?;
        self.line = self.ahead;
        let Some(first) = self.rest.chars().next() else { return Ok(None) };
        let (token, length) = match first {
            '{' | '}' | ':' => (Token::Mark(first), 1),
            '0'..='9' => {
                let length = self.while_is(|c| c.is_ascii_digit());
                let digits = &self.rest[..length];
                let number = digits.parse().map_err(|_| format!("{digits} is too large"))?;
                (Token::Number(number), length)
            }
            'a'..='z' | 'A'..='Z' => {
                let length = self.while_is(|c| c.is_ascii_alphanumeric() || c == '_');
                (Token::Word(&self.rest[..length]), length)
            }
            '-' if self.rest.starts_with("-1") => (Token::Any, 2),
            other => return Err(format!("`{}` is no part of GOAL", other.escape_default())),
        };
        self.rest = &self.rest[length..];
        Ok(Some(token))
    }

    fn while_is(&self, is_part: impl Fn(char) -> bool) -> usize {
        self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len())
    }

    /// Skips white space and comments.
    fn skip(&mut self) -> Result<(), String> {
        loop {
            let blank = self.while_is(char::is_whitespace);
            self.take(blank);
            if self.rest.starts_with("//") {
                let line = self.while_is(|c| c != '\n');
                self.take(line);
            } else if self.rest.starts_with("/*") {
                self.line = self.ahead;
                let Some(end) = self.rest.find("*/") else {
                    return Err("a comment that begins here does not end".to_owned());
                };
                self.take(end + 2);
            } else {
                return Ok(());
            }
        }
    }

    fn take(&mut self, bytes: usize) {
        let (taken, rest) = self.rest.split_at(bytes);
        self.ahead += taken.bytes().filter(|b| *b == b'\n').count();
        self.rest = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_lines_are_skipped_and_counted() {
        let mut text = Text::new("a // b\n/* c\n*/ 12b:-1\r\n}");
        let mut all = Vec::new();
        while let Some(token) = text.next().unwrap() {
            all.push((token, text.line()));
        }
        let expected = [
            (Token::Word("a"), 1),
            (Token::Number(12), 3),
            (Token::Word("b"), 3),
            (Token::Mark(':'), 3),
            (Token::Any, 3),
            (Token::Mark('}'), 4),
        ];
        assert_eq!(all, expected);
        assert!(Text::new("/* a").next().unwrap_err().contains("does not end"));
        assert!(Text::new("99999999999999999999").next().unwrap_err().contains("too large"));
        assert!(Text::new("-2").next().unwrap_err().contains("no part"));
    }
}
