//! The service models: which actions exist, and the shapes of their parameters and answers.
//!
//! `model/ec2.json` and `model/autoscaling.json` are extracts of the service models of botocore
//! (AWS's library for Python). The command `cargo xtask ec2-model` creates them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde::Deserialize;

/// Text of the extract of EC2's service model, in JSON.
const EC2: &str = include_str!("../../model/ec2.json");
/// Text of the extract of the service model of Auto Scaling, in JSON.
const AUTOSCALING: &str = include_str!("../../model/autoscaling.json");
/// The model of EC2, parsed at the first use.
static EC2_MODEL: LazyLock<Model> = LazyLock::new(|| parse(EC2));
/// The model of Auto Scaling, parsed at the first use.
static AUTOSCALING_MODEL: LazyLock<Model> = LazyLock::new(|| parse(AUTOSCALING));

fn parse(cut: &str) -> Model {
    serde_json::from_str(cut).unwrap_or_else(|error| panic!("the model in this program: {error}"))
}

/// Returns the model of EC2's actions and shapes.
pub fn model() -> &'static Model {
    &EC2_MODEL
}

/// Returns the model of the actions and shapes of Auto Scaling.
pub fn autoscaling() -> &'static Model {
    &AUTOSCALING_MODEL
}

/// Protocol of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// The elements of a list are `Name.1`, and `item` in answers.
    #[default]
    Ec2,
    /// The elements of a list are `Name.member.1`, and `member` in answers. The members of an
    /// answer are in the element `ACTIONResult`.
    Query,
}

/// A service model.
#[derive(Debug, Deserialize)]
pub struct Model {
    /// Version of the API.
    pub version: String,
    /// Protocol of the service.
    #[serde(default)]
    pub protocol: Protocol,
    /// Name space of answers in the protocol `query`.
    #[serde(default)]
    pub namespace: String,
    /// Names of all actions of the service, also of those whose shapes this model does not contain.
    pub names: BTreeSet<String>,
    /// The actions with shapes.
    pub operations: BTreeMap<String, Operation>,
    /// Shapes of all parameters and answers, by name.
    pub shapes: BTreeMap<String, Shape>,
}

/// Parameters and answer of an action.
#[derive(Debug, Deserialize)]
pub struct Operation {
    /// Shape of the parameters.
    pub input: Option<String>,
    /// Shape of the answer; without it the answer is `return`.
    pub output: Option<String>,
}

/// A type of data.
#[derive(Debug, Deserialize)]
pub struct Shape {
    /// Kind of the shape.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// Members of a structure.
    #[serde(default)]
    pub members: BTreeMap<String, Member>,
    /// Elements of a list.
    pub member: Option<Member>,
    /// Members that a structure must have.
    #[serde(default)]
    pub required: Vec<String>,
    /// Values of a string; empty if any value is accepted.
    #[serde(default, rename = "enum")]
    pub values: Vec<String>,
}

/// Kind of a shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A structure of named members.
    Structure,
    /// Elements of one shape.
    List,
    /// A text.
    String,
    /// Number of 32 bits.
    Integer,
    /// Number of 64 bits.
    Long,
    /// Floating-point number of 64 bits.
    Double,
    /// Floating-point number of 32 bits.
    Float,
    /// `true` or `false`.
    Boolean,
    /// Time in ISO 8601.
    Timestamp,
    /// Bytes in base64.
    Blob,
}

/// A member of a structure or a list.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Name of the member's shape.
    pub shape: String,
    /// Name of the member in answers.
    pub location_name: Option<String>,
    /// Name of the member in requests, if it does not follow from the name in answers.
    pub query_name: Option<String>,
}

impl Member {
    /// Name in requests: `queryName`, or `locationName` with a capital letter, or the member's own.
    pub fn request_name(&self, member: &str) -> String {
        if let Some(name) = &self.query_name {
            return name.clone();
        }
        let name = self.location_name.as_deref().unwrap_or(member);
        let mut chars = name.chars();
        let first = chars.next().into_iter().flat_map(char::to_uppercase);
        first.chain(chars).collect()
    }

    /// Returns the name of the member in answers.
    pub fn answer_name<'a>(&'a self, member: &'a str) -> &'a str {
        self.location_name.as_deref().unwrap_or(member)
    }
}

impl Model {
    /// Returns the shape with this name.
    pub fn shape(&self, name: &str) -> Option<&Shape> {
        self.shapes.get(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_requests_follow_the_rules_of_the_protocol() {
        let shape = model().shape("ModifyNetworkInterfaceAttributeRequest").unwrap();
        let name = |member: &str| shape.members[member].request_name(member);
        assert_eq!(name("Groups"), "SecurityGroupId");
        assert_eq!(name("NetworkInterfaceId"), "NetworkInterfaceId");
        let shape = model().shape("DescribeVpcsRequest").unwrap();
        assert_eq!(shape.members["Filters"].request_name("Filters"), "Filter");
    }

    #[test]
    fn each_shape_of_the_cuts_is_complete() {
        for model in [model(), autoscaling()] {
            check_shapes(model);
        }
        assert_eq!((model().protocol, autoscaling().protocol), (Protocol::Ec2, Protocol::Query));
    }

    fn check_shapes(model: &Model) {
        let member = |member: &Member| assert!(model.shape(&member.shape).is_some());
        for shape in model.shapes.values() {
            shape.members.values().for_each(member);
            assert_eq!(shape.kind == Kind::List, shape.member.is_some());
            shape.member.iter().for_each(member);
        }
        for (name, operation) in &model.operations {
            assert!(model.names.contains(name), "{name}");
            for side in [&operation.input, &operation.output].into_iter().flatten() {
                assert_eq!(model.shape(side).map(|shape| shape.kind), Some(Kind::Structure));
            }
        }
    }
}
