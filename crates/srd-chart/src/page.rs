//! HTML page in one file: headings, paragraphs, tables and charts.

use crate::style;
use crate::svg::escape;
use std::fmt::Write as _;

const STYLE: &str = "\
:root{color-scheme:light dark;--bg:#fff;--fg:#1c1e21;--muted:#5f6670;--line:#dfe2e6;--card:#f6f7f9;\
--good:#12733f;--bad:#b3261e}\
@media(prefers-color-scheme:dark){:root{--bg:#14171c;--fg:#e6e9ee;--muted:#9aa3af;--line:#30363e;\
--card:#1b1f26;--good:#56d08c;--bad:#ff8f86}}\
body{margin:0;background:var(--bg);color:var(--fg);\
font:16px/1.55 system-ui,-apple-system,\"Segoe UI\",Roboto,sans-serif}\
main{max-width:820px;margin:0 auto;padding:32px 20px 64px}h1{font-size:1.7em;line-height:1.25}\
h2{margin-top:2.2em;font-size:1.3em}h3{margin:1.6em 0 .3em;font-size:1.05em}\
p{margin:.5em 0 1em}.lead{font-size:1.1em}.muted-text{color:var(--muted)}\
.verdict{font-size:1.25em;line-height:1.4;font-weight:600;margin:.3em 0 .8em;padding-left:14px;\
border-left:4px solid var(--fg)}.verdict.good{border-color:var(--good)}\
.verdict.bad{border-color:var(--bad)}code,p{overflow-wrap:anywhere}\
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:.93em}\
.scroll{overflow-x:auto}th,td{text-align:left;padding:6px 10px 6px 0;\
border-bottom:1px solid var(--line);vertical-align:top}\
th{color:var(--muted);font-weight:600}td.n,th.n{text-align:right}\
tr.ours td{font-weight:600}.met{color:var(--good);font-weight:600}\
.missed{color:var(--bad);font-weight:600}\
figure{margin:1em 0;padding:12px 14px;background:var(--card);border-radius:8px}\
figcaption{font-weight:600;margin-bottom:6px}svg{display:block}svg.narrow{display:none}\
@media(max-width:560px){main{padding:20px 14px 48px}figure{padding:10px 8px}\
svg.wide{display:none}svg.narrow{display:block}.verdict{font-size:1.12em}}\
summary{cursor:pointer;margin:.8em 0;color:var(--muted);font-weight:600}code{font-size:.92em}";

/// Style rule that gives charts on a page the background colour of a card.
const ON_CARD: &str = "figure svg{--ground:var(--card)}";

/// A page under construction.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    body: String,
}

impl Page {
    /// Returns an empty page.
    pub fn new(title: &str) -> Self {
        let body = format!("<h1>{}</h1>\n", escape(title));
        Self { title: escape(title), body }
    }

    /// Adds a heading of a section.
    pub fn section(&mut self, text: &str) {
        let _ = writeln!(self.body, "<h2>{}</h2>", escape(text));
    }

    /// Adds a heading within a section.
    pub fn subsection(&mut self, text: &str) {
        let _ = writeln!(self.body, "<h3>{}</h3>", escape(text));
    }

    /// Adds a paragraph. Text between backticks is shown as code.
    pub fn paragraph(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p>{}</p>", with_code(text));
    }

    /// Adds a prominent paragraph with the result of the page: good, bad, or neutral (`None`).
    pub fn verdict(&mut self, is_good: Option<bool>, text: &str) {
        let class = match is_good {
            Some(true) => " good",
            Some(false) => " bad",
            None => "",
        };
        let _ = writeln!(self.body, "<p class=\"verdict{class}\">{}</p>", with_code(&bound(text)));
    }

    /// Adds a paragraph that begins with a name in bold. Text between backticks is shown as code.
    pub fn fact(&mut self, name: &str, text: &str) {
        let _ = writeln!(self.body, "<p><b>{}</b>: {}</p>", escape(name), with_code(text));
    }

    /// Adds the summary of the page, in larger letters. Text between backticks is shown as code.
    pub fn lead(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p class=\"lead\">{}</p>", with_code(text));
    }

    /// Adds a remark in muted colour. Text between backticks is shown as code.
    pub fn remark(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p class=\"muted-text\">{}</p>", with_code(text));
    }

    /// Adds a chart with a caption.
    pub fn chart(&mut self, caption: &str, svg: &str) {
        let _ = writeln!(
            self.body,
            "<figure><figcaption>{}</figcaption>\n{svg}</figure>",
            escape(caption)
        );
    }

    /// Adds a section that is hidden until the reader clicks on its summary.
    pub fn folded(&mut self, summary: &str, inside: impl FnOnce(&mut Self)) {
        let _ = writeln!(self.body, "<details><summary>{}</summary>", escape(summary));
        inside(self);
        self.body += "</details>\n";
    }

    /// Adds a table, which scrolls separately if it is wider than the page. A row is bold if its
    /// first value is true. A cell that begins with `met` or `MISSED` is coloured. Text between
    /// backticks in a cell is shown as code.
    pub fn table(&mut self, columns: &[&str], rows: &[(bool, Vec<String>)]) {
        self.body += "<div class=\"scroll\" tabindex=\"0\"><table>\n<tr>";
        for column in columns {
            let _ = write!(self.body, "<th scope=\"col\">{}</th>", escape(column));
        }
        self.body += "</tr>\n";
        for (ours, cells) in rows {
            self.body += if *ours { "<tr class=\"ours\">" } else { "<tr>" };
            for cell in cells {
                let class = match cell {
                    met if met.starts_with("met") => " class=\"met\"",
                    missed if missed.starts_with("MISSED") => " class=\"missed\"",
                    _ => "",
                };
                let _ = write!(self.body, "<td{class}>{}</td>", with_code(&bound(cell)));
            }
            self.body += "</tr>\n";
        }
        self.body += "</table></div>\n";
    }

    /// Returns the whole HTML file.
    pub fn finish(&self) -> String {
        let Self { title, body } = self;
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
             <title>{title}</title>\n<style>{STYLE}{}{ON_CARD}</style>\n</head>\n<body>\n<main>\n\
             {body}</main>\n</body>\n</html>\n",
            style::sheet()
        )
    }
}

/// Returns the text with no-break spaces between numbers and their units.
fn bound(text: &str) -> String {
    let mut bound = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    let mut last = ' ';
    while let Some(letter) = letters.next() {
        let is_unit = letters.peek().is_some_and(|next| next.is_alphabetic() || *next == '%');
        let joins = letter == ' ' && last.is_ascii_digit() && is_unit;
        bound.push(if joins { '\u{a0}' } else { letter });
        last = letter;
    }
    bound
}

/// Returns the text in which parts between two backticks are marked as code.
fn with_code(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    let mut marked = String::new();
    for (n, part) in parts.iter().enumerate() {
        // If the number of parts is even, the last part has no closing backtick.
        match (n % 2 == 1, n + 1 < parts.len()) {
            (true, true) => {
                let _ = write!(marked, "<code>{}</code>", escape(part));
            }
            (true, false) => {
                let _ = write!(marked, "`{}", escape(part));
            }
            (false, _) => marked += &escape(part),
        }
    }
    marked
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wellformed::check;

    #[test]
    fn the_page_is_well_formed_and_needs_nothing_from_outside() {
        let mut page = Page::new("A <title> & more");
        page.section("one");
        page.subsection("<within>");
        page.verdict(Some(true), "`a` is 3 > 2");
        page.lead("5 > 3");
        page.paragraph("\"quoted\"");
        page.remark("it's");
        page.paragraph("a `<b>` and `c` and ` d");
        page.folded("2 > 1", |page| page.paragraph("within"));
        page.table(&["a", "b"], &[(true, vec!["<x> `y`".into(), "met: 1".into()])]);
        page.chart("c", "<svg></svg>");
        let html = page.finish();
        check(html.strip_prefix("<!DOCTYPE html>\n").unwrap()).unwrap();
        for outside in ["http:", "https:", "src=", "href=", "@import", "url("] {
            assert!(!html.contains(outside), "{outside}");
        }
        assert!(html.contains("<p>a <code>&lt;b&gt;</code> and <code>c</code> and ` d</p>"));
        assert!(html.contains("<td>&lt;x&gt; <code>y</code></td>"), "{html}");
        assert!(html.contains("<details><summary>2 &gt; 1</summary>\n<p>within</p>\n</details>"));
        assert_eq!(
            bound("3.78 times 250 Mb/s in 2 runs"),
            "3.78\u{a0}times 250\u{a0}Mb/s in 2\u{a0}runs"
        );
        assert!(html.contains("A &lt;title&gt; &amp; more"));
        assert!(html.contains("prefers-color-scheme:dark"));
    }
}
