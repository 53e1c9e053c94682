//! What no compiler checks: which crate may know which, how long files and lines get, that
//! every module says what it is, why each dependency is here, and that the documents speak of
//! things that exist.
//!
//! | module | what |
//! |---|---|
//! | [`crates`] | arrows between crates, reasons for dependencies |
//! | [`source`] | one Rust file at a time |
//! | [`documents`] | commands, links and numbered rules in Markdown |
//!
//! Each check is a pure function from text to findings; this file reads the files. A finding
//! says where, what, and what to do.

mod crates;
mod documents;
mod source;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The repository's directory.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Runs every check.
///
/// # Errors
/// All findings, or what kept a check from running.
pub(crate) fn run() -> Result<()> {
    let root = root();
    let mut findings = Vec::new();
    let packages = crates::read(&metadata(&root)?)?;
    findings.extend(crates::arrows(&packages));
    let fuzz = read(&root, "fuzz/Cargo.toml").unwrap_or_default();
    findings.extend(crates::reasons(&packages, &fuzz, &read(&root, "deny.toml")?));
    let mut files = 0;
    for path in find(&root, "rs") {
        let name = relative(&root, &path);
        findings.extend(source::check(&name, &read(&root, &name)?));
        files += 1;
    }
    for package in packages.iter().filter(|p| p.is_pure()) {
        let name = format!("crates/{}/src/lib.rs", package.name);
        findings.extend(source::check_pure(&name, &read(&root, &name)?));
    }
    let mut documents = 0;
    for path in find(&root, "md") {
        let name = relative(&root, &path);
        let text = read(&root, &name)?;
        findings.extend(documents::links(&name, &text, |to| root.join(to).exists()));
        if name.starts_with("docs/spec/") {
            findings.extend(documents::rules(&name, &text));
        }
        findings.extend(check_commands(&root, &name, &text)?);
        documents += 1;
    }
    if findings.is_empty() {
        println!("tidy: {} crates, {files} Rust files, {documents} documents", packages.len());
        return Ok(());
    }
    bail!("{} findings\n{}", findings.len(), findings.join("\n"))
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

/// Every file with a suffix, in order, but what is built or hidden.
fn find(root: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if path.is_dir() {
                if name != "target" && name != "out" && !name.starts_with('.') {
                    waiting.push(path);
                }
            } else if path.extension().is_some_and(|e| e == suffix) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Looks up each command of a document: `make` targets in the Makefile, `srd` and `cargo xtask`
/// in the help of the programs themselves.
fn check_commands(root: &Path, name: &str, text: &str) -> Result<Vec<String>> {
    let makefile = read(root, "Makefile").unwrap_or_default();
    let mut helps: BTreeMap<String, String> = BTreeMap::new();
    let mut findings = Vec::new();
    for (line, command) in documents::commands(text) {
        let place = format!("{name}:{line}");
        match documents::classify(&command) {
            documents::Kind::Make(target) => {
                if !makefile.lines().any(|l| l.starts_with(&format!("{target}:"))) {
                    findings
                        .push(format!("{place}: `make {target}`: the Makefile has no such target"));
                }
            }
            documents::Kind::Program { package, words } => {
                let key = format!("{package} {}", documents::subcommands(&words).join(" "));
                if !helps.contains_key(&key) {
                    helps.insert(key.clone(), help(root, package, &words)?);
                }
                let complaint = documents::check_words(&words, &helps[&key], |path| {
                    root.join(path).exists() || root.join(format!("scenarios/{path}.toml")).exists()
                });
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

/// What a program says about a subcommand; empty if it knows none of that name.
fn help(root: &Path, package: &str, words: &[String]) -> Result<String> {
    let output = program(root, package)
        .args(documents::subcommands(words))
        .arg("--help")
        .current_dir(root)
        .output()
        .with_context(|| format!("cannot run {package}"))?;
    Ok(if output.status.success() { String::from_utf8(output.stdout)? } else { String::new() })
}

/// A program of ours: the one built beside this one, unless something is newer than it; else
/// whatever cargo makes of it.
fn program(root: &Path, package: &str) -> Command {
    let name = if package == "srd-cli" { "srd" } else { package };
    let beside = std::env::current_exe().ok().map(|exe| exe.with_file_name(name));
    if let Some(exe) = beside.filter(|exe| is_fresh(root, exe)) {
        return Command::new(exe);
    }
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--quiet", "--package", package, "--"]);
    command
}

fn is_fresh(root: &Path, exe: &Path) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|m| m.modified()).ok();
    let Some(built) = modified(exe) else { return false };
    find(root, "rs").iter().all(|file| modified(file).is_some_and(|at| at <= built))
}
