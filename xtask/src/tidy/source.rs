//! Checks of one Rust file: its length, its lines, the doc comment of its module, and guessable
//! secrets.

/// Largest number of lines of a file.
const LINES_MAX: usize = 600;
/// Largest number of characters of a line.
const LINE_CHARS_MAX: usize = 100;
/// Texts that finished code must not contain. Each is divided into two parts, so that this file
/// does not contain the text itself.
const UNFINISHED: [(&str, &str); 4] =
    [("todo", "!("), ("unimplemented", "!("), ("dbg", "!("), ("FIX", "ME")];

/// Source directories of programs that use the network; their secrets must be random.
const PROGRAMS: [&str; 7] = [
    "crates/srd-guest/src",
    "crates/srd-daemon/src",
    "crates/srd-host/src",
    "crates/srd-net/src",
    "crates/srd-capi/src",
    "crates/srd-ofi/src",
    "crates/srd-cli/src",
];

/// Returns a finding if a line creates a secret that an attacker can guess: the secret uses only
/// some elements of a random seed, or a constant.
fn weak_secret(name: &str, line: &str) -> Option<&'static str> {
    let pattern = line.trim_start().strip_prefix("let [");
    let drawn = ["seed()", "secret()", "= seed", "= secret"];
    let is_part = |rest: &str| {
        let (elements, value) = rest.split_once("] =").unwrap_or_default();
        elements.contains("..") && drawn.iter().any(|of| format!("={value}").contains(of))
    };
    if pattern.is_some_and(is_part) {
        return Some("a part of a seed is no secret: take srd_net::clock::secret()");
    }
    let is_program = PROGRAMS.iter().any(|of| name.starts_with(of)) && !name.contains("tests");
    let known = is_program && line.contains("Secret::known(");
    known.then_some("a secret that follows from a number is known: take srd_net::clock::secret()")
}

/// Returns the findings in the Rust file with the path `name` and the content `text`.
pub(super) fn check(name: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let count = text.lines().count();
    // The tests are at the end of a file; they may use guessable secrets.
    let tests_at = text.lines().position(|line| line.trim() == "mod tests {").unwrap_or(count);
    if count > LINES_MAX {
        findings.push(format!("{name}: {count} lines; split it below {LINES_MAX}"));
    }
    for (number, line) in (1..).zip(text.lines()) {
        let chars = line.chars().count();
        if chars > LINE_CHARS_MAX && !may_be_long(line) {
            findings.push(format!("{name}:{number}: {chars} characters; {LINE_CHARS_MAX} fit"));
        }
        if let Some(remedy) = weak_secret(name, line).filter(|_| number <= tests_at) {
            findings.push(format!("{name}:{number}: {remedy}"));
        }
        for (head, tail) in UNFINISHED {
            let word = format!("{head}{tail}");
            if line.contains(&word) {
                findings.push(format!("{name}:{number}: `{word}`: finish it or take it out"));
            }
        }
    }
    if !is_test_submodule(name) && !text.starts_with("//!") {
        findings.push(format!("{name}:1: begins without a `//!` page that says what it is"));
    }
    findings
}

/// Whether a line may exceed the limit, because it is a row of a table or contains a link, which
/// cannot be divided.
fn may_be_long(line: &str) -> bool {
    let content = line.trim_start().trim_start_matches(['/', '!']).trim_start();
    content.starts_with('|') || line.contains("https://")
}

/// Whether a file contains tests that were moved out of their module. Such a file needs no module
/// comment, because the comment of the module covers the tests.
fn is_test_submodule(name: &str) -> bool {
    name.contains("/src/") && (name.ends_with("/tests.rs") || name.ends_with("_tests.rs"))
}

/// Returns the line number of the first example in the documentation that cargo would run as a
/// test; `None` if the file contains none.
pub(super) fn example(text: &str) -> Option<usize> {
    let mut inside = false;
    for (number, line) in (1..).zip(text.lines()) {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            inside = false;
            continue;
        };
        let Some(comment) = comment.strip_prefix(['/', '!']) else { continue };
        let Some(language) = comment.trim_start().strip_prefix("```") else { continue };
        let language = language.split(',').next().unwrap_or_default();
        let is_rust = matches!(language, "" | "rust" | "no_run" | "should_panic" | "compile_fail");
        if !inside && is_rust {
            return Some(number);
        }
        inside = !inside;
    }
    None
}

/// Returns findings for attributes that are missing in the `lib.rs` of a pure crate.
pub(super) fn check_pure(name: &str, text: &str) -> Vec<String> {
    ["#![no_std]", "#![forbid(unsafe_code)]"]
        .iter()
        .filter(|attribute| !text.lines().any(|line| line == **attribute))
        .map(|attribute| format!("{name}: a pure crate says `{attribute}`"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_file_with_a_page_is_fine() {
        assert!(check("crates/a/src/b.rs", "//! What it is.\n\nfn f() {}\n").is_empty());
    }

    #[test]
    fn long_files_and_lines_are_found() {
        let file = format!("//! Page.\n{}", "\n".repeat(600));
        assert_eq!(check("a.rs", &file).len(), 1);
        assert!(check("a.rs", &format!("//! Page.\n{}", "\n".repeat(599))).is_empty());
        let line = format!("//! Page.\n// {}\n", "é".repeat(98));
        assert_eq!(check("a.rs", &line), ["a.rs:2: 101 characters; 100 fit"]);
        assert!(check("a.rs", &format!("//! Page.\n//! | {} |\n", "x".repeat(98))).is_empty());
    }

    #[test]
    fn what_is_not_finished_is_found() {
        for (head, tail) in UNFINISHED {
            let text = format!("//! Page.\nfn f() {{ {head}{tail}) }}\n");
            assert_eq!(check("a.rs", &text).len(), 1, "{head}");
        }
    }

    #[test]
    fn a_part_of_a_seed_and_a_known_secret_are_found() {
        let check = |name: &str, line: &str| check(name, &format!("//! Page.\n{line}\n")).len();
        let guest = "crates/srd-guest/src/service.rs";
        assert_eq!(check(guest, "    let [first, ..] = clock::seed()?.map(u64::from);"), 1);
        assert_eq!(check("crates/srd-nccl/src/a.rs", "let [.., last] = clock::seed()?;"), 1);
        assert_eq!(check("crates/srd-nccl/src/a.rs", "let [a, b, ..] = seed;"), 1);
        assert_eq!(check(guest, "    let [a, b, ..] = number.to_be_bytes();"), 0);
        assert_eq!(check(guest, "let card = Card::new(host, rules, Secret::known(7));"), 1);
        assert_eq!(check(guest, "mod tests {\n    let of = Secret::known(7);"), 0);
        assert_eq!(check("crates/srd-guest/src/a_tests.rs", "let of = Secret::known(7);"), 0);
        assert_eq!(check("crates/srd-sim/src/a.rs", "let of = Secret::known(7);"), 0);
    }

    #[test]
    fn a_module_needs_a_page_but_its_tests_do_not() {
        assert_eq!(check("crates/a/src/b.rs", "fn f() {}\n").len(), 1);
        assert_eq!(check("crates/a/tests/b.rs", "fn f() {}\n").len(), 1);
        assert!(check("crates/a/src/b/tests.rs", "use super::*;\n").is_empty());
        assert!(check("crates/a/src/b_tests.rs", "use super::*;\n").is_empty());
    }

    #[test]
    fn an_example_begins_with_a_fence_that_names_rust_or_nothing() {
        assert_eq!(example("//! Page.\n//! ```text\n//! a\n//! ```\nfn f() {}\n"), None);
        assert_eq!(example("/// How.\n///\n/// ```no_run\n/// f();\n/// ```\n"), Some(3));
        assert_eq!(example("//! ```text\n//! ```\n//!\n//! ```\n//! f();\n//! ```\n"), Some(4));
    }

    #[test]
    fn a_pure_crate_says_so_twice() {
        assert!(check_pure("lib.rs", "//! P.\n#![no_std]\n#![forbid(unsafe_code)]\n").is_empty());
        assert_eq!(check_pure("lib.rs", "//! P.\n#![no_std]\n").len(), 1);
    }
}
