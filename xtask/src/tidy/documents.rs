//! Checks of commands, links and numbered rules in Markdown documents.

use std::collections::BTreeMap;

/// Permitted origins of a rule in a specification.
const ORIGINS: [&str; 4] = ["paper", "efa-driver", "docs", "ours"];

/// A command in a document, by the program that it runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// The command `make TARGET`.
    Make(String),
    /// The command `cargo xtask`, with its arguments.
    Xtask(Vec<String>),
    /// The command `cargo run --package PACKAGE --example EXAMPLE`.
    Example {
        /// Name of the package that contains the example.
        package: String,
        /// Name of the example.
        example: String,
    },
    /// A file of this repository, run by its path.
    Script(String),
    /// A program of another project, or `srd`, whose commands a test of `srd-cli` checks.
    Other,
}

/// Returns the commands in the `sh` blocks of a document, each with its line number. Each line is a
/// command; a `\` at its end continues it on the next line. Comments are left out.
pub(super) fn commands(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let (mut inside, mut begun) = (false, None::<(usize, String)>);
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            inside = !inside && line.trim() == "```sh";
            continue;
        }
        if !inside {
            continue;
        }
        let content = line.split(" #").next().unwrap_or_default().trim();
        let (at, mut whole) = begun.take().unwrap_or((number, String::new()));
        whole.push_str(content.trim_end_matches('\\'));
        if content.ends_with('\\') {
            begun = Some((at, whole));
        } else if !whole.is_empty() && !whole.starts_with('#') {
            found.push((at, whole));
        }
    }
    found
}

/// Returns the kinds of all commands of a line, which are separated by `&&`, `|` and similar words.
pub(super) fn classify_all(line: &str) -> Vec<Kind> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let commands = words.split(|word| ["|", "||", "&&", "&", ";"].contains(word));
    commands.map(|words| classify(&words.join(" "))).collect()
}

/// Returns the kind of a command.
fn classify(command: &str) -> Kind {
    let words: Vec<String> = command
        .split_whitespace()
        .take_while(|word| *word != ">")
        .skip_while(|word| *word == "sudo" || word.contains('=') && !word.starts_with('-'))
        .map(str::to_string)
        .collect();
    let text: Vec<&str> = words.iter().map(String::as_str).collect();
    let after = |flag: &str, short: &str| {
        let at = text.iter().position(|w| *w == flag || *w == short)?;
        text.get(at + 1).map(ToString::to_string)
    };
    match text.as_slice() {
        ["make", target, ..] => Kind::Make((*target).to_string()),
        ["cargo", "xtask", ..] => Kind::Xtask(words[2..].to_vec()),
        [program, ..] if program.ends_with("/xtask") => Kind::Xtask(words[1..].to_vec()),
        ["cargo", "run", ..] => match (after("--package", "-p"), after("--example", "--example")) {
            (Some(package), Some(example)) => Kind::Example { package, example },
            _ => Kind::Other,
        },
        [program, ..] if program.starts_with("./") || program.starts_with(".ci/") => {
            Kind::Script(program.trim_start_matches("./").to_string())
        }
        _ => Kind::Other,
    }
}

/// Returns the word at the beginning of the arguments of `cargo xtask` if it may be a subcommand: a
/// word of letters and dashes. The program's help decides whether it is one.
pub(super) fn subcommands(words: &[String]) -> Vec<&str> {
    let is_name = |word: &&str| {
        !word.starts_with('-') && word.chars().all(|c| c.is_ascii_lowercase() || c == '-')
    };
    words.iter().map(String::as_str).take(1).take_while(is_name).collect()
}

/// Returns the first fault of a command, given the help of its program; `None` if it has no fault.
/// A fault is an unknown subcommand, or a flag that the help does not contain. Words after `--`
/// belong to another program and are not checked.
pub(super) fn check_words(words: &[String], help: &str) -> Option<String> {
    if help.is_empty() {
        return Some("there is no such command".to_string());
    }
    let ours = words.iter().take_while(|word| *word != "--");
    for flag in ours.filter(|word| word.starts_with('-')) {
        let flag = flag.split('=').next().unwrap_or(flag);
        let ends = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
        if !help.split(ends).any(|word| word == flag) {
            return Some(format!("it has no `{flag}`"));
        }
    }
    None
}

/// Returns findings for links to files that do not exist.
pub(super) fn links(name: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let directory = name.rsplit_once('/').map_or("", |(directory, _)| directory);
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        for part in line.split("](").skip(1) {
            let target = part.split(')').next().unwrap_or_default();
            let target = target.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            if !exists(&join(directory, target)) {
                findings.push(format!("{name}:{number}: there is no {target}"));
            }
        }
    }
    findings
}

/// Returns findings for Rust files that a document names between backticks, as in
/// `path/select.rs`, and that the repository does not have. A name may lack its first directories.
pub(super) fn files(name: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let is_file = |word: &&str| word.ends_with(".rs") && !word.contains([' ', '*', '{']);
        for file in line.split('`').skip(1).step_by(2).filter(is_file) {
            if !exists(file) {
                findings.push(format!("{name}:{number}: there is no {file}"));
            }
        }
    }
    findings
}

/// Whether the last names of a path are those of `file`, each of them whole.
pub(super) fn is_end(path: &str, file: &str) -> bool {
    path.strip_suffix(file).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
}

fn join(directory: &str, target: &str) -> String {
    let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            ".." => {
                parts.pop();
            }
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns findings for the rules of a specification, which have the form `- **P1** *Title.* [ours]
/// ...`. The numbers must be unique and consecutive; a rule that was inserted later has the number
/// of the rule before and a letter, as `P4a`. Each rule must have a title, a known origin, and one
/// of the words MUST, SHOULD and MAY.
pub(super) fn rules(name: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let mut last: BTreeMap<String, (u32, Option<char>)> = BTreeMap::new();
    let lines: Vec<&str> = text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let Some((id, rest)) = line.strip_prefix("- **").and_then(|l| l.split_once("**")) else {
            continue;
        };
        let area: String = id.chars().take_while(char::is_ascii_uppercase).collect();
        let digits = &id[area.len()..];
        let inserted = digits.strip_suffix(|c: char| c.is_ascii_lowercase());
        let letter = inserted.and_then(|_| digits.chars().last());
        let Ok(number) = inserted.unwrap_or(digits).parse::<u32>() else { continue };
        let place = format!("{name}:{}: rule {id}", at + 1);
        let before = last.insert(area, (number, letter)).unwrap_or((0, None));
        let follows = match letter {
            None => number == before.0 + 1,
            Some(letter) => {
                let next = before.1.map_or(u32::from('a'), |before| u32::from(before) + 1);
                (number, u32::from(letter)) == (before.0, next)
            }
        };
        if (number, letter) == before {
            findings.push(format!("{place} is there twice"));
        } else if !follows {
            let letter = before.1.map(String::from).unwrap_or_default();
            findings.push(format!("{place} follows {}{letter}", before.0));
        }
        let titled = rest.strip_prefix(" *").and_then(|rest| rest.split_once(".* "));
        if titled.is_none() {
            findings.push(format!("{place} has no title: - **{id}** *Title.* [origin]"));
        }
        let rest = titled.map_or(rest, |(_, rest)| rest);
        let more = lines[at + 1..].iter().take_while(|l| l.starts_with("  "));
        let whole: Vec<&str> = [rest].into_iter().chain(more.copied()).collect();
        let whole = whole.join(" ");
        let origins = rest.trim().strip_prefix('[').and_then(|r| r.split_once(']'));
        let known = |list: &str| list.split(',').all(|o| ORIGINS.contains(&o.trim()));
        if !origins.is_some_and(|(list, _)| known(list)) {
            findings.push(format!("{place} has no origin of {ORIGINS:?}"));
        }
        if !["MUST", "SHOULD", "MAY"].iter().any(|word| whole.contains(word)) {
            findings.push(format!("{place} says neither MUST nor SHOULD nor MAY"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_string).collect()
    }

    #[test]
    fn commands_come_from_sh_blocks_without_comments() {
        let text = "make no\n```sh\nmake demo  # shows it\n# a remark\nsrd a \\\n  --b\n```\n\
                    ```\nx\n```\n";
        let expected = vec![(3, "make demo".to_string()), (5, "srd a --b".to_string())];
        assert_eq!(commands(text), expected);
    }

    #[test]
    fn commands_are_told_apart() {
        assert_eq!(classify("sudo make demo"), Kind::Make("demo".into()));
        assert_eq!(classify("A=1 srd sim list"), Kind::Other);
        assert_eq!(classify("A=1 cargo xtask tidy > file"), Kind::Xtask(words("tidy")));
        assert_eq!(classify(".ci/run"), Kind::Script(".ci/run".into()));
        assert_eq!(classify("ls -l"), Kind::Other);
        let example = Kind::Example { package: "srd-net".into(), example: "bulk".into() };
        assert_eq!(classify("cargo run -p srd-net --example bulk"), example);
    }

    /// Regression: only the first command of a line was checked.
    #[test]
    fn regression_each_command_of_a_line_counts() {
        let kinds = classify_all("cargo build && target/release/xtask soak --seeds 3 | make x");
        let [build, soak, make] = &kinds[..] else { panic!("{kinds:?}") };
        assert_eq!((build, make), (&Kind::Other, &Kind::Make("x".into())));
        assert_eq!(*soak, Kind::Xtask(words("soak --seeds 3")));
    }

    #[test]
    fn subcommands_end_where_arguments_begin() {
        assert_eq!(subcommands(&words("soak --seeds 3")), ["soak"]);
        assert_eq!(subcommands(&words("suite overlay")), ["suite"]);
        assert_eq!(subcommands(&words("--help")), Vec::<&str>::new());
    }

    #[test]
    fn unknown_flags_and_commands_are_found() {
        let help = "Options:\n  -h, --help\n      --seeds <N>\n      --seedling\n";
        let check = |text: &str| check_words(&words(text), help);
        assert_eq!(check("soak --seeds 3"), None);
        assert_eq!(check("soak -- ping --unknown"), None);
        assert!(check("soak --seed 3").unwrap().contains("`--seed`"));
        assert!(check_words(&words("simulate"), "").is_some());
    }

    #[test]
    fn links_are_followed_from_where_they_stand() {
        let exists = |path: &str| path == "docs/a.md" || path == "README.md";
        let text = "[a](a.md#x) [r](../README.md) [w](https://x.y) [#](#here)\n[b](b.md)\n";
        assert_eq!(links("docs/c.md", text, exists), ["docs/c.md:2: there is no b.md"]);
    }

    #[test]
    fn files_that_a_document_names_exist() {
        let exists = |file: &str| file == "path/select.rs";
        assert!(files("a.md", "`path/select.rs`, `cargo`, and x.rs", exists).is_empty());
        let findings = files("a.md", "text\n| `select` | `path/chosen.rs` |", exists);
        assert_eq!(findings, ["a.md:2: there is no path/chosen.rs"]);
    }

    /// A document that names `elect.rs` while only `select.rs` exists has a finding.
    #[test]
    fn a_file_is_the_end_of_a_path_by_whole_names() {
        let path = "crates/srd-proto/src/path/select.rs";
        for file in ["select.rs", "path/select.rs", path] {
            assert!(is_end(path, file), "{file}");
        }
        for file in ["elect.rs", "h/select.rs", "path/select", "/crates/srd-proto/src/path"] {
            assert!(!is_end(path, file), "{file}");
        }
        assert!(!is_end("select.rs", path));
    }

    #[test]
    fn rules_are_numbered_once_in_order_with_origin_and_duty() {
        let good = "- **P1** *One.* [paper, ours] A sender\n  MUST do.\n\
                    - **P2** *Two.* [ours] It MAY.\n- **C1** *One.* [docs] It SHOULD.\n";
        assert!(rules("s.md", good).is_empty(), "{:?}", rules("s.md", good));
        let twice = "- **P1** *One.* [ours] It MUST.\n- **P1** *One.* [ours] It MUST.\n";
        assert_eq!(rules("s.md", twice), ["s.md:2: rule P1 is there twice"]);
        assert_eq!(rules("s.md", "- **P1** [ours] It MUST.\n").len(), 1);
        assert_eq!(rules("s.md", "- **P2** *One.* [ours] It MUST.\n").len(), 1);
        assert_eq!(rules("s.md", "- **P1** *One.* [hearsay] It MUST.\n").len(), 1);
        assert_eq!(rules("s.md", "- **P1** *One.* [ours] It does.\n").len(), 1);
    }

    /// Regression: rules with a letter, as `P4a`, were not checked.
    #[test]
    fn regression_rules_with_a_letter_are_checked_as_well() {
        let numbered = |ids: &[&str]| {
            let rule = |id: &&str| format!("- **{id}** *One.* [ours]\n  It MUST.\n");
            rules("s.md", &ids.iter().map(rule).collect::<String>())
        };
        assert_eq!(numbered(&["P1", "P1a", "P1b", "P2", "P2a", "P3"]), [""; 0]);
        assert_eq!(numbered(&["P1", "P1a", "P1a"]), ["s.md:5: rule P1a is there twice"]);
        assert_eq!(numbered(&["P1", "P1b"]), ["s.md:3: rule P1b follows 1"]);
        assert_eq!(numbered(&["P1", "P1a", "P1c"]), ["s.md:5: rule P1c follows 1a"]);
        assert_eq!(numbered(&["P1", "P2a"]), ["s.md:3: rule P2a follows 1"]);
        assert_eq!(rules("s.md", "- **P1** *One.* [ours] It MUST.\n- **P1a** x\n").len(), 3);
    }
}
