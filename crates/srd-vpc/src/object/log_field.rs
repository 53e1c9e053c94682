//! The fields of a flow log's records, under EC2's names.

use core::fmt;

/// Data type of the values of a flow log field.
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
        /// A field of a flow log record.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum LogField {
            $($(#[doc = $doc])* $field,)*
        }

        impl LogField {
            /// All fields, in the order of EC2's documentation.
            pub const ALL: &[Self] = &[$(Self::$field),*];

            /// Returns the name of the field as EC2 writes it, for example `srcaddr`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$field => $name,)* }
            }

            /// Returns the version of EC2's flow log format in which the field was introduced.
            pub fn version(self) -> u8 {
                match self { $(Self::$field => $version,)* }
            }

            /// Returns the type of the field's values.
            pub fn kind(self) -> FieldType {
                match self { $(Self::$field => FieldType::$kind,)* }
            }
        }
    };
}

fields! {
    /// Version of the record: the highest version of its fields.
    Version "version" 2 Int32,
    /// The account that owns the interface.
    AccountId "account-id" 2 Text,
    /// Identifier of the interface whose flow is recorded.
    InterfaceId "interface-id" 2 Text,
    /// Source address; for packets that the interface sends, its primary address.
    Srcaddr "srcaddr" 2 Text,
    /// Destination address; for packets to the interface, its primary address.
    Dstaddr "dstaddr" 2 Text,
    /// Source port.
    Srcport "srcport" 2 Int32,
    /// Destination port.
    Dstport "dstport" 2 Int32,
    /// Number of the transport protocol.
    Protocol "protocol" 2 Int32,
    /// Number of packets.
    Packets "packets" 2 Int64,
    /// Number of bytes, counted from the IP headers on.
    Bytes "bytes" 2 Int64,
    /// Arrival time of the first packet, in Unix seconds.
    Start "start" 2 Int64,
    /// Arrival time of the last packet, in Unix seconds.
    End "end" 2 Int64,
    /// Whether the packets were allowed: ACCEPT or REJECT.
    Action "action" 2 Text,
    /// Status of the record: OK; NODATA, no packet in the interval; or SKIPDATA, flows of the
    /// interval were not recorded.
    LogStatus "log-status" 2 Text,
    /// Identifier of the interface's cloud (VPC).
    VpcId "vpc-id" 3 Text,
    /// Identifier of the interface's subnet.
    SubnetId "subnet-id" 3 Text,
    /// Identifier of the instance that the interface is attached to.
    InstanceId "instance-id" 3 Text,
    /// Bitwise OR of the TCP flags of the flow's packets: FIN 1, SYN 2, RST 4, SYN-ACK 18.
    TcpFlags "tcp-flags" 3 Int32,
    /// Type of the packets: IPv4 or IPv6.
    Type "type" 3 Text,
    /// Source address in the packets' own headers.
    PktSrcaddr "pkt-srcaddr" 3 Text,
    /// Destination address in the packets' own headers.
    PktDstaddr "pkt-dstaddr" 3 Text,
    /// Region of the interface.
    Region "region" 4 Text,
    /// Availability zone of the interface.
    AzId "az-id" 4 Text,
    /// Always empty: there are no sublocations.
    SublocationType "sublocation-type" 4 Text,
    /// Always empty: there are no sublocations.
    SublocationId "sublocation-id" 4 Text,
    /// Always empty: no block of addresses belongs to an AWS service.
    PktSrcAwsService "pkt-src-aws-service" 5 Text,
    /// Always empty: no block of addresses belongs to an AWS service.
    PktDstAwsService "pkt-dst-aws-service" 5 Text,
    /// `ingress` or `egress`, seen from the interface.
    FlowDirection "flow-direction" 5 Text,
    /// Path by which packets leave: 1 in the cloud, 2 gateway, 4 peering, 7 endpoint, 8 internet.
    TrafficPath "traffic-path" 5 Int32,
    /// Always empty: instances have no ECS containers.
    EcsClusterArn "ecs-cluster-arn" 7 Text,
    /// Always empty: instances have no ECS containers.
    EcsClusterName "ecs-cluster-name" 7 Text,
    /// Always empty: instances have no ECS containers.
    EcsContainerInstanceArn "ecs-container-instance-arn" 7 Text,
    /// Always empty: instances have no ECS containers.
    EcsContainerInstanceId "ecs-container-instance-id" 7 Text,
    /// Always empty: instances have no ECS containers.
    EcsContainerId "ecs-container-id" 7 Text,
    /// Always empty: instances have no ECS containers.
    EcsSecondContainerId "ecs-second-container-id" 7 Text,
    /// Always empty: instances have no ECS containers.
    EcsServiceName "ecs-service-name" 7 Text,
    /// Always empty: instances have no ECS containers.
    EcsTaskDefinitionArn "ecs-task-definition-arn" 7 Text,
    /// Always empty: instances have no ECS containers.
    EcsTaskArn "ecs-task-arn" 7 Text,
    /// Always empty: instances have no ECS containers.
    EcsTaskId "ecs-task-id" 7 Text,
    /// Always empty: refusals by security groups and network ACLs have no value in this field.
    RejectReason "reject-reason" 8 Text,
    /// Always empty: records are about interfaces.
    ResourceId "resource-id" 9 Text,
    /// Always empty: the card has no such information.
    EncryptionStatus "encryption-status" 10 Int32,
}

impl LogField {
    /// The default fields of a flow log record: those of version 2.
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

    /// Returns the field that EC2 writes with this name; `None` if there is no such field.
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

    /// Fields of versions 2, 3, 4, 5, 7, 8, 9 and 10. Version 6 is for transit gateways.
    #[test]
    fn there_are_forty_two_fields_of_eight_versions() {
        let of = |version| LogField::ALL.iter().filter(|f| f.version() == version).count();
        assert_eq!([2, 3, 4, 5, 6, 7, 8, 9, 10].map(of), [14, 7, 4, 4, 0, 10, 1, 1, 1]);
        assert_eq!(LogField::DEFAULT[..], LogField::ALL[..14]);
        assert_eq!(LogField::find("pkt-dstaddr"), Some(LogField::PktDstaddr));
        assert_eq!(LogField::find("colour"), None);
    }
}
