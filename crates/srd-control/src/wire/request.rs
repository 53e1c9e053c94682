//! Requests: a form becomes a tree of values that the model has checked.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::model::{Kind, Member, Model, Shape};
use crate::error::{ApiError, ApiResult};

/// Largest number of parts of a parameter's name, for example 3 in `Filter.1.Name`.
const DEPTH_MAX: usize = 16;
/// Parameters of the protocol, which are not parameters of an action. The last six are those of a
/// presigned request; the others belong to older versions of signatures.
const PROTOCOL: [&str; 14] = [
    "Action",
    "Version",
    "AWSAccessKeyId",
    "Signature",
    "SignatureMethod",
    "SignatureVersion",
    "Timestamp",
    "Expires",
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-SignedHeaders",
    "X-Amz-Signature",
];

/// A request: the name of the action, and the parameters under the names of the model's members.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The action.
    pub action: String,
    /// The parameters.
    pub parameters: Map<String, Value>,
}

/// A parameter's value, and the parameters below it.
#[derive(Default)]
struct Node {
    value: Option<String>,
    below: BTreeMap<String, Node>,
}

/// Returns the request in these parameters of a form.
///
/// # Errors
/// If the action does not exist or is not served, and if the parameters do not fit its shape.
pub fn parse(model: &Model, form: &[(String, String)]) -> ApiResult<Request> {
    let action = form.iter().find(|(name, _)| name == "Action").map(|(_, value)| value.as_str());
    let action =
        action.ok_or_else(|| ApiError::new("MissingAction", "The request is missing an action"))?;
    let Some(operation) = model.operations.get(action) else {
        return Err(unknown_action(model, action));
    };
    let mut root = Node::default();
    for (name, value) in form {
        if !PROTOCOL.contains(&name.as_str()) && name != "X-Amz-Security-Token" {
            add(&mut root, name, value)?;
        }
    }
    let parameters = match operation.input.as_deref().and_then(|input| model.shape(input)) {
        Some(shape) => structure(model, shape, root, "")?,
        None => Map::new(),
    };
    Ok(Request { action: action.to_owned(), parameters })
}

/// The error for an action without shapes: it exists in EC2, or does not.
pub fn unknown_action(model: &Model, action: &str) -> ApiError {
    if model.names.contains(action) {
        let message = format!("The action {action} is not served by this endpoint.");
        return ApiError::new("UnsupportedOperation", message);
    }
    let message = format!("The action {action} is not valid for this web service.");
    ApiError::new("InvalidAction", message)
}

fn add(root: &mut Node, name: &str, value: &str) -> ApiResult<()> {
    let mut node = root;
    for (depth, part) in name.split('.').enumerate() {
        if depth == DEPTH_MAX || part.is_empty() {
            return Err(unknown(name));
        }
        node = node.below.entry(part.to_owned()).or_default();
    }
    if node.value.replace(value.to_owned()).is_some() {
        let message = format!("The parameter {name} is given twice");
        return Err(ApiError::new("InvalidQueryParameter", message));
    }
    Ok(())
}

fn unknown(name: &str) -> ApiError {
    ApiError::new("UnknownParameter", format!("The parameter {name} is not recognized"))
}

fn join(above: &str, name: &str) -> String {
    if above.is_empty() { name.to_owned() } else { format!("{above}.{name}") }
}

fn structure(
    model: &Model,
    shape: &Shape,
    mut node: Node,
    path: &str,
) -> ApiResult<Map<String, Value>> {
    let mut values = Map::new();
    for (member, of) in &shape.members {
        let name = of.request_name(member);
        if let Some(below) = node.below.remove(&name) {
            let path = join(path, &name);
            if let Some(value) = value(model, of, below, &path)? {
                values.insert(member.clone(), value);
            }
        }
    }
    if let Some(name) = node.below.keys().next() {
        return Err(unknown(&join(path, name)));
    }
    for member in &shape.required {
        if !values.contains_key(member) {
            let name = shape.members.get(member).map(|of| of.request_name(member));
            return Err(ApiError::missing(&join(path, &name.unwrap_or_default())));
        }
    }
    Ok(values)
}

fn value(model: &Model, of: &Member, node: Node, path: &str) -> ApiResult<Option<Value>> {
    let shape = model
        .shape(&of.shape)
        .ok_or_else(|| ApiError::internal(format!("the model lacks the shape {}", of.shape)))?;
    match shape.kind {
        Kind::Structure => {
            if node.value.is_some_and(|value| !value.is_empty()) {
                return Err(unknown(path));
            }
            let node = Node { value: None, below: node.below };
            structure(model, shape, node, path).map(|map| Some(map.into()))
        }
        Kind::List => list(model, shape, node, path),
        kind => {
            if let Some(name) = node.below.keys().next() {
                return Err(unknown(&join(path, name)));
            }
            scalar(kind, shape, node.value.unwrap_or_default(), path).map(Some)
        }
    }
}

/// Returns the elements by their numbers, whose sequence may have gaps. An empty value without
/// elements is an empty list.
fn list(model: &Model, shape: &Shape, node: Node, path: &str) -> ApiResult<Option<Value>> {
    if node.value.is_some_and(|value| !value.is_empty()) {
        return Err(unknown(path));
    }
    let Some(element) = &shape.member else { return Ok(None) };
    let mut elements = BTreeMap::new();
    for (name, below) in node.below {
        let path = join(path, &name);
        let canonical = !name.starts_with(['+', '0']) || name == "0";
        let Some(number) = name.parse::<u32>().ok().filter(|_| canonical) else {
            return Err(unknown(&path));
        };
        if let Some(value) = value(model, element, below, &path)? {
            elements.insert(number, value);
        }
    }
    Ok(Some(elements.into_values().collect()))
}

fn scalar(kind: Kind, shape: &Shape, text: String, path: &str) -> ApiResult<Value> {
    let wrong = |kind: &str| {
        ApiError::invalid(format!("Invalid value '{text}' for parameter {path}; expected {kind}"))
    };
    Ok(match kind {
        Kind::Integer => text.parse::<i32>().map_err(|_| wrong("an integer"))?.into(),
        Kind::Long => text.parse::<i64>().map_err(|_| wrong("an integer"))?.into(),
        Kind::Double | Kind::Float => {
            let number: f64 = text.parse().map_err(|_| wrong("a number"))?;
            serde_json::Number::from_f64(number).ok_or_else(|| wrong("a finite number"))?.into()
        }
        Kind::Boolean if text.eq_ignore_ascii_case("true") => true.into(),
        Kind::Boolean if text.eq_ignore_ascii_case("false") => false.into(),
        Kind::Boolean => return Err(wrong("true or false")),
        _ => {
            if shape.values.is_empty() {
                return Ok(text.into());
            }
            let same = |value: &&String| value.eq_ignore_ascii_case(&text);
            let exact = shape.values.iter().find(|value| **value == text);
            let Some(value) = exact.or_else(|| shape.values.iter().find(same)) else {
                let (first, rest) = path.split_at_checked(1).unwrap_or((path, ""));
                let name = first.to_ascii_lowercase() + rest;
                let message = format!("Value ({text}) for parameter {name} is invalid.");
                return Err(ApiError::invalid(message));
            };
            value.clone().into()
        }
    })
}

impl Request {
    /// Returns a text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.parameters.get(name)?.as_str()
    }

    /// Returns a text that the action needs.
    ///
    /// # Errors
    /// If it is missing.
    pub fn need(&self, name: &str) -> ApiResult<&str> {
        self.text(name).ok_or_else(|| ApiError::missing(name))
    }

    /// Returns a flag.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.parameters.get(name)?.as_bool()
    }

    /// Returns a flag in a structure with the member `Value`.
    pub fn flag_value(&self, name: &str) -> Option<bool> {
        self.parameters.get(name)?.get("Value")?.as_bool()
    }

    /// Returns a number.
    pub fn number(&self, name: &str) -> Option<i64> {
        self.parameters.get(name)?.as_i64()
    }

    /// Returns the elements of a list; an absent list is empty.
    pub fn list(&self, name: &str) -> &[Value] {
        self.parameters.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Returns the texts of a list.
    pub fn texts(&self, name: &str) -> Vec<&str> {
        self.list(name).iter().filter_map(Value::as_str).collect()
    }

    /// Returns a structure.
    pub fn part(&self, name: &str) -> Option<&Value> {
        self.parameters.get(name).filter(|value| value.is_object())
    }

    /// Whether the parameter is given.
    pub fn has(&self, name: &str) -> bool {
        self.parameters.contains_key(name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{form, model::model};
    use super::*;
    use serde_json::json;

    fn read(text: &str) -> ApiResult<Request> {
        parse(model(), &form::parse(text)?)
    }

    fn code(text: &str) -> String {
        read(text).unwrap_err().code
    }

    #[test]
    fn a_form_becomes_a_tree() {
        let request = read(
            "Action=DescribeVpcs&Version=2016-11-15&Filter.1.Name=tag%3AName&Filter.1.Value.1=a\
             &Filter.1.Value.2=b&Filter.3.Name=cidr&MaxResults=5&DryRun=True",
        )
        .unwrap();
        let filters = json!([{"Name": "tag:Name", "Values": ["a", "b"]}, {"Name": "cidr"}]);
        assert_eq!(request.parameters["Filters"], filters);
        let tenancy =
            read("Action=CreateVpc&CidrBlock=10.0.0.0/16&InstanceTenancy=Default").unwrap();
        assert_eq!(tenancy.text("InstanceTenancy"), Some("default"));
        assert_eq!((request.number("MaxResults"), request.flag("DryRun")), (Some(5), Some(true)));
    }

    #[test]
    fn hostile_forms_get_the_codes_of_the_service() {
        assert_eq!(code("Version=2016-11-15"), "MissingAction");
        assert_eq!(code("Action=DescribeNothing"), "InvalidAction");
        assert_eq!(code("Action=CreateFleet"), "UnsupportedOperation");
        for unknown in [
            "Action=DescribeVpcs&Bogus=1",
            "Action=DescribeVpcs&Filter=x",
            "Action=DescribeVpcs&Filter.x.Name=a",
            "Action=DescribeVpcs&Filter.-1.Name=a",
            "Action=DescribeVpcs&Filter.99999999999.Name=a",
            "Action=DescribeVpcs&Filter.01.Name=a",
            "Action=DescribeVpcs&Filter.1.Name.deep=a",
            "Action=DescribeVpcs&Filter.1.Nome=a",
            "Action=DescribeVpcs&Filter..Name=a",
            &format!("Action=DescribeVpcs&{}=a", ["a"; 99].join(".")),
        ] {
            assert_eq!(code(unknown), "UnknownParameter", "{unknown}");
        }
        assert_eq!(code("Action=DeleteVpc"), "MissingParameter");
        assert_eq!(code("Action=DeleteVpc&VpcId=a&VpcId=b"), "InvalidQueryParameter");
        for invalid in [
            "Action=DescribeVpcs&MaxResults=many",
            "Action=DescribeVpcs&MaxResults=99999999999",
            "Action=DescribeVpcs&DryRun=perhaps",
            "Action=CreateVpc&CidrBlock=10.0.0.0/16&InstanceTenancy=shared",
        ] {
            assert_eq!(code(invalid), "InvalidParameterValue", "{invalid}");
        }
    }
}
