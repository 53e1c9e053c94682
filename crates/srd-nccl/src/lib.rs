//! SRD for NCCL: the network plugin `libnccl-net-srd.so`.
//!
//! NCCL moves collectives between GPUs. Data that leaves a machine goes through a network plugin:
//! NCCL opens connections, each for one direction, and sends and receives with tags on them. Here
//! a connection is a number in the tags of SRD's Messaging Layer ([`srd_host`]), and all
//! connections of a communicator on one interface share one endpoint.
//!
//! | module | what |
//! |---|---|
//! | [`abi`] | NCCL's binary interface |
//! | [`entry`] | calls from C: pointers end here |
//! | [`settings`], [`device`] | the environment; the interfaces that are NCCL's devices |
//! | [`machine`], [`plugin`] | devices and settings; what NCCL holds |
//! | [`context`] | what belongs to a communicator |
//! | [`port`], [`sink`] | an endpoint; where the ends of its operations go |
//! | [`control`], [`wire`] | how connections come and go; what that looks like |
//! | [`listener`], [`sender`], [`receiver`] | what NCCL holds |
//! | [`flow`] | the requests of a connection |
//! | [`table`], [`log`] | handles that are checked; NCCL's log |
//!
//! # Handles that can be checked
//!
//! The pointers that NCCL holds are handles, which are looked up in a table. So an invalid
//! handle, or one of a closed object, causes an error and not a crash.
//!
//! # Memory
//!
//! Buffers travel on as addresses ([`srd_host::memory`]). A connection that is closed while
//! requests are under way is waited for a moment; if they do not end, the whole endpoint is closed,
//! after which nothing touches NCCL's memory: see [`port::Port::abandon`].
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
    /// For NCCL.
    pub result: NcclResult,
    /// For a person.
    pub text: String,
}

/// Result of a call.
pub type Outcome<T = ()> = Result<T, Fault>;

impl Fault {
    /// The operating system refused something.
    pub fn system(text: impl Into<String>) -> Self {
        Self { result: NcclResult::SystemError, text: text.into() }
    }

    /// A pointer or number that makes no sense.
    pub fn argument(text: impl Into<String>) -> Self {
        Self { result: NcclResult::InvalidArgument, text: text.into() }
    }

    /// The environment does not fit.
    pub fn usage(text: impl Into<String>) -> Self {
        Self { result: NcclResult::InvalidUsage, text: text.into() }
    }

    /// A peer is gone, or does not use this protocol.
    pub fn remote(text: impl Into<String>) -> Self {
        Self { result: NcclResult::RemoteError, text: text.into() }
    }

    /// A bug, here or in NCCL.
    pub fn internal(text: impl Into<String>) -> Self {
        Self { result: NcclResult::InternalError, text: text.into() }
    }
}

impl From<srd_host::CallError> for Fault {
    fn from(gone: srd_host::CallError) -> Self {
        Self::system(gone.to_string())
    }
}
