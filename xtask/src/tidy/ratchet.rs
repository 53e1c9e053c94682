//! Counts that may only fall, in [`FILE`]. They count faults that existed before the check for them
//! was introduced.
//!
//! Each line of the file has a kind, a name and a count; a count without a line must be zero. A
//! count above the line's count is a finding. If a count has fallen, `cargo xtask tidy --write`
//! lowers the line. Only a person can raise a count in the file, and the review of the change shows
//! it.

use std::collections::BTreeMap;

/// Path of the file with the permitted counts, which is part of the repository.
pub(crate) const FILE: &str = "xtask/ratchet.txt";

/// Kind and name of the processor seconds of one run of all tests, which `cargo xtask test`
/// measures.
pub(crate) const TEST_SECONDS: (&str, &str) = ("processor-seconds", "tests");

/// Counts by kind and name; the key is for example `("circles", "srd-ofi")`.
pub(crate) type Counts = BTreeMap<(String, String), usize>;

const HEAD: &str = "\
# Counts that may only fall: `cargo xtask tidy --write` writes what has become better.
#   circles    circles of files that know each other, per crate
#   entangled  files that lie on one, per crate
#   subjects   sentences that begin with a bare \"who\", per crate, and in docs
#   uncited    rules of a specification whose number no comment names
#   headless   comments of items that begin with a headless clause (\"What waits\"), per tree
#   neighbours comments of items that continue another comment (\"The same, ...\")
#   riddles    sentences with more than four of: that, which, what, it, those, one
#   types      types named with an everyday word of docs/language.md
#   people, negations, phrases, nobody  words that docs/language.md lists
#   programs   test programs that are linked for integration tests alone, in all crates
#   processor-seconds  of one run of all tests (`cargo xtask test`), by a processor of the speed of
#              the reference in xtask/src/suite/speed.rs
";

/// Returns the counts in the text of the file.
pub(crate) fn read(text: &str) -> Counts {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let (what, count) = line.rsplit_once(' ')?;
            let (kind, name) = what.split_once(' ')?;
            Some(((kind.to_owned(), name.to_owned()), count.parse().ok()?))
        })
        .collect()
}

/// Returns the text of the file for the given counts; zeros are left out.
pub(crate) fn write(counts: &Counts) -> String {
    let mut text = HEAD.to_owned();
    for ((kind, name), count) in counts.iter().filter(|(_, count)| **count > 0) {
        text += &format!("{kind} {name} {count}\n");
    }
    text
}

/// Returns a finding for each count in `now` that is larger than in `allowed`.
pub(super) fn worse(allowed: &Counts, now: &Counts) -> Vec<String> {
    let allowed = |key| allowed.get(key).copied().unwrap_or(0);
    let worse = now.iter().filter(|(key, count)| **count > allowed(*key));
    worse
        .map(|(key @ (kind, name), count)| {
            format!("{kind} {name}: {count}, and {} are allowed", allowed(key))
        })
        .collect()
}

/// Returns the permitted counts, with each count that has fallen replaced by its value in `now`.
pub(crate) fn lowered(allowed: &Counts, now: &Counts) -> Counts {
    let of = |key| now.get(key).copied().unwrap_or(0);
    allowed.iter().map(|(key, count)| (key.clone(), of(key).min(*count))).collect()
}

/// Returns the sum of all counts of the given kind.
pub(super) fn sum(counts: &Counts, kind: &str) -> usize {
    counts.iter().filter(|((k, _), _)| k == kind).map(|(_, count)| count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_they_are_written() {
        let counts = read("# a remark\ncircles srd-ofi 3\nuncited srd.md S15 1\nsubjects docs 0\n");
        assert_eq!(counts.len(), 3);
        let written = write(&counts);
        assert!(written.ends_with("circles srd-ofi 3\nuncited srd.md S15 1\n"), "{written}");
    }

    #[test]
    fn a_count_may_fall_and_not_rise() {
        let allowed = read("circles a 3\ncircles b 1\n");
        let now = read("circles a 4\ncircles c 1\n");
        let findings = worse(&allowed, &now);
        assert_eq!(
            findings,
            ["circles a: 4, and 3 are allowed", "circles c: 1, and 0 are allowed"]
        );
        assert_eq!(lowered(&allowed, &now), read("circles a 3\ncircles b 0\n"));
    }
}
