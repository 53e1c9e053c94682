//! The cloud file of the examples that measure packet rates.

/// Returns a cloud file with two large instances, `a` and `b`, in one subnet, on these two hosts.
/// They may send any packets to each other.
pub(crate) fn two_instances([a, b]: [&str; 2]) -> String {
    format!(
        r#"
[vpc.main]
cidr = ["10.0.0.0/16"]
[subnet.s]
cidr = "10.0.1.0/24"
[group.open]
ingress = ["all from 10.0.0.0/16"]
egress = ["all to 0.0.0.0/0"]
[instance.a]
type = "c7i.48xlarge"
host = "{a}"
[instance.b]
type = "c7i.48xlarge"
host = "{b}"
[interface.a]
subnet = "s"
address = ["10.0.1.10"]
groups = ["open"]
instance = "a"
[interface.b]
subnet = "s"
address = ["10.0.1.20"]
groups = ["open"]
instance = "b"
"#
    )
}
