//! The messages of a Chakra execution trace, as far as they are read.
//!
//! A file is a list of messages of Protocol Buffers, each behind its length: one of metadata, then
//! the nodes of one rank. Field numbers are those of MLCommons' `et_def.proto`.

use prost::Message;

/// The most bytes of a node.
pub(super) const NODE_BYTES_MAX: usize = 1 << 20;

/// Types of nodes.
pub mod node_type {
    /// Says something about the trace.
    pub const METADATA: i32 = 1;
    /// Computes.
    pub const COMPUTE: i32 = 4;
    /// Sends to a rank.
    pub const SEND: i32 = 5;
    /// Receives from a rank.
    pub const RECEIVE: i32 = 6;
    /// Takes part in a collective.
    pub const COLLECTIVE: i32 = 7;
}

/// A node.
#[derive(Clone, PartialEq, Message)]
pub struct Node {
    /// Its number, one of its own in its file.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Its name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// What it does.
    #[prost(int32, tag = "3")]
    pub kind: i32,
    /// Nodes that it comes after.
    #[prost(uint64, repeated, tag = "4")]
    pub control: Vec<u64>,
    /// Nodes whose results it needs.
    #[prost(uint64, repeated, tag = "5")]
    pub data: Vec<u64>,
    /// How long it took.
    #[prost(uint64, tag = "7")]
    pub duration_micros: u64,
    /// What there is besides.
    #[prost(message, repeated, tag = "10")]
    pub attributes: Vec<Attribute>,
}

/// A name and a value.
#[derive(Clone, PartialEq, Message)]
pub struct Attribute {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// A whole number, in one of the forms that writers use.
    #[prost(int32, optional, tag = "7")]
    pub int32: Option<i32>,
    /// The same.
    #[prost(int64, optional, tag = "9")]
    pub int64: Option<i64>,
    /// The same.
    #[prost(uint32, optional, tag = "11")]
    pub uint32: Option<u32>,
    /// The same.
    #[prost(uint64, optional, tag = "13")]
    pub uint64: Option<u64>,
    /// Yes or no.
    #[prost(bool, optional, tag = "27")]
    pub bool: Option<bool>,
    /// Text.
    #[prost(string, optional, tag = "29")]
    pub string: Option<String>,
}

/// The message at the beginning of a file, of which nothing is read.
#[derive(Clone, PartialEq, Message)]
pub struct Metadata {
    /// The version of the schema.
    #[prost(string, tag = "1")]
    pub version: String,
}

impl Node {
    fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|attribute| attribute.name == name)
    }

    /// An attribute that is a whole number and not negative.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        let value = self.attribute(name)?;
        let signed = value.int64.or(value.int32.map(i64::from));
        let unsigned = value.uint64.or(value.uint32.map(u64::from));
        unsigned.or(signed.and_then(|number| u64::try_from(number).ok()))
    }

    /// An attribute that is yes or no.
    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        self.attribute(name)?.bool
    }

    /// An attribute that is text, or a number as text.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let value = self.attribute(name)?.string.clone();
        value.or_else(|| self.number(name).map(|number| number.to_string()))
    }

    /// The nodes that have to end before it begins.
    pub(super) fn waits(&self) -> impl Iterator<Item = u64> + '_ {
        self.control.iter().chain(&self.data).copied()
    }
}

/// The nodes of a file, in its order, one at a time: they take a multiple of its bytes.
pub(super) struct Nodes<'a> {
    bytes: &'a [u8],
    /// Messages before the next.
    before: usize,
}

/// The nodes of a file.
pub(super) fn nodes(bytes: &[u8]) -> Result<Nodes<'_>, String> {
    let mut nodes = Nodes { bytes, before: 0 };
    nodes.message::<Metadata>()?;
    Ok(nodes)
}

impl Nodes<'_> {
    fn message<M: Message + Default>(&mut self) -> Result<M, String> {
        let at = self.before;
        let fail = |e: prost::DecodeError| format!("message {at} is no part of a trace: {e}");
        let length = prost::decode_length_delimiter(&mut self.bytes).map_err(fail)?;
        if length > NODE_BYTES_MAX {
            return Err(format!(
                "message {at} is no part of a trace: it has {length} bytes, and {NODE_BYTES_MAX} \
                 are the most"
            ));
        }
        let Some((message, rest)) = self.bytes.split_at_checked(length) else {
            return Err(format!("message {at} is no part of a trace: the file ends within it"));
        };
        (self.bytes, self.before) = (rest, at + 1);
        M::decode(message).map_err(fail)
    }
}

impl Iterator for Nodes<'_> {
    type Item = Result<Node, String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        let node = self.message();
        if node.is_err() {
            self.bytes = &[];
        }
        Some(node)
    }
}
