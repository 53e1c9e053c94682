import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.function.Supplier;
import software.amazon.awssdk.services.ec2.Ec2Client;
import software.amazon.awssdk.services.ec2.model.*;

/**
 * Creates, reads and deletes objects of a virtual private cloud with the AWS SDK for Java, and
 * compares each value of the answers. The environment contains the address, the region and the
 * access key. `run.py` runs this program and its two counterparts.
 */
public final class Client {
  private static final String NAME = "sdk <&> \u00fc";
  private static int checks;
  private final Ec2Client client = Ec2Client.create();

  private static void equal(String name, Object got, Object expected) {
    checks++;
    if (!Objects.equals(got, expected)) {
      throw new AssertionError(name + ": " + got + ", expected " + expected);
    }
  }

  /** Checks the code and the status of the error of a request. */
  private static void refused(String code, int status, Supplier<?> request) {
    try {
      request.get();
    } catch (Ec2Exception fault) {
      equal("code", fault.awsErrorDetails().errorCode(), code);
      equal("status", fault.statusCode(), status);
      equal("the request has an identifier", fault.requestId().length(), 36);
      return;
    }
    throw new AssertionError(code + ": the request succeeds");
  }

  private static Filter filter(String name, String... values) {
    return Filter.builder().name(name).values(values).build();
  }

  private static Tag tag(String key, String value) {
    return Tag.builder().key(key).value(value).build();
  }

  private static TagSpecification named(ResourceType kind) {
    return TagSpecification.builder().resourceType(kind).tags(tag("Name", NAME)).build();
  }

  private String makeVpc() {
    CreateVpcResponse answer =
        client.createVpc(
            r -> r.cidrBlock("10.60.0.0/16").tagSpecifications(named(ResourceType.VPC)));
    equal("the request has an identifier", answer.responseMetadata().requestId().length(), 36);
    Vpc made = answer.vpc();
    equal("first state of the VPC", made.state(), VpcState.PENDING);
    equal("tag of the VPC", made.tags(), List.of(tag("Name", NAME)));
    client.waiter().waitUntilVpcAvailable(r -> r.vpcIds(made.vpcId()));
    Vpc found = client.describeVpcs(r -> r.vpcIds(made.vpcId())).vpcs().get(0);
    equal("block", found.cidrBlock(), "10.60.0.0/16");
    equal("default", found.isDefault(), false);
    equal("tenancy", found.instanceTenancy(), Tenancy.DEFAULT);
    equal("owner", found.ownerId(), "123456789012");
    VpcCidrBlockState block = found.cidrBlockAssociationSet().get(0).cidrBlockState();
    equal("state of the block", block.state(), VpcCidrBlockStateCode.ASSOCIATED);
    return made.vpcId();
  }

  private String makeSubnet(String vpc) {
    Subnet subnet =
        client.createSubnet(
                r ->
                    r.vpcId(vpc)
                        .cidrBlock("10.60.1.0/24")
                        .tagSpecifications(named(ResourceType.SUBNET)))
            .subnet();
    equal("free addresses", subnet.availableIpAddressCount(), 251);
    equal("state of the subnet", subnet.state(), SubnetState.AVAILABLE);
    equal("public addresses", subnet.mapPublicIpOnLaunch(), false);
    return subnet.subnetId();
  }

  private String makeGroup(String vpc) {
    String id =
        client.createSecurityGroup(r -> r.groupName("sdk").description("rules").vpcId(vpc)).groupId();
    IpPermission web =
        IpPermission.builder()
            .ipProtocol("tcp")
            .fromPort(443)
            .toPort(443)
            .ipRanges(range -> range.cidrIp("10.0.0.0/8").description("web"))
            .build();
    IpPermission members =
        IpPermission.builder()
            .ipProtocol("udp")
            .fromPort(4000)
            .toPort(4010)
            .userIdGroupPairs(pair -> pair.groupId(id))
            .build();
    Supplier<AuthorizeSecurityGroupIngressResponse> authorize =
        () -> client.authorizeSecurityGroupIngress(r -> r.groupId(id).ipPermissions(web, members));
    List<SecurityGroupRule> rules = authorize.get().securityGroupRules();
    equal("new rules", rules.size(), 2);
    equal("protocol", rules.get(0).ipProtocol(), "tcp");
    equal("port", rules.get(0).fromPort(), 443);
    equal("source", rules.get(0).cidrIpv4(), "10.0.0.0/8");
    equal("description", rules.get(0).description(), "web");
    equal("direction", rules.get(0).isEgress(), false);
    equal("group of the rule", rules.get(1).referencedGroupInfo().groupId(), id);
    refused("InvalidPermission.Duplicate", 400, authorize);
    equal(
        "rules with the rule for outgoing packets",
        client.describeSecurityGroupRules(r -> r.filters(filter("group-id", id)))
            .securityGroupRules()
            .size(),
        3);
    SecurityGroup shown =
        client.describeSecurityGroups(r -> r.groupIds(id)).securityGroups().get(0);
    equal("permissions", shown.ipPermissions().size(), 2);
    equal("outgoing", shown.ipPermissionsEgress().get(0).ipProtocol(), "-1");
    equal("ports of all protocols", shown.ipPermissionsEgress().get(0).fromPort(), null);
    return id;
  }

  /** Starts an instance whose interface uses ENA Express, and changes the interface. */
  private String express(String subnet, String group) {
    InstanceNetworkInterfaceSpecification card =
        InstanceNetworkInterfaceSpecification.builder()
            .deviceIndex(0)
            .subnetId(subnet)
            .groups(group)
            .privateIpAddress("10.60.1.9")
            .deleteOnTermination(true)
            .enaSrdSpecification(
                srd -> srd.enaSrdEnabled(true).enaSrdUdpSpecification(u -> u.enaSrdUdpEnabled(true)))
            .build();
    Instance made =
        client.runInstances(
                r ->
                    r.imageId("ami-12345678")
                        .instanceType("c7i.12xlarge")
                        .minCount(1)
                        .maxCount(1)
                        .networkInterfaces(card))
            .instances()
            .get(0);
    String id = made.instanceId();
    equal("first state", made.state().name(), InstanceStateName.PENDING);
    Duration age = Duration.between(made.launchTime(), Instant.now()).abs();
    equal("start", age.compareTo(Duration.ofHours(1)) < 0, true);
    client.waiter().waitUntilInstanceRunning(r -> r.instanceIds(id));
    Instance shown =
        client.describeInstances(r -> r.instanceIds(id)).reservations().get(0).instances().get(0);
    equal("address", shown.privateIpAddress(), "10.60.1.9");
    equal("type", shown.instanceTypeAsString(), "c7i.12xlarge");
    NetworkInterface face = attached(id);
    equal("ENA Express", face.attachment().enaSrdSpecification().enaSrdEnabled(), true);
    equal("ENA Express for UDP", udp(face), true);
    equal("state", face.status(), NetworkInterfaceStatus.IN_USE);
    equal("attachment", face.attachment().status(), AttachmentStatus.ATTACHED);
    equal("group of the interface", face.groups().get(0).groupId(), group);
    client.modifyNetworkInterfaceAttribute(
        r ->
            r.networkInterfaceId(face.networkInterfaceId())
                .enaSrdSpecification(
                    srd ->
                        srd.enaSrdEnabled(true)
                            .enaSrdUdpSpecification(u -> u.enaSrdUdpEnabled(false))));
    equal("ENA Express for UDP after the change", udp(attached(id)), false);
    return id;
  }

  private NetworkInterface attached(String instance) {
    Filter own = filter("attachment.instance-id", instance);
    return client.describeNetworkInterfaces(r -> r.filters(own)).networkInterfaces().get(0);
  }

  private static Boolean udp(NetworkInterface face) {
    return face.attachment().enaSrdSpecification().enaSrdUdpSpecification().enaSrdUdpEnabled();
  }

  /** Reads the subnets of the VPC page by page. */
  private List<String> pages(String vpc) {
    List<String> expected = new ArrayList<>(List.of("10.60.1.0/24"));
    for (int n = 2; n <= 7; n++) {
      String block = "10.60." + n + ".0/24";
      client.createSubnet(r -> r.vpcId(vpc).cidrBlock(block));
      expected.add(block);
    }
    List<Subnet> shown = new ArrayList<>();
    int count = 0;
    for (DescribeSubnetsResponse page :
        client.describeSubnetsPaginator(r -> r.filters(filter("vpc-id", vpc)).maxResults(5))) {
      count++;
      shown.addAll(page.subnets());
    }
    equal("pages", count, 2);
    equal("blocks of all pages", shown.stream().map(Subnet::cidrBlock).sorted().toList(), expected);
    return shown.stream().map(Subnet::subnetId).toList();
  }

  private void tags(String vpc) {
    Tag added = tag("stage", "");
    client.createTags(r -> r.resources(vpc).tags(added));
    Supplier<List<TagDescription>> find =
        () -> client.describeTags(r -> r.filters(filter("resource-id", vpc))).tags();
    equal("tags", find.get().size(), 2);
    equal("kind of the object", find.get().get(0).resourceType(), ResourceType.VPC);
    List<Vpc> byTag = client.describeVpcs(r -> r.filters(filter("tag-key", "stage"))).vpcs();
    equal("VPCs with the tag", byTag.stream().map(Vpc::vpcId).toList(), List.of(vpc));
    client.deleteTags(r -> r.resources(vpc).tags(added));
    equal("tags that are left", find.get().size(), 1);
  }

  private void faults(String vpc, String group) {
    refused(
        "InvalidVpcID.NotFound",
        400,
        () -> client.describeVpcs(r -> r.vpcIds("vpc-0123456789abcdef0")));
    refused("DependencyViolation", 400, () -> client.deleteVpc(r -> r.vpcId(vpc)));
    refused("DependencyViolation", 400, () -> client.deleteSecurityGroup(r -> r.groupId(group)));
    refused(
        "DryRunOperation",
        412,
        () -> client.createVpc(r -> r.cidrBlock("10.61.0.0/16").dryRun(true)));
  }

  private void remove(String vpc, String group, String instance, List<String> subnets) {
    InstanceStateChange ended =
        client.terminateInstances(r -> r.instanceIds(instance)).terminatingInstances().get(0);
    equal("state before", ended.previousState().name(), InstanceStateName.RUNNING);
    client.waiter().waitUntilInstanceTerminated(r -> r.instanceIds(instance));
    subnets.forEach(subnet -> client.deleteSubnet(r -> r.subnetId(subnet)));
    client.deleteSecurityGroup(r -> r.groupId(group));
    client.deleteVpc(r -> r.vpcId(vpc));
    List<Vpc> left = client.describeVpcs(r -> r.filters(filter("is-default", "false"))).vpcs();
    equal("VPCs that are left", left, List.of());
    refused("InvalidVpcID.NotFound", 400, () -> client.deleteVpc(r -> r.vpcId(vpc)));
  }

  public static void main(String[] arguments) {
    Client self = new Client();
    String vpc = self.makeVpc();
    String subnet = self.makeSubnet(vpc);
    String group = self.makeGroup(vpc);
    String instance = self.express(subnet, group);
    List<String> subnets = self.pages(vpc);
    self.tags(vpc);
    self.faults(vpc, group);
    self.remove(vpc, group, instance, subnets);
    System.out.println(checks + " values are as expected");
  }
}
