//! Circles of files: files of one crate that use each other, directly or through other files.
//!
//! A file uses another file if its code contains a path that begins with `crate::` or `super::` and
//! ends in the other file. Uses between a module and the modules inside it do not count; neither do
//! re-exports and tests.

use std::collections::{BTreeMap, BTreeSet};

/// Returns the circles among the files of a crate, each as a list of its modules in order. `files`
/// are the sources of the crate, each with its path below `src` and its text.
pub(super) fn circles(files: &[(String, &str)]) -> Vec<Vec<String>> {
    let modules: BTreeMap<Vec<String>, &str> = files
        .iter()
        .filter(|(path, _)| !is_test(path))
        .map(|(path, text)| (module(path), *text))
        .collect();
    let names: Vec<&Vec<String>> = modules.keys().collect();
    let edges: Vec<BTreeSet<usize>> = modules
        .iter()
        .map(|(from, text)| {
            let known = paths(text).into_iter().filter_map(|path| resolve(from, &path, &modules));
            let apart = known.filter(|to| !to.starts_with(from) && !from.starts_with(to));
            apart.filter_map(|to| names.iter().position(|name| **name == to)).collect()
        })
        .collect();
    let reach: Vec<BTreeSet<usize>> = (0..names.len()).map(|from| reached(from, &edges)).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for at in 0..names.len() {
        let circle: Vec<usize> =
            reach[at].iter().copied().filter(|other| reach[*other].contains(&at)).collect();
        if circle.len() > 1 && seen.insert(circle.clone()) {
            found.push(circle.into_iter().map(|n| names[n].join("::")).collect());
        }
    }
    found
}

fn is_test(path: &str) -> bool {
    path.split('/').any(|part| {
        part == "tests" || part.strip_suffix(".rs").is_some_and(|stem| stem.ends_with("tests"))
    })
}

/// Returns the module path of a file: `[a, b]` for `a/b.rs` and for `a/b/mod.rs`.
fn module(path: &str) -> Vec<String> {
    let stem = path.trim_end_matches(".rs");
    let parts = stem.split('/').filter(|part| !["mod", "lib", "main"].contains(part));
    parts.map(str::to_owned).collect()
}

/// Returns the paths that begin with `crate` or `super` in the code, without the tests. A group
/// such as `a::{b, c}` gives several paths.
fn paths(text: &str) -> Vec<Vec<String>> {
    let code = code(text);
    let mut found = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if before.is_none_or(|c| !(c.is_alphanumeric() || c == '_' || c == ':')) {
                take_path(&code[at..], &mut Vec::new(), &mut found);
            }
        }
    }
    found
}

/// Returns a source text without comments and without the tests at its end.
fn code(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let next = lines.peek().copied().unwrap_or_default();
        if line.trim() == "#[cfg(test)]" && next.contains("mod ") && next.ends_with('{') {
            break;
        }
        code += line.split("//").next().unwrap_or_default();
        code.push('\n');
    }
    code
}

/// Reads one path from the beginning of `text`, with its groups; returns the remaining text.
fn take_path<'a>(
    mut text: &'a str,
    before: &mut Vec<String>,
    found: &mut Vec<Vec<String>>,
) -> &'a str {
    let depth = before.len();
    loop {
        text = text.trim_start();
        if let Some(mut inside) = text.strip_prefix('{') {
            loop {
                inside = take_path(inside, before, found).trim_start();
                match inside.strip_prefix(',') {
                    Some(rest) => inside = rest,
                    None => break,
                }
            }
            text = inside.trim_start().strip_prefix('}').unwrap_or(inside);
            break;
        }
        let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
        if end == 0 {
            break;
        }
        before.push(text[..end].to_owned());
        text = &text[end..];
        match text.strip_prefix("::") {
            Some(rest) => text = rest,
            None => {
                found.push(before.clone());
                break;
            }
        }
    }
    before.truncate(depth);
    // A renaming `as NAME` is skipped.
    match text.trim_start().strip_prefix("as ") {
        Some(rest) => {
            rest.trim_start().trim_start_matches(|c: char| c.is_alphanumeric() || c == '_')
        }
        None => text,
    }
}

/// Returns the module to which a path in the module `from` leads: the longest prefix of the path
/// that names a module.
fn resolve(
    from: &[String],
    path: &[String],
    modules: &BTreeMap<Vec<String>, &str>,
) -> Option<Vec<String>> {
    let ups = path.iter().take_while(|part| *part == "super").count();
    let mut whole = match path.first().map(String::as_str) {
        Some("crate") => path[1..].to_vec(),
        _ => [from.get(..from.len().checked_sub(ups)?)?, &path[ups..]].concat(),
    };
    while !modules.contains_key(&whole) {
        whole.pop()?;
    }
    Some(whole)
}

fn reached(from: usize, edges: &[BTreeSet<usize>]) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut waiting = vec![from];
    while let Some(at) = waiting.pop() {
        waiting.extend(edges[at].iter().filter(|to| reached.insert(**to)));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let files: Vec<(String, &str)> = files.iter().map(|(p, t)| ((*p).to_owned(), *t)).collect();
        circles(&files)
    }

    #[test]
    fn two_files_that_know_each_other_are_a_circle() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\n"),
            ("a.rs", "use crate::b::B;\n"),
            ("b.rs", "use super::a::{self, A};\n"),
        ];
        assert_eq!(of(&files), [["a", "b"]]);
    }

    #[test]
    fn a_circle_may_go_around_corners_and_through_groups() {
        let files = [
            ("a.rs", "use crate::{x::y as z, b::{C, D}};\n"),
            ("b.rs", "fn f() { crate::c::g() }\n"),
            ("c/mod.rs", "use super::a::A;\n"),
            ("x.rs", ""),
        ];
        assert_eq!(of(&files), [["a", "b", "c"]]);
    }

    #[test]
    fn a_module_and_what_is_inside_of_it_are_one_room() {
        let files = [
            ("lib.rs", "mod a;\npub use a::A;\n"),
            ("a/mod.rs", "mod b;\nuse b::B;\nuse crate::a::b::C;\n"),
            ("a/b.rs", "use super::A;\nuse crate::Thing;\n"),
        ];
        assert!(of(&files).is_empty());
    }

    #[test]
    fn comments_and_tests_do_not_count() {
        let tests = "#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n";
        let commented = format!("// crate::b::B\n//! [`crate::b`]\n{tests}");
        let files =
            [("a.rs", commented.as_str()), ("b.rs", "use crate::a::A;\n"), ("b/tests.rs", tests)];
        assert!(of(&files).is_empty());
    }
}
