//! Services beside EC2: the identity of the caller, and the few calls of other services that tests
//! of other projects need.

use serde_json::{Value, json};

use crate::error::{ApiError, ApiResult};
use crate::http::{HttpRequest, HttpResponse};
use crate::sign::Scope;
use crate::state::Cloud;
use crate::wire::{answer, form};

/// Returns the parameters in the query and in the body of a request.
///
/// # Errors
/// If the method is neither `GET` nor `POST`, or the body is no form.
pub fn parameters(http: &HttpRequest) -> ApiResult<Vec<(String, String)>> {
    let mut parameters = form::parse(&http.query)?;
    match http.method.as_str() {
        "GET" => {}
        "POST" => {
            let body = std::str::from_utf8(&http.body).map_err(|_| {
                ApiError::new("MalformedQueryString", "The body of the request is not UTF-8")
            })?;
            parameters.extend(form::parse(body)?);
        }
        method => {
            let message = format!("The method {method} is not valid for this web service.");
            return Err(ApiError::with_status(405, "MethodNotAllowed", message));
        }
    }
    Ok(parameters)
}

/// Answers a request to the security token service: `GetCallerIdentity`.
///
/// # Errors
/// If the request is for another action.
pub fn sts(
    http: &HttpRequest,
    scope: &Scope,
    account: &str,
    request_id: &str,
) -> ApiResult<String> {
    let parameters = parameters(http)?;
    let action = parameters.iter().find(|(name, _)| name == "Action").map(|(_, v)| v.as_str());
    if action != Some("GetCallerIdentity") {
        let message = "Of this service, only GetCallerIdentity is served by this endpoint.";
        return Err(ApiError::new("UnsupportedOperation", message));
    }
    let mut user = String::new();
    answer::escape(&scope.key, &mut user);
    Ok(format!(
        "<GetCallerIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
         <GetCallerIdentityResult><Arn>arn:aws:iam::{account}:user/{user}</Arn>\
         <UserId>{user}</UserId><Account>{account}</Account></GetCallerIdentityResult>\
         <ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>\
         </GetCallerIdentityResponse>"
    ))
}

/// Largest number of log groups, and of buckets, whose names a trial keeps.
const NAMES_MAX: usize = 10_000;

/// Answers requests to other services, as far as a trial needs them: `CreateLogGroup` and
/// `CreateBucket` record a name, which flow logs may use; `GetParameter` returns identifiers of
/// public images.
pub fn trial(
    http: &HttpRequest,
    scope: &Scope,
    cloud: &mut Cloud,
    request_id: &str,
) -> HttpResponse {
    let body: Value = serde_json::from_slice(&http.body).unwrap_or_default();
    let target = http.header("x-amz-target").unwrap_or_default();
    let action = target.split('.').nth(1).unwrap_or_default();
    let text = |name: &str| body.get(name).and_then(Value::as_str).map(str::to_owned);
    match (scope.service.as_str(), action) {
        ("logs", "CreateLogGroup") if http.method == "POST" => {
            let Some(name) = text("logGroupName").filter(|name| !name.is_empty()) else {
                return wrong("InvalidParameterException", "logGroupName is missing");
            };
            if cloud.log_groups.len() >= NAMES_MAX {
                return wrong("LimitExceededException", "too many log groups");
            }
            if !cloud.log_groups.insert(name) {
                let message = "The specified log group already exists";
                return wrong("ResourceAlreadyExistsException", message);
            }
            HttpResponse::json(200, "{}".to_owned())
        }
        ("s3", _) if http.method == "PUT" && http.query.is_empty() => {
            let name = http.path.trim_matches('/');
            if name.is_empty() || name.contains('/') || cloud.buckets.len() >= NAMES_MAX {
                return unsupported(scope, request_id);
            }
            cloud.buckets.insert(name.to_owned());
            HttpResponse::xml(200, String::new())
        }
        ("ssm", "GetParameter") if http.method == "POST" => match text("Name") {
            Some(name) if name.starts_with("/aws/service/ami-") => {
                let image = image_of(&name);
                let parameter = json!({"Name": name, "Type": "String", "Value": image,
                                       "Version": 1, "DataType": "text"});
                HttpResponse::json(200, json!({"Parameter": parameter}).to_string())
            }
            _ => wrong("ParameterNotFound", "only names of public images are served"),
        },
        _ => unsupported(scope, request_id),
    }
}

/// An identifier of an image that follows from its public name (FNV-1a).
fn image_of(name: &str) -> String {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("ami-0{hash:016x}")
}

fn wrong(code: &str, message: &str) -> HttpResponse {
    HttpResponse::json(400, json!({"__type": code, "message": message}).to_string())
}

fn unsupported(scope: &Scope, request_id: &str) -> HttpResponse {
    let message = format!("This request to {} is not served by this endpoint.", scope.service);
    let error = ApiError::with_status(501, "NotImplemented", message);
    HttpResponse::xml(501, answer::write_error(&error, request_id))
}
