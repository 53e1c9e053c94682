//! The test programs that cargo builds, and the tests that they contain.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// A test program that cargo built.
#[derive(Clone, Debug)]
pub(super) struct Program {
    /// Name of the program: for example `srd-proto` for the unit tests of a library, or
    /// `srd-cli::overlay` for a program of integration tests.
    pub(super) name: String,
    /// Path of the executable.
    file: PathBuf,
    /// Directory of the crate, in which its tests run.
    directory: PathBuf,
    /// Whether the program contains integration tests, which are below `tests/`.
    pub(super) integration: bool,
}

impl Program {
    /// Returns a program that is never started, for tests of the runner.
    #[cfg(test)]
    pub(super) fn named(name: &str) -> Rc<Self> {
        let (file, directory) = (PathBuf::new(), PathBuf::new());
        Rc::new(Self { name: name.into(), file, directory, integration: true })
    }
}

/// One test of a program.
#[derive(Clone, Debug)]
pub(super) struct Test {
    /// Program that contains the test.
    pub(super) program: Rc<Program>,
    /// Path of the test in the program, for example `routes::it_works`.
    pub(super) path: String,
}

impl Test {
    /// Returns the name of the program and the path of the test, separated by a space.
    pub(super) fn full_name(&self) -> String {
        format!("{} {}", self.program.name, self.path)
    }

    /// Returns the command that runs only this test and prints its output.
    pub(super) fn command(&self) -> (PathBuf, Vec<String>) {
        let arguments = [self.path.as_str(), "--exact", "--show-output", "--test-threads=1"];
        (self.program.file.clone(), arguments.map(str::to_owned).to_vec())
    }

    /// Returns the working directory of the test.
    pub(super) fn directory(&self) -> &Path {
        &self.program.directory
    }
}

/// A test that runs only on demand, because it has the attribute `#[ignore]`.
#[derive(Clone, Debug)]
pub(super) struct OnDemand {
    /// Name of the program and path of the test, separated by a space.
    pub(super) name: String,
    /// Reason in the attribute; `None` if the attribute gives no reason.
    pub(super) reason: Option<String>,
}

/// The tests of all programs.
pub(super) struct TestInventory {
    /// Tests that run in every run.
    pub(super) tests: Vec<Test>,
    /// Tests that run only on demand.
    pub(super) on_demand: Vec<OnDemand>,
}

/// Builds every test program of the workspace, and the example `nccl_pair`, which a test starts.
/// Shows cargo's progress.
///
/// # Errors
/// An error, if cargo cannot be started or a program does not build.
pub(super) fn build(root: &Path) -> Result<Vec<Program>> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut child = Command::new(cargo)
        .args(["build", "--workspace", "--lib", "--bins", "--tests", "--example", "nccl_pair"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(root)
        .stdout(Stdio::piped())
        .spawn()
        .context("cargo cannot run")?;
    let output = child.stdout.take().context("cargo has no output")?;
    let messages = serde_json::Deserializer::from_reader(BufReader::new(output));
    let mut programs = Vec::new();
    for message in messages.into_iter::<Value>() {
        programs.extend(program(&message.context("a message of cargo")?));
    }
    ensure!(child.wait()?.success(), "the tests do not build");
    programs.sort_by(|a: &Program, b| a.name.cmp(&b.name));
    Ok(programs)
}

/// Returns the test program that a message of cargo describes; `None` if it describes none.
fn program(message: &Value) -> Option<Program> {
    let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let file = message["executable"].as_str().filter(|_| is_test)?;
    let directory = Path::new(message["manifest_path"].as_str()?).parent()?;
    let package = directory.file_name()?.to_str()?;
    let integration = message["target"]["kind"][0] == "test";
    let name = match message["target"]["name"].as_str()? {
        target if integration => format!("{package}::{target}"),
        _ => package.to_owned(),
    };
    let (file, directory) = (PathBuf::from(file), directory.to_path_buf());
    Some(Program { name, file, directory, integration })
}

/// Returns the number of programs that contain integration tests.
pub(super) fn count(programs: &[Program]) -> usize {
    programs.iter().filter(|program| program.integration).count()
}

/// Starts each program with `--list`; returns the tests of all programs.
///
/// # Errors
/// An error, if a program cannot be started or fails.
pub(super) fn tests(programs: &[Program]) -> Result<TestInventory> {
    let mut found = TestInventory { tests: Vec::new(), on_demand: Vec::new() };
    for program in programs {
        let program = Rc::new(program.clone());
        let ignored = names(&ask(&program, &["--list", "--format=terse", "--ignored"])?);
        for path in names(&ask(&program, &["--list", "--format=terse"])?) {
            if !ignored.contains(&path) {
                found.tests.push(Test { program: program.clone(), path });
            }
        }
        if !ignored.is_empty() {
            // A program prints the reason of an ignored test only if it is started to run the test.
            let mut arguments: Vec<&str> = ignored.iter().map(String::as_str).collect();
            arguments.push("--exact");
            let reasons = reasons(&ask(&program, &arguments)?);
            for path in &ignored {
                let name = format!("{} {path}", program.name);
                found.on_demand.push(OnDemand { name, reason: reasons.get(path).cloned() });
            }
        }
    }
    Ok(found)
}

/// Runs a program with the given arguments, and returns its output.
fn ask(program: &Program, arguments: &[&str]) -> Result<String> {
    let output = Command::new(&program.file)
        .args(arguments)
        .current_dir(&program.directory)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{} cannot run", program.file.display()))?;
    ensure!(output.status.success(), "{} {arguments:?}: {}", program.name, output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the names of the tests in the output of `--list --format=terse`.
fn names(listed: &str) -> Vec<String> {
    listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

/// Returns the reasons of ignored tests, from lines such as `test a::b ... ignored, takes minutes`.
fn reasons(said: &str) -> BTreeMap<String, String> {
    let reason = |line: &str| {
        let (path, reason) = line.strip_prefix("test ")?.split_once(" ... ignored, ")?;
        Some((path.to_owned(), reason.to_owned()))
    };
    said.lines().filter_map(reason).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_and_integration_programs_are_told_apart() {
        let message = |kind: &str, name: &str, test: bool| {
            let text = format!(
                r#"{{"reason":"compiler-artifact","profile":{{"test":{test}}},"executable":"/t/x",
                "manifest_path":"/r/crates/srd-cli/Cargo.toml",
                "target":{{"kind":["{kind}"],"name":"{name}"}}}}"#
            );
            program(&serde_json::from_str(&text).unwrap())
        };
        let unit = message("bin", "srd", true).unwrap();
        assert_eq!((unit.name.as_str(), unit.integration), ("srd-cli", false));
        let lab = message("test", "lab", true).unwrap();
        assert_eq!((lab.name.as_str(), lab.integration), ("srd-cli::lab", true));
        assert!(message("bin", "srd", false).is_none(), "the command itself has no tests");
    }

    #[test]
    fn names_and_reasons_are_read_from_the_output_of_a_program() {
        assert_eq!(names("a::b: test\nc: test\n\nd: benchmark\n"), ["a::b", "c"]);
        let said = "\nrunning 2 tests\ntest a ... ignored\ntest b ... ignored, takes minutes\n";
        assert_eq!(reasons(said), BTreeMap::from([("b".to_owned(), "takes minutes".to_owned())]));
    }
}
