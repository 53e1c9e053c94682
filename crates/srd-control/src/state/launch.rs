//! Launch templates, and their versions.

use serde_json::Value;

use super::{Row, Tag, object, part};

object! {
    /// A launch template. Its versions are rows of another table.
    LaunchTemplate("lt", "launch-template", launch_template_id) {
        /// Identifier of the template, `lt-...`.
        launch_template_id: String,
        /// Name of the template, which no other template of the region has.
        launch_template_name: String,
        /// Time when the template was created.
        create_time: String,
        /// Name of the creator, as a resource.
        created_by: String,
        /// Number of the version that a launch uses if it names no version.
        default_version_number: i64,
        /// Largest number of a version that exists.
        latest_version_number: i64,
        /// Largest number that a version has had. Numbers are not used again.
        last_number: i64,
        /// Tags of the template.
        tags: Vec<Tag>,
    }
}

part! {
    /// A version of a launch template.
    LaunchTemplateVersion {
        /// Identifier of the template, a slash, and the number of the version.
        id: String,
        /// Identifier of the template.
        launch_template_id: String,
        /// Number of the version, from 1.
        version_number: i64,
        /// Description of the version.
        version_description: Option<String>,
        /// Time when the version was created.
        create_time: String,
        /// Name of the creator, as a resource.
        created_by: String,
        /// Parameters of a launch, under the names of the members of `RequestLaunchTemplateData`.
        launch_template_data: Value,
    }
}

impl LaunchTemplateVersion {
    /// Returns the identifier of a version.
    pub fn id_of(template: &str, number: i64) -> String {
        format!("{template}/{number}")
    }
}

impl Row for LaunchTemplateVersion {
    const PREFIX: &'static str = "lt-version";
    fn id(&self) -> &str {
        &self.id
    }
    /// Size of the parameters as JSON.
    fn bytes(&self) -> usize {
        self.launch_template_data.to_string().len()
    }
}
