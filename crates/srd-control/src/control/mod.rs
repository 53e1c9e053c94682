//! The control plane without a socket: a request of HTTP goes in, an answer comes out.
//!
//! | module | content |
//! |---|---|
//! | [`console`] | a page for browsers |
//! | `follow` | the state that other controllers and earlier runs have stored |
//! | `hosts` | transactions about hosts that enrol themselves |
//! | [`keys`] | access keys, and the verification of signatures |
//! | `pods` | requests of hosts about their pods |
//! | `records` | the state as keys and values of a store |
//! | [`shared`] | the control plane that several threads share |
//! | `settle` | instances of Auto Scaling groups that follow each change |

pub mod console;
mod follow;
mod hosts;
pub mod keys;
mod pods;
mod records;
mod settle;
pub mod shared;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::actions::{self, scaling};
use crate::clock::now_s;
use crate::error::{ApiError, ApiResult};
use crate::guard::Hosts;
use crate::http::{HttpRequest, HttpResponse};
use crate::machines::{self, Machines};
use crate::sign::{Keys, Scope};
use crate::state::{Cloud, IdGenerator, Region, Row, TokenUse};
use crate::store::{CommitError, KeyChange, Store};
use crate::wire::model::{Model, autoscaling, model};
use crate::wire::{Request, answer, request};
use crate::{defaults, guard, random, services};

/// Account of all requests of a trial, and of a server with the one key of its store.
pub const TRIAL_ACCOUNT: &str = "123456789012";
/// Largest number of objects of one kind in a region.
pub const OBJECTS_MAX: usize = 50_000;
/// Largest number of remembered client tokens of a region.
pub const TOKENS_MAX: usize = 4096;
/// Largest sum of the answers to requests with client tokens of a region, in bytes.
pub const TOKEN_ANSWERS_MAX: usize = 64 << 20;
/// Time for which a client token is remembered, in seconds.
const TOKEN_S: u64 = 24 * 3600;

/// Largest number of attempts of a request whose transactions conflict with those of other
/// controllers.
pub const ATTEMPTS_MAX: u32 = 20;
/// Longest pause before the second attempt; before each further one, it is longer by as much.
const ATTEMPT_PAUSE_MAX: Duration = Duration::from_millis(2);

/// Credentials that are accepted.
#[derive(Clone, Debug)]
pub enum Access {
    /// For test suites: any credentials are accepted, and a reset needs no signature. A request
    /// whose access key has twelve digits belongs to the account with this number, and all others
    /// belong to [`TRIAL_ACCOUNT`]. Machines that run programs cannot be used with it.
    AnyCredentials,
    /// A trial: requests need a valid signature of one of these keys.
    Trial(Keys),
    /// Requests need a valid signature of a key of the store. If the store contains none, one is
    /// drawn.
    Local,
    /// Requests need a valid signature of one of these keys.
    Keys(Keys),
}

impl Access {
    /// Whether the header `Host` has to name this machine, or the server by [`Names`].
    fn is_local(&self) -> bool {
        !matches!(self, Self::Keys(_))
    }

    /// Whether services for trials exist, among them the reset.
    fn is_trial(&self) -> bool {
        matches!(self, Self::AnyCredentials | Self::Trial(_))
    }
}

/// The control plane.
pub struct Control {
    cloud: Cloud,
    store: Box<dyn Store>,
    machines: Box<dyn Machines>,
    access: Access,
    /// Accepts names of the server in the header `Host`, besides those of this machine.
    names: Option<Names>,
    ids: IdGenerator,
    /// A region whose first objects are not in the store yet.
    entering: Option<(String, String)>,
    /// Whether the state may differ from the one of the store.
    is_stale: bool,
    /// Whether the state has changed since the Auto Scaling groups followed it.
    is_unsettled: bool,
    /// Auto Scaling groups that wait because this controller has no host for their instances.
    pauses: settle::Pauses,
    /// Reads of the store for signatures of unknown keys.
    stranger_reads: keys::StrangerReads,
}

/// A service whose actions work on the state.
#[derive(Clone, Copy)]
struct Service {
    model: fn() -> &'static Model,
    find: fn(&str) -> Option<actions::Handler>,
}

const EC2: Service = Service { model, find: actions::find };
const SCALING: Service = Service { model: autoscaling, find: scaling::find };

/// A request to a service: its action and its parameters, account and region, and the identifier of
/// the request.
#[derive(Clone, Copy)]
struct Call<'a> {
    model: &'static Model,
    action: actions::Handler,
    request: &'a Request,
    at: &'a (String, String),
    request_id: &'a str,
}

/// The answer to a request that has taken effect, as a value and in XML.
struct Completion {
    answer: Value,
    xml: String,
}

/// Function that returns whether this is a name or an address of the server.
pub type Names = Box<dyn Fn(&str) -> bool + Send>;

/// Causes for which a request has changed nothing.
enum Failure {
    /// The error of the answer.
    Api(ApiError),
    /// Another controller has changed the state; the request can be repeated.
    Conflict,
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self::Api(error)
    }
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("access", &self.access).finish_non_exhaustive()
    }
}

impl Control {
    /// A control plane with the state of this store. Identifiers follow from the seed. Machines of
    /// instances that run according to the store are started; an instance whose machine does not
    /// start is marked as stopped.
    ///
    /// # Errors
    /// If the store cannot be read or written, or contains anything else than a state, if another
    /// controller runs the machines, and if any credentials are to be accepted for machines that
    /// run programs.
    pub fn new(
        access: Access,
        seed: u64,
        mut store: Box<dyn Store>,
        machines: Box<dyn Machines>,
    ) -> Result<Self, String> {
        if matches!(access, Access::AnyCredentials) && machines.run_programs() {
            let message = "any credentials cannot be accepted if instances run programs: each \
                           process of this machine could then run programs as root";
            return Err(message.to_owned());
        }
        let mut ids = IdGenerator::new(seed);
        let cloud = records::load(store.load()?, &mut ids)?;
        if machines.run_programs() {
            store.claim_machines()?;
        }
        let mut control = Self {
            cloud,
            store,
            machines,
            access,
            names: None,
            ids,
            entering: None,
            is_stale: false,
            is_unsettled: true,
            pauses: settle::Pauses::default(),
            stranger_reads: keys::StrangerReads::default(),
        };
        if matches!(control.access, Access::Local) {
            control.draw_key(now_s())?;
        }
        control.resume()?;
        Ok(control)
    }

    /// Serves clients of other machines, which name the server in the header `Host` by a name that
    /// this function accepts.
    pub fn serve_names(&mut self, names: Names) {
        self.names = Some(names);
    }

    /// Returns the signal that other controllers may have changed the state. [`Self::follow`] takes
    /// the changes over.
    pub fn news(&self) -> Option<Arc<Notify>> {
        self.store.news()
    }

    /// Returns the state of all accounts.
    pub fn cloud(&self) -> &Cloud {
        &self.cloud
    }

    /// Answers a request that arrived at this time, in seconds since 1970, when the hosts that it
    /// concerns use its changes.
    pub fn handle(&mut self, http: &HttpRequest, now: u64) -> HttpResponse {
        let answer = self.begin(http, now);
        if let Some(unconfirmed) = self.machines.unconfirmed() {
            unconfirmed.wait();
        }
        answer
    }

    /// Answers a request as [`Self::handle`] does, but does not wait for hosts: [`shared::run`]
    /// does.
    pub fn begin(&mut self, http: &HttpRequest, now: u64) -> HttpResponse {
        // An earlier request may have ended in a panic.
        self.recover();
        let request_id = self.ids.uuid();
        let mut answer = self.answer(http, now, &request_id);
        answer.request_id = request_id;
        answer
    }

    fn answer(&mut self, http: &HttpRequest, now: u64, request_id: &str) -> HttpResponse {
        let trial = self.access.is_trial();
        let hosts = match &self.names {
            _ if !self.access.is_local() => Hosts::Any,
            Some(names) => Hosts::Named(names.as_ref()),
            None => Hosts::Local,
        };
        if let Err(error) = guard::check(http, hosts) {
            return failure(&error, request_id);
        }
        if let Some(answer) = self.console(http, now, request_id) {
            return answer;
        }
        let reset = trial
            && http.method == "POST"
            && ["/reset", "/moto-api/reset"].contains(&http.path.as_str());
        if reset && matches!(self.access, Access::AnyCredentials) {
            return self.reset();
        }
        let (scope, account) = match self.authenticate(http, now) {
            Ok(who) => who,
            Err(error) => return failure(&error, request_id),
        };
        if reset {
            return self.reset();
        }
        let result = match scope.service.as_str() {
            "ec2" => self.serve(EC2, http, (&scope, &account), now, request_id),
            "autoscaling" => {
                let result = self.serve(SCALING, http, (&scope, &account), now, request_id);
                let result = result.map_err(scaling::documented);
                self.settle(now);
                return match result {
                    Ok(xml) => HttpResponse::xml(200, xml),
                    Err(error) => {
                        let xml = answer::write_fault(autoscaling(), &error, request_id);
                        HttpResponse::xml(error.status, xml)
                    }
                };
            }
            "sts" => services::sts(http, &scope, &account, request_id),
            _ if trial => {
                return services::trial(http, (&scope, &account), &mut self.cloud, request_id);
            }
            service => {
                let message = format!("The service {service} is not served by this endpoint.");
                Err(ApiError::new("UnsupportedOperation", message))
            }
        };
        self.settle(now);
        match result {
            Ok(xml) => HttpResponse::xml(200, xml),
            Err(error) => failure(&error, request_id),
        }
    }

    /// Undoes the changes of a request that did not succeed.
    fn recover(&mut self) {
        self.cloud.regions.values_mut().for_each(Region::rollback);
        if let Some(region) = self.entering.take() {
            self.cloud.regions.remove(&region);
        }
    }

    fn reset(&mut self) -> HttpResponse {
        if let Err(error) = self.store.clear() {
            return HttpResponse::json(500, json!({"status": error}).to_string());
        }
        for region in self.cloud.regions.values() {
            for instance in region.instances.iter().filter(|i| i.state.code == machines::RUNNING) {
                self.machines.stop(region, instance);
            }
        }
        self.machines.clear();
        // Hosts are no objects of EC2, and outlive a reset.
        let hosts = std::mem::take(&mut self.cloud.hosts);
        let records = hosts.records().into_iter().map(|(key, value)| (key, Some(value)));
        let kept = self.store.commit(records.collect());
        self.cloud = Cloud { hosts, ..Cloud::default() };
        if let Err(error) = kept {
            return HttpResponse::json(500, json!({"status": error.to_string()}).to_string());
        }
        HttpResponse::json(200, json!({"status": "ok"}).to_string())
    }

    fn serve(
        &mut self,
        service: Service,
        http: &HttpRequest,
        (scope, account): (&Scope, &str),
        now: u64,
        request_id: &str,
    ) -> ApiResult<String> {
        let model = (service.model)();
        let request = request::parse(model, &services::parameters(http)?)?;
        if http.method != "POST" && !is_reading(&request.action) {
            let message = format!("The action {} needs the method POST.", request.action);
            return Err(ApiError::with_status(405, "MethodNotAllowed", message));
        }
        let at = &(account.to_owned(), scope.region.clone());
        if !self.has_followed() {
            self.follow().map_err(unavailable)?;
        }
        self.perform(service, &request, at, (now, request_id)).map(|done| done.xml)
    }

    /// Runs an action as one transaction, after the caller has taken over the changes of other
    /// controllers. If another controller has changed the state meanwhile, the action runs again.
    fn perform(
        &mut self,
        service: Service,
        request: &Request,
        at: &(String, String),
        (now, request_id): (u64, &str),
    ) -> ApiResult<Completion> {
        let model = (service.model)();
        let action = (service.find)(&request.action)
            .ok_or_else(|| request::unknown_action(model, &request.action))?;
        let call = Call { model, action, request, at, request_id };
        for attempt in 1..=ATTEMPTS_MAX {
            let result = self.attempt(call, now);
            // A failure has changed nothing.
            self.recover();
            match result {
                Ok(done) => return Ok(done),
                Err(Failure::Api(error)) => return Err(error),
                Err(Failure::Conflict) => self.pause(attempt),
            }
            self.follow().map_err(unavailable)?;
        }
        Err(unavailable("other controllers change the state without a pause".to_owned()))
    }

    /// Waits for a random time after an attempt that conflicted with another controller.
    fn pause(&mut self, attempt: u32) {
        let random = u32::try_from(self.ids.next_u64() % 1000).unwrap_or_default();
        thread::sleep(ATTEMPT_PAUSE_MAX * attempt * random / 1000);
    }

    /// Runs an action in a region, which gets its first objects before.
    fn attempt(&mut self, call: Call<'_>, now: u64) -> Result<Completion, Failure> {
        let at = call.at;
        if !self.cloud.regions.contains_key(at) {
            let ids = IdGenerator::new(self.ids.next_u64());
            let mut new = Region::empty(&at.0, &at.1, ids);
            new.now = now;
            defaults::populate(&mut new);
            self.cloud.regions.insert(at.clone(), new);
            self.entering = Some(at.clone());
            self.commit()?;
            self.entering = None;
        }
        for region in self.cloud.regions.values_mut() {
            region.now = now;
        }
        self.run(call)
    }

    /// Runs an action as one transaction, and returns its answer.
    fn run(&mut self, call: Call<'_>) -> Result<Completion, Failure> {
        let Call { model, action, request, at, request_id } = call;
        let write = |answer: &Value| answer::write(model, &request.action, answer, request_id);
        let lost = || ApiError::internal("the region is missing");
        let token = request.text("ClientToken").map(|token| {
            let id = format!("{}/{}/{token}", TokenUse::PREFIX, request.action);
            (id, fingerprint(request))
        });
        if let Some((token, parameters)) = &token {
            let region = self.cloud.regions.get(at).ok_or_else(lost)?;
            let earlier = region.tokens.get(token).filter(|used| used.at + TOKEN_S > region.now);
            if let Some(used) = earlier {
                if used.parameters == *parameters {
                    return Ok(Completion {
                        xml: write(&used.answer)?,
                        answer: used.answer.clone(),
                    });
                }
                let message = "The client token was used with other parameters";
                return Err(ApiError::new("IdempotentParameterMismatch", message).into());
            }
        }
        let answer = match action {
            actions::Handler::Region(run) => {
                run(self.cloud.regions.get_mut(at).ok_or_else(lost)?, request)?
            }
            actions::Handler::Cloud(run) => run(&mut self.cloud, at, request)?,
        };
        if request.flag("DryRun") == Some(true) {
            let message = "Request would have succeeded, but DryRun flag is set.";
            return Err(ApiError::with_status(412, "DryRunOperation", message).into());
        }
        // An answer that cannot be written fails the request before it has changed anything.
        let xml = write(&answer)?;
        let region = self.cloud.regions.get_mut(at);
        if let (Some((token, parameters)), Some(region)) = (token, region) {
            remember(region, token, parameters, answer.clone());
        }
        self.commit()?;
        Ok(Completion { answer, xml })
    }

    /// Checks the changes of a request, starts its machines, and stores the changes. If a machine
    /// or the store fails, machines and rules are as they were.
    fn commit(&mut self) -> Result<(), Failure> {
        if self.cloud.regions.values().any(|region| region.has_grown_beyond(OBJECTS_MAX)) {
            let message = format!("A region has at most {OBJECTS_MAX} objects of one kind.");
            return Err(ApiError::limit("ResourceLimitExceeded", message).into());
        }
        self.machines.place(&mut self.cloud)?;
        let changes = records::changes(&self.cloud).map_err(ApiError::internal)?;
        if changes.is_empty() {
            return Ok(());
        }
        self.is_unsettled = true;
        let mut applied = Vec::new();
        let result = self.store_with_machines(changes, &mut applied);
        if result.is_err() {
            self.cloud.regions.values_mut().for_each(Region::rollback);
            for region in applied.iter().filter_map(|at| self.cloud.regions.get(at)) {
                // The error of the request is reported; the next request applies the state again.
                let _ = self.machines.apply(region);
            }
            return result;
        }
        for region in self.cloud.regions.values_mut().filter(|region| region.is_changed()) {
            machines::finish(self.machines.as_mut(), region);
            region.commit();
        }
        Ok(())
    }

    /// Starts the machines of all changed regions, and stores the changes. If either fails, the
    /// started machines are stopped, and `applied` names the regions whose rules may have changed.
    fn store_with_machines(
        &mut self,
        changes: Vec<KeyChange>,
        applied: &mut Vec<(String, String)>,
    ) -> Result<(), Failure> {
        let mut result = Ok(());
        let mut prepared = Vec::new();
        for (at, region) in self.cloud.regions.iter().filter(|(_, region)| region.is_changed()) {
            applied.push(at.clone());
            result = machines::prepare(self.machines.as_mut(), region)
                .map_err(|error| Failure::Api(unavailable(error)));
            if result.is_err() {
                break;
            }
            prepared.push(region);
        }
        let result = result.and_then(|()| {
            self.store.commit(changes).map_err(|error| match error {
                CommitError::Conflict => Failure::Conflict,
                error => ApiError::internal(error.to_string()).into(),
            })
        });
        if result.is_err() {
            for region in prepared {
                machines::cancel(self.machines.as_mut(), region);
            }
        }
        result
    }
}

/// Whether an action reads the state and changes nothing.
fn is_reading(action: &str) -> bool {
    ["Describe", "Get"].iter().any(|prefix| action.starts_with(prefix))
}

/// Digest of the parameters of a request, by which a repetition of the request is recognized.
fn fingerprint(request: &Request) -> String {
    let mut parameters = request.parameters.clone();
    parameters.remove("DryRun");
    let parameters = Value::Object(parameters).to_string();
    STANDARD.encode(ring::digest::digest(&ring::digest::SHA256, parameters.as_bytes()))
}

/// Keeps the answer for repetitions of the request. If there are too many answers, or they are too
/// large, the oldest are dropped.
fn remember(region: &mut Region, id: String, parameters: String, answer: Value) {
    let now = region.now;
    for old in region.tokens.ids_where(|used| used.at + TOKEN_S <= now) {
        region.tokens.remove(&old);
    }
    let bytes = answer.to_string().len();
    let mut sum = bytes + region.tokens.iter().map(|used| used.bytes).sum::<usize>();
    while region.tokens.len() >= TOKENS_MAX || sum > TOKEN_ANSWERS_MAX {
        let oldest = region.tokens.iter().min_by_key(|used| used.at).map(|used| used.id.clone());
        let Some(oldest) = oldest.and_then(|oldest| region.tokens.remove(&oldest)) else { break };
        sum -= oldest.bytes;
    }
    region.tokens.insert(TokenUse { id, parameters, answer, bytes, at: now });
}

/// The error of a request that the store or a machine has refused for now.
fn unavailable(message: String) -> ApiError {
    ApiError::with_status(503, "Unavailable", message)
}

/// Returns a seed for the identifiers of this run.
///
/// # Errors
/// If the kernel gives no random bytes.
pub fn random_seed() -> Result<u64, String> {
    random::number()
}

fn failure(error: &ApiError, request_id: &str) -> HttpResponse {
    HttpResponse::xml(error.status, answer::write_error(error, request_id))
}

#[cfg(test)]
mod tests;
