//! Tables and strings of TOML.

use std::fmt::Display;

/// The text of a file that is being written.
#[derive(Debug, Default)]
pub(super) struct Text(String);

impl Text {
    /// Begins the table of an object.
    pub(super) fn table(&mut self, kind: &str, name: &str) {
        self.0.push_str("\n[");
        self.0.push_str(kind);
        self.0.push('.');
        self.quoted(name);
        self.0.push_str("]\n");
    }

    /// Adds a key with a text.
    pub(super) fn string(&mut self, key: &str, value: &str) {
        self.0.push_str(key);
        self.0.push_str(" = ");
        self.quoted(value);
        self.0.push('\n');
    }

    /// Adds a key with a number or a truth value.
    pub(super) fn value(&mut self, key: &str, value: impl Display) {
        self.0.push_str(&format!("{key} = {value}\n"));
    }

    /// Adds a key with a list of texts, one in each line.
    pub(super) fn list<T: Display>(&mut self, key: &str, values: impl IntoIterator<Item = T>) {
        self.0.push_str(key);
        self.0.push_str(" = [");
        let mut several = false;
        for value in values {
            self.0.push_str(if several { ",\n  " } else { "\n  " });
            self.quoted(&value.to_string());
            several = true;
        }
        self.0.push_str(if several { "\n]\n" } else { "]\n" });
    }

    fn quoted(&mut self, text: &str) {
        self.0.push('"');
        for c in text.chars() {
            match c {
                '"' | '\\' => self.0.extend(['\\', c]),
                c if c.is_control() => self.0.push_str(&format!("\\u{:04X}", u32::from(c))),
                c => self.0.push(c),
            }
        }
        self.0.push('"');
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }

    /// Returns the name of each table, as in its header, and its content. The name of the keys
    /// before the first table is empty.
    pub(super) fn tables(&self) -> impl Iterator<Item = (&str, &str)> {
        // Line breaks in texts are escaped, and lines of lists are indented: so only a header
        // begins with a bracket.
        self.0.split("\n[").enumerate().map(|(at, part)| match part.split_once("]\n") {
            Some(table) if at > 0 => table,
            _ => ("", part),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_a_text_are_told_apart_by_their_headers() {
        let odd = "a]\n[b]\n";
        let mut text = Text::default();
        text.string("top", odd);
        text.table("group", odd);
        text.list("many", ["[x]", odd]);
        text.list("none", Vec::<String>::new());
        text.table("group", "sg-2");
        let mut again = String::new();
        let names: Vec<&str> = text.tables().map(|(name, _)| name).collect();
        for (name, content) in text.tables() {
            let header = format!("\n[{name}]\n");
            again += if name.is_empty() { "" } else { &header };
            again += content;
        }
        assert_eq!(names, ["", "group.\"a]\\u000A[b]\\u000A\"", "group.\"sg-2\""]);
        let [read, whole] = [again, text.into_string()].map(|text| text.parse::<toml::Table>());
        assert_eq!(read.unwrap(), whole.unwrap());
    }

    #[test]
    fn any_text_is_read_as_it_was_written() {
        let odd = "a\"b\\c\n\u{1}\u{7f}\u{85}é";
        let mut text = Text::default();
        text.string("top", odd);
        text.table("group", "sg-1");
        text.list("many", [odd, "x"]);
        text.list("none", Vec::<String>::new());
        text.value("number", 7);
        let read: toml::Table = text.into_string().parse().unwrap();
        assert_eq!(read["top"].as_str(), Some(odd));
        let table = &read["group"]["sg-1"];
        assert_eq!(table["many"][0].as_str(), Some(odd));
        assert_eq!(table["none"].as_array().map(Vec::len), Some(0));
        assert_eq!(table["number"].as_integer(), Some(7));
    }
}
