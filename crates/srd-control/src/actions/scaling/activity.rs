//! The record of starts and ends of instances, of which the last [`ACTIVITIES_MAX`] of a region are
//! kept.

use serde_json::Value;

use crate::actions::support::now;
use crate::state::{Region, ScalingActivity, ScalingGroup};

/// Largest number of recorded activities of a region.
pub(super) const ACTIVITIES_MAX: usize = 1000;
/// Largest number of characters of the error of an activity.
const MESSAGE_MAX: usize = 255;
/// Largest number of characters of the cause of an activity.
const CAUSE_MAX: usize = 1023;

/// The contents of an activity.
pub(super) struct Entry {
    /// Description, with the identifier of the instance.
    pub(super) description: String,
    /// Cause of the activity.
    pub(super) cause: String,
    /// Subnet and zone.
    pub(super) details: Value,
    /// Error of a failed activity.
    pub(super) error: Option<String>,
}

/// Records an activity of a group, and returns it.
pub(super) fn record(region: &mut Region, group: &ScalingGroup, entry: Entry) -> ScalingActivity {
    let excess = (region.scaling_activities.len() + 1).saturating_sub(ACTIVITIES_MAX);
    let oldest = region.scaling_activities.iter().take(excess).map(|of| of.id.clone());
    for id in oldest.collect::<Vec<_>>() {
        region.scaling_activities.remove(&id);
    }
    let activity_id = region.ids.uuid();
    let cut = |text: String, max: usize| text.chars().take(max).collect::<String>();
    let activity = ScalingActivity {
        id: format!("asg-activity/{activity_id}"),
        activity_id,
        auto_scaling_group_name: group.auto_scaling_group_name.clone(),
        auto_scaling_group_arn: group.auto_scaling_group_arn.clone(),
        description: entry.description,
        cause: cut(entry.cause, CAUSE_MAX),
        start_time: now(region),
        end_time: now(region),
        status_code: if entry.error.is_some() { "Failed" } else { "Successful" }.to_owned(),
        status_message: entry.error.map(|error| cut(error, MESSAGE_MAX)),
        progress: 100,
        details: entry.details.to_string(),
        at: region.now,
    };
    region.scaling_activities.insert(activity.clone());
    activity
}
