//! Programs for the Java virtual machine, fetched as jars from Maven Central. Hadoop's binary
//! distribution is in no registry, but its jars are.

use super::{Fetchable, require};
use anyhow::{Context, Result, bail};
use srd_lab::command::{find_program, run};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program as a set of jars, which Maven resolves from a few artefacts.
#[derive(Debug)]
pub(in crate::experiment) struct Jars {
    name: &'static str,
    title: &'static str,
    group: &'static str,
    version: &'static str,
    /// Artefacts of the group that Maven resolves with their dependencies.
    artefacts: &'static [&'static str],
    /// Further dependencies, in the form of Maven's project file.
    more: &'static str,
    /// The name and SHA-256 checksum of each jar, in the format of `sha256sum`.
    checksums: &'static str,
}

/// Hadoop, in the newest version whose examples, such as TeraSort, are published as a jar.
/// TestDFSIO is in the test jar of one of the artefacts, and needs JUnit.
pub(in crate::experiment) static HADOOP: Jars = Jars {
    name: "hadoop",
    title: "Hadoop",
    group: "org.apache.hadoop",
    version: "3.4.2",
    artefacts: &[
        "hadoop-common",
        "hadoop-hdfs",
        "hadoop-yarn-server-resourcemanager",
        "hadoop-yarn-server-nodemanager",
        // The resource manager needs classes of this artefact to start.
        "hadoop-yarn-server-timelineservice",
        "hadoop-mapreduce-client-app",
        "hadoop-mapreduce-client-shuffle",
        "hadoop-mapreduce-client-hs",
        "hadoop-mapreduce-client-jobclient",
        "hadoop-mapreduce-examples",
    ],
    more: "<dependency><groupId>org.apache.hadoop</groupId>\
           <artifactId>hadoop-mapreduce-client-jobclient</artifactId><version>3.4.2</version>\
           <classifier>tests</classifier></dependency>\n\
           <dependency><groupId>junit</groupId><artifactId>junit</artifactId>\
           <version>4.13.2</version></dependency>\n",
    checksums: include_str!("hadoop.sha256"),
};

/// Spark with Spark SQL, for Scala 2.13.
pub(in crate::experiment) static SPARK: Jars = Jars {
    name: "spark",
    title: "Spark",
    group: "org.apache.spark",
    version: "4.0.1",
    artefacts: &["spark-sql_2.13"],
    more: "",
    checksums: include_str!("spark.sha256"),
};

const GOAL: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";

impl Jars {
    /// Returns the directory of the jars in a cache, if all are present.
    ///
    /// # Errors
    /// If a jar is missing; the message describes how to fetch the jars.
    pub(in crate::experiment) fn require(&self, cache: &Path) -> Result<PathBuf> {
        require(self, cache)
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.checksums.lines().filter_map(|line| line.split_whitespace().nth(1))
    }

    fn pom(&self) -> String {
        let &Jars { group, version, name, more, .. } = self;
        let dependency = |artefact: &&str| {
            format!(
                "<dependency><groupId>{group}</groupId><artifactId>{artefact}</artifactId>\
                 <version>{version}</version></dependency>\n"
            )
        };
        let all: String = self.artefacts.iter().map(dependency).collect();
        format!(
            "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">\n\
             <modelVersion>4.0.0</modelVersion><groupId>opensrd</groupId>\
             <artifactId>lab-{name}</artifactId><version>1</version><packaging>pom</packaging>\n\
             <dependencies>\n{all}{more}</dependencies>\n</project>\n"
        )
    }
}

impl Fetchable for Jars {
    fn name(&self) -> &'static str {
        self.name
    }

    fn title(&self) -> String {
        format!("{} {}", self.title, self.version)
    }

    fn parts(&self) -> String {
        format!("{} jars", self.names().count())
    }

    fn directory(&self, cache: &Path) -> PathBuf {
        cache.join(format!("{}-{}", self.name, self.version))
    }

    fn missing(&self, directory: &Path) -> Option<String> {
        self.names().find(|name| !directory.join(name).is_file()).map(str::to_owned)
    }

    /// Checks that all jars have the expected checksums, and that there are no other jars.
    fn check(&self, directory: &Path) -> Result<()> {
        let mut command = Command::new("sha256sum");
        command.args(["--check", "--quiet", "--strict", "-"]).current_dir(directory);
        run(&mut command, self.checksums).context("a jar is not the one that is known")?;
        let known: BTreeSet<&str> = self.names().collect();
        for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            // Java loads files with either spelling.
            if (name.ends_with(".jar") || name.ends_with(".JAR")) && !known.contains(name.as_str())
            {
                bail!("{name} in {} is none of {}'s", directory.display(), self.title);
            }
        }
        Ok(())
    }

    fn fetch_into(&self, directory: &Path, say: &mut dyn FnMut(&str)) -> Result<()> {
        let Some(maven) = find_program("mvn") else {
            bail!("not installed: mvn; as root: apt-get install maven default-jre-headless");
        };
        let project = directory.join("pom.xml");
        fs::write(&project, self.pom()).with_context(|| project.display().to_string())?;
        // Maven searches the parent directories for `.mvn`, which may contain settings and code.
        // This empty directory ends the search.
        fs::create_dir(directory.join(".mvn")).with_context(|| project.display().to_string())?;
        say(&format!("fetching {} with {}", self.parts(), maven.display()));
        let mut command = Command::new(maven);
        command.args(["-B", "-q", "-f"]).arg(&project).arg(GOAL).arg("-DincludeScope=runtime");
        command.arg(format!("-DoutputDirectory={}", directory.display()));
        run(&mut command, "").context("Maven")?;
        self.check(directory)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{fetch, tests::cache};
    use super::*;

    #[test]
    fn every_artefact_has_a_checksum() {
        for jars in [&HADOOP, &SPARK] {
            let names: BTreeSet<&str> = jars.names().collect();
            assert_eq!(names.len(), jars.checksums.lines().count());
            for artefact in jars.artefacts {
                let jar = format!("{artefact}-{}.jar", jars.version);
                assert!(names.contains(jar.as_str()), "{artefact}");
                assert!(jars.pom().contains(&format!("<artifactId>{artefact}</artifactId>")));
            }
            for line in jars.checksums.lines() {
                let sum = line.split_whitespace().next().unwrap_or_default();
                assert!(sum.len() == 64 && sum.bytes().all(|b| b.is_ascii_hexdigit()), "{line}");
            }
        }
    }

    #[test]
    fn jars_that_are_missing_or_changed_are_refused() {
        let cache = cache("jars");
        let directory = HADOOP.directory(&cache);
        fs::create_dir_all(&directory).unwrap();
        for name in HADOOP.names() {
            fs::write(directory.join(name), "not a jar").unwrap();
        }
        assert!(HADOOP.require(&cache).is_ok());
        let error = format!("{:#}", fetch("hadoop", &cache, &mut |_| {}).expect_err("others"));
        assert!(error.contains("not the one that is known"), "{error}");
        let first = HADOOP.names().next().unwrap();
        fs::remove_file(directory.join(first)).unwrap();
        let error = HADOOP.require(&cache).expect_err("one is missing").to_string();
        assert!(error.contains(first) && error.contains("fetches 182 jars"), "{error}");
        fs::remove_dir_all(&cache).unwrap();
    }
}
