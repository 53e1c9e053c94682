//! Auto Scaling groups, their members, launch configurations, and the record of activities.

use serde_json::Value;

use super::{Row, part};

part! {
    /// An Auto Scaling group.
    ScalingGroup {
        /// `asg/` and the name of the group.
        id: String,
        /// Name of the group.
        auto_scaling_group_name: String,
        /// Name of the group as a resource.
        #[serde(rename = "AutoScalingGroupARN")]
        auto_scaling_group_arn: String,
        /// Launch template of new instances; absent if the group has a launch configuration.
        launch_template: Option<TemplateChoice>,
        /// Name of the launch configuration of new instances; absent if the group has a template.
        launch_configuration_name: Option<String>,
        /// Smallest number of instances.
        min_size: i64,
        /// Largest number of instances.
        max_size: i64,
        /// Number of instances that the group shall have.
        desired_capacity: i64,
        /// Time after an activity, in seconds, in which a request with `HonorCooldown` is refused.
        default_cooldown: i64,
        /// Zones of the group.
        availability_zones: Vec<String>,
        /// Identifiers of the subnets of the group, separated by commas. If the list is empty, the
        /// group uses the default subnets of its zones.
        #[serde(rename = "VPCZoneIdentifier")]
        vpc_zone_identifier: String,
        /// Kind of the health check: `EC2`.
        health_check_type: String,
        /// Time after the start of an instance, in seconds, before its health counts. It is stored
        /// and shown.
        health_check_grace_period: i64,
        /// Policies that select the instances to be terminated.
        termination_policies: Vec<String>,
        /// Whether a reduction of the group does not terminate its new instances.
        new_instances_protected_from_scale_in: bool,
        /// Role of the service.
        #[serde(rename = "ServiceLinkedRoleARN")]
        service_linked_role_arn: String,
        /// Time when the group was created.
        created_time: String,
        /// Instances of the group in the order in which they joined.
        instances: Vec<GroupMember>,
        /// Tags of the group.
        tags: Vec<GroupTag>,
        /// The request that has changed the desired capacity last, for the causes of activities.
        cause: String,
        /// Time in seconds since 1970 before which the group starts no instance, because a start
        /// has failed; 0 if none has failed.
        retry_at: u64,
    }
}

impl ScalingGroup {
    /// Returns the identifier of the group with this name.
    pub fn id_of(name: &str) -> String {
        format!("{}/{name}", Self::PREFIX)
    }
}

impl Row for ScalingGroup {
    const PREFIX: &'static str = "asg";
    fn id(&self) -> &str {
        &self.id
    }
}

part! {
    /// A launch template and its version.
    TemplateChoice {
        /// Identifier of the template.
        launch_template_id: String,
        /// Name of the template.
        launch_template_name: String,
        /// Number of the version, `$Latest` or `$Default`. An empty text is the default version.
        version: String,
    }
}

part! {
    /// A launch configuration.
    LaunchConfiguration {
        /// `alc/` and the name of the configuration.
        id: String,
        /// Name of the configuration.
        launch_configuration_name: String,
        /// Name of the configuration as a resource.
        #[serde(rename = "LaunchConfigurationARN")]
        launch_configuration_arn: String,
        /// Time when the configuration was created.
        created_time: String,
        /// Parameters of launches, under the names of the members of a launch configuration.
        parameters: Value,
    }
}

impl LaunchConfiguration {
    /// Returns the identifier of the configuration with this name.
    pub fn id_of(name: &str) -> String {
        format!("{}/{name}", Self::PREFIX)
    }
}

impl Row for LaunchConfiguration {
    const PREFIX: &'static str = "alc";
    fn id(&self) -> &str {
        &self.id
    }
}

part! {
    /// An instance of an Auto Scaling group.
    GroupMember {
        /// Identifier of the instance.
        instance_id: String,
        /// Type of the instance.
        instance_type: String,
        /// Zone of the instance.
        availability_zone: String,
        /// State of the membership: `InService`.
        lifecycle_state: String,
        /// Health of the instance: `Healthy` or `Unhealthy`.
        health_status: String,
        /// Template and number of the version from which the group has started the instance; absent
        /// for an instance that was attached, or that has a launch configuration.
        launch_template: Option<TemplateChoice>,
        /// Name of the launch configuration from which the group has started the instance.
        launch_configuration_name: Option<String>,
        /// Whether a reduction of the group does not terminate the instance.
        protected_from_scale_in: bool,
    }
}

part! {
    /// A tag of an Auto Scaling group.
    GroupTag {
        /// Name of the group.
        resource_id: String,
        /// `auto-scaling-group`.
        resource_type: String,
        /// Key.
        key: String,
        /// Value.
        value: String,
        /// Whether instances that the group starts get the tag.
        propagate_at_launch: bool,
    }
}

part! {
    /// A start or an end of one instance of a group.
    ScalingActivity {
        /// `asg-activity/` and the identifier of the activity.
        id: String,
        /// Identifier of the activity.
        activity_id: String,
        /// Name of the group.
        auto_scaling_group_name: String,
        /// Name of the group as a resource.
        #[serde(rename = "AutoScalingGroupARN")]
        auto_scaling_group_arn: String,
        /// Description of the activity, with the identifier of the instance.
        description: String,
        /// Cause of the activity.
        cause: String,
        /// Time when the activity began.
        start_time: String,
        /// Time when the activity ended.
        end_time: String,
        /// `Successful` or `Failed`.
        status_code: String,
        /// Error of a failed activity.
        status_message: Option<String>,
        /// Progress of the activity in percent.
        progress: i64,
        /// Subnet and zone, in JSON.
        details: String,
        /// Time of the activity in seconds since 1970.
        at: u64,
    }
}

impl Row for ScalingActivity {
    const PREFIX: &'static str = "asg-activity";
    fn id(&self) -> &str {
        &self.id
    }
}
