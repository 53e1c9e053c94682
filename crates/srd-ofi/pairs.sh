#!/usr/bin/env bash
# Times this provider beside libfabric's own `tcp`, in turns, between two network namespaces.
#
#   pairs.sh FABTESTS PROVIDERS [OPTIONS]
#       FABTESTS is the directory of `fabtests.sh build`, PROVIDERS holds libsrd-fi.so; as root
#
#   --rounds N         rounds, in each of which every provider runs once per size [5]
#   --latency SIZES    bytes of the messages of fi_rdm_tagged_pingpong ["8 4096 65536 262144 1048576"]
#   --bandwidth SIZES  the same for fi_rdm_tagged_bw ["65536 262144 1048576"]
#   --env NAME=VALUE   a variable for a third row, `srd+`: the provider with it; may repeat
#
# The server runs on core 0, the client on core 1, over a veth with an MTU of 9000. Prints a
# line for each provider and size: the median, the least and the largest of the rounds, in
# microseconds per half round trip or in MB/s.
#
# Exit codes: 0 measured, 1 a run failed, 2 usage, 3 something is missing.
set -euo pipefail

usage() {
    sed -n '2,/^set /{s/^# \{0,1\}//;/^set /d;p}' "$0" >&2
    exit 2
}
missing() {
    echo "pairs.sh: $*" >&2
    exit 3
}

[ $# -ge 2 ] || usage
prefix=$(realpath -m "$1")/prefix
providers=$(realpath -m "$2")
shift 2
rounds=5
latency="8 4096 65536 262144 1048576"
bandwidth="65536 262144 1048576"
extra=()
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
    --rounds) rounds=$2 ;;
    --latency) latency=$2 ;;
    --bandwidth) bandwidth=$2 ;;
    --env) extra+=("$2") ;;
    *) usage ;;
    esac
    shift 2
done
[[ $rounds =~ ^[1-9][0-9]{0,2}$ ]] || usage
[ -x "$prefix/bin/fi_rdm_tagged_bw" ] || missing "no tests in $prefix: fabtests.sh build"
[ -f "$providers/libsrd-fi.so" ] || missing "no libsrd-fi.so in $providers: make provider"
[ "$(id -u)" = 0 ] || missing "namespaces need root"

server_ns=ofi-s$$
client_ns=ofi-c$$
work=$(mktemp -d)
server_pid=
cleanup() {
    [ -z "$server_pid" ] || kill "$server_pid" 2>/dev/null || true
    ip netns del "$server_ns" 2>/dev/null || true
    ip netns del "$client_ns" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
trap "exit 1" INT TERM
ip netns add "$server_ns"
ip netns add "$client_ns"
ip -n "$server_ns" link add eth0 mtu 9000 type veth peer name eth0 mtu 9000 netns "$client_ns"
ip -n "$server_ns" addr add 10.77.0.1/24 dev eth0
ip -n "$client_ns" addr add 10.77.0.2/24 dev eth0
for ns in "$server_ns" "$client_ns"; do
    ip -n "$ns" link set lo up
    ip -n "$ns" link set eth0 up
done
. "$(dirname "$0")/../../bench/veth.sh"
await_up eth0 "$server_ns" "$client_ns"

export FI_PROVIDER_PATH=$providers LD_LIBRARY_PATH=$prefix/lib
export FI_TCP_IFACE=eth0 FI_SRD_IFACE=eth0
port=9300

# once TEST PROVIDER SIZE ITERATIONS VARIABLE...: prints the last but one column (us) or MB/s.
once() {
    local test=$1 provider=$2 size=$3 iterations=$4 tries
    shift 4
    port=$((port + 1))
    local common=(env "$@" "$prefix/bin/$test" -p "$provider" -S "$size" -I "$iterations" -w 50)
    ip netns exec "$server_ns" timeout --foreground 60 taskset -c 0 "${common[@]}" -B "$port" -s 10.77.0.1 \
        >"$work/server" 2>&1 &
    server_pid=$!
    for ((tries = 0; tries < 100; tries++)); do
        [ -z "$(ip netns exec "$server_ns" ss -Hltn "sport = :$port")" ] || break
        kill -0 "$server_pid" 2>/dev/null || break
        sleep 0.02
    done
    if ! ip netns exec "$client_ns" timeout --foreground 60 taskset -c 1 "${common[@]}" -P "$port" \
        -s 10.77.0.2 10.77.0.1 >"$work/client" 2>&1; then
        cat "$work/client" "$work/server" >&2
        exit 1
    fi
    wait "$server_pid" || true
    server_pid=
    case $test in
    *pingpong) awk '/^[0-9]/ { print $(NF - 1) }' "$work/client" ;;
    *) awk '/^[0-9]/ { print $(NF - 2) }' "$work/client" ;;
    esac
}

# in_turns TEST SIZE ITERATIONS
in_turns() {
    local round name
    for ((round = 0; round < rounds; round++)); do
        once "$1" tcp "$2" "$3" >>"$work/tcp"
        once "$1" srd "$2" "$3" >>"$work/srd"
        [ ${#extra[@]} -eq 0 ] || once "$1" srd "$2" "$3" "${extra[@]}" >>"$work/srd+"
    done
    for name in tcp srd srd+; do
        [ -f "$work/$name" ] || continue
        sort -n "$work/$name" | awk -v what="$1 $2 $name" \
            '{ v[NR] = $1 } END { print what, "median", v[int((NR + 1) / 2)], "least", v[1], "most", v[NR] }'
        rm "$work/$name"
    done
}

for size in $latency; do
    in_turns fi_rdm_tagged_pingpong "$size" $((size > 100000 ? 500 : 3000))
done
for size in $bandwidth; do
    in_turns fi_rdm_tagged_bw "$size" $((size > 100000 ? 50 : 200))
done
