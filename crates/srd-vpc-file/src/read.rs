//! Reads a file, and creates each object after the objects to which it refers.

use std::io::Read;
use std::path::Path;

use srd_config::{ConfigError, FileKind, Source};
use srd_vpc::object::World;

use super::build::{Build, Result};
use super::document::Document;
use super::names::Names;
use super::types::TypePlaces;
use super::{dhcp, edges, machines, network, observe};

/// Largest size of a file in bytes.
pub const FILE_BYTES_MAX: u64 = 64 << 20;

/// The contents of a `vpc.toml` that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VpcFile {
    /// Objects of the file.
    pub world: World,
    /// Names of the objects, and the numbers of their identifiers.
    pub names: Names,
    /// Positions of the instance types in the file.
    pub types: TypePlaces,
}

impl VpcFile {
    /// Whether the file has no table and no key, as a file whose content was lost.
    pub fn is_empty(&self) -> bool {
        self.world == World::default()
    }

    /// Returns the file for a card. `path` is its name in errors.
    ///
    /// # Errors
    /// A [`ConfigError`] if the file is empty, because a card would end all its instances.
    pub fn for_card(self, path: &Path) -> Result<Self> {
        if self.is_empty() {
            let remedy = "write the tables of a VPC into it: see vpc.toml(5); to end all \
                          instances, end the card";
            return Err(ConfigError {
                remedy: remedy.to_owned(),
                ..failed(path, String::from("is empty"))
            });
        }
        Ok(self)
    }
}

/// Reads a file.
///
/// # Errors
/// A [`ConfigError`], if the file cannot be read, or with the first fault in its text.
pub fn read(path: &Path) -> Result<VpcFile> {
    let metadata = std::fs::metadata(path).map_err(|error| cannot_be_read(path, &error))?;
    if !metadata.is_file() {
        return Err(failed(path, String::from("is no file")));
    }
    let file = std::fs::File::open(path).map_err(|error| cannot_be_read(path, &error))?;
    read_from(file, path)
}

/// Reads an open file; `path` is its name in errors.
///
/// # Errors
/// A [`ConfigError`], as [`read`] returns it.
pub fn read_from(file: std::fs::File, path: &Path) -> Result<VpcFile> {
    let metadata = file.metadata().map_err(|error| cannot_be_read(path, &error))?;
    if metadata.len() > FILE_BYTES_MAX {
        let bytes = metadata.len();
        return Err(failed(path, format!("has {bytes} bytes, and {FILE_BYTES_MAX} are the most")));
    }
    // A file may grow while it is read, and files of /proc do not report their length.
    let mut text = String::new();
    let mut whole = file.take(FILE_BYTES_MAX + 1);
    whole.read_to_string(&mut text).map_err(|error| cannot_be_read(path, &error))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(failed(path, format!("has more than {FILE_BYTES_MAX} bytes")));
    }
    parse(&text, path)
}

fn failed(path: &Path, what: String) -> ConfigError {
    ConfigError { file: path.to_path_buf(), place: None, what, remedy: String::new() }
}

fn cannot_be_read(path: &Path, error: &std::io::Error) -> ConfigError {
    let remedy = String::from("name a readable text file: see vpc.toml(5)");
    ConfigError { remedy, ..failed(path, format!("cannot be read: {error}")) }
}

/// Reads the text of a file; `path` is its name in errors.
///
/// # Errors
/// A [`ConfigError`] with the first fault in the text.
pub fn parse(text: &str, path: &Path) -> Result<VpcFile> {
    let source = Source { path, text };
    let document: Document = toml::from_str(text).map_err(|error| {
        if let Some((what, remedy)) = FileKind::Vpc.mistaken(path, text) {
            return source.error(None, what, remedy);
        }
        let what = error.message().trim().to_owned();
        source.error(error.span(), what, "docs/vpc.md lists the tables and their keys")
    })?;
    let types = TypePlaces::of(&source, &document);
    let mut build = Build::new(source);
    build.name_all(&document)?;
    dhcp::build(&mut build, &document)?;
    network::build(&mut build, &document)?;
    machines::build(&mut build, &document)?;
    edges::build(&mut build, &document)?;
    observe::build(&mut build, &document)?;
    network::check_quotas(&build, &document)?;
    Ok(VpcFile { world: build.world, names: build.names, types })
}
