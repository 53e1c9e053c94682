//! Services beside EC2: the identity of the caller, and the few calls of other services that tests
//! of other projects need.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::actions::support::arn;
use crate::error::{ApiError, ApiResult};
use crate::http::{HttpRequest, HttpResponse};
use crate::sign::Scope;
use crate::state::{Cloud, LoadBalancer};
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
/// Largest number of objects in an answer to `GetResources`.
const RESOURCES_MAX: usize = 1000;

/// Answers requests to other services, as far as a trial needs them: `CreateLogGroup` and
/// `CreateBucket` record a name, which flow logs may use; `GetParameter` and `GetParameters` return
/// identifiers of public images; `CreateLoadBalancer` records what endpoint services need;
/// `GetResources` returns objects with their tags.
pub fn trial(
    http: &HttpRequest,
    (scope, account): (&Scope, &str),
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
        ("ssm", "GetParameters") if http.method == "POST" => images(&body),
        ("elasticloadbalancing", _) if http.method == "POST" => {
            match create_balancer(http, (scope, account), cloud, request_id) {
                Ok(xml) => HttpResponse::xml(200, xml),
                Err(error) => {
                    HttpResponse::xml(error.status, answer::write_error(&error, request_id))
                }
            }
        }
        ("tagging", "GetResources") if http.method == "POST" => {
            resources(&body, (scope, account), cloud)
        }
        _ => unsupported(scope, request_id),
    }
}

/// Answers `GetParameters` with identifiers of public images.
fn images(body: &Value) -> HttpResponse {
    let names = body["Names"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let (known, unknown): (Vec<&str>, Vec<&str>) =
        names.partition(|name| name.starts_with("/aws/service/ami-"));
    let parameter = |name: &&str| {
        json!({"Name": name, "Type": "String", "Value": image_of(name), "Version": 1,
               "DataType": "text"})
    };
    let parameters: Vec<Value> = known.iter().map(parameter).collect();
    let answer = json!({"Parameters": parameters, "InvalidParameters": unknown});
    HttpResponse::json(200, answer.to_string())
}

/// Answers `CreateLoadBalancer`: records the type and the zones of a load balancer, which does not
/// balance anything.
fn create_balancer(
    http: &HttpRequest,
    (scope, account): (&Scope, &str),
    cloud: &mut Cloud,
    request_id: &str,
) -> ApiResult<String> {
    let parameters = parameters(http)?;
    let text = |key: &str| {
        let found = parameters.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str())
    };
    if text("Action") != Some("CreateLoadBalancer") {
        let message = "Of this service, only CreateLoadBalancer is served by this endpoint.";
        return Err(ApiError::new("UnsupportedOperation", message));
    }
    let name = text("Name").ok_or_else(|| ApiError::missing("Name"))?;
    let kind = text("Type").unwrap_or("application");
    let Some((_, short)) =
        [("network", "net"), ("gateway", "gwy")].into_iter().find(|(of, _)| *of == kind)
    else {
        let message = "Load balancers of this type are not served by this endpoint.";
        return Err(ApiError::new("UnsupportedOperation", message));
    };
    let valid = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let full = cloud.load_balancers.len() >= NAMES_MAX;
    if name.is_empty() || name.len() > 32 || !name.chars().all(valid) || full {
        let message = "The name of the load balancer is invalid, or there are too many";
        return Err(ApiError::new("ValidationError", message));
    }
    let region = cloud.regions.get(&(account.to_owned(), scope.region.clone()));
    let (mut zones, mut members) = (Vec::new(), String::new());
    for (_, id) in parameters.iter().filter(|(name, _)| name.starts_with("Subnets.member.")) {
        let subnet = region.and_then(|region| region.subnets.get(id)).ok_or_else(|| {
            ApiError::new("SubnetNotFound", format!("The subnet ID '{id}' does not exist"))
        })?;
        let zone = &subnet.availability_zone;
        let subnet = &subnet.subnet_id;
        members +=
            &format!("<member><ZoneName>{zone}</ZoneName><SubnetId>{subnet}</SubnetId></member>");
        zones.push(zone.clone());
    }
    let partition = crate::regions::partition(&scope.region);
    let hash = image_of(name).split_off(5);
    let resource = format!("loadbalancer/{short}/{name}/{hash}");
    let at = &scope.region;
    let arn = format!("arn:{partition}:elasticloadbalancing:{at}:{account}:{resource}");
    cloud.load_balancers.insert(arn.clone(), LoadBalancer { kind: kind.to_owned(), zones });
    Ok(format!(
        "<CreateLoadBalancerResponse \
         xmlns=\"http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/\">\
         <CreateLoadBalancerResult><LoadBalancers><member><LoadBalancerArn>{arn}</LoadBalancerArn>\
         <LoadBalancerName>{name}</LoadBalancerName><Type>{kind}</Type>\
         <State><Code>active</Code></State><AvailabilityZones>{members}</AvailabilityZones>\
         </member></LoadBalancers></CreateLoadBalancerResult>\
         <ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>\
         </CreateLoadBalancerResponse>"
    ))
}

/// Answers `GetResources`: the objects of a region that have tags, of the requested types.
fn resources(body: &Value, (scope, account): (&Scope, &str), cloud: &Cloud) -> HttpResponse {
    let others = body.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    let others = others.filter(|name| !["ResourceTypeFilters", "ResourcesPerPage"].contains(name));
    if others.count() > 0 {
        return wrong("InvalidParameterException", "only ResourceTypeFilters is served");
    }
    let types = body["ResourceTypeFilters"].as_array().into_iter().flatten();
    let types: Vec<&str> = types.filter_map(Value::as_str).collect();
    let key = (account.to_owned(), scope.region.clone());
    let mut all: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    if let Some(region) = cloud.regions.get(&key) {
        for (id, kind, tag) in region.all_tags() {
            if types.is_empty()
                || types.iter().any(|of| *of == "ec2" || *of == format!("ec2:{kind}"))
            {
                let tag = json!({"Key": tag.key, "Value": tag.value});
                all.entry(arn(region, kind, id)).or_default().push(tag);
            }
        }
    }
    if all.len() > RESOURCES_MAX {
        return wrong("InvalidParameterException", "too many objects for one answer");
    }
    let list: Vec<Value> =
        all.into_iter().map(|(arn, tags)| json!({"ResourceARN": arn, "Tags": tags})).collect();
    let answer = json!({"PaginationToken": "", "ResourceTagMappingList": list});
    HttpResponse::json(200, answer.to_string())
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
