//! Kinds of failures that a script has to tell from an ordinary one.

use std::fmt;

/// Settings that cannot be, or do not fit the VPC's file: the text says what is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrongSettings(pub(crate) String);

/// A program or a privilege is missing: the text says what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing(pub(crate) String);

impl WrongSettings {
    /// An error in settings, which stays as it is if something is missing that judges them.
    pub(crate) fn of(error: anyhow::Error) -> anyhow::Error {
        if error.is::<Missing>() { error } else { Self(format!("{error:#}")).into() }
    }
}

impl Missing {
    /// A program cannot be run, which these packages have.
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
