//! Command lines of the documents: their blocks of `sh`.
//!
//! A comment before a block names the tests that run its commands, or the reason why no test does:
//!
//! ```text
//! <!-- run by a_test_function, another_one -->
//! <!-- not run: it needs a second machine -->
//! ```
//!
//! A block without such a comment is run as it is written. As root it has a network namespace, a
//! mount namespace and a `/run` of its own.

use std::fs;
use std::path::{Path, PathBuf};

/// Test of the commands of a block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Tested {
    /// The block is run as a script.
    AsWritten,
    /// The test functions with these names run the commands of the block.
    By(Vec<String>),
    /// No test runs the commands of the block, for this reason.
    Not(String),
}

/// A block of shell commands in a document.
#[derive(Debug)]
pub(crate) struct Block {
    /// The document and the line of the block's first command, for messages.
    pub(crate) place: String,
    /// The commands, one on each line; a backslash at the end continues a line.
    pub(crate) text: String,
    pub(crate) tested: Tested,
}

/// Returns the root of the project.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns all blocks of shell commands in the documents that the book contains. The journal is not
/// among them, because its commands belong to the day of their entry.
pub(crate) fn blocks() -> Vec<Block> {
    let root = root();
    let mut files = vec![root.join("README.md"), root.join("ARCHITECTURE.md")];
    for folder in ["docs", "docs/spec"] {
        let entries = fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        files.extend(entries.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    files.retain(|file| !file.ends_with("docs/perf-notes.md"));
    files.sort();
    let of = |file: &PathBuf| {
        let name = file.strip_prefix(&root).unwrap().display().to_string();
        of_document(&name, &fs::read_to_string(file).unwrap())
    };
    files.iter().flat_map(of).collect()
}

/// Returns the blocks of one document.
fn of_document(name: &str, document: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut comment = None;
    let mut lines = document.lines().zip(1..).peekable();
    while let Some((line, number)) = lines.next() {
        match line.trim() {
            "```sh" => {
                let inside = std::iter::from_fn(|| lines.next_if(|(line, _)| line.trim() != "```"));
                let text: Vec<&str> = inside.map(|(line, _)| line).collect();
                let place = format!("{name}:{}", number + 1);
                let tested = comment.take().map_or(Tested::AsWritten, |text| read(&place, text));
                blocks.push(Block { place, text: text.join("\n") + "\n", tested });
            }
            "" => {}
            line => {
                comment = line.strip_prefix("<!--").and_then(|line| line.strip_suffix("-->"));
            }
        }
    }
    blocks
}

/// Reads the comment before a block.
fn read(place: &str, comment: &str) -> Tested {
    let comment = comment.trim();
    if let Some(tests) = comment.strip_prefix("run by ") {
        return Tested::By(tests.split(',').map(|name| name.trim().to_owned()).collect());
    }
    match comment.strip_prefix("not run: ") {
        Some(reason) => Tested::Not(reason.to_owned()),
        None => panic!("{place}: neither `run by` nor `not run:`: {comment}"),
    }
}
