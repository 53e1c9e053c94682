//! SRD for NCCL: the network plugin `libnccl-net-srd.so`.
//!
//! NCCL runs collective operations between GPUs. It sends data to other machines through a network
//! plugin: NCCL opens connections, each for one direction, and sends and receives messages with
//! tags on them. In this plugin a connection is a number in the tags of SRD's Messaging Layer
//! ([`srd_host`]). All connections of a communicator on one interface share one endpoint.
//!
//! | module | content |
//! |---|---|
//! | [`abi`] | NCCL's binary interface |
//! | [`entry`] | functions for C: the only code with raw pointers |
//! | [`settings`], [`device`] | environment variables; interfaces that are NCCL's devices |
//! | [`machine`], [`plugin`] | devices with settings; objects that NCCL holds |
//! | [`context`] | endpoints of a communicator |
//! | [`port`], [`sink`] | an endpoint; processing of its completions |
//! | [`control`], [`wire`] | opening and closing of connections; message formats |
//! | [`listener`], [`sender`], [`receiver`] | objects of NCCL's connections |
//! | [`flow`] | the requests of a connection |
//! | [`table`], [`log`] | checked handles; NCCL's log |
//!
//! # Handles that can be checked
//!
//! The pointers that NCCL holds are handles, which are looked up in a table. So an invalid handle,
//! or a handle of a closed object, causes an error and not a crash.
//!
//! # Memory
//!
//! Buffers are passed on as addresses ([`srd_host::memory`]). If a connection is closed while
//! requests are in progress, the plugin waits a short time for them. If they do not end, the whole
//! endpoint is closed; after that no thread accesses NCCL's memory: see [`port::Port::abandon`].
//!
//! # Panics
//!
//! Each call catches panics and returns `ncclInternalError`.

pub mod abi;
pub mod context;
pub mod control;
pub mod device;
#[allow(unsafe_code, reason = "C calls here")]
pub mod entry;
pub mod flow;
pub mod listener;
pub mod log;
pub mod machine;
pub mod plugin;
pub mod port;
pub mod receiver;
pub mod sender;
pub mod settings;
pub mod sink;
pub mod table;
pub mod wire;

use abi::NcclResult;

/// Reason why a call failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Result code for NCCL.
    pub result: NcclResult,
    /// Description of the failure, as a text for people.
    pub text: String,
}

/// Result of a call.
pub type Outcome<T = ()> = Result<T, Fault>;

impl Fault {
    /// Returns the fault of an operating system error.
    pub fn system(text: impl Into<String>) -> Self {
        Self { result: NcclResult::SystemError, text: text.into() }
    }

    /// Returns the fault of an invalid pointer or number.
    pub fn argument(text: impl Into<String>) -> Self {
        Self { result: NcclResult::InvalidArgument, text: text.into() }
    }

    /// Returns the fault of an unsuitable environment.
    pub fn usage(text: impl Into<String>) -> Self {
        Self { result: NcclResult::InvalidUsage, text: text.into() }
    }

    /// Returns the fault of a peer that has ended or does not use this protocol.
    pub fn remote(text: impl Into<String>) -> Self {
        Self { result: NcclResult::RemoteError, text: text.into() }
    }

    /// Returns the fault of a bug in the plugin or in NCCL.
    pub fn internal(text: impl Into<String>) -> Self {
        Self { result: NcclResult::InternalError, text: text.into() }
    }
}

impl From<srd_host::CallError> for Fault {
    fn from(gone: srd_host::CallError) -> Self {
        Self::system(gone.to_string())
    }
}
