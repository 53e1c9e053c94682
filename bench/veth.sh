# A function for scripts that connect network namespaces by veth pairs; they read this file.

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
