//! The messages of a Chakra execution trace, as far as they are read.
//!
//! A file is a list of messages of Protocol Buffers, each behind its length: one of metadata, then
//! the nodes of one rank. Field numbers are those of MLCommons' `et_def.proto`.

use prost::Message;

use super::attribute::Attribute;

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
    /// Its parents in the call stack, which may not be in the file. It does not wait for them:
    /// Chakra's own reader follows the others alone.
    #[prost(uint64, repeated, tag = "4")]
    pub control: Vec<u64>,
    /// Nodes whose results it needs, after which it begins.
    #[prost(uint64, repeated, tag = "5")]
    pub data: Vec<u64>,
    /// How long it took.
    #[prost(uint64, tag = "7")]
    pub duration_micros: u64,
    /// What there is besides.
    #[prost(message, repeated, tag = "10")]
    pub attributes: Vec<Attribute>,
}

/// The message at the beginning of a file, of which nothing is read.
#[derive(Clone, PartialEq, Message)]
pub struct Metadata {
    /// The version of the schema.
    #[prost(string, tag = "1")]
    pub version: String,
}

impl Node {
    /// Of several attributes of a name the last counts, as in Chakra's own reader.
    pub(super) fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().rev().find(|attribute| attribute.name == name)
    }

    /// An attribute that is a whole number and not negative, if it is there.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, String> {
        self.attribute(name).map(Attribute::number).transpose()
    }

    /// An attribute that is yes or no, if it is there.
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, String> {
        self.attribute(name).map(Attribute::flag).transpose()
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
