//! Volumes, snapshots and images. Their contents do not exist: the objects describe them only.

use super::{Tag, object, part};

object! {
    /// A volume.
    Volume("vol", "volume", volume_id) {
        /// Identifier, `vol-...`.
        volume_id: String,
        /// Zone.
        availability_zone: String,
        /// Identifier of the zone.
        availability_zone_id: String,
        /// Size in GiB.
        size: i64,
        /// Snapshot from which it was made.
        snapshot_id: Option<String>,
        /// Type, for example `gp2`.
        volume_type: String,
        /// Operations for each second; absent for types without such a figure.
        iops: Option<i64>,
        /// Throughput in MiB/s; `gp3` only.
        throughput: Option<i64>,
        /// Whether the contents are encrypted.
        encrypted: bool,
        /// Key of the encryption.
        kms_key_id: Option<String>,
        /// Whether several instances can use it.
        multi_attach_enabled: bool,
        /// `available` or `in-use`.
        state: String,
        /// Time of creation.
        create_time: String,
        /// Instances that use it.
        attachments: Vec<VolumeAttachment>,
        /// Tags.
        tags: Vec<Tag>,
    }
}

part! {
    /// Use of a volume by an instance.
    VolumeAttachment {
        /// The volume.
        volume_id: String,
        /// The instance.
        instance_id: String,
        /// Name of the device.
        device: String,
        /// `attached`.
        state: String,
        /// Time of the attachment.
        attach_time: String,
        /// Whether the volume is deleted with the instance.
        delete_on_termination: bool,
    }
}

object! {
    /// A snapshot of a volume.
    Snapshot("snap", "snapshot", snapshot_id) {
        /// Identifier, `snap-...`.
        snapshot_id: String,
        /// The volume.
        volume_id: String,
        /// Size of the volume in GiB.
        volume_size: i64,
        /// Account that owns it.
        owner_id: String,
        /// Description.
        description: String,
        /// `completed`.
        state: String,
        /// Progress in percent, `100%`.
        progress: String,
        /// Time of creation.
        start_time: String,
        /// Whether the contents are encrypted.
        encrypted: bool,
        /// Key of the encryption.
        kms_key_id: Option<String>,
        /// `standard`.
        storage_tier: String,
        /// Tags.
        tags: Vec<Tag>,
    }
}

object! {
    /// An image that was made of an instance.
    Image("ami", "image", image_id) {
        /// Identifier, `ami-...`.
        image_id: String,
        /// Name.
        name: String,
        /// Description.
        description: String,
        /// Account that owns it.
        owner_id: String,
        /// Account and name.
        image_location: String,
        /// Instance from which it was made.
        source_instance_id: String,
        /// `available`.
        state: String,
        /// Time of creation.
        creation_date: String,
        /// Whether all accounts can use it.
        public: bool,
        /// Tags.
        tags: Vec<Tag>,
    }
}
