#!/usr/bin/env bash
# Times this provider beside libfabric's own `tcp`, in turns, between two network namespaces.
#
#   pairs.sh FABTESTS PROVIDERS [OPTIONS]
#       FABTESTS is the directory of `fabtests.sh build`, PROVIDERS holds libsrd-fi.so; as root
#
#   --rounds N         rounds, in each of which every provider runs once per size [15]
#   --latency SIZES    bytes of the messages of fi_rdm_tagged_pingpong ["8 4096 65536 262144 1048576"]
#   --bandwidth SIZES  the same for fi_rdm_tagged_bw ["1024 8192 65536 262144 1048576"]
#   --cold N           runs of the cold start [10]
#   --env NAME=VALUE   a variable for a further row, `srd+`: the provider with it; may repeat
#   --beside DIRECTORY a further row, `before`: the libsrd-fi.so in this directory
#   --wire             no segmentation offload on the veth: every packet is real; needs ethtool
#
# The server runs on core 0, the client on core 1, over a veth with an MTU of 9000.
#
# Steady state: each run is preceded by a warm-up and lasts 0.3 s or longer; a calibration decides
# the number of messages. Prints a line for each size and row: the median, the least and the largest
# of the rounds, in microseconds per half round trip or in MB/s, the median of the ratios to `tcp` of
# the same round, and the quartiles of the rounds.
#
# A run of fi_rdm_tagged_bw is in one of two modes, with `tcp` as well: in about a third of all runs,
# the copy from the memory of the program into the socket takes three times as long as in the others
# (perf: `_copy_from_iter` has 60 % of the time instead of 33 %). A median of few rounds is therefore
# that of one mode or of the other; ratios of bandwidth need 15 rounds or more. Quartiles far apart
# show both modes.
#
# Cold start: 200 messages of 64 KB, without a warm-up, between two processes that have just met.
# Prints the rate of each run, in MB/s, and its ratio to the run of `tcp` before it.
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
rounds=15
latency="8 4096 65536 262144 1048576"
bandwidth="1024 8192 65536 262144 1048576"
cold=10
extra=()
beside=
wire=
while [ $# -gt 0 ]; do
    if [ "$1" = --wire ]; then
        wire=yes
        shift
        continue
    fi
    [ $# -ge 2 ] || usage
    case $1 in
    --rounds) rounds=$2 ;;
    --latency) latency=$2 ;;
    --bandwidth) bandwidth=$2 ;;
    --cold) cold=$2 ;;
    --beside) beside=$(realpath -m "$2") ;;
    --env) extra+=("$2") ;;
    *) usage ;;
    esac
    shift 2
done
[[ $rounds =~ ^[1-9][0-9]{0,2}$ && $cold =~ ^[0-9]{1,3}$ ]] || usage
[ -x "$prefix/bin/fi_rdm_tagged_bw" ] || missing "no tests in $prefix: fabtests.sh build"
[ -f "$providers/libsrd-fi.so" ] || missing "no libsrd-fi.so in $providers: make provider"
[ -z "$beside" ] || [ -f "$beside/libsrd-fi.so" ] || missing "no libsrd-fi.so in $beside"
PATH=$PATH:/usr/sbin:/sbin
[ -z "$wire" ] || command -v ethtool >/dev/null || missing "no ethtool: apt-get install ethtool"
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
[ -z "$wire" ] || no_offload eth0 "$server_ns" "$client_ns"
await_up eth0 "$server_ns" "$client_ns"

export LD_LIBRARY_PATH=$prefix/lib FI_TCP_IFACE=eth0 FI_SRD_IFACE=eth0
port=9300
rows=(tcp srd)
[ ${#extra[@]} -eq 0 ] || rows+=(srd+)
[ -z "$beside" ] || rows+=(before)

# once ROW TEST SIZE MESSAGES WARM-UP: sets `us`, microseconds per message, and `rate`, MB/s.
once() {
    local row=$1 test=$2 size=$3 messages=$4 warm_up=$5 tries
    local set=("FI_PROVIDER_PATH=$providers") provider=srd
    case $row in
    tcp) provider=tcp ;;
    srd+) set+=("${extra[@]}") ;;
    before) set=("FI_PROVIDER_PATH=$beside") ;;
    esac
    port=$((port + 1))
    local common=(env "${set[@]}" "$prefix/bin/$test" -p "$provider" -S "$size" -I "$messages" -w "$warm_up")
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
    read -r us rate < <(awk '/^[0-9]/ { print $(NF - 1), $(NF - 2) }' "$work/client")
}

# enough_for TEST SIZE: sets `messages`, a number that takes 0.3 s or longer with every row.
enough_for() {
    local row
    messages=500
    for row in "${rows[@]}"; do
        once "$row" "$1" "$2" 500 100
        messages=$(awk -v us="$us" -v most="$messages" \
            'BEGIN { n = int(400000 / (us > 0.1 ? us : 0.1)); print (n > most ? n : most) }')
    done
}

# in_turns TEST SIZE RESULT: RESULT is `us` or `rate`.
in_turns() {
    local round row
    enough_for "$1" "$2"
    for ((round = 0; round < rounds; round++)); do
        for row in "${rows[@]}"; do
            once "$row" "$1" "$2" "$messages" $((messages / 10))
            echo "${!3}" >>"$work/row-$row"
        done
    done
    for row in "${rows[@]}"; do
        paste "$work/row-tcp" "$work/row-$row" | awk -v what="$1 $2 $row" '
            function sort(of, n,   i, j, x) {
                for (i = 2; i <= n; i++) {
                    x = of[i]
                    for (j = i - 1; j > 0 && of[j] > x; j--) of[j + 1] = of[j]
                    of[j + 1] = x
                }
            }
            # part(of, n, q): the value below or at which q quarters of the sorted values are.
            function part(of, n, q) { return of[int((q * n + 3) / 4)] }
            { value[NR] = $2 + 0; ratio[NR] = $2 / $1 }
            END {
                sort(value, NR)
                sort(ratio, NR)
                print what, "median", part(value, NR, 2), "least", value[1], "most", value[NR],
                    "of tcp", part(ratio, NR, 2), "quartiles", part(value, NR, 1), part(value, NR, 3)
            }'
    done
    rm "$work"/row-*
}

for size in $latency; do
    in_turns fi_rdm_tagged_pingpong "$size" us
done
for size in $bandwidth; do
    in_turns fi_rdm_tagged_bw "$size" rate
done
for ((run = 0; run < cold; run++)); do
    line="cold start"
    tcp=
    for row in "${rows[@]}"; do
        once "$row" fi_rdm_tagged_bw 65536 200 0
        tcp=${tcp:-$rate}
        line+=" $row $rate ($(awk -v a="$rate" -v b="$tcp" 'BEGIN { printf "%.2f", a / b }'))"
    done
    echo "$line"
done
