// Creates, reads and deletes objects of a virtual private cloud with the AWS SDK for JavaScript, and
// compares each value of the answers. The environment contains the address, the region and the access
// key. `../run.py` runs this program and its two counterparts.
import assert from "node:assert/strict";
import * as ec2 from "@aws-sdk/client-ec2";

const client = new ec2.EC2({});
const wait = { client, maxWaitTime: 60, minDelay: 1 };
const NAME = "sdk <&> \u00fc";
let checks = 0;

function equal(name, got, expected) {
  checks += 1;
  assert.deepEqual(got, expected, name);
}

/** Checks the code and the status of the error of a request. */
async function refused(code, status, request) {
  const fault = await request.then(
    () => assert.fail(`${code}: the request succeeds`),
    (error) => error,
  );
  equal(`${code} is an error of the service`, fault instanceof ec2.EC2ServiceException, true);
  equal("code", fault.name, code);
  equal("status", fault.$metadata.httpStatusCode, status);
  equal("the fault is the client's", fault.$fault, "client");
  equal("the request has an identifier", fault.$metadata.requestId?.length, 36);
}

const filter = (Name, ...Values) => [{ Name, Values }];
const named = (ResourceType) => [{ ResourceType, Tags: [{ Key: "Name", Value: NAME }] }];

async function network() {
  const made = await client.createVpc({ CidrBlock: "10.60.0.0/16", TagSpecifications: named("vpc") });
  const vpc = made.Vpc.VpcId;
  equal("the request has an identifier", made.$metadata.requestId?.length, 36);
  equal("first state of the VPC", made.Vpc.State, "pending");
  equal("tag of the VPC", made.Vpc.Tags, [{ Key: "Name", Value: NAME }]);
  const waited = await ec2.waitUntilVpcAvailable(wait, { VpcIds: [vpc] });
  equal("wait for the VPC", waited.state, "SUCCESS");
  const [found] = (await client.describeVpcs({ VpcIds: [vpc] })).Vpcs;
  equal("block", found.CidrBlock, "10.60.0.0/16");
  equal("default", found.IsDefault, false);
  equal("tenancy", found.InstanceTenancy, "default");
  equal("owner", found.OwnerId, "123456789012");
  equal("state of the block", found.CidrBlockAssociationSet[0].CidrBlockState.State, "associated");
  const subnet = (await client.createSubnet({
    VpcId: vpc,
    CidrBlock: "10.60.1.0/24",
    TagSpecifications: named("subnet"),
  })).Subnet;
  equal("free addresses", subnet.AvailableIpAddressCount, 251);
  equal("state of the subnet", subnet.State, "available");
  equal("public addresses", subnet.MapPublicIpOnLaunch, false);
  return [vpc, subnet.SubnetId];
}

async function group(vpc) {
  const made = await client.createSecurityGroup({ GroupName: "sdk", Description: "rules", VpcId: vpc });
  const id = made.GroupId;
  const authorize = {
    GroupId: id,
    IpPermissions: [
      {
        IpProtocol: "tcp",
        FromPort: 443,
        ToPort: 443,
        IpRanges: [{ CidrIp: "10.0.0.0/8", Description: "web" }],
      },
      { IpProtocol: "udp", FromPort: 4000, ToPort: 4010, UserIdGroupPairs: [{ GroupId: id }] },
    ],
  };
  const rules = (await client.authorizeSecurityGroupIngress(authorize)).SecurityGroupRules;
  equal("new rules", rules.length, 2);
  equal("protocol", rules[0].IpProtocol, "tcp");
  equal("port", rules[0].FromPort, 443);
  equal("source", rules[0].CidrIpv4, "10.0.0.0/8");
  equal("description", rules[0].Description, "web");
  equal("direction", rules[0].IsEgress, false);
  equal("group of the rule", rules[1].ReferencedGroupInfo.GroupId, id);
  await refused("InvalidPermission.Duplicate", 400, client.authorizeSecurityGroupIngress(authorize));
  const all = await client.describeSecurityGroupRules({ Filters: filter("group-id", id) });
  equal("rules with the rule for outgoing packets", all.SecurityGroupRules.length, 3);
  const [shown] = (await client.describeSecurityGroups({ GroupIds: [id] })).SecurityGroups;
  equal("permissions", shown.IpPermissions.length, 2);
  equal("outgoing", shown.IpPermissionsEgress[0].IpProtocol, "-1");
  equal("ports of all protocols", shown.IpPermissionsEgress[0].FromPort, undefined);
  return id;
}

/** Starts an instance whose interface uses ENA Express, and changes the interface. */
async function express(subnet, rules) {
  const made = await client.runInstances({
    ImageId: "ami-12345678",
    InstanceType: "c7i.12xlarge",
    MinCount: 1,
    MaxCount: 1,
    NetworkInterfaces: [
      {
        DeviceIndex: 0,
        SubnetId: subnet,
        Groups: [rules],
        PrivateIpAddress: "10.60.1.9",
        DeleteOnTermination: true,
        EnaSrdSpecification: {
          EnaSrdEnabled: true,
          EnaSrdUdpSpecification: { EnaSrdUdpEnabled: true },
        },
      },
    ],
  });
  const id = made.Instances[0].InstanceId;
  equal("first state", made.Instances[0].State.Name, "pending");
  equal("start", Math.abs(Date.now() - made.Instances[0].LaunchTime) < 3600_000, true);
  const waited = await ec2.waitUntilInstanceRunning(wait, { InstanceIds: [id] });
  equal("wait for the instance", waited.state, "SUCCESS");
  const [reservation] = (await client.describeInstances({ InstanceIds: [id] })).Reservations;
  equal("address", reservation.Instances[0].PrivateIpAddress, "10.60.1.9");
  equal("type", reservation.Instances[0].InstanceType, "c7i.12xlarge");
  const find = { Filters: filter("attachment.instance-id", id) };
  let [face] = (await client.describeNetworkInterfaces(find)).NetworkInterfaces;
  const enabled = (udp) => ({
    EnaSrdEnabled: true,
    EnaSrdUdpSpecification: { EnaSrdUdpEnabled: udp },
  });
  equal("ENA Express", face.Attachment.EnaSrdSpecification, enabled(true));
  equal("state", face.Status, "in-use");
  equal("attachment", face.Attachment.Status, "attached");
  equal("group of the interface", face.Groups[0].GroupId, rules);
  await client.modifyNetworkInterfaceAttribute({
    NetworkInterfaceId: face.NetworkInterfaceId,
    EnaSrdSpecification: enabled(false),
  });
  [face] = (await client.describeNetworkInterfaces(find)).NetworkInterfaces;
  equal("ENA Express after the change", face.Attachment.EnaSrdSpecification, enabled(false));
  return id;
}

/** Reads the subnets of the VPC page by page. */
async function pages(vpc) {
  const expected = ["10.60.1.0/24"];
  for (let n = 2; n <= 7; n += 1) {
    expected.push(`10.60.${n}.0/24`);
    await client.createSubnet({ VpcId: vpc, CidrBlock: `10.60.${n}.0/24` });
  }
  const shown = [];
  let count = 0;
  const query = { Filters: filter("vpc-id", vpc) };
  for await (const page of ec2.paginateDescribeSubnets({ client, pageSize: 5 }, query)) {
    count += 1;
    shown.push(...page.Subnets);
  }
  equal("pages", count, 2);
  equal("blocks of all pages", shown.map((subnet) => subnet.CidrBlock).sort(), expected);
  return shown.map((subnet) => subnet.SubnetId);
}

async function tags(vpc) {
  const added = { Resources: [vpc], Tags: [{ Key: "stage", Value: "" }] };
  await client.createTags(added);
  const find = { Filters: filter("resource-id", vpc) };
  const shown = (await client.describeTags(find)).Tags;
  equal("tags", shown.length, 2);
  equal("kind of the object", shown[0].ResourceType, "vpc");
  const byTag = await client.describeVpcs({ Filters: filter("tag-key", "stage") });
  equal("VPCs with the tag", byTag.Vpcs.map((found) => found.VpcId), [vpc]);
  await client.deleteTags(added);
  equal("tags that are left", (await client.describeTags(find)).Tags.length, 1);
}

async function faults(vpc, rules) {
  const missing = { VpcIds: ["vpc-0123456789abcdef0"] };
  await refused("InvalidVpcID.NotFound", 400, client.describeVpcs(missing));
  await refused("DependencyViolation", 400, client.deleteVpc({ VpcId: vpc }));
  await refused("DependencyViolation", 400, client.deleteSecurityGroup({ GroupId: rules }));
  const dry = { CidrBlock: "10.61.0.0/16", DryRun: true };
  await refused("DryRunOperation", 412, client.createVpc(dry));
}

async function remove(vpc, rules, instance, subnets) {
  const ids = { InstanceIds: [instance] };
  const [ended] = (await client.terminateInstances(ids)).TerminatingInstances;
  equal("state before", ended.PreviousState.Name, "running");
  equal("wait for the end", (await ec2.waitUntilInstanceTerminated(wait, ids)).state, "SUCCESS");
  for (const subnet of subnets) {
    await client.deleteSubnet({ SubnetId: subnet });
  }
  await client.deleteSecurityGroup({ GroupId: rules });
  await client.deleteVpc({ VpcId: vpc });
  const left = await client.describeVpcs({ Filters: filter("is-default", "false") });
  equal("VPCs that are left", left.Vpcs ?? [], []);
  await refused("InvalidVpcID.NotFound", 400, client.deleteVpc({ VpcId: vpc }));
}

const [vpc, subnet] = await network();
const rules = await group(vpc);
const instance = await express(subnet, rules);
const subnets = await pages(vpc);
await tags(vpc);
await faults(vpc, rules);
await remove(vpc, rules, instance, subnets);
console.log(`${checks} values are as expected`);
