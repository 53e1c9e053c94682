//! Command lines of the documents are command lines of this program, and each is tested, or a
//! comment gives the reason why it is not.

#[allow(dead_code, reason = "the other user of this file runs the blocks")]
#[path = "../tests/support/book.rs"]
mod book;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use clap::Parser;
use clap::error::ErrorKind;

use self::book::Tested;
use crate::Cli;

/// Words that separate the commands of a line.
const SEPARATORS: [&str; 6] = ["|", "||", "&", "&&", ";", "--"];
/// A key in the form of the documents' placeholder `KEY`.
const KEY: &str = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";

/// Names of the program in a command.
const PROGRAM: [&str; 3] = ["srd", "target/quick/srd", "target/release/srd"];

/// Splits a line as a shell does, as far as the documents need it: quotes join words, and a
/// separator is a word of its own. A comment ends the line.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in line.chars() {
        let word = words.last_mut().unwrap();
        match (quote, c) {
            (Some(open), c) if open == c => quote = None,
            (Some(_), c) => word.push(c),
            (None, '\'' | '"') => quote = Some(c),
            (None, '#') if word.is_empty() => break,
            (None, ';' | '(' | ')') => words.extend([";".to_owned(), String::new()]),
            (None, c) if c.is_whitespace() => words.push(String::new()),
            (None, c) => word.push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Returns the command lines of `srd` in one line of a script, without the name of the program.
fn commands(line: &str) -> Vec<Vec<String>> {
    let words = words(line);
    let mut found = Vec::new();
    for (position, word) in words.iter().enumerate() {
        let before = position.checked_sub(1).map(|before| words[before].as_str());
        let begins = before.is_none_or(|word| word == "sudo" || SEPARATORS.contains(&word));
        if PROGRAM.contains(&word.as_str()) && begins {
            let after = words[position + 1..].iter();
            let ends = |word: &&String| !SEPARATORS[..5].contains(&word.as_str());
            let redirects = |word: &&String| !word.starts_with(['>', '<']);
            found.push(after.take_while(ends).take_while(redirects).cloned().collect());
        } else if word.contains(' ') {
            found.extend(commands(word));
        }
    }
    found
}

#[test]
fn commands_of_a_line_are_found() {
    let of = |line: &str| commands(line).iter().map(|words| words.join(" ")).collect::<Vec<_>>();
    assert_eq!(of("sudo srd up --check && srd up &"), ["up --check", "up"]);
    assert_eq!(of("(umask 077; srd genkey > /etc/k)  # srd down"), ["genkey"]);
    assert_eq!(of("sudo sh -c 'srd pubkey < /etc/k'"), ["pubkey"]);
    assert_eq!(
        of("srd lab exec h0.0 -- srd perf server"),
        ["lab exec h0.0 -- srd perf server", "perf server"]
    );
    assert_eq!(of("deluser --system srd; rm /usr/bin/srd"), [""; 0]);
}

#[test]
fn each_command_of_the_documents_is_one_of_this_program() {
    let mut read = 0;
    for block in book::blocks() {
        for line in block.text.replace("\\\n", " ").lines().filter(|line| !line.contains("...")) {
            for words in commands(line) {
                let replaced = words.iter().map(|word| word.replace("KEY", KEY));
                let whole = ["srd".to_owned()].into_iter().chain(replaced);
                let error = Cli::try_parse_from(whole).err();
                let error = error.filter(|error| error.kind() != ErrorKind::DisplayHelp);
                assert!(error.is_none(), "{}: {line}\n{}", block.place, error.unwrap());
                let missing = scenario(&words).filter(|name| !is_scenario(name));
                assert!(missing.is_none(), "{}: {line}\nno scenario {missing:?}", block.place);
                read += 1;
            }
        }
    }
    assert!(read > 100, "only {read} commands were found");
}

/// Returns the scenario that a command runs, if it names one.
fn scenario(words: &[String]) -> Option<&str> {
    match words {
        [sim, run, name, ..] if sim == "sim" && run == "run" && !name.starts_with('-') => {
            Some(name)
        }
        _ => None,
    }
}

/// Returns whether a scenario is a file of the project, or the name of a scenario in `scenarios`.
fn is_scenario(name: &str) -> bool {
    let root = book::root();
    root.join(name).exists() || root.join(format!("scenarios/{name}.toml")).exists()
}

#[test]
fn scenarios_of_commands_are_found() {
    let of = |line: &str| commands(line).iter().filter_map(|words| scenario(words)).count();
    assert_eq!(of("srd sim run incast --seeds 3 && srd sim run --topo x"), 1);
    assert_eq!(of("target/quick/srd sim run incast; srd sim list"), 1);
    assert!(is_scenario("paper-a-incast") && !is_scenario("outcast"));
}

/// Adds the names of all functions of the Rust files below a folder.
fn add_functions(folder: &Path, found: &mut BTreeSet<String>) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                add_functions(&path, found);
            }
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(path).unwrap();
            let after = text.split("fn ").skip(1);
            let names = after.filter_map(|rest| rest.split_once('('));
            found.extend(names.map(|(name, _)| name.to_owned()));
        }
    }
}

#[test]
fn tests_that_the_documents_name_exist_and_reasons_are_sentences() {
    let mut functions = BTreeSet::new();
    add_functions(&book::root().join("crates"), &mut functions);
    for block in book::blocks() {
        match &block.tested {
            Tested::AsWritten => {}
            Tested::By(tests) => {
                for name in tests {
                    assert!(functions.contains(name), "{}: no test {name}", block.place);
                }
            }
            Tested::Not(reason) => {
                assert!(
                    reason.split(' ').count() >= 3,
                    "{}: `{reason}` explains nothing",
                    block.place
                );
            }
        }
    }
}
