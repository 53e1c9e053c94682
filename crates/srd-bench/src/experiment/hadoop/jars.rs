//! The jars of Hadoop: fetched once, when asked to, and believed only with the checksums that this
//! program knows. Hadoop's binary distribution is in no registry, its jars are.

use anyhow::{Context, Result, bail};
use srd_lab::command::{find_program, run};
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The newest version whose examples, TeraSort among them, are published.
const VERSION: &str = "3.4.2";
/// The name and the SHA-256 of each jar, as `sha256sum` writes them.
const CHECKSUMS: &str = include_str!("jars.sha256");
/// What Maven is to resolve: artefacts of `org.apache.hadoop`. TestDFSIO is among the tests of
/// one, and refers to JUnit.
const ARTEFACTS: [&str; 10] = [
    "hadoop-common",
    "hadoop-hdfs",
    "hadoop-yarn-server-resourcemanager",
    "hadoop-yarn-server-nodemanager",
    // The resource manager does not start without its classes.
    "hadoop-yarn-server-timelineservice",
    "hadoop-mapreduce-client-app",
    "hadoop-mapreduce-client-shuffle",
    "hadoop-mapreduce-client-hs",
    "hadoop-mapreduce-client-jobclient",
    "hadoop-mapreduce-examples",
];
const GOAL: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";

/// The directory of the jars in a cache.
pub(super) fn directory(cache: &Path) -> PathBuf {
    cache.join(format!("hadoop-{VERSION}"))
}

/// The directory of the jars, all of which are there.
///
/// # Errors
/// One is missing; the message says how to fetch them.
pub(super) fn require(cache: &Path) -> Result<PathBuf> {
    let directory = directory(cache);
    let missing = names().find(|name| !directory.join(name).is_file());
    if let Some(name) = missing {
        let (directory, count) = (directory.display(), names().count());
        let fetch = format!("`srd lab fetch hadoop` fetches {count} jars");
        return Err(NotFetched(format!("{directory} has no {name}; {fetch}")).into());
    }
    Ok(directory)
}

/// A program of an experiment that is to be fetched first.
#[derive(Debug)]
pub struct NotFetched(String);

impl fmt::Display for NotFetched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hadoop is not there: {}", self.0)
    }
}

impl std::error::Error for NotFetched {}

/// Fetches the jars into a cache with Maven, unless they are there. A jar whose checksum is
/// another one is refused, and nothing of it is kept.
///
/// # Errors
/// There is no Maven, it fails, the disk is full, or a checksum is wrong.
pub fn fetch(cache: &Path, say: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    let directory = directory(cache);
    if require(cache).is_ok() {
        check(&directory).context("remove the directory, and fetch again")?;
        say(&format!("{} has all of Hadoop {VERSION}", directory.display()));
        return Ok(directory);
    }
    let Some(maven) = find_program("mvn") else {
        bail!("not installed: mvn; as root: apt-get install maven default-jre-headless");
    };
    let fresh = directory.with_extension(format!("part-{}", std::process::id()));
    fs::create_dir_all(&fresh).with_context(|| fresh.display().to_string())?;
    let fetched = fetch_into(&fresh, &maven, say);
    let result = fetched.and_then(|()| {
        // An older, broken one makes room.
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| directory.display().to_string());
            }
            _ => {}
        }
        fs::rename(&fresh, &directory).with_context(|| directory.display().to_string())
    });
    if result.is_err() {
        let _ = fs::remove_dir_all(&fresh);
    }
    result?;
    say(&format!("{} jars of Hadoop {VERSION} in {}", names().count(), directory.display()));
    Ok(directory)
}

fn fetch_into(directory: &Path, maven: &Path, say: &mut dyn FnMut(&str)) -> Result<()> {
    let project = directory.join("pom.xml");
    fs::write(&project, pom()).with_context(|| project.display().to_string())?;
    say(&format!("fetching {} jars with {}", names().count(), maven.display()));
    let mut command = Command::new(maven);
    command.args(["-B", "-q", "-f"]).arg(&project).arg(GOAL).arg("-DincludeScope=runtime");
    command.arg(format!("-DoutputDirectory={}", directory.display()));
    run(&mut command, "").context("Maven")?;
    check(directory)
}

/// Whether the jars are the ones that this program knows, and no others.
fn check(directory: &Path) -> Result<()> {
    let mut command = Command::new("sha256sum");
    command.args(["--check", "--quiet", "--strict", "-"]).current_dir(directory);
    run(&mut command, CHECKSUMS).context("a jar is not the one that is known")?;
    let known: BTreeSet<&str> = names().collect();
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".jar") && !known.contains(name.as_str()) {
            bail!("{name} in {} is none of Hadoop's", directory.display());
        }
    }
    Ok(())
}

fn names() -> impl Iterator<Item = &'static str> {
    CHECKSUMS.lines().filter_map(|line| line.split_whitespace().nth(1))
}

fn pom() -> String {
    let dependency = |group: &str, artefact: &str, version: &str, more: &str| {
        format!(
            "<dependency><groupId>{group}</groupId><artifactId>{artefact}</artifactId>\
             <version>{version}</version>{more}</dependency>\n"
        )
    };
    let group = "org.apache.hadoop";
    let mut all: String =
        ARTEFACTS.iter().map(|artefact| dependency(group, artefact, VERSION, "")).collect();
    let tests = "<classifier>tests</classifier>";
    all += &dependency(group, "hadoop-mapreduce-client-jobclient", VERSION, tests);
    all += &dependency("junit", "junit", "4.13.2", "");
    format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">\n\
         <modelVersion>4.0.0</modelVersion><groupId>opensrd</groupId>\
         <artifactId>lab-hadoop</artifactId><version>1</version><packaging>pom</packaging>\n\
         <dependencies>\n{all}</dependencies>\n</project>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_artefact_has_a_checksum() {
        let names: BTreeSet<&str> = names().collect();
        assert_eq!(names.len(), CHECKSUMS.lines().count());
        for artefact in ARTEFACTS {
            assert!(names.contains(format!("{artefact}-{VERSION}.jar").as_str()), "{artefact}");
        }
        for line in CHECKSUMS.lines() {
            let sum = line.split_whitespace().next().unwrap_or_default();
            assert!(sum.len() == 64 && sum.bytes().all(|b| b.is_ascii_hexdigit()), "{line}");
        }
    }

    #[test]
    fn jars_that_are_missing_or_changed_are_refused_with_a_remedy() {
        let cache = std::env::temp_dir().join(format!("srd-jars-test-{}", std::process::id()));
        let error = require(&cache).expect_err("nothing there").to_string();
        assert!(error.contains("srd lab fetch hadoop"), "{error}");
        let directory = directory(&cache);
        fs::create_dir_all(&directory).unwrap();
        for name in names() {
            fs::write(directory.join(name), "not a jar").unwrap();
        }
        assert!(require(&cache).is_ok());
        let error = format!("{:#}", fetch(&cache, &mut |_| {}).expect_err("other contents"));
        assert!(error.contains("not the one that is known"), "{error}");
        fs::remove_dir_all(&cache).unwrap();
    }
}
