//! Finds messages to users that show a value with debug formatting, for example `Duration(5)` or
//! `NoRoute`. Texts with debug formatting, which puts them in quotes, are permitted; a variable is
//! assumed to hold a text if its name is in [`TEXTS`].

/// Names of variables that usually hold texts.
const TEXTS: [&str; 9] =
    ["filter", "host", "line", "name", "peer", "shown", "text", "user", "value"];
/// Directories with programs whose messages are only for developers of this project.
const INSIDE: [&str; 3] = ["crates/srd-bench/", "crates/srd-lab/", "crates/srd-sim/"];
/// Beginnings of calls that end a program because of a programming error.
const MISTAKES: [&str; 3] = ["panic!", "assert", "unreachable!"];
/// Beginning of a comment that permits debug formatting on the next line; the comment continues
/// with the reason.
const REASON: &str = "// Debug form: ";

/// Returns the findings in the Rust file with the path `name` and the content `text`.
pub(super) fn check(name: &str, text: &str) -> Vec<String> {
    let is_product = name.starts_with("crates/") && name.contains("/src/");
    let is_inside = INSIDE.iter().any(|start| name.starts_with(start));
    let is_test = |part: &str| {
        let stem = part.trim_end_matches(".rs");
        stem.ends_with("tests") || ["testing", "audit"].contains(&stem)
    };
    let is_test = name.split('/').any(is_test);
    if !is_product || is_inside || is_test {
        return Vec::new();
    }
    let (mut findings, mut before) = (Vec::new(), "");
    // The tests are at the end of a file, and are not checked.
    for (number, line) in
        (1..).zip(text.lines()).take_while(|(_, line)| !line.ends_with("mod tests {"))
    {
        let code = line.trim_start();
        let may = code.starts_with("//")
            || before.contains(REASON)
            || MISTAKES.iter().any(|of| code.contains(of));
        if !may {
            findings.extend(shown(code).map(|what| {
                format!(
                    "{name}:{number}: `{what}` shows a value as a programmer writes it: give its \
                     type a Display or a name, or say why above it: `{REASON}...`"
                )
            }));
        }
        before = line;
    }
    findings
}

/// Returns the first placeholder or log field of a line that uses debug formatting for a value
/// other than a text; `None` if the line does not.
fn shown(code: &str) -> Option<&str> {
    for (at, _) in code.match_indices(":?}").chain(code.match_indices(":#?}")) {
        let from = code[..at].rfind('{')?;
        let end = at + code[at..].find('}')?;
        if !TEXTS.contains(&&code[from + 1..at]) {
            return Some(&code[from..=end]);
        }
    }
    let fields = ["= ?", "!(?"];
    let field = fields.iter().find_map(|mark| code.find(mark).map(|at| &code[at..]));
    field.filter(|field| field[3..].starts_with(|c: char| c.is_ascii_alphabetic()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(name: &str, line: &str) -> usize {
        check(name, line).len()
    }

    #[test]
    fn regression_a_duration_or_a_cause_in_the_form_for_programmers_is_found() {
        let guest = "crates/srd-guest/src/hosts.rs";
        assert_eq!(count(guest, "    {SILENT_AFTER:?} and none has come back. {REMEDY}\""), 1);
        assert_eq!(count(guest, "Cause::Rule(reason) => format!(\"{reason:?}\"),"), 1);
        assert_eq!(count(guest, "bail!(\"the card answers {:?}\", other)"), 1);
        assert_eq!(count(guest, "tracing::warn!(%host, wait = ?END_WAIT_MAX);"), 1);
        assert_eq!(count(guest, "tracing::warn!(?peer);"), 1);
    }

    /// Regression: a file whose name contains "test", as `fattest.rs`, was not checked.
    #[test]
    fn regression_a_name_with_the_letters_of_test_is_no_test() {
        assert_eq!(count("crates/srd-card/src/queue/fattest.rs", "format!(\"{a:?}\");"), 1);
    }

    #[test]
    fn texts_reasons_mistakes_and_tests_pass() {
        let guest = "crates/srd-guest/src/hosts.rs";
        assert_eq!(count(guest, "bail!(\"{name:?} is no name\")"), 0);
        assert_eq!(count(guest, "// Debug form: it is hashed.\nlet text = format!(\"{a:?}\");"), 0);
        assert_eq!(count(guest, "assert_eq!(a, b, \"{a:?}\");"), 0);
        assert_eq!(count(guest, "mod tests {\n    let text = format!(\"{a:?}\");"), 0);
        for test in ["logs/tests.rs", "logs_tests.rs", "tests/a.rs", "testing.rs", "a/audit.rs"] {
            assert_eq!(count(&format!("crates/srd-guest/src/{test}"), "format!(\"{a:?}\");"), 0);
        }
        assert_eq!(count("crates/srd-sim/src/soak/node.rs", "format!(\"{a:?}\");"), 0);
    }
}
