# Functions for scripts that connect network namespaces by veth pairs; they read this file.

# await_up INTERFACE NAMESPACE...: returns when the interface of this name in each namespace passes
# packets; both ends must be set up. The kernel gives a new interface its carrier and its queue from
# a work queue that may run a second later. Until then, the interface discards each packet without an
# error.
await_up() {
    local interface=$1 namespace state _
    shift
    for namespace in "$@"; do
        for _ in $(seq 600); do
            state=$(ip -n "$namespace" -br link show dev "$interface" | awk '{ print $2 }')
            [ "$state" != UP ] || continue 2
            sleep 0.1
        done
        echo "$interface in $namespace stays down" >&2
        return 1
    done
}

# no_offload INTERFACE NAMESPACE...: switches segmentation offload of the interface of this name off in
# each namespace. Every packet on the link is then real, of the size of the MTU at most.
no_offload() {
    local interface=$1 namespace
    shift
    for namespace in "$@"; do
        ip netns exec "$namespace" ethtool -K "$interface" tso off gso off tx-udp-segmentation off >/dev/null
    done
}

made=()
# connect A B MTU MODE ADDRESS_OF_A ADDRESS_OF_B: creates the namespaces A and B, and a veth pair
# between them whose ends have the name `end`. MODE wire switches segmentation offload off, asis does
# not. remove_namespaces has to be called at the end.
connect() {
    local a=$1 b=$2 mtu=$3 mode=$4 name
    for name in "$a" "$b"; do
        ip netns add "$name"
        made+=("$name")
        ip -n "$name" link set lo up
    done
    ip link add end netns "$a" mtu "$mtu" type veth peer name end netns "$b" mtu "$mtu"
    ip -n "$a" addr add "$5/24" dev end
    ip -n "$b" addr add "$6/24" dev end
    for name in "$a" "$b"; do ip -n "$name" link set end up; done
    [ "$mode" = asis ] || no_offload end "$a" "$b"
    await_up end "$a" "$b"
}
remove_namespaces() {
    local name
    for name in "${made[@]}"; do ip netns del "$name" 2>/dev/null || true; done
}

allow=/proc/sys/net/ipv4/tcp_allowed_congestion_control allowed=
# use_cubic NAMESPACE...: selects TCP cubic in each namespace. A namespace may use only what the
# machine's list allows, which lacks cubic on some machines; restore_allowed has to be called at the end.
use_cubic() {
    local namespace
    case " $(cat $allow) " in
        *" cubic "*) ;;
        *) allowed=$(cat $allow); echo "$allowed cubic" >$allow ;;
    esac
    for namespace in "$@"; do
        ip netns exec "$namespace" sysctl -qw net.ipv4.tcp_congestion_control=cubic
    done
}
restore_allowed() { [ -z "$allowed" ] || echo "$allowed" >$allow; }
