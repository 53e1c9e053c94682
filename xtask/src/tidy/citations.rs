//! Rules of the specifications that no source cites. A citation is `// S15: title`, or `(S15)` in a
//! comment.
//!
//! Two specifications may use the same rule number. Therefore each specification has directories in
//! whose comments a bare number means a rule of that specification. A rule of a specification
//! without such an entry may be cited anywhere. A comment line that is only a citation must have
//! the title of the rule: `// S15: title`.

use std::collections::{BTreeMap, BTreeSet};

/// Names of specifications, and the directories in which comments cite their rules.
const HOMES: [(&str, &[&str]); 5] = [
    ("srd.md", &["crates/srd-proto/", "crates/srd-crypto/", "crates/srd-net/", "crates/srd-sim/"]),
    ("efa.md", &["crates/srd-efa/src/device/", "crates/srd-efa/src/direct/"]),
    ("rdm.md", &["crates/srd-efa/src/rdm/", "crates/srd-host/", "crates/srd-ofi/"]),
    ("express.md", &["crates/srd-card/", "crates/srd-daemon/"]),
    (
        "card.md",
        &[
            "crates/srd-card/src/limits/",
            "crates/srd-card/src/track/",
            "crates/srd-card/src/device/",
            "crates/srd-card/src/tenants/",
            "crates/srd-card/src/profile/",
            "crates/srd-card/src/vpc/",
            "crates/srd-card/src/observe/",
            "crates/srd-card/src/l2/",
            "crates/srd-guest/src/",
            "crates/srd-vpc/src/",
        ],
    ),
];

/// Returns the rules that no source cites, each as `srd.md S15`. `specs` and `sources` are pairs of
/// path and text.
pub(super) fn uncited(specs: &[(String, String)], sources: &[(String, String)]) -> Vec<String> {
    let mut uncited = Vec::new();
    for (path, text) in specs {
        let name = path.rsplit('/').next().unwrap_or(path);
        let has_home = HOMES.iter().any(|(spec, _)| *spec == name);
        let is_home = |path: &str| !has_home || spec_of(path) == Some(name);
        let cited: BTreeSet<&str> = sources
            .iter()
            .filter(|(path, _)| is_home(path))
            .flat_map(|(_, text)| text.lines().filter_map(comment).flat_map(numbers))
            .collect();
        let missing = text.lines().filter_map(rule).filter(|id| !cited.contains(id));
        uncited.extend(missing.map(|id| format!("{name} {id}")));
    }
    uncited
}

/// Returns findings for comment lines that consist of a citation without the rule's title, or with
/// a wrong title. `specs` and `sources` are pairs of path and text.
pub(super) fn untitled(specs: &[(String, String)], sources: &[(String, String)]) -> Vec<String> {
    let titles: BTreeMap<&str, BTreeMap<&str, &str>> = specs
        .iter()
        .map(|(path, text)| {
            let name = path.rsplit('/').next().unwrap_or(path);
            (name, text.lines().filter_map(|line| Some((rule(line)?, title(line)?))).collect())
        })
        .collect();
    let mut findings = Vec::new();
    for (path, text) in sources {
        let Some(titles) = spec_of(path).and_then(|spec| titles.get(spec)) else { continue };
        for (number, line) in (1..).zip(text.lines()) {
            let Some(citation) = line.trim_start().strip_prefix("// ") else { continue };
            let (ids, cited) = citation.split_once(": ").unwrap_or((citation, ""));
            if !ids.split(", ").all(is_number) {
                continue;
            }
            match titles.get(ids) {
                Some(title) if *title == cited => {}
                Some(title) => findings.push(format!("{path}:{number}: write `// {ids}: {title}`")),
                None => findings.push(format!("{path}:{number}: {ids} is not one rule")),
            }
        }
    }
    findings
}

/// Returns the specification that a bare rule number in a file means. If several directories
/// contain the file, the innermost directory decides.
fn spec_of(path: &str) -> Option<&'static str> {
    let homes = HOMES.iter().flat_map(|(spec, home)| home.iter().map(move |d| (*spec, *d)));
    let of_path = homes.filter(|(_, directory)| path.starts_with(directory));
    of_path.max_by_key(|(_, directory)| directory.len()).map(|(spec, _)| spec)
}

/// Returns the title in the first line of a rule: `- **S15** *Title.* [ours] ...`.
fn title(line: &str) -> Option<&str> {
    let (_, rest) = line.strip_prefix("- **")?.split_once("** *")?;
    rest.split_once(".*").map(|(title, _)| title)
}

/// Returns the number in the first line of a rule: `- **S15** *Title.* [ours] ...`.
pub(super) fn rule(line: &str) -> Option<&str> {
    let (id, _) = line.strip_prefix("- **")?.split_once("**")?;
    is_number(id).then_some(id)
}

/// Whether a text is a rule number: capital letters and digits, followed by a small letter if the
/// rule was inserted between two other rules. Examples are `S15` and `P4a`.
fn is_number(id: &str) -> bool {
    let letters = id.chars().take_while(char::is_ascii_uppercase).count();
    let digits = &id[letters..];
    let digits = digits.strip_suffix(|c: char| c.is_ascii_lowercase()).unwrap_or(digits);
    letters > 0 && !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit())
}

fn comment(line: &str) -> Option<&str> {
    line.split_once("//").map(|(_, comment)| comment)
}

fn numbers(comment: &str) -> impl Iterator<Item = &str> {
    let ends = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-');
    comment.split(ends).filter(|word| is_number(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(spec: &str, sources: &[(&str, &str)]) -> Vec<String> {
        let rules = "- **S1** [ours] It MUST.\n- **S2** [ours] It MUST.\n  S3\n".to_owned();
        let sources: Vec<_> =
            sources.iter().map(|(p, t)| ((*p).to_owned(), (*t).to_owned())).collect();
        uncited(&[(format!("docs/spec/{spec}"), rules)], &sources)
    }

    #[test]
    fn a_rule_is_cited_by_its_number_in_a_comment() {
        let source = "/// Drops it (S1).\nlet x = 1; // S2: it must\nlet s3 = \"S9\";\n";
        assert!(of("srd.md", &[("crates/srd-proto/src/a.rs", source)]).is_empty());
        let source = "let s = \"S1\"; // XS2 S2-like S20 S2a S2ab\n";
        let missing = of("srd.md", &[("crates/srd-proto/src/a.rs", source)]);
        assert_eq!(missing, ["srd.md S1", "srd.md S2"]);
    }

    #[test]
    fn a_line_that_only_cites_has_the_title_of_the_rule() {
        let spec = "- **S1** *Source of keys.* [ours]\n- **S2** *MSS.* [ours]\n".to_owned();
        let specs = [("docs/spec/srd.md".to_owned(), spec)];
        let of = |text: &str| {
            untitled(&specs, &[("crates/srd-proto/src/a.rs".to_owned(), text.to_owned())])
        };
        assert!(of("  // S1: Source of keys\n// S2: MSS\n/// Drops it. (S1)\n").is_empty());
        let place = "crates/srd-proto/src/a.rs:1";
        assert_eq!(of("// S1\n"), [format!("{place}: write `// S1: Source of keys`")]);
        assert_eq!(of("// S1: another\n"), [format!("{place}: write `// S1: Source of keys`")]);
        assert_eq!(of("// S1, S2\n"), [format!("{place}: S1, S2 is not one rule")]);
        assert_eq!(of("// S9: that\n"), [format!("{place}: S9 is not one rule")]);
    }

    #[test]
    fn equal_numbers_of_other_specifications_do_not_count() {
        let sources = [("crates/srd-efa/src/device/a.rs", "// S1\n"), ("crates/x/a.rs", "// S2\n")];
        assert_eq!(of("efa.md", &sources), ["efa.md S2"]);
        assert_eq!(of("new.md", &sources), [""; 0], "one without an entry is cited anywhere");
    }

    /// Regression: a citation in a directory of another specification, below one of this
    /// specification, counted for both.
    #[test]
    fn regression_the_innermost_directory_decides_which_rule_is_cited() {
        let sources = [("crates/srd-card/src/vpc/a.rs", "// S1\n// S2\n")];
        assert_eq!(of("express.md", &sources), ["express.md S1", "express.md S2"]);
        assert_eq!(of("card.md", &sources), [""; 0]);
    }
}
