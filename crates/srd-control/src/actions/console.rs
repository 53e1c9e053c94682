//! Console output of instances. An instance has no console, so there is no output.

use serde_json::{Value, json};

use super::support::{get, now};
use super::{Actions, Handler};
use crate::error::ApiResult;
use crate::state::Region;
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[("GetConsoleOutput", Handler::Region(output))];

fn output(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let instance = get(&region.instances, request.need("InstanceId")?)?;
    Ok(json!({"InstanceId": instance.instance_id, "Timestamp": now(region)}))
}
