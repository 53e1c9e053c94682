//! Forms of English that make a reader guess. They are comments that begin with a headless clause
//! ("What waits") or continue the comment before ("The same, for ..."), words that treat programs
//! as people, sentences with too many pronouns, and everyday words as names of types.
//!
//! The words are in tables of docs/language.md, each with a plain replacement, so that the document
//! and the check agree. The counts of the forms may only fall ([`super::ratchet`]).

/// Path of the document that contains the word lists.
pub(super) const DOCUMENT: &str = "docs/language.md";

/// First words of a headless clause. "Whether" is not in the list: it has a plain meaning.
const HEADLESS: [&str; 13] = [
    "What",
    "Whatever",
    "Who",
    "Whoever",
    "Whom",
    "Whose",
    "Which",
    "Where",
    "Wherever",
    "How",
    "When",
    "Why",
    "That which",
];

/// First words of a comment that a reader can only understand together with the comment before.
const NEIGHBOUR: [&str; 12] = [
    "The same",
    "The others",
    "As above",
    "As before",
    "So many",
    "So much",
    "So long",
    "Else",
    "Likewise",
    "Those",
    "It",
    "They",
];

/// Words of which a sentence may contain at most [`PRONOUNS_MAX`].
const PRONOUNS: [&str; 6] = ["that", "which", "what", "it", "those", "one"];

/// Largest number of words from [`PRONOUNS`] in a sentence.
const PRONOUNS_MAX: usize = 4;

/// Names of the counts that this module defines; the other counts are defined in [`DOCUMENT`].
const HEADLESS_KIND: &str = "headless";
const NEIGHBOUR_KIND: &str = "neighbours";
const RIDDLE_KIND: &str = "riddles";
const TYPE_KIND: &str = "types";

/// A word list of [`DOCUMENT`].
#[derive(Debug, Default, PartialEq, Eq)]
struct List {
    /// Name of the count of the listed words.
    kind: String,
    /// Listed words and phrases, in small letters.
    words: Vec<String>,
    /// Phrases in which a listed word is allowed.
    except: Vec<String>,
}

/// The word lists of [`DOCUMENT`], and its list of names for types.
#[derive(Debug, Default)]
pub(super) struct Lists {
    lists: Vec<List>,
    /// Names that a type must not have.
    types: Vec<String>,
}

/// One occurrence of a counted form.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Form {
    /// Name of the count to which the occurrence belongs.
    pub(super) kind: String,
    /// Number of the line in the file, from 1.
    pub(super) line: usize,
    /// The sentence or the name of the type.
    pub(super) text: String,
}

impl Lists {
    /// Returns the lists in the tables "Counted words" and "Names of types" of [`DOCUMENT`].
    pub(super) fn read(document: &str) -> Self {
        let mut lists = Self::default();
        for row in rows(document, "## Counted words") {
            let [kind, words, except, ..] = row.as_slice() else { continue };
            let split = |cell: &str| cell.split(", ").map(str::to_lowercase).collect::<Vec<_>>();
            let mut except = if except.is_empty() { Vec::new() } else { split(except) };
            // A phrase may be the beginning of a longer one.
            except.sort_by_key(|phrase| std::cmp::Reverse(phrase.len()));
            lists.lists.push(List { kind: kind.clone(), words: split(words), except });
        }
        for row in rows(document, "## Names of types") {
            let names = row.first().map(String::as_str).unwrap_or_default();
            lists.types.extend(names.split(", ").map(|name| name.trim_matches('`').to_owned()));
        }
        lists
    }

    /// Returns the names of all counts of language.
    pub(super) fn kinds(&self) -> Vec<String> {
        let own = [HEADLESS_KIND, NEIGHBOUR_KIND, RIDDLE_KIND, TYPE_KIND].map(str::to_owned);
        own.into_iter().chain(self.lists.iter().map(|list| list.kind.clone())).collect()
    }

    /// Returns the occurrences in the comments and in the names of types of a Rust file.
    pub(super) fn in_rust(&self, text: &str) -> Vec<Form> {
        let mut forms = Vec::new();
        for block in blocks(text) {
            let first = sentences(&block.paragraphs).into_iter().next();
            if let Some((line, first)) = first.filter(|_| block.documents) {
                forms.extend(opening(&first).map(|kind| form(kind, line, &first)));
            }
            self.prose(&block.paragraphs, &mut forms);
        }
        for (number, line) in (1..).zip(text.lines()) {
            let name = type_name(line).filter(|name| self.types.iter().any(|of| of == name));
            forms.extend(name.map(|name| form(TYPE_KIND, number, name)));
        }
        forms
    }

    /// Returns the occurrences in a Markdown document, without its code, tables and comments.
    pub(super) fn in_markdown(&self, text: &str) -> Vec<Form> {
        let mut inside = false;
        let lines = (1..).zip(text.lines()).map(|(number, line)| {
            let fence = line.trim_start().starts_with("```");
            inside ^= fence;
            let comment = line.trim_start().starts_with("<!--");
            (number, if inside || fence || comment { "" } else { line })
        });
        let mut forms = Vec::new();
        self.prose(&paragraphs(lines), &mut forms);
        forms
    }

    fn prose(&self, paragraphs: &[Paragraph], forms: &mut Vec<Form>) {
        for (line, sentence) in sentences(paragraphs) {
            let words = words(&without_code(&sentence));
            let pronouns = words.iter().filter(|word| PRONOUNS.contains(&word.as_str())).count();
            if pronouns > PRONOUNS_MAX {
                forms.push(form(RIDDLE_KIND, line, &sentence));
            }
            let joined = format!(" {} ", words.join(" "));
            for list in &self.lists {
                let found = list.found(&joined);
                forms.extend((0..found).map(|_| form(&list.kind, line, &sentence)));
            }
        }
    }
}

impl List {
    /// Returns the number of occurrences of the listed words in a sentence whose words are in small
    /// letters and separated by single spaces.
    fn found(&self, sentence: &str) -> usize {
        let mut rest = sentence.to_owned();
        for phrase in &self.except {
            rest = rest.replace(&format!(" {phrase} "), " , ");
        }
        self.words.iter().map(|phrase| rest.matches(&format!(" {phrase} ")).count()).sum()
    }
}

fn form(kind: &str, line: usize, text: &str) -> Form {
    Form { kind: kind.to_owned(), line, text: text.to_owned() }
}

/// Returns the count to which the first sentence of an item's comment belongs; `None` if the
/// sentence has a good beginning. Questions are permitted.
fn opening(sentence: &str) -> Option<&'static str> {
    let begins = |words: &[&str]| {
        words.iter().any(|word| {
            let rest = sentence.strip_prefix(word);
            rest.is_some_and(|rest| rest.starts_with([' ', ',', '.', ':']))
        })
    };
    if sentence.ends_with('?') {
        None
    } else if begins(&HEADLESS) {
        Some(HEADLESS_KIND)
    } else if begins(&NEIGHBOUR) {
        Some(NEIGHBOUR_KIND)
    } else {
        None
    }
}

/// Returns the name of the type that a line defines; `None` if the line defines no type.
fn type_name(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let code = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => line,
    };
    let marks = ["struct ", "enum ", "trait ", "union ", "type "];
    let rest = marks.iter().find_map(|mark| code.strip_prefix(mark))?;
    rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next()
}

/// The lines of a paragraph, each with its number.
type Paragraph = Vec<(usize, String)>;

/// A block of consecutive comment lines with the same comment marker.
struct Block {
    /// Whether the comment documents an item or a module, as `///` and `//!` do.
    documents: bool,
    paragraphs: Vec<Paragraph>,
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<(&str, Vec<(usize, &str)>)> = Vec::new();
    let mut before = "";
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start();
        let mark = ["//!", "///", "//"].into_iter().find(|mark| line.starts_with(mark));
        let Some(mark) = mark else {
            before = "";
            continue;
        };
        if mark != before {
            blocks.push((mark, Vec::new()));
        }
        before = mark;
        if let Some((_, lines)) = blocks.last_mut() {
            lines.push((number, &line[mark.len()..]));
        }
    }
    let block = |(mark, lines): (&str, Vec<(usize, &str)>)| {
        let mut inside = false;
        let lines = lines.into_iter().map(|(number, line)| {
            let fence = line.trim_start().starts_with("```");
            inside ^= fence;
            (number, if inside || fence { "" } else { line })
        });
        Block { documents: mark != "//", paragraphs: paragraphs(lines) }
    };
    blocks.into_iter().map(block).collect()
}

/// Returns the paragraphs of a text. A paragraph ends at an empty line, an item of a list, a
/// heading, or a row of a table; headings and rows of tables are left out.
fn paragraphs<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<Paragraph> {
    let mut found: Vec<Paragraph> = Vec::new();
    let mut open = false;
    for (number, line) in lines {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['|', '#']) {
            open = false;
            continue;
        }
        let item = ["- ", "* "].iter().find_map(|mark| line.strip_prefix(mark));
        if item.is_some() || !open {
            found.push(Vec::new());
        }
        open = true;
        if let Some(paragraph) = found.last_mut() {
            paragraph.push((number, item.unwrap_or(line).to_owned()));
        }
    }
    found
}

/// Returns the sentences of all paragraphs, each with the number of the line on which it begins.
fn sentences(paragraphs: &[Paragraph]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for paragraph in paragraphs {
        let mut sentence = String::new();
        let mut begun = 0;
        for (number, line) in paragraph {
            for word in line.split_whitespace() {
                let ends = sentence.ends_with(['.', '?', '!']) && !starts_small(word);
                if ends {
                    found.push((begun, std::mem::take(&mut sentence)));
                }
                if sentence.is_empty() {
                    begun = *number;
                } else {
                    sentence.push(' ');
                }
                sentence += word;
            }
        }
        if !sentence.is_empty() {
            found.push((begun, sentence));
        }
    }
    found
}

/// Whether a word begins with a small letter. After a full stop, for example after "e.g.", the word
/// then continues the sentence.
fn starts_small(word: &str) -> bool {
    word.starts_with(char::is_lowercase)
}

/// Returns a text without the parts between backticks.
fn without_code(text: &str) -> String {
    text.split('`').step_by(2).collect::<Vec<_>>().join(" , ")
}

/// Returns the words of a text, in small letters.
fn words(text: &str) -> Vec<String> {
    let ends = |c: char| !(c.is_alphanumeric() || c == '\'' || c == '-');
    text.split(ends).filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

/// Returns the cells of the first table below a heading, row by row, without the head of the table.
fn rows(document: &str, heading: &str) -> Vec<Vec<String>> {
    let below = document.lines().skip_while(|line| *line != heading).skip(1);
    let table = below.take_while(|line| !line.starts_with("## "));
    let rows = table.filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLES: &str = "\
# Language

## Counted words

| count | words | but in | write |
|---|---|---|---|
| people | tell, tells | tell apart | notify |
| nobody | nobody, none of its business |  | no process |

## Names of types

| name | write |
|---|---|
| `Place`, `Seen` | what it holds |

## Other

| name | write |
|---|---|
| `Slot` | Slot |
";

    fn kinds(forms: &[Form]) -> Vec<&str> {
        forms.iter().map(|form| form.kind.as_str()).collect()
    }

    fn rust(text: &str) -> Vec<String> {
        let forms = Lists::read(TABLES).in_rust(text);
        forms.into_iter().map(|form| format!("{} {}", form.kind, form.line)).collect()
    }

    #[test]
    fn a_comment_of_an_item_begins_with_no_headless_clause() {
        assert_eq!(rust("//! What waits.\n\n/// Who sends.\nfn f() {}\n").len(), 2);
        assert_eq!(rust("struct A {\n    /// How many wait.\n    a: u8,\n}\n"), ["headless 2"]);
        assert!(rust("/// Whether it waits.\n/// Whatsoever.\nfn f() {}\n").is_empty());
        assert!(rust("/// What waits?\nfn f() {}\n// What waits.\n").is_empty());
        assert!(rust("/// A queue. What waits is in it.\nfn f() {}\n").is_empty());
    }

    #[test]
    fn a_comment_of_an_item_does_not_continue_another() {
        assert_eq!(rust("/// The same, for IPv6.\nfn f() {}\n"), ["neighbours 1"]);
        assert_eq!(rust("/// It waits.\nfn f() {}\n"), ["neighbours 1"]);
        assert!(rust("/// Its length.\nfn f() {}\n/// Items of it.\n").is_empty());
    }

    #[test]
    fn words_of_the_tables_count_in_comments_and_documents_and_not_in_code() {
        assert_eq!(rust("fn f() {\n    // Tell it,\n    // nobody tells.\n}\n").len(), 3);
        assert!(rust("let tell = \"tell\";\n/// `tell` x, tell apart\n").is_empty());
        assert!(rust("/// ```text\n/// tell\n/// ```\nfn f() {}\n").is_empty());
        let lists = Lists::read(TABLES);
        let text = "- That is\n  none of its\n  business.\n\n```sh\ntell\n```\n| tell |\n";
        assert_eq!(kinds(&lists.in_markdown(text)), ["nobody"]);
        assert_eq!(lists.in_markdown(text)[0].line, 1);
    }

    #[test]
    fn an_allowed_phrase_does_not_hide_another_word() {
        assert_eq!(rust("// It can tell apart what others tell.\n"), ["people 1"]);
    }

    #[test]
    fn a_sentence_has_at_most_four_pronouns() {
        let four = "// It is one that takes it.\n";
        assert!(rust(four).is_empty(), "{:?}", rust(four));
        assert_eq!(rust("// It is one that takes it,\n// or those. A sentence.\n"), ["riddles 1"]);
        assert!(rust("// It is one that takes it. It is one of those.\n").is_empty());
    }

    #[test]
    fn names_of_the_deny_list_are_found_where_a_type_is_declared() {
        assert_eq!(rust("pub(crate) struct Place<'a> {\n"), ["types 1"]);
        assert_eq!(rust("    enum Seen {\n"), ["types 1"]);
        assert_eq!(rust("pub type Place = u8;\n"), ["types 1"]);
        assert!(rust("struct Places;\nlet a = Place { b };\nstruct Slot;\n").is_empty());
    }

    #[test]
    fn the_tables_of_the_document_are_read() {
        let lists = Lists::read(include_str!("../../../docs/language.md"));
        for kind in ["people", "negations", "phrases", "nobody"] {
            assert!(lists.kinds().iter().any(|of| of == kind), "{kind}");
        }
        assert!(lists.types.iter().any(|name| name == "Place"));
        assert!(lists.types.iter().all(|name| name.starts_with(char::is_uppercase)));
    }
}
