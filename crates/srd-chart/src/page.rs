//! The page: headings, paragraphs, tables and charts in one file.

use crate::style;
use crate::svg::escape;
use std::fmt::Write as _;

const STYLE: &str = "\
:root{color-scheme:light dark;--bg:#fff;--fg:#1c1e21;--muted:#5f6670;--line:#dfe2e6;--card:#f6f7f9;\
--good:#12733f}\
@media(prefers-color-scheme:dark){:root{--bg:#14171c;--fg:#e6e9ee;--muted:#9aa3af;--line:#30363e;\
--card:#1b1f26;--good:#56d08c}}\
body{margin:0;background:var(--bg);color:var(--fg);\
font:16px/1.55 system-ui,-apple-system,\"Segoe UI\",Roboto,sans-serif}\
main{max-width:820px;margin:0 auto;padding:32px 20px 64px}h1{font-size:1.7em;line-height:1.25}\
h2{margin-top:2.2em;font-size:1.3em}h3{margin:1.6em 0 .3em;font-size:1.05em}\
p{margin:.5em 0 1em}.lead{font-size:1.1em}.muted-text{color:var(--muted)}\
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:.93em}\
.scroll{overflow-x:auto}th,td{text-align:left;padding:6px 10px 6px 0;\
border-bottom:1px solid var(--line);vertical-align:top}\
th{color:var(--muted);font-weight:600}td.n,th.n{text-align:right}\
tr.ours td{font-weight:600}.met{color:var(--good);font-weight:600}\
figure{margin:1em 0;padding:12px 14px;background:var(--card);border-radius:8px}\
figcaption{font-weight:600;margin-bottom:6px}svg{display:block}\
summary{cursor:pointer;margin:.8em 0;color:var(--muted);font-weight:600}code{font-size:.92em}";

/// On a page, charts lie on a card.
const ON_CARD: &str = "figure svg{--ground:var(--card)}";

/// A page under construction.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    body: String,
}

impl Page {
    /// An empty page.
    pub fn new(title: &str) -> Self {
        let body = format!("<h1>{}</h1>\n", escape(title));
        Self { title: escape(title), body }
    }

    /// A heading of a section.
    pub fn section(&mut self, text: &str) {
        let _ = writeln!(self.body, "<h2>{}</h2>", escape(text));
    }

    /// A heading within a section.
    pub fn subsection(&mut self, text: &str) {
        let _ = writeln!(self.body, "<h3>{}</h3>", escape(text));
    }

    /// A paragraph. What stands between backticks is code.
    pub fn paragraph(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p>{}</p>", with_code(text));
    }

    /// The paragraph that a reader in a hurry reads.
    pub fn lead(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p class=\"lead\">{}</p>", escape(text));
    }

    /// A remark.
    pub fn remark(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p class=\"muted-text\">{}</p>", escape(text));
    }

    /// A chart under its caption.
    pub fn chart(&mut self, caption: &str, svg: &str) {
        let _ = writeln!(
            self.body,
            "<figure><figcaption>{}</figcaption>\n{svg}</figure>",
            escape(caption)
        );
    }

    /// A part that the reader unfolds by a click on its summary.
    pub fn folded(&mut self, summary: &str, inside: impl FnOnce(&mut Self)) {
        let _ = writeln!(self.body, "<details><summary>{}</summary>", escape(summary));
        inside(self);
        self.body += "</details>\n";
    }

    /// A table. Rows of which `ours` is true stand out; cells that begin with a digit are
    /// numbers.
    pub fn table(&mut self, columns: &[&str], rows: &[(bool, Vec<String>)]) {
        self.body += "<div class=\"scroll\"><table>\n<tr>";
        for column in columns {
            let _ = write!(self.body, "<th>{}</th>", escape(column));
        }
        self.body += "</tr>\n";
        for (ours, cells) in rows {
            self.body += if *ours { "<tr class=\"ours\">" } else { "<tr>" };
            for cell in cells {
                let met = if cell.starts_with("met") { " class=\"met\"" } else { "" };
                let _ = write!(self.body, "<td{met}>{}</td>", escape(cell));
            }
            self.body += "</tr>\n";
        }
        self.body += "</table></div>\n";
    }

    /// The whole file.
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

/// Text whose parts between two backticks are code.
fn with_code(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    let mut marked = String::new();
    for (n, part) in parts.iter().enumerate() {
        // The last of an even number of parts has no second backtick.
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
        page.lead("5 > 3");
        page.paragraph("\"quoted\"");
        page.remark("it's");
        page.paragraph("a `<b>` and `c` and ` d");
        page.folded("2 > 1", |page| page.paragraph("within"));
        page.table(&["a", "b"], &[(true, vec!["<x>".into(), "met: 1".into()])]);
        page.chart("c", "<svg></svg>");
        let html = page.finish();
        check(html.strip_prefix("<!DOCTYPE html>\n").unwrap()).unwrap();
        for outside in ["http:", "https:", "src=", "href=", "@import", "url("] {
            assert!(!html.contains(outside), "{outside}");
        }
        assert!(html.contains("<p>a <code>&lt;b&gt;</code> and <code>c</code> and ` d</p>"));
        assert!(html.contains("<details><summary>2 &gt; 1</summary>\n<p>within</p>\n</details>"));
        assert!(html.contains("A &lt;title&gt; &amp; more"));
        assert!(html.contains("prefers-color-scheme:dark"));
    }
}
