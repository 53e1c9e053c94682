//! Requests: a form becomes a tree of values that the model has checked.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::GeneralPurpose;
use base64::engine::{DecodePaddingMode, general_purpose};
use serde_json::{Map, Value};

use super::model::{Kind, Member, Model, Protocol, Shape};
use crate::error::{ApiError, ApiResult};

/// Largest number of parts of a parameter's name, for example 3 in `Filter.1.Name`.
const DEPTH_MAX: usize = 8;
/// Largest number of elements of a list.
pub const ELEMENTS_MAX: usize = 1000;
/// Largest length of a text in bytes, except for names of parameters, policy documents and other
/// texts with a limit of their own.
pub const TEXT_BYTES_MAX: usize = 1024;
/// Largest length of a parameter's name in bytes.
const NAME_BYTES_MAX: usize = 255;
/// Largest length of a policy document in bytes.
const POLICY_BYTES_MAX: usize = 20 << 10;
/// Largest length of a list of subnets in bytes.
const SUBNETS_BYTES_MAX: usize = 5000;
/// Largest length of user data in bytes, after base64 is decoded.
pub const USER_DATA_BYTES_MAX: usize = 16 << 10;
/// Largest length of a client token in bytes.
const TOKEN_BYTES_MAX: usize = 64;
/// Parameters of the protocol, which are not parameters of an action. The last six belong to a
/// presigned request; the other parameters belong to older versions of signatures.
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
    /// Name of the action.
    pub action: String,
    /// Parameters of the action, by the names of the model's members.
    pub parameters: Map<String, Value>,
}

/// A parameter of a form: the parts of its name, and its value.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Parameter<'a> {
    parts: Vec<&'a str>,
    value: &'a str,
}

/// Node of the tree of parameters' names: the value of the parameter whose name ends here, and, by
/// the next part of the name, the parameters whose names continue.
struct Node<'a> {
    value: Option<&'a str>,
    below: BTreeMap<&'a str, &'a [Parameter<'a>]>,
    depth: usize,
}

impl<'a> Node<'a> {
    /// The node of parameters that have this number of parts in common. They are sorted.
    fn new(mut parameters: &'a [Parameter<'a>], depth: usize) -> Self {
        let mut node = Self { value: None, below: BTreeMap::new(), depth };
        if let [first, rest @ ..] = parameters
            && first.parts.len() == depth
        {
            node.value = Some(first.value);
            parameters = rest;
        }
        for group in parameters.chunk_by(|a, b| a.parts[depth] == b.parts[depth]) {
            node.below.insert(group[0].parts[depth], group);
        }
        node
    }

    /// Removes and returns the child of this node that has this part of the name.
    fn take(&mut self, name: &str) -> Option<Self> {
        let depth = self.depth + 1;
        self.below.remove(name).map(|parameters| Self::new(parameters, depth))
    }
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
    let mut list = Vec::new();
    for (name, value) in form {
        if !PROTOCOL.contains(&name.as_str()) && name != "X-Amz-Security-Token" {
            list.push(Parameter { parts: parts(name)?, value });
        }
    }
    list.sort_unstable();
    if let Some(pair) = list.windows(2).find(|pair| pair[0].parts == pair[1].parts) {
        let message = format!("The parameter {} is given twice", pair[0].parts.join("."));
        return Err(ApiError::new("InvalidQueryParameter", message));
    }
    let parameters = match operation.input.as_deref().and_then(|input| model.shape(input)) {
        Some(shape) => structure(model, shape, Node::new(&list, 0), "")?,
        None => Map::new(),
    };
    Ok(Request { action: action.to_owned(), parameters })
}

/// Returns the error for an action that this endpoint does not serve: `UnsupportedOperation` if EC2
/// has the action, `InvalidAction` if EC2 does not have it.
pub fn unknown_action(model: &Model, action: &str) -> ApiError {
    if model.names.contains(action) {
        let message = format!("The action {action} is not served by this endpoint.");
        return ApiError::new("UnsupportedOperation", message);
    }
    let message = format!("The action {action} is not valid for this web service.");
    ApiError::new("InvalidAction", message)
}

/// Returns the parts of a parameter's name.
fn parts(name: &str) -> ApiResult<Vec<&str>> {
    let parts: Vec<&str> = name.split('.').take(DEPTH_MAX + 1).collect();
    if name.len() > NAME_BYTES_MAX || parts.len() > DEPTH_MAX || parts.contains(&"") {
        return Err(unknown(name));
    }
    Ok(parts)
}

fn unknown(name: &str) -> ApiError {
    let name: String = name.chars().take(NAME_BYTES_MAX).collect();
    ApiError::new("UnknownParameter", format!("The parameter {name} is not recognized"))
}

fn join(above: &str, name: &str) -> String {
    if above.is_empty() { name.to_owned() } else { format!("{above}.{name}") }
}

fn structure(
    model: &Model,
    shape: &Shape,
    mut node: Node<'_>,
    path: &str,
) -> ApiResult<Map<String, Value>> {
    let named = shape.members.iter().map(|(member, of)| (of.request_name(member), member, of));
    let named: Vec<_> = named.collect();
    if let Some(name) = node.below.keys().find(|name| !named.iter().any(|(of, ..)| of == *name)) {
        return Err(unknown(&join(path, name)));
    }
    let mut values = Map::new();
    for (name, member, of) in &named {
        if let Some(below) = node.take(name) {
            let path = join(path, name);
            if let Some(value) = value(model, of, below, &path)? {
                values.insert((*member).clone(), value);
            }
        }
    }
    for member in &shape.required {
        if !values.contains_key(member) {
            let name = shape.members.get(member).map(|of| match of.shape.as_str() {
                // The name of this list in the service's own messages.
                "ResourceIdList" => "resourceIdSet".to_owned(),
                _ => of.request_name(member),
            });
            return Err(ApiError::missing(&join(path, &name.unwrap_or_default())));
        }
    }
    Ok(values)
}

fn value(model: &Model, of: &Member, node: Node<'_>, path: &str) -> ApiResult<Option<Value>> {
    let shape = model
        .shape(&of.shape)
        .ok_or_else(|| ApiError::internal(format!("the model lacks the shape {}", of.shape)))?;
    match shape.kind {
        Kind::Structure => {
            if node.value.is_some_and(|value| !value.is_empty()) {
                return Err(unknown(path));
            }
            structure(model, shape, node, path).map(|map| Some(map.into()))
        }
        Kind::List => list(model, shape, node, path),
        _ => {
            if let Some(name) = node.below.keys().next() {
                return Err(unknown(&join(path, name)));
            }
            let text = node.value.unwrap_or_default();
            check_length(text, path)?;
            scalar(of, shape, text, path).map(Some)
        }
    }
}

/// Returns the elements by their numbers, whose sequence may have gaps. An empty value without
/// elements is an empty list. In the protocol `query`, the numbers follow the name of an element.
fn list(model: &Model, shape: &Shape, mut node: Node<'_>, path: &str) -> ApiResult<Option<Value>> {
    if node.value.is_some_and(|value| !value.is_empty()) {
        return Err(unknown(path));
    }
    let Some(element) = &shape.member else { return Ok(None) };
    let mut path = path.to_owned();
    if model.protocol == Protocol::Query {
        let name = element.answer_name("member");
        let below = node.take(name);
        if let Some(other) = node.below.keys().next() {
            return Err(unknown(&join(&path, other)));
        }
        let Some(below) = below else { return Ok(Some(Value::Array(Vec::new()))) };
        if below.value.is_some_and(|value| !value.is_empty()) {
            return Err(unknown(&join(&path, name)));
        }
        (node, path) = (below, join(&path, name));
    }
    if node.below.len() > ELEMENTS_MAX {
        let message = format!("The parameter {path} has more than {ELEMENTS_MAX} elements");
        return Err(ApiError::invalid(message));
    }
    let mut elements = BTreeMap::new();
    while let Some(name) = node.below.keys().next().copied() {
        let Some(below) = node.take(name) else { break };
        let path = join(&path, name);
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

/// Base64 with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    general_purpose::PAD.with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Checks the length of a text, which depends on the last part of its parameter's name. User data
/// has to be base64.
fn check_length(text: &str, path: &str) -> ApiResult<()> {
    let member = path.strip_suffix(".Value").unwrap_or(path);
    let max = match member.rsplit('.').next().unwrap_or_default() {
        "UserData" => {
            let encoded: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
            let malformed = |message| ApiError::new("InvalidUserData.Malformed", message);
            let data = BASE64.decode(encoded);
            let data = data.map_err(|_| malformed("Invalid BASE64 encoding of user data."))?;
            if data.len() > USER_DATA_BYTES_MAX {
                return Err(malformed("User data is limited to 16384 bytes"));
            }
            // Whitespace between the digits counts as well.
            4 * USER_DATA_BYTES_MAX
        }
        "PolicyDocument" => POLICY_BYTES_MAX,
        "VPCZoneIdentifier" => SUBNETS_BYTES_MAX,
        "ClientToken" => TOKEN_BYTES_MAX,
        _ => TEXT_BYTES_MAX,
    };
    if text.len() > max {
        return Err(ApiError::invalid(format!("The parameter {path} is longer than {max} bytes")));
    }
    Ok(())
}

fn scalar(of: &Member, shape: &Shape, text: &str, path: &str) -> ApiResult<Value> {
    let wrong = |kind: &str| {
        ApiError::invalid(format!("Invalid value '{text}' for parameter {path}; expected {kind}"))
    };
    Ok(match shape.kind {
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
            let same = |value: &&String| value.eq_ignore_ascii_case(text);
            let exact = shape.values.iter().find(|value| **value == text);
            let Some(value) = exact.or_else(|| shape.values.iter().find(same)) else {
                if of.shape == "VpcTenancy" {
                    let message = format!("The tenancy value {text} is not supported.");
                    return Err(ApiError::new("UnsupportedTenancy", message));
                }
                let (first, rest) = path.split_at_checked(1).unwrap_or((path, ""));
                let name = first.to_ascii_lowercase() + rest;
                let more = if path == "Attribute" { " Unknown attribute." } else { "" };
                let message = format!("Value ({text}) for parameter {name} is invalid.{more}");
                return Err(ApiError::invalid(message));
            };
            value.clone().into()
        }
    })
}

impl Request {
    /// Returns the parameter with the name `name` as a text; `None` if it is absent or no text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.parameters.get(name)?.as_str()
    }

    /// Returns a text that the action needs.
    ///
    /// # Errors
    /// If the parameter is missing.
    pub fn need(&self, name: &str) -> ApiResult<&str> {
        self.text(name).ok_or_else(|| ApiError::missing(name))
    }

    /// Returns the parameter with the name `name` as a flag; `None` if it is absent or no flag.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.parameters.get(name)?.as_bool()
    }

    /// Returns a flag in a structure with the member `Value`.
    pub fn flag_value(&self, name: &str) -> Option<bool> {
        self.parameters.get(name)?.get("Value")?.as_bool()
    }

    /// Returns the parameter with the name `name` as a number; `None` if it is absent or no number.
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

    /// Returns the parameter with the name `name` if it is a structure.
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
    use super::super::form;
    use super::super::model::{autoscaling, model};
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
    fn lists_of_the_protocol_query_name_their_elements() {
        let read = |text: &str| parse(autoscaling(), &form::parse(text).unwrap());
        let form = "Action=AttachInstances&AutoScalingGroupName=g&InstanceIds";
        let request = read(&format!("{form}.member.1=i-1&InstanceIds.member.2=i-2")).unwrap();
        assert_eq!(request.texts("InstanceIds"), ["i-1", "i-2"]);
        assert_eq!(read(&format!("{form}=")).unwrap().parameters["InstanceIds"], json!([]));
        for bad in [".1=i-1", ".member=x", ".member.x=i-1", ".member.1=i-1&InstanceIds.1=i-1"] {
            let error = read(&format!("{form}{bad}")).unwrap_err();
            assert_eq!(error.code, "UnknownParameter", "{bad}");
        }
        let subnets = |bytes| {
            let subnets = "a".repeat(bytes);
            let form = "Action=UpdateAutoScalingGroup&AutoScalingGroupName=g&VPCZoneIdentifier";
            read(&format!("{form}={subnets}"))
        };
        assert!(subnets(SUBNETS_BYTES_MAX).is_ok());
        assert_eq!(subnets(SUBNETS_BYTES_MAX + 1).unwrap_err().code, "InvalidParameterValue");
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

    /// A regression: the length of texts was not limited, and a tree was built even for parameter
    /// names that no action has.
    #[test]
    fn texts_lists_and_names_are_bounded() {
        let text = |bytes| "a".repeat(bytes);
        let vpc = |member: &str, value: &str| code(&format!("Action=CreateVpc&{member}={value}"));
        assert!(read(&format!("Action=DeleteVpc&VpcId={}", text(TEXT_BYTES_MAX))).is_ok());
        assert_eq!(vpc("CidrBlock", &text(TEXT_BYTES_MAX + 1)), "InvalidParameterValue");
        let token =
            |bytes| format!("Action=CreateNatGateway&SubnetId=s&ClientToken={}", text(bytes));
        assert!(read(&token(64)).is_ok());
        assert_eq!(code(&token(65)), "InvalidParameterValue");
        let ids = |count: usize| {
            let ids = (1..=count).map(|n| format!("&VpcId.{n}=v"));
            format!("Action=DescribeVpcs{}", ids.collect::<String>())
        };
        assert_eq!(read(&ids(ELEMENTS_MAX)).unwrap().list("VpcIds").len(), ELEMENTS_MAX);
        assert_eq!(code(&ids(ELEMENTS_MAX + 1)), "InvalidParameterValue");
        let data = |bytes: usize| {
            let data = BASE64.encode(vec![b'a'; bytes]).replace('=', "%3D");
            format!("Action=RunInstances&MinCount=1&MaxCount=1&UserData={data}")
        };
        assert!(read(&data(USER_DATA_BYTES_MAX)).is_ok());
        assert!(read(&data(1)).is_ok());
        assert_eq!(code(&data(USER_DATA_BYTES_MAX + 1)), "InvalidUserData.Malformed");
        assert_eq!(code(&format!("{}%21", data(3))), "InvalidUserData.Malformed");
        let name = format!("Action=DescribeVpcs&{}=1", text(500_000));
        assert!(read(&name).unwrap_err().message.len() < 400);
        let deep = format!("Action=DescribeVpcs&Filter.1.Value.{}=1", ["1"; 6].join("."));
        assert!(read(&deep).unwrap_err().message.contains("Filter.1.Value.1.1.1.1.1.1"));
    }
}
