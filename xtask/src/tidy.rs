//! `cargo xtask tidy`: checks rules that no compiler checks. They concern dependencies between
//! crates, lengths of files and lines, a documentation page for every module, a reason for each
//! dependency, documents that refer to existing things, and plain language.
//!
//! | module | checked |
//! |---|---|
//! | [`crates`] | direction of dependencies between crates, reasons for dependencies |
//! | [`source`] | one Rust file at a time |
//! | [`modules`] | the table of modules in the page of each crate |
//! | [`documents`] | commands, links and numbered rules in Markdown |
//! | [`circles`] | files of a crate that use each other in a circle |
//! | [`sentences`] | sentences whose subject is a bare "who" |
//! | [`forms`] | headless comments, words for people, many pronouns, names of types |
//! | [`citations`] | rules of the specifications that no source cites |
//! | [`messages`] | values with debug formatting in messages |
//! | [`ratchet`] | counts of circles, forms of language and test programs, which may only fall |
//! | [`figure`] | the figure of the README, which is drawn from the results of the benchmarks |
//!
//! Most checks are pure functions from text to findings; this file reads the files. A finding
//! contains the position, the fault, and the remedy.

mod circles;
mod citations;
mod crates;
mod documents;
mod figure;
mod forms;
mod messages;
mod modules;
pub(crate) mod ratchet;
mod sentences;
mod source;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Path of the journal of measurements, whose entries may name files that no longer exist.
const JOURNAL: &str = "docs/perf-notes.md";
/// Path of the document with the figure.
const README: &str = "README.md";

/// Returns the repository's directory.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// A file of the repository: its path below the root, and its content.
type Text = (String, String);

/// Runs all checks. With `write`, first updates generated values: the counts that have fallen, and
/// the figure of the README.
///
/// # Errors
/// A text with all findings, or the reason why a check could not run.
pub(crate) fn run(write: bool) -> Result<()> {
    let root = root();
    let packages = crates::read(&metadata(&root)?)?;
    let (sources, documents) = (texts(&root, "rs")?, texts(&root, "md")?);
    let mut findings = crates::arrows(&packages);
    let fuzz = read(&root, "fuzz/Cargo.toml").unwrap_or_default();
    findings.extend(crates::reasons(&packages, &fuzz, &read(&root, "deny.toml")?));
    findings.extend(sources.iter().flat_map(|(name, text)| source::check(name, text)));
    findings.extend(sources.iter().flat_map(|(name, text)| messages::check(name, text)));
    findings.extend(sources.iter().flat_map(|(name, text)| modules::unlisted(name, text)));
    findings.extend(untested_examples(&sources));
    for package in packages.iter().filter(|p| p.is_pure()) {
        let name = format!("crates/{}/src/lib.rs", package.name);
        findings.extend(source::check_pure(&name, &read(&root, &name)?));
    }
    for (name, text) in &documents {
        findings.extend(documents::links(name, text, |to| root.join(to).exists()));
        if name != JOURNAL {
            let exists = |file: &str| sources.iter().any(|(of, _)| documents::is_end(of, file));
            findings.extend(documents::files(name, text, exists));
        }
        if name.starts_with("docs/spec/") {
            findings.extend(documents::rules(name, text));
        }
        findings.extend(check_commands(&root, name, text)?);
    }
    findings.extend(check_figure(&root, write)?);
    findings.extend(check_counts(&root, &sources, &documents, write)?);
    if findings.is_empty() {
        let (files, documents) = (sources.len(), documents.len());
        println!("tidy: {} crates, {files} Rust files, {documents} documents", packages.len());
        return Ok(());
    }
    bail!("{} findings\n{}", findings.len(), findings.join("\n"))
}

/// Returns findings for code examples in documentation. No test runs them, because cargo would have
/// to compile the workspace again to do so.
fn untested_examples(sources: &[Text]) -> Vec<String> {
    let of_crates = sources.iter().filter(|(name, _)| name.contains("/src/"));
    let found = of_crates.filter_map(|(name, text)| {
        let line = source::example(text)?;
        let remedy = "write it as a test in tests/it, and show that by include_str! (srd-net does)";
        Some(format!("{name}:{line}: an example that no test runs: {remedy}"))
    });
    found.collect()
}

/// Checks that the figure of the README, and the values in its text, match the results of the
/// benchmarks; with `write`, draws the figure anew.
fn check_figure(root: &Path, write: bool) -> Result<Vec<String>> {
    let results = read(root, figure::RESULTS)?;
    let (drawn, lists) = match (figure::draw(&results), figure::lists(&results)) {
        (Ok(drawn), Ok(lists)) => (drawn, lists),
        (Err(missing), _) | (_, Err(missing)) => return Ok(vec![missing]),
    };
    if write {
        fs::write(root.join(figure::FILE), &drawn)?;
    }
    let mut findings = Vec::new();
    if read(root, figure::FILE).ok().as_ref() != Some(&drawn) {
        let (file, results) = (figure::FILE, figure::RESULTS);
        findings.push(format!("{file}: not what {results} says: cargo xtask tidy --write"));
    }
    let readme = read(root, README)?;
    let missing = lists.iter().filter(|list| !readme.contains(list.as_str()));
    findings.extend(missing.map(|list| format!("{README}: the text of the figure lacks `{list}`")));
    Ok(findings)
}

/// Checks the counts that may only fall, and prints their sums. Findings about circles also list
/// the circles of the crate.
fn check_counts(
    root: &Path,
    sources: &[Text],
    documents: &[Text],
    write: bool,
) -> Result<Vec<String>> {
    let allowed = ratchet::read(&read(root, ratchet::FILE).unwrap_or_default());
    let circles = circles_by_crate(sources);
    let lists = forms::Lists::read(&read(root, forms::DOCUMENT)?);
    let mut now = count_sentences(sources, documents);
    for (tree, _, form) in forms_of(&lists, sources, documents) {
        *now.entry((form.kind, tree)).or_default() += 1;
    }
    for (name, found) in &circles {
        let files = found.iter().map(Vec::len).sum();
        now.insert(("circles".into(), name.clone()), found.len());
        now.insert(("entangled".into(), name.clone()), files);
    }
    let (specs, of) = (|(name, _): &&Text| name.starts_with("docs/spec/"), "uncited".to_owned());
    let specs: Vec<Text> = documents.iter().filter(specs).cloned().collect();
    let uncited = citations::uncited(&specs, sources);
    now.extend(uncited.into_iter().map(|rule| ((of.clone(), rule), 1)));
    now.insert(("programs".into(), "all".into()), test_programs(sources));
    // `cargo xtask test` measures this count, so it stays unchanged.
    let seconds = (ratchet::TEST_SECONDS.0.to_owned(), ratchet::TEST_SECONDS.1.to_owned());
    now.extend(allowed.get(&seconds).map(|count| (seconds.clone(), *count)));
    let kinds = ["circles", "entangled", "subjects", "uncited", "programs"].map(str::to_owned);
    for kind in kinds.into_iter().chain(lists.kinds()) {
        let (now, allowed) = (ratchet::sum(&now, &kind), ratchet::sum(&allowed, &kind));
        println!("{kind}: {now} ({allowed} allowed)");
    }
    if write {
        fs::write(root.join(ratchet::FILE), ratchet::write(&ratchet::lowered(&allowed, &now)))?;
    }
    let mut findings = ratchet::worse(&allowed, &now);
    findings.extend(citations::untitled(&specs, sources));
    if findings.iter().any(|finding| lists.kinds().iter().any(|kind| finding.starts_with(kind))) {
        findings.push("cargo xtask tidy --list KIND TREE shows the sentences of a count".into());
    }
    for (name, found) in &circles {
        if findings.iter().any(|finding| finding.contains(&format!(" {name}:"))) {
            findings.extend(found.iter().map(|circle| format!("{name}: {}", circle.join(", "))));
        }
    }
    Ok(findings)
}

/// Returns the number of programs with integration tests that cargo links: files and directories
/// directly below `tests/`.
fn test_programs(sources: &[Text]) -> usize {
    let is_program = |(name, _): &&Text| {
        let behind = name.split_once("/tests/").filter(|(crates, _)| !crates.contains("/src"));
        behind.is_some_and(|(_, file)| match file.split_once('/') {
            None => true,
            Some((_, rest)) => rest == "main.rs",
        })
    };
    sources.iter().filter(is_program).count()
}

fn circles_by_crate(sources: &[Text]) -> BTreeMap<String, Vec<Vec<String>>> {
    let mut crates: BTreeMap<String, Vec<(String, &str)>> = BTreeMap::new();
    for (name, text) in sources {
        let Some((owner, path)) = name.split_once("/src/") else { continue };
        let owner = owner.trim_start_matches("crates/").to_owned();
        crates.entry(owner).or_default().push((path.to_owned(), text));
    }
    crates.into_iter().map(|(name, files)| (name, circles::circles(&files))).collect()
}

/// Counts the sentences that begin with a bare "who", for each crate and for all documents.
fn count_sentences(sources: &[Text], documents: &[Text]) -> ratchet::Counts {
    let mut counts = ratchet::Counts::new();
    let mut add = |name: &str, count| {
        *counts.entry(("subjects".to_owned(), name.to_owned())).or_default() += count;
    };
    for (path, text) in sources {
        add(tree(path), sentences::in_rust(text));
    }
    for (_, text) in documents {
        add("docs", sentences::in_markdown(text));
    }
    counts
}

/// Returns the name of the crate that contains a Rust file; for a file outside of `crates/`, the
/// top directory.
fn tree(path: &str) -> &str {
    path.trim_start_matches("crates/").split('/').next().unwrap_or_default()
}

/// Returns every occurrence of a counted form of language, with its crate or directory and its
/// file.
fn forms_of(
    lists: &forms::Lists,
    sources: &[Text],
    documents: &[Text],
) -> Vec<(String, String, forms::Form)> {
    let mut found = Vec::new();
    let mut add = |tree: &str, path: &str, forms: Vec<forms::Form>| {
        found.extend(forms.into_iter().map(|form| (tree.to_owned(), path.to_owned(), form)));
    };
    for (path, text) in sources {
        add(tree(path), path, lists.in_rust(text));
    }
    for (path, text) in documents.iter().filter(|(path, _)| path != forms::DOCUMENT) {
        add("docs", path, lists.in_markdown(text));
    }
    found
}

/// Prints the occurrences of one counted form in one crate or directory: file, line, and sentence.
///
/// # Errors
/// An error, if a file cannot be read, or if the name of the count, crate or directory is unknown.
pub(crate) fn list(kind: &str, of: &str) -> Result<()> {
    let root = root();
    let lists = forms::Lists::read(&read(&root, forms::DOCUMENT)?);
    if !lists.kinds().iter().any(|known| known == kind) {
        bail!("{kind:?} is no count of language: {}", lists.kinds().join(", "));
    }
    let (sources, documents) = (texts(&root, "rs")?, texts(&root, "md")?);
    if of != "docs" && !sources.iter().any(|(path, _)| tree(path) == of) {
        bail!("{of:?} is no tree: the name of a crate, xtask, fuzz or docs");
    }
    for (tree, path, form) in forms_of(&lists, &sources, &documents) {
        if tree == of && form.kind == kind {
            println!("{path}:{}: {}", form.line, form.text);
        }
    }
    Ok(())
}

/// Returns the path and content of every file with the given suffix.
fn texts(root: &Path, suffix: &str) -> Result<Vec<Text>> {
    let names = find(root, suffix)?.into_iter().map(|path| relative(root, &path));
    names.map(|name| Ok((name.clone(), read(root, &name)?))).collect()
}

fn metadata(root: &Path) -> Result<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn read(root: &Path, name: &str) -> Result<String> {
    fs::read_to_string(root.join(name)).with_context(|| format!("cannot read {name}"))
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned()
}

/// Returns the paths of all files with the given suffix, sorted; build directories, hidden
/// directories and symbolic links are left out.
fn find(root: &Path, suffix: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        let shown = || format!("cannot read {}", directory.display());
        for entry in fs::read_dir(&directory).with_context(shown)? {
            let entry = entry.with_context(shown)?;
            let (path, name, kind) = (entry.path(), entry.file_name(), entry.file_type()?);
            let name = name.to_string_lossy();
            if kind.is_dir() {
                if name != "target" && name != "out" && !name.starts_with('.') {
                    waiting.push(path);
                }
            } else if kind.is_file() && path.extension().is_some_and(|e| e == suffix) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Checks that each command in a document exists: `make` targets in the Makefile, and the words of
/// `cargo xtask` in its help. A test of `srd-cli` checks the commands of `srd`.
fn check_commands(root: &Path, name: &str, text: &str) -> Result<Vec<String>> {
    let makefile = read(root, "Makefile").unwrap_or_default();
    let mut helps: BTreeMap<String, String> = BTreeMap::new();
    let mut findings = Vec::new();
    let kinds = documents::commands(text).into_iter().flat_map(|(line, command)| {
        let kinds = documents::classify_all(&command);
        kinds.into_iter().map(move |kind| (line, command.clone(), kind))
    });
    for (line, command, kind) in kinds {
        let place = format!("{name}:{line}");
        match kind {
            documents::Kind::Make(target) => {
                if !makefile.lines().any(|l| l.starts_with(&format!("{target}:"))) {
                    findings
                        .push(format!("{place}: `make {target}`: the Makefile has no such target"));
                }
            }
            documents::Kind::Xtask(words) => {
                let key = documents::subcommands(&words).join(" ");
                if !helps.contains_key(&key) {
                    helps.insert(key.clone(), help(root, &words)?);
                }
                let complaint = documents::check_words(&words, &helps[&key]);
                findings.extend(complaint.map(|what| format!("{place}: `{command}`: {what}")));
            }
            documents::Kind::Example { package, example } => {
                if !root.join(format!("crates/{package}/examples/{example}.rs")).exists() {
                    findings.push(format!("{place}: `{command}`: there is no such example"));
                }
            }
            documents::Kind::Script(path) => {
                if !root.join(&path).exists() {
                    findings.push(format!("{place}: `{command}`: there is no {path}"));
                }
            }
            documents::Kind::Other => {}
        }
    }
    Ok(findings)
}

/// Returns the help text of a subcommand of this program; empty if there is no such subcommand.
fn help(root: &Path, words: &[String]) -> Result<String> {
    let own = std::env::current_exe().context("where is this program")?;
    let output = Command::new(own)
        .args(documents::subcommands(words))
        .arg("--help")
        .current_dir(root)
        .output()
        .context("cannot run xtask")?;
    Ok(if output.status.success() { String::from_utf8(output.stdout)? } else { String::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a directory that could not be read was left out, so its files passed every
    /// check; a link to a directory above was followed many times.
    #[test]
    fn regression_every_file_is_found_once_or_the_check_fails() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        for left_out in ["target", "out", ".git"] {
            fs::create_dir(root.path().join(left_out)).unwrap();
            fs::write(root.path().join(left_out).join("x.rs"), "").unwrap();
        }
        fs::write(inner.join("c.rs"), "").unwrap();
        fs::write(inner.join("c.md"), "").unwrap();
        std::os::unix::fs::symlink("../..", inner.join("up")).unwrap();
        assert_eq!(find(root.path(), "rs").unwrap(), [inner.join("c.rs")]);
        let error = find(&root.path().join("none"), "rs").unwrap_err().to_string();
        assert!(error.starts_with("cannot read "), "{error}");
    }

    #[test]
    fn a_test_program_is_a_file_or_a_directory_below_tests() {
        let names = [
            "crates/a/tests/one.rs",
            "crates/a/tests/two/main.rs",
            "crates/a/tests/two/part.rs",
            "crates/a/src/tests/three.rs",
            "crates/a/src/lib.rs",
        ];
        let sources = names.map(|name| (name.to_owned(), String::new()));
        assert_eq!(test_programs(&sources), 2);
    }
}
