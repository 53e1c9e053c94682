//! Errors, one small enum per kind of call. A fault of a peer is a counter or a status of a
//! completion instead.

use core::fmt;

/// Reason why an object was not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CreateError {
    /// As many exist as the configuration allows.
    Full,
    /// An object that it names does not exist, or belongs to another protection domain.
    NoSuchObject,
    /// There is an address handle for this peer in this protection domain already, or a
    /// registration under this key.
    Exists,
    /// A size or combination that cannot be.
    Invalid,
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "as many of these exist as the configuration allows",
            Self::NoSuchObject => "an object that it names does not exist",
            Self::Exists => "such an address handle or key exists already",
            Self::Invalid => "a size or a combination of attributes that cannot be",
        })
    }
}

impl core::error::Error for CreateError {}

/// Reason why an object was not destroyed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DestroyError {
    /// There is no such object.
    NoSuchObject,
    /// Other objects depend on it: destroy those first.
    Busy,
}

impl fmt::Display for DestroyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSuchObject => "there is no such object",
            Self::Busy => "other objects depend on it: destroy those first",
        })
    }
}

impl core::error::Error for DestroyError {}

/// Reason why a queue pair was not modified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ModifyError {
    /// There is no such queue pair.
    NoSuchObject,
    /// No queue pair goes from its state to that one.
    BadTransition,
    /// The transition needs an attribute that is missing, or has one that it does not take.
    BadAttributes,
}

impl fmt::Display for ModifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSuchObject => "there is no such queue pair",
            Self::BadTransition => "no queue pair goes from its state to that one",
            Self::BadAttributes => "an attribute is missing, or one too many is there",
        })
    }
}

impl core::error::Error for ModifyError {}

/// Reason why a work request was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PostError {
    /// There is no such queue pair.
    NoSuchObject,
    /// The queue pair's state does not allow it.
    BadState,
    /// The address handle does not exist or belongs to another protection domain.
    BadAh,
    /// Something that this type of queue pair does not do.
    Unsupported,
    /// The queue is full (`ENOMEM`): poll completions first.
    QueueFull,
    /// The completion queue has no entry left for its completion: poll it first.
    CqFull,
    /// A local key of a receive request is wrong, or its range or rights do not suffice.
    BadKey,
    /// More scatter/gather elements or inline bytes than the queue pair was made with.
    TooMany,
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSuchObject => "there is no such queue pair",
            Self::BadState => "the queue pair's state does not allow it",
            Self::BadAh => "there is no such address handle in this protection domain",
            Self::Unsupported => "this type of queue pair does not do that",
            Self::QueueFull => "the queue is full: poll completions first",
            Self::CqFull => "the completion queue is full: poll it first",
            Self::BadKey => "a local key is wrong, or its range or rights do not suffice",
            Self::TooMany => "more elements or inline bytes than the queue pair takes",
        })
    }
}

impl core::error::Error for PostError {}
