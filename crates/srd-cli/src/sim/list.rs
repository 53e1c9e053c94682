//! `srd sim list`: lists the simulator's scenarios.

use crate::failure::usage;
use crate::output::{JsonOutput, tell};
use anyhow::{Context, Result};
use serde::Serialize;
use srd_chart::Table;
use srd_sim::scenario::{Scenario, Transport};
use std::fs;
use std::path::{Path, PathBuf};

/// Directories that are searched for scenarios by name: one in the current directory, and that of
/// the installed package.
const DIRECTORIES: [&str; 2] = ["scenarios", "/usr/share/doc/srd/examples/scenarios"];

#[derive(Serialize)]
struct Listed {
    name: String,
    file: PathBuf,
    description: String,
    transports: Vec<&'static str>,
}

/// Prints the scenarios of a directory; if `directory` is `None`, of the usual directory.
pub(super) fn run(directory: Option<&Path>, json: &JsonOutput) -> Result<()> {
    json.check()?;
    let mut all = Vec::new();
    for file in files(&directory.map_or_else(|| usual(&DIRECTORIES), Path::to_path_buf))? {
        match Scenario::open(&file, &[]) {
            Ok(scenario) => all.push(Listed {
                name: stem(&file),
                description: scenario.description.trim().replace('\n', " "),
                transports: scenario.transports.iter().map(|t| t.name()).collect(),
                file,
            }),
            Err(error) => tell!("srd: {error}"),
        }
    }
    let mut table = Table::new(["scenario", "what it shows"]);
    for listed in &all {
        table.row([listed.name.clone(), listed.description.clone()]);
    }
    let names: Vec<&str> = Transport::ALL.iter().map(|(_, name)| *name).collect();
    json.say(&table)?;
    json.say(format!("\ntransports: {}", names.join(", ")))?;
    json.write(&all)
}

/// Returns the file of a scenario that the user named by path or by name.
pub(super) fn find(named: &Path) -> Result<PathBuf> {
    if named.is_file() {
        return Ok(named.to_owned());
    }
    let is_name = named.extension().is_none() && named.components().count() == 1;
    if is_name {
        let file = usual(&DIRECTORIES).join(named).with_extension("toml");
        if file.is_file() {
            return Ok(file);
        }
        return usage(format!(
            "no scenario `{}`: there is no {}; `srd sim list` names those that are there",
            named.display(),
            file.display()
        ));
    }
    usage(format!("cannot read {}: no such file; `srd sim list` names scenarios", named.display()))
}

/// Returns the first of the directories that exists; if none exists, the first of the list.
fn usual(directories: &[&str]) -> PathBuf {
    let there = directories.iter().find(|directory| Path::new(directory).is_dir());
    there.or(directories.first()).map(PathBuf::from).unwrap_or_default()
}

fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    if !directory.is_dir() {
        return usage(format!(
            "no directory `{}` here: name the one with the scenarios, as in `srd sim list DIR`",
            directory.display()
        ));
    }
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    Ok(files)
}

fn stem(file: &Path) -> String {
    file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_without_scenarios_here_those_of_the_package_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let installed = directory.path().join("installed");
        fs::create_dir(&installed).unwrap();
        let absent = directory.path().join("here");
        let [here, there] = [&absent, &installed].map(|p| p.to_str().unwrap());
        assert_eq!(usual(&[here, there]), installed);
        assert_eq!(usual(&[there, here]), installed);
        assert_eq!(usual(&[here]), Path::new(here));
    }
}
