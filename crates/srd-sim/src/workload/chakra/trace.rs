//! Messages (in the sense of Protocol Buffers) of a Chakra execution trace, with the fields that
//! the simulator uses.
//!
//! A file is a list of Protocol Buffers messages, each preceded by its length: one message of
//! metadata, then the nodes of one rank. Field numbers are those of MLCommons' `et_def.proto`.

use prost::Message;

use super::attribute::Attribute;

/// Largest size of a node in a file, in bytes.
pub(super) const NODE_BYTES_MAX: usize = 1 << 20;

/// Types of nodes, as in `et_def.proto`.
pub mod node_type {
    /// The node describes the trace.
    pub const METADATA: i32 = 1;
    /// The node is a computation.
    pub const COMPUTE: i32 = 4;
    /// The node sends a message to a rank.
    pub const SEND: i32 = 5;
    /// The node receives a message from a rank.
    pub const RECEIVE: i32 = 6;
    /// The node takes part in a collective.
    pub const COLLECTIVE: i32 = 7;
}

/// A node of a trace: a calculation, a message or a collective.
#[derive(Clone, PartialEq, Message)]
pub struct Node {
    /// Number of the node, unique in its file.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Name of the node.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Type of the node, as in [`node_type`].
    #[prost(int32, tag = "3")]
    pub kind: i32,
    /// Numbers of parents in the call stack, which the file need not contain. As in Chakra's own
    /// reader, the node does not wait for them.
    #[prost(uint64, repeated, tag = "4")]
    pub control: Vec<u64>,
    /// Numbers of the nodes whose results the node needs before it begins.
    #[prost(uint64, repeated, tag = "5")]
    pub data: Vec<u64>,
    /// Duration of the node in microseconds.
    #[prost(uint64, tag = "7")]
    pub duration_micros: u64,
    /// Further attributes of the node.
    #[prost(message, repeated, tag = "10")]
    pub attributes: Vec<Attribute>,
}

/// The message at the beginning of a file. It is decoded, but not used.
#[derive(Clone, PartialEq, Message)]
pub struct Metadata {
    /// Version of the schema.
    #[prost(string, tag = "1")]
    pub version: String,
}

impl Node {
    /// Returns the attribute with a name; the last if there are several, as in Chakra's own reader.
    pub(super) fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().rev().find(|attribute| attribute.name == name)
    }

    /// Returns an attribute as a whole number that is not negative; `None` if the node does not
    /// have the attribute.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, String> {
        self.attribute(name).map(Attribute::number).transpose()
    }

    /// Returns an attribute as a truth value; `None` if the node does not have the attribute.
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, String> {
        self.attribute(name).map(Attribute::flag).transpose()
    }
}

/// Iterator over the nodes of a file. It decodes one node at a time, because decoded nodes take
/// several times the memory of the file.
pub(super) struct Nodes<'a> {
    bytes: &'a [u8],
    /// Number of messages that have been decoded.
    before: usize,
}

/// Returns an iterator over the nodes of a file.
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
