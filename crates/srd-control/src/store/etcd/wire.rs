//! Messages of etcd's API, version 3, as far as the store needs them. The numbers of the fields are
//! those of etcd's `rpc.proto` and `kv.proto`.

use prost::{Message, Oneof};

/// Declares a message.
macro_rules! message {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Message)]
        pub(super) struct $name {
            $($(#[$field_meta])* pub(super) $field: $type,)*
        }
    };
}

message! {
    /// Head of all answers.
    Header {
        /// Revision of the whole store.
        #[prost(int64, tag = "3")]
        revision: i64,
    }
}

message! {
    /// A key with its value.
    KeyValue {
        #[prost(bytes = "vec", tag = "1")]
        key: Vec<u8>,
        /// Revision of the last change of the key.
        #[prost(int64, tag = "3")]
        mod_revision: i64,
        #[prost(bytes = "vec", tag = "5")]
        value: Vec<u8>,
    }
}

message! {
    /// Reads the keys from `key` to before `range_end`, or one key if `range_end` is empty.
    RangeRequest {
        #[prost(bytes = "vec", tag = "1")]
        key: Vec<u8>,
        #[prost(bytes = "vec", tag = "2")]
        range_end: Vec<u8>,
        /// Largest number of keys; 0 for no limit.
        #[prost(int64, tag = "3")]
        limit: i64,
        /// Revision that is read; 0 for the newest.
        #[prost(int64, tag = "4")]
        revision: i64,
    }
}

message! {
    RangeResponse {
        #[prost(message, optional, tag = "1")]
        header: Option<Header>,
        #[prost(message, repeated, tag = "2")]
        kvs: Vec<KeyValue>,
        /// Whether there are more keys than the limit.
        #[prost(bool, tag = "3")]
        more: bool,
    }
}

message! {
    PutRequest {
        #[prost(bytes = "vec", tag = "1")]
        key: Vec<u8>,
        #[prost(bytes = "vec", tag = "2")]
        value: Vec<u8>,
        /// Lease with which the key ends; 0 for none.
        #[prost(int64, tag = "3")]
        lease: i64,
        /// Whether the key keeps its value.
        #[prost(bool, tag = "5")]
        ignore_value: bool,
    }
}

message! {
    PutResponse {
        #[prost(message, optional, tag = "1")]
        header: Option<Header>,
    }
}

message! {
    DeleteRangeRequest {
        #[prost(bytes = "vec", tag = "1")]
        key: Vec<u8>,
        #[prost(bytes = "vec", tag = "2")]
        range_end: Vec<u8>,
    }
}

/// An operation of a transaction.
#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Operation {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
}

message! {
    RequestOp {
        #[prost(oneof = "Operation", tags = "1, 2, 3")]
        request: Option<Operation>,
    }
}

impl From<Operation> for RequestOp {
    fn from(operation: Operation) -> Self {
        Self { request: Some(operation) }
    }
}

message! {
    /// The answer to an operation. Only the answers to ranges are read.
    ResponseOp {
        #[prost(message, optional, tag = "1")]
        range: Option<RangeResponse>,
    }
}

/// The value with which a comparison compares.
#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Operand {
    /// Number of changes of the key since it exists; 0 if it does not exist.
    #[prost(int64, tag = "4")]
    Version(i64),
    /// Revision of the last change of the key; 0 if it does not exist.
    #[prost(int64, tag = "6")]
    ModRevision(i64),
    #[prost(bytes, tag = "7")]
    Value(Vec<u8>),
}

message! {
    /// A condition of a transaction.
    Compare {
        /// 0: equal; 1: greater.
        #[prost(int32, tag = "1")]
        result: i32,
        /// 0: version; 2: revision of the last change; 3: value.
        #[prost(int32, tag = "2")]
        target: i32,
        #[prost(bytes = "vec", tag = "3")]
        key: Vec<u8>,
        #[prost(oneof = "Operand", tags = "4, 6, 7")]
        operand: Option<Operand>,
    }
}

impl Compare {
    /// The last change of the key had this revision; 0: the key does not exist.
    pub(super) fn is_at(key: Vec<u8>, revision: i64) -> Self {
        Self { result: 0, target: 2, key, operand: Some(Operand::ModRevision(revision)) }
    }

    /// The key has this value.
    pub(super) fn has(key: Vec<u8>, value: Vec<u8>) -> Self {
        Self { result: 0, target: 3, key, operand: Some(Operand::Value(value)) }
    }

    /// The key exists.
    pub(super) fn exists(key: Vec<u8>) -> Self {
        Self { result: 1, target: 0, key, operand: Some(Operand::Version(0)) }
    }
}

message! {
    /// If all conditions hold, the operations of `success` are executed, otherwise the operations
    /// of `failure`.
    TxnRequest {
        #[prost(message, repeated, tag = "1")]
        compare: Vec<Compare>,
        #[prost(message, repeated, tag = "2")]
        success: Vec<RequestOp>,
        #[prost(message, repeated, tag = "3")]
        failure: Vec<RequestOp>,
    }
}

message! {
    TxnResponse {
        #[prost(message, optional, tag = "1")]
        header: Option<Header>,
        /// Whether all conditions held.
        #[prost(bool, tag = "2")]
        succeeded: bool,
        #[prost(message, repeated, tag = "3")]
        responses: Vec<ResponseOp>,
    }
}

message! {
    /// Creates a lease. It ends `ttl` seconds after it was created or last prolonged.
    LeaseGrantRequest {
        #[prost(int64, tag = "1")]
        ttl: i64,
    }
}

message! {
    LeaseGrantResponse {
        #[prost(int64, tag = "2")]
        id: i64,
    }
}

message! {
    /// Ends a lease and removes its keys.
    LeaseRevokeRequest {
        #[prost(int64, tag = "1")]
        id: i64,
    }
}

message! {
    LeaseRevokeResponse {
        #[prost(message, optional, tag = "1")]
        header: Option<Header>,
    }
}

message! {
    /// Prolongs a lease.
    LeaseKeepAliveRequest {
        #[prost(int64, tag = "1")]
        id: i64,
    }
}

message! {
    LeaseKeepAliveResponse {
        /// The remaining seconds; 0 if the lease has ended.
        #[prost(int64, tag = "3")]
        ttl: i64,
    }
}

message! {
    /// Begins the observation of keys from a revision on.
    WatchCreateRequest {
        #[prost(bytes = "vec", tag = "1")]
        key: Vec<u8>,
        #[prost(bytes = "vec", tag = "2")]
        range_end: Vec<u8>,
        #[prost(int64, tag = "3")]
        start_revision: i64,
        /// Whether a large revision may be split over several answers.
        #[prost(bool, tag = "8")]
        fragment: bool,
    }
}

message! {
    WatchRequest {
        #[prost(message, optional, tag = "1")]
        create: Option<WatchCreateRequest>,
    }
}

message! {
    /// A change of a key.
    Event {
        /// 0: a new value; 1: a removal.
        #[prost(int32, tag = "1")]
        kind: i32,
        #[prost(message, optional, tag = "2")]
        kv: Option<KeyValue>,
    }
}

message! {
    WatchResponse {
        #[prost(bool, tag = "4")]
        canceled: bool,
        /// Not 0 if the revisions from the first one on are no longer known.
        #[prost(int64, tag = "5")]
        compact_revision: i64,
        /// Whether the next answer continues this one.
        #[prost(bool, tag = "7")]
        fragment: bool,
        #[prost(message, repeated, tag = "11")]
        events: Vec<Event>,
    }
}
