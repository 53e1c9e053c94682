//! Rules of the specifications that no source names: `// S15: ...` or `(S15)` in a comment.
//!
//! The numbers of two specifications may be the same, so each has its own crates, in whose
//! comments a bare number means its rule. A rule of a specification without an entry may be
//! cited anywhere.

use std::collections::BTreeSet;

/// Specifications, and the directories whose comments cite their rules.
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

/// The rules that nothing cites, as `srd.md S15`. `specs` and `sources` are (path, text).
pub(super) fn uncited(specs: &[(String, String)], sources: &[(String, String)]) -> Vec<String> {
    let mut uncited = Vec::new();
    for (path, text) in specs {
        let name = path.rsplit('/').next().unwrap_or(path);
        let home = HOMES.iter().find(|(spec, _)| *spec == name).map(|(_, home)| *home);
        let is_home = |path: &str| home.is_none_or(|home| home.iter().any(|d| path.starts_with(d)));
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

/// The number of a rule: `- **S15** [ours] ...`.
pub(super) fn rule(line: &str) -> Option<&str> {
    let (id, _) = line.strip_prefix("- **")?.split_once("**")?;
    is_number(id).then_some(id)
}

/// Letters and digits, and a small letter where a rule was put between two: `S15`, `P4a`.
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
    fn equal_numbers_of_other_specifications_do_not_count() {
        let sources = [("crates/srd-efa/src/device/a.rs", "// S1\n"), ("crates/x/a.rs", "// S2\n")];
        assert_eq!(of("efa.md", &sources), ["efa.md S2"]);
        assert_eq!(of("new.md", &sources), [""; 0], "one without an entry is cited anywhere");
    }
}
