//! Answers: a tree of values becomes XML under the names of the model.

use std::fmt::Write;

use serde_json::Value;

use super::model::{Kind, Model, Protocol};
use crate::error::{ApiError, ApiResult};

/// Returns the XML of an answer. Members that the model does not contain are left out.
///
/// # Errors
/// If a value has another type than the model requires.
pub fn write(model: &Model, action: &str, value: &Value, request_id: &str) -> ApiResult<String> {
    let output = model.operations.get(action).and_then(|operation| operation.output.as_deref());
    if model.protocol == Protocol::Query {
        return write_query(model, action, (output, value), request_id);
    }
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let version = &model.version;
    let _ = write!(
        xml,
        "<{action}Response xmlns=\"http://ec2.amazonaws.com/doc/{version}/\">\
         <requestId>{request_id}</requestId>"
    );
    match output {
        Some(output) => members(model, output, value, &mut xml)?,
        None => xml.push_str("<return>true</return>"),
    }
    let _ = write!(xml, "</{action}Response>");
    Ok(xml)
}

/// Returns the XML of an answer in the protocol `query`.
fn write_query(
    model: &Model,
    action: &str,
    (output, value): (Option<&str>, &Value),
    request_id: &str,
) -> ApiResult<String> {
    let mut xml = format!("<{action}Response xmlns=\"{}\">", model.namespace);
    if let Some(output) = output {
        let _ = write!(xml, "<{action}Result>");
        members(model, output, value, &mut xml)?;
        let _ = write!(xml, "</{action}Result>");
    }
    let _ = write!(
        xml,
        "<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>\
         </{action}Response>"
    );
    Ok(xml)
}

/// Returns the XML of an error in the protocol `query`.
pub fn write_fault(model: &Model, error: &ApiError, request_id: &str) -> String {
    let side = if error.status < 500 { "Sender" } else { "Receiver" };
    let mut xml =
        format!("<ErrorResponse xmlns=\"{}\"><Error><Type>{side}</Type><Code>", model.namespace);
    escape(&error.code, &mut xml);
    xml.push_str("</Code><Message>");
    escape(&error.message, &mut xml);
    let _ = write!(xml, "</Message></Error><RequestId>{request_id}</RequestId></ErrorResponse>");
    xml
}

/// Returns the XML of an error in the protocol `ec2`.
pub fn write_error(error: &ApiError, request_id: &str) -> String {
    let mut xml =
        String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>");
    escape(&error.code, &mut xml);
    xml.push_str("</Code><Message>");
    escape(&error.message, &mut xml);
    let _ =
        write!(xml, "</Message></Error></Errors><RequestID>{request_id}</RequestID></Response>");
    xml
}

/// Appends text with the characters escaped that XML reserves, and without those it forbids.
pub fn escape(text: &str, xml: &mut String) {
    for c in text.chars() {
        match c {
            '&' => xml.push_str("&amp;"),
            '<' => xml.push_str("&lt;"),
            '>' => xml.push_str("&gt;"),
            '"' => xml.push_str("&quot;"),
            // A reader of XML turns a carriage return into a line feed unless it is escaped.
            '\r' => xml.push_str("&#13;"),
            '\t' | '\n' => xml.push(c),
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => xml.push('\u{fffd}'),
            c => xml.push(c),
        }
    }
}

fn mismatch(shape: &str, value: &Value) -> ApiError {
    ApiError::internal(format!("{value} is not of the shape {shape}"))
}

fn members(model: &Model, name: &str, value: &Value, xml: &mut String) -> ApiResult<()> {
    let shape = model.shape(name).ok_or_else(|| mismatch(name, value))?;
    let values = value.as_object().ok_or_else(|| mismatch(name, value))?;
    for (member, of) in &shape.members {
        match values.get(member) {
            None | Some(Value::Null) => {}
            Some(value) => element(model, of.answer_name(member), &of.shape, value, xml)?,
        }
    }
    Ok(())
}

fn element(model: &Model, tag: &str, name: &str, value: &Value, xml: &mut String) -> ApiResult<()> {
    let shape = model.shape(name).ok_or_else(|| mismatch(name, value))?;
    let _ = write!(xml, "<{tag}>");
    match (shape.kind, value) {
        (Kind::Structure, _) => members(model, name, value, xml)?,
        (Kind::List, Value::Array(elements)) => {
            let of = shape.member.as_ref().ok_or_else(|| mismatch(name, value))?;
            let tag = match model.protocol {
                Protocol::Ec2 => "item",
                Protocol::Query => "member",
            };
            for value in elements {
                element(model, of.answer_name(tag), &of.shape, value, xml)?;
            }
        }
        (Kind::String | Kind::Timestamp | Kind::Blob, Value::String(text)) => escape(text, xml),
        (Kind::Integer | Kind::Long | Kind::Double | Kind::Float, Value::Number(number)) => {
            let _ = write!(xml, "{number}");
        }
        (Kind::Boolean, Value::Bool(flag)) => {
            let _ = write!(xml, "{flag}");
        }
        _ => return Err(mismatch(name, value)),
    }
    let _ = write!(xml, "</{tag}>");
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::model::{autoscaling, model};
    use super::*;

    #[test]
    fn an_answer_has_the_names_of_the_model_and_escapes_text() {
        let tags = json!([{"Key": "a<b", "Value": "\"x\" & \u{1}\r"}]);
        let value = json!({"Vpcs": [{"VpcId": "vpc-1", "IsDefault": false, "Tags": tags,
                                     "Private": 1, "CidrBlock": null}]});
        let xml = write(model(), "DescribeVpcs", &value, "r-1").unwrap();
        let vpcs = xml.split("<requestId>r-1</requestId>").nth(1).unwrap();
        assert_eq!(
            vpcs,
            "<vpcSet><item><isDefault>false</isDefault><tagSet><item><key>a&lt;b</key>\
             <value>&quot;x&quot; &amp; \u{fffd}&#13;</value></item></tagSet>\
             <vpcId>vpc-1</vpcId></item></vpcSet></DescribeVpcsResponse>"
        );
        let wrong = json!({"Vpcs": [{"VpcId": 5}]});
        assert_eq!(write(model(), "DescribeVpcs", &wrong, "r-1").unwrap_err().status, 500);
    }

    #[test]
    fn answers_and_errors_of_the_protocol_query_have_its_form() {
        let value = json!({"AutoScalingInstances": [{"InstanceId": "i-1"}]});
        let xml = write(autoscaling(), "DescribeAutoScalingInstances", &value, "r").unwrap();
        assert_eq!(
            xml,
            "<DescribeAutoScalingInstancesResponse \
             xmlns=\"http://autoscaling.amazonaws.com/doc/2011-01-01/\">\
             <DescribeAutoScalingInstancesResult><AutoScalingInstances><member>\
             <InstanceId>i-1</InstanceId></member></AutoScalingInstances>\
             </DescribeAutoScalingInstancesResult><ResponseMetadata><RequestId>r</RequestId>\
             </ResponseMetadata></DescribeAutoScalingInstancesResponse>"
        );
        let xml = write(autoscaling(), "SetDesiredCapacity", &json!({}), "r").unwrap();
        assert!(xml.ends_with(
            "2011-01-01/\"><ResponseMetadata><RequestId>r</RequestId>\
                               </ResponseMetadata></SetDesiredCapacityResponse>"
        ));
        let error = ApiError::new("ValidationError", "a < b");
        let xml = write_fault(autoscaling(), &error, "r");
        assert!(xml.contains(
            "<Error><Type>Sender</Type><Code>ValidationError</Code>\
                              <Message>a &lt; b</Message></Error><RequestId>r</RequestId>"
        ));
        let xml = write_fault(autoscaling(), &ApiError::internal("x"), "r");
        assert!(xml.contains("<Type>Receiver</Type>"));
    }

    #[test]
    fn an_action_without_answer_returns_true() {
        let xml = write(model(), "DeleteVpc", &json!({"Return": true}), "r").unwrap();
        assert!(xml.contains("<requestId>r</requestId><return>true</return></DeleteVpcResponse>"));
    }
}
