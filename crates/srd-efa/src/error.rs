//! Errors: one small enum for each kind of call. A fault of a peer is no error of a call; it is a
//! counter or the status of a completion.

use core::fmt;

/// Reason why an object was not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CreateError {
    /// The number of existing objects has reached the limit in the configuration.
    Full,
    /// An object that the call names does not exist, or belongs to another protection domain.
    NoSuchObject,
    /// This protection domain has an address handle for this peer already, or the key is in use by
    /// another registration.
    Exists,
    /// A size is out of range, or a combination of arguments is impossible.
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
    /// Other objects depend on this object, and must be destroyed first.
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
    /// The table of transitions has no transition from the queue pair's state to the requested
    /// state.
    BadTransition,
    /// The transition needs an attribute that is missing, or does not accept one of the attributes.
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
    /// The queue pair does not accept the request in its state.
    BadState,
    /// The address handle does not exist or belongs to another protection domain.
    BadAh,
    /// The type of queue pair does not support the request.
    Unsupported,
    /// The queue is full (`ENOMEM`): completions must be polled first.
    QueueFull,
    /// The completion queue has no free entry for the completion: it must be polled first.
    CqFull,
    /// A local key of a receive request is wrong, or its range or access rights do not suffice.
    BadKey,
    /// The request has more scatter/gather elements or inline bytes than the queue pair supports.
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
