//! Converts a document of the project from Markdown to a man page. It supports the headings,
//! paragraphs, lists, tables and examples that these documents contain. Each fact is therefore
//! written only once, in the document.

use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

/// A block of a Markdown document, such as a paragraph.
#[derive(PartialEq, Eq, Debug)]
enum Block<'a> {
    Heading(&'a str),
    Paragraph(String),
    /// Item of a list.
    Item(String),
    Example(Vec<&'a str>),
    /// Rows of cells; the first row contains the titles.
    Table(Vec<Vec<String>>),
}

/// Returns the lines of a document after its title.
pub(super) fn body(text: &str) -> Vec<&str> {
    text.lines().skip(1).collect()
}

/// Converts lines of Markdown, and appends them to `roff`.
pub(super) fn render(lines: &[&str], roff: &mut Roff) {
    for block in blocks(lines) {
        match block {
            Block::Heading(text) => {
                roff.control("SH", [text.to_uppercase().as_str()]);
            }
            Block::Paragraph(text) => {
                roff.control("PP", []);
                roff.text(inlines(&text));
            }
            Block::Item(text) => {
                roff.control("IP", ["\\(bu", "2"]);
                roff.text(inlines(&text));
            }
            Block::Example(lines) => {
                roff.control("PP", []);
                roff.control("nf", []);
                roff.control("RS", ["2"]);
                for line in lines {
                    roff.text([roman(line)]);
                }
                roff.control("RE", []);
                roff.control("fi", []);
            }
            Block::Table(rows) => table(&rows, roff),
        }
    }
}

/// Writes each row of a table as an entry under the text of its first cell.
fn table(rows: &[Vec<String>], roff: &mut Roff) {
    let Some((titles, rows)) = rows.split_first() else { return };
    for row in rows {
        let Some((name, cells)) = row.split_first() else { continue };
        roff.control("TP", []);
        let mut name = inlines(name);
        for part in &mut name {
            if let Inline::Roman(text) = part {
                *part = bold(std::mem::take(text));
            }
        }
        roff.text(name);
        for (number, (title, cell)) in titles.iter().skip(1).zip(cells).enumerate() {
            if cell.is_empty() {
                continue;
            }
            // The cell after the row's name needs no title; each later cell begins with the title
            // of its column.
            let title = if number == 0 { String::new() } else { format!("{title}: ") };
            let mut text = inlines(&format!("{title}{cell}"));
            text.push(roman("."));
            roff.text(text);
        }
    }
}

fn blocks<'a>(lines: &[&'a str]) -> Vec<Block<'a>> {
    let mut found = Vec::new();
    let mut lines = lines.iter().copied().peekable();
    while let Some(line) = lines.next() {
        if line.trim().is_empty() {
            continue;
        }
        if line.starts_with("```") {
            let example = lines.by_ref().take_while(|line| !line.starts_with("```"));
            found.push(Block::Example(example.collect()));
        } else if let Some(heading) = line.strip_prefix("## ").or(line.strip_prefix("### ")) {
            found.push(Block::Heading(heading));
        } else if line.starts_with('|') {
            let mut rows = vec![cells(line)];
            while let Some(row) = lines.next_if(|line| line.starts_with('|')) {
                rows.push(cells(row));
            }
            // The line below the titles, such as `|---|---|`, is no row.
            rows.retain(|row| !row.iter().all(|cell| cell.chars().all(|c| "-: ".contains(c))));
            found.push(Block::Table(rows));
        } else {
            let item = line.strip_prefix("- ");
            let mut text = item.unwrap_or(line).to_owned();
            let goes_on = |line: &&str| {
                let begins = ["```", "## ", "### ", "- ", "|"];
                !line.trim().is_empty() && !begins.iter().any(|begin| line.starts_with(begin))
            };
            while let Some(more) = lines.next_if(goes_on) {
                text.push(' ');
                text.push_str(more.trim_start());
            }
            found.push(if item.is_some() { Block::Item(text) } else { Block::Paragraph(text) });
        }
    }
    found
}

/// Returns the cells of a row. A bar after a backslash is part of a cell and ends none.
fn cells(row: &str) -> Vec<String> {
    let row = row.trim().trim_start_matches('|').replace("\\|", "\u{0}");
    let row = row.strip_suffix('|').unwrap_or(&row);
    row.split('|').map(|cell| cell.trim().replace('\u{0}', "|")).collect()
}

/// Splits a text into four kinds of parts: plain text, words between backquotes, words between
/// stars, and texts of links.
fn inlines(text: &str) -> Vec<Inline> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['`', '*', '[']) {
        let (before, from) = rest.split_at(at);
        let part = if from.starts_with("**") {
            between(from, "**", "**").map(|(text, rest)| (bold(text), rest))
        } else if from.starts_with('`') {
            between(from, "`", "`").map(|(text, rest)| (bold(text), rest))
        } else if from.starts_with('*') {
            between(from, "*", "*").map(|(text, rest)| (italic(text), rest))
        } else {
            between(from, "[", "](").and_then(|(text, rest)| {
                let (_, rest) = rest.split_once(')')?;
                Some((italic(text.replace('`', "")), rest))
            })
        };
        let (part, after) = part.unwrap_or_else(|| {
            let (sign, after) = from.split_at(1);
            (roman(sign), after)
        });
        if !before.is_empty() {
            found.push(roman(before));
        }
        found.push(part);
        rest = after;
    }
    if !rest.is_empty() {
        found.push(roman(rest));
    }
    found
}

/// Returns the text between the signs `open` and `close`, and the text after them. `text` must
/// begin with `open`; otherwise the result is `None`.
fn between<'a>(text: &'a str, open: &str, close: &str) -> Option<(&'a str, &'a str)> {
    text.strip_prefix(open)?.split_once(close).filter(|(inner, _)| !inner.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "\
# Title

One `word` and a **strong** one,
[linked](there.md).

## The file

| key | meaning | without it |
|---|---|---|
| `a` | one \\| two | `1` |
| `[b.N]` | three | |

- an item
  that goes on
- another

```toml
.a = 1
```
## Last
";

    #[test]
    fn each_part_of_a_document_is_one_of_the_page() {
        let mut roff = Roff::default();
        render(&body(DOCUMENT), &mut roff);
        let page = roff.render();
        for part in [
            "One \\fBword\\fR and a \\fBstrong\\fR one, \\fIlinked\\fR.",
            ".SH \"THE FILE\"",
            ".TP\n\\fBa\\fR\none | two.\nwithout it: \\fB1\\fR.",
            ".TP\n\\fB[b.N]\\fR\nthree.",
            ".IP \\(bu 2\nan item that goes on",
            ".nf\n.RS 2\n\\&.a = 1\n.RE\n.fi",
            ".SH LAST",
        ] {
            assert!(page.contains(part), "{part}\nnot in\n{page}");
        }
        assert!(!page.contains("---"));
    }
}
