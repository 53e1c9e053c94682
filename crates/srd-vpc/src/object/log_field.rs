//! The fields of a flow log's records, under EC2's names.

use core::fmt;

/// The type of a field's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldType {
    /// Text.
    Text,
    /// A number of 32 bits.
    Int32,
    /// A number of 64 bits.
    Int64,
}

macro_rules! fields {
    ($($(#[doc = $doc:literal])* $field:ident $name:literal $version:literal $kind:ident,)*) => {
        /// A field of a record.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum LogField {
            $($(#[doc = $doc])* $field,)*
        }

        impl LogField {
            /// All fields, in the order of EC2's documentation.
            pub const ALL: &[Self] = &[$(Self::$field),*];

            /// The name, as EC2 writes it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$field => $name,)* }
            }

            /// The version of the records that had it first.
            pub fn version(self) -> u8 {
                match self { $(Self::$field => $version,)* }
            }

            /// The type of its values.
            pub fn kind(self) -> FieldType {
                match self { $(Self::$field => FieldType::$kind,)* }
            }
        }
    };
}

fields! {
    /// The version: the highest of the fields of the record.
    Version "version" 2 Int32,
    /// The account that owns the interface.
    AccountId "account-id" 2 Text,
    /// The interface.
    InterfaceId "interface-id" 2 Text,
    /// The source; of packets that the interface sends its own primary address.
    Srcaddr "srcaddr" 2 Text,
    /// The destination; of packets for the interface its own primary address.
    Dstaddr "dstaddr" 2 Text,
    /// The source port.
    Srcport "srcport" 2 Int32,
    /// The destination port.
    Dstport "dstport" 2 Int32,
    /// The number of the transport protocol.
    Protocol "protocol" 2 Int32,
    /// Packets.
    Packets "packets" 2 Int64,
    /// Bytes, from the IP headers on.
    Bytes "bytes" 2 Int64,
    /// Time when the first packet came, in Unix seconds.
    Start "start" 2 Int64,
    /// Time when the last packet came, in Unix seconds.
    End "end" 2 Int64,
    /// ACCEPT or REJECT.
    Action "action" 2 Text,
    /// OK, NODATA or SKIPDATA.
    LogStatus "log-status" 2 Text,
    /// The cloud.
    VpcId "vpc-id" 3 Text,
    /// The subnet.
    SubnetId "subnet-id" 3 Text,
    /// The instance.
    InstanceId "instance-id" 3 Text,
    /// FIN 1, SYN 2, RST 4, SYN-ACK 18, of all packets together.
    TcpFlags "tcp-flags" 3 Int32,
    /// IPv4 or IPv6.
    Type "type" 3 Text,
    /// The source that the packets have.
    PktSrcaddr "pkt-srcaddr" 3 Text,
    /// The destination that the packets have.
    PktDstaddr "pkt-dstaddr" 3 Text,
    /// The Region.
    Region "region" 4 Text,
    /// The availability zone.
    AzId "az-id" 4 Text,
    /// Nothing: there are no sublocations.
    SublocationType "sublocation-type" 4 Text,
    /// Nothing: there are no sublocations.
    SublocationId "sublocation-id" 4 Text,
    /// Nothing: no block of addresses is a service's.
    PktSrcAwsService "pkt-src-aws-service" 5 Text,
    /// Nothing: no block of addresses is a service's.
    PktDstAwsService "pkt-dst-aws-service" 5 Text,
    /// ingress or egress, seen from the interface.
    FlowDirection "flow-direction" 5 Text,
    /// Path by which packets leave: 1 in the cloud, 2 gateway, 4 peering, 7 endpoint, 8 internet.
    TrafficPath "traffic-path" 5 Int32,
    /// Nothing: instances have no containers of ECS.
    EcsClusterArn "ecs-cluster-arn" 7 Text,
    /// Nothing: instances have no containers of ECS.
    EcsClusterName "ecs-cluster-name" 7 Text,
    /// Nothing: instances have no containers of ECS.
    EcsContainerInstanceArn "ecs-container-instance-arn" 7 Text,
    /// Nothing: instances have no containers of ECS.
    EcsContainerInstanceId "ecs-container-instance-id" 7 Text,
    /// Nothing: instances have no containers of ECS.
    EcsContainerId "ecs-container-id" 7 Text,
    /// Nothing: instances have no containers of ECS.
    EcsSecondContainerId "ecs-second-container-id" 7 Text,
    /// Nothing: instances have no containers of ECS.
    EcsServiceName "ecs-service-name" 7 Text,
    /// Nothing: instances have no containers of ECS.
    EcsTaskDefinitionArn "ecs-task-definition-arn" 7 Text,
    /// Nothing: instances have no containers of ECS.
    EcsTaskArn "ecs-task-arn" 7 Text,
    /// Nothing: instances have no containers of ECS.
    EcsTaskId "ecs-task-id" 7 Text,
    /// Nothing: groups and lists are no reason of its own.
    RejectReason "reject-reason" 8 Text,
    /// Nothing: records are of interfaces.
    ResourceId "resource-id" 9 Text,
    /// Empty: the card has no such information.
    EncryptionStatus "encryption-status" 10 Int32,
}

impl LogField {
    /// The default format: the fields of version 2.
    pub const DEFAULT: [Self; 14] = [
        Self::Version,
        Self::AccountId,
        Self::InterfaceId,
        Self::Srcaddr,
        Self::Dstaddr,
        Self::Srcport,
        Self::Dstport,
        Self::Protocol,
        Self::Packets,
        Self::Bytes,
        Self::Start,
        Self::End,
        Self::Action,
        Self::LogStatus,
    ];

    /// The field of a name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|field| field.name() == name)
    }
}

impl fmt::Display for LogField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Versions 2, 3, 4, 5, 7, 8, 9 and 10; version 6 is for transit gateways.
    #[test]
    fn there_are_forty_two_fields_of_eight_versions() {
        let of = |version| LogField::ALL.iter().filter(|f| f.version() == version).count();
        assert_eq!([2, 3, 4, 5, 6, 7, 8, 9, 10].map(of), [14, 7, 4, 4, 0, 10, 1, 1, 1]);
        assert_eq!(LogField::DEFAULT[..], LogField::ALL[..14]);
        assert_eq!(LogField::find("pkt-dstaddr"), Some(LogField::PktDstaddr));
        assert_eq!(LogField::find("colour"), None);
    }
}
