//! The scenarios that there are.

use crate::failure::usage;
use crate::output::JsonOutput;
use crate::table::Table;
use anyhow::{Context, Result};
use serde::Serialize;
use srd_sim::scenario::{Scenario, Transport};
use std::fs;
use std::path::{Path, PathBuf};

/// Where scenarios are looked for by name.
const DIRECTORY: &str = "scenarios";

#[derive(Serialize)]
struct Listed {
    name: String,
    file: PathBuf,
    description: String,
    transports: Vec<&'static str>,
}

/// Prints them.
pub(super) fn run(directory: &Path, json: &JsonOutput) -> Result<()> {
    json.check()?;
    let mut all = Vec::new();
    for file in files(directory)? {
        match Scenario::open(&file, &[]) {
            Ok(scenario) => all.push(Listed {
                name: stem(&file),
                description: scenario.description.trim().replace('\n', " "),
                transports: scenario.transports.iter().map(|t| t.name()).collect(),
                file,
            }),
            Err(error) => eprintln!("srd: {error}"),
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

/// The file of a scenario that is named by path or by name.
pub(super) fn find(named: &Path) -> Result<PathBuf> {
    if named.is_file() {
        return Ok(named.to_owned());
    }
    let is_name = named.extension().is_none() && named.components().count() == 1;
    if is_name {
        let file = Path::new(DIRECTORY).join(named).with_extension("toml");
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
