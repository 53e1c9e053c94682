//! Finds sentences whose subject is a bare "who", for example "who arrives late waits". A reader
//! has to guess the meaning; "a packet that arrives late waits" is clear. See docs/language.md.

/// Beginnings of a sentence whose subject is a bare "who".
const BARE: [&str; 4] = ["Who ", "Whoever ", "Whom ", "He who "];

/// Returns the number of sentences with a bare "who" as the subject in the comments of a Rust file.
pub(super) fn in_rust(text: &str) -> usize {
    let comments = text.lines().map(|line| {
        let line = line.trim_start();
        let marks = ["//! ", "/// ", "// "];
        marks.iter().find_map(|mark| line.strip_prefix(mark)).unwrap_or_default()
    });
    count(comments)
}

/// Returns the number of sentences with a bare "who" as the subject in a Markdown document, without
/// its code.
pub(super) fn in_markdown(text: &str) -> usize {
    let mut inside = false;
    count(text.lines().map(|line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        if inside || fence { "" } else { line.trim_start_matches(['-', '*', ' ']) }
    }))
}

/// Returns the number of sentences with a bare "who" as the subject. A paragraph ends at an empty
/// line or a row of a table; rows of tables are not sentences.
fn count<'a>(lines: impl Iterator<Item = &'a str>) -> usize {
    let mut found = 0;
    let mut begins = true;
    for line in lines {
        if line.is_empty() || line.starts_with('|') {
            begins = true;
            continue;
        }
        found += usize::from(begins && is_bare(line));
        for end in [". ", "? ", "! ", ": "] {
            found += line.split(end).skip(1).filter(|rest| is_bare(rest)).count();
        }
        begins = line.ends_with(['.', '?', '!']);
    }
    found
}

/// Whether a sentence begins with a bare "who". Questions are permitted.
fn is_bare(sentence: &str) -> bool {
    let end = sentence.find(['.', '?', '!']).map(|at| sentence.as_bytes()[at]);
    end != Some(b'?') && BARE.iter().any(|word| sentence.starts_with(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_subjects_are_counted_where_sentences_begin() {
        let text = "//! Who comes late waits. Whoever does not wait is gone.\n//! A peer\n//! \
                    Who is not a sentence.\n\n/// He who sends, sends.\nfn who() {}\n";
        assert_eq!(in_rust(text), 3);
    }

    #[test]
    fn questions_and_other_subjects_pass() {
        assert_eq!(in_rust("/// Who sent it?\n/// A peer who waits.\n/// | Who |\n"), 0);
    }

    #[test]
    fn code_of_documents_does_not_count() {
        assert_eq!(in_markdown("- Who waits, waits.\n\n```text\nWho is not looked at.\n```\n"), 1);
    }
}
