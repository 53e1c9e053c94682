//! Kinds of failures that a script has to distinguish from an ordinary failure.

use std::fmt;

/// Settings that are impossible, or do not fit the VPC's file. The text names the mistake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrongSettings(pub(crate) String);

/// A program or a privilege is missing. The text contains the remedy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing(pub(crate) String);

impl WrongSettings {
    /// Converts an error that was found in settings. If the settings could not be checked because a
    /// program or a privilege is missing, the error stays [`Missing`].
    pub(crate) fn of(error: anyhow::Error) -> anyhow::Error {
        if error.is::<Missing>() { error } else { Self(format!("{error:#}")).into() }
    }
}

impl Missing {
    /// Returns the error for a program that cannot be run. `packages`: the packages that contain
    /// it.
    pub(crate) fn program(name: &str, packages: &str) -> Self {
        Self(format!("`{name}` cannot be run: apt-get install {packages}"))
    }
}

impl fmt::Display for WrongSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongSettings {}
impl std::error::Error for Missing {}
