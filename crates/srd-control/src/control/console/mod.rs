//! The console: a page that shows the state, and the answers to its requests. It changes nothing.
//!
//! The page is at `/console`. Its requests have a token in place of a signature, because a browser
//! cannot sign. The token follows from an access key ([`token`]), and permits actions `Describe...`
//! and `Get...` only.
//!
//! | path | answer in JSON |
//! |---|---|
//! | `/console/regions` | the regions that contain objects, with the number of objects of each kind |
//! | `/console/action?region=R&Action=A&...` | the answer of the action |
//! | `/console/explain?region=R&from=F&to=T&protocol=P&port=N&source_port=N` | what happens to a connection |
//! | `/console/usage?region=R` | network address usage of each VPC |
//! | `/console/records?region=R&log=L&text=T` | records of a flow log that contain all words |

mod records;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde_json::{Value, json};
use srd_card::profile::InstanceType;
use srd_vpc::nau;
use srd_vpc_file::VpcFile;
use srd_vpc_file::explain::{Query, explain};

use super::{Access, Control, TRIAL_ACCOUNT, failure};
use crate::actions;
use crate::error::{ApiError, ApiResult};
use crate::http::{HttpRequest, HttpResponse};
use crate::project::project;
use crate::sign::{DrawnKey, Keys};
use crate::state::Region;
use crate::wire::{form, model::model, request};

/// The page, without the style sheet and the functions that all pages share.
const PAGE: &str = include_str!("page.html");
/// Path of the page, and prefix of the paths of its requests.
const PATH: &str = "/console";

/// Returns the token with which the console shows the state of the key's account.
pub fn token(key: &DrawnKey) -> String {
    let (secret, message) = parts(key);
    URL_SAFE_NO_PAD.encode(hmac::sign(&secret, message.as_bytes()))
}

/// Returns the secret and the message of which the token of a key is the HMAC.
fn parts(key: &DrawnKey) -> (hmac::Key, String) {
    let secret = hmac::Key::new(hmac::HMAC_SHA256, key.secret.as_bytes());
    (secret, format!("console of {}", key.id))
}

/// Returns the account of the key to which a token belongs.
fn account_of<'a>(keys: &'a Keys, given: &str) -> Option<&'a str> {
    let given = URL_SAFE_NO_PAD.decode(given).ok()?;
    keys.active().find_map(|(key, account)| {
        let (secret, message) = parts(&key);
        hmac::verify(&secret, message.as_bytes(), &given).ok().map(|()| account)
    })
}

/// Parameters of a request of the page.
struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Returns a parameter; empty if the request does not have it.
    fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(of, _)| of == name).map_or("", |(_, value)| value)
    }
}

impl Control {
    /// Answers a request `GET` for the page, or of the page; `None` if it is neither.
    pub(super) fn console(
        &mut self,
        http: &HttpRequest,
        now: u64,
        request_id: &str,
    ) -> Option<HttpResponse> {
        let rest = http.path.strip_prefix(PATH).filter(|_| http.method == "GET")?;
        if !rest.is_empty() && !rest.starts_with('/') {
            return None;
        }
        Some(match self.console_answer(http, rest, now) {
            Ok(answer) => answer,
            Err(error) => failure(&error, request_id),
        })
    }

    fn console_answer(
        &mut self,
        http: &HttpRequest,
        path: &str,
        now: u64,
    ) -> ApiResult<HttpResponse> {
        if matches!(path, "" | "/") {
            return Ok(HttpResponse::html(srd_http::page(PAGE, &[])));
        }
        // A request without a valid token causes no read of the store.
        self.console_account(http)?;
        let parameters = Parameters(form::parse(&http.query)?);
        self.follow().map_err(super::unavailable)?;
        // Another controller may have deactivated the key of the token.
        let account = self.console_account(http)?;
        let answer = match path {
            "/regions" => self.console_regions(&account),
            "/action" => self.console_action(&account, &parameters, now)?,
            "/explain" => explained(self.console_region(&account, &parameters)?, &parameters)?,
            "/usage" => usage(self.console_region(&account, &parameters)?)?,
            "/records" => self.console_records(&account, &parameters)?,
            _ => {
                let message = format!("The console has no path {PATH}{path}.");
                return Err(ApiError::with_status(404, "NotFound", message));
            }
        };
        Ok(HttpResponse::json(200, answer.to_string()))
    }

    /// Returns the account whose token the request has.
    fn console_account(&self, http: &HttpRequest) -> ApiResult<String> {
        let keys = match &self.access {
            Access::AnyCredentials => return Ok(TRIAL_ACCOUNT.to_owned()),
            Access::Local => &self.cloud.keys,
            Access::Trial(keys) | Access::Keys(keys) => keys,
        };
        let header = http.header("authorization").unwrap_or_default();
        let given = header.strip_prefix("Bearer ").unwrap_or_default();
        account_of(keys, given).map(str::to_owned).ok_or_else(|| {
            let message = "The request has no valid token: open the address of the console that \
                           the server has printed.";
            ApiError::with_status(401, "AuthFailure", message)
        })
    }

    fn console_regions(&self, account: &str) -> Value {
        let regions = self.cloud.regions.iter().filter(|((of, _), _)| of == account);
        let regions = regions.map(|((_, name), region)| {
            let counts: Vec<Value> = region.counts().map(|(kind, n)| json!([kind, n])).collect();
            json!({"name": name, "counts": counts})
        });
        json!({
            "account": account, "version": env!("CARGO_PKG_VERSION"),
            "objects_max": super::OBJECTS_MAX, "regions": regions.collect::<Vec<_>>(),
        })
    }

    fn console_region(&self, account: &str, parameters: &Parameters) -> ApiResult<&Region> {
        let name = parameters.get("region");
        self.cloud.regions.get(&(account.to_owned(), name.to_owned())).ok_or_else(|| {
            let message = format!("The region '{name}' contains no objects.");
            ApiError::with_status(404, "NotFound", message)
        })
    }

    /// Runs an action that reads. Changes, which such an action does not make, would be undone.
    fn console_action(
        &mut self,
        account: &str,
        parameters: &Parameters,
        now: u64,
    ) -> ApiResult<Value> {
        self.console_region(account, parameters)?;
        let at = (account.to_owned(), parameters.get("region").to_owned());
        let of_action: Vec<(String, String)> =
            parameters.0.iter().filter(|(name, _)| name != "region").cloned().collect();
        let request = request::parse(model(), &of_action)?;
        if !super::is_reading(&request.action) {
            let message = format!("The console does not run {}.", request.action);
            return Err(ApiError::with_status(403, "AccessDenied", message));
        }
        let action = actions::find(&request.action)
            .ok_or_else(|| request::unknown_action(model(), &request.action))?;
        for region in self.cloud.regions.values_mut() {
            region.now = now;
        }
        let answer = match action {
            actions::Handler::Region(run) => match self.cloud.regions.get_mut(&at) {
                Some(region) => run(region, &request),
                None => Err(ApiError::internal("the region is missing")),
            },
            actions::Handler::Cloud(run) => run(&mut self.cloud, &at, &request),
        };
        self.recover();
        answer
    }

    fn console_records(&self, account: &str, parameters: &Parameters) -> ApiResult<Value> {
        let region = self.console_region(account, parameters)?;
        let id = parameters.get("log");
        if region.flow_logs.get(id).is_none() {
            let message = format!("The flow log '{id}' does not exist");
            return Err(ApiError::new("InvalidFlowLogId.NotFound", message));
        }
        let Some(directory) = self.machines.flow_logs(region) else {
            return Ok(json!({"note": "This server writes no records: it runs no instances in \
                                      this region.", "fields": [], "records": []}));
        };
        let found = records::search(&directory.join(id), parameters.get("text"))
            .map_err(|error| ApiError::internal(format!("the records cannot be read: {error}")))?;
        Ok(json!({"note": found.note, "fields": found.fields, "records": found.records}))
    }
}

/// Returns the region as a card reads it.
fn file_of(region: &Region) -> ApiResult<VpcFile> {
    let text = project(region, None).text;
    srd_vpc_file::parse(&text, std::path::Path::new("the state"))
        .map_err(|error| ApiError::internal(error.to_string()))
}

/// Explains a connection between two interfaces, instances, addresses, or the internet.
fn explained(region: &Region, parameters: &Parameters) -> ApiResult<Value> {
    let or = |name: &str, default: &str| match parameters.get(name) {
        "" => default.to_owned(),
        given => given.to_owned(),
    };
    let port = |text: &str| {
        text.parse::<u16>().map_err(|_| {
            ApiError::invalid(format!("The port '{text}' is not a number from 0 to 65535"))
        })
    };
    let source_port = match parameters.get("source_port") {
        "" => None,
        given => Some(port(given)?),
    };
    let query = Query {
        from: parameters.get("from").to_owned(),
        to: parameters.get("to").to_owned(),
        protocol: or("protocol", "tcp"),
        port: port(&or("port", "443"))?,
        source_port,
        ipv6: parameters.get("ipv6") == "true",
    };
    let explanation = explain(&file_of(region)?, &query, &InstanceType::lacks_express)
        .map_err(ApiError::invalid)?;
    serde_json::to_value(explanation).map_err(|error| ApiError::internal(error.to_string()))
}

/// Returns the network address usage of each VPC that has interfaces, with its quotas.
fn usage(region: &Region) -> ApiResult<Value> {
    let file = file_of(region)?;
    let vpcs = file.world.vpcs.iter().map(|(id, vpc)| {
        json!({"vpc": vpc.name, "units": nau::of(&file.world, *id),
               "peered": nau::peered(&file.world, *id)})
    });
    let vpcs: Vec<Value> = vpcs.collect();
    Ok(json!({
        "vpcs": vpcs, "units_max": nau::UNITS_MAX, "peered_max": nau::PEERED_UNITS_MAX,
    }))
}
