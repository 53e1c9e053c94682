#!/usr/bin/env bash
# SRD beside raw UDP, kernel TCP, s2n-quic and quinn: one flow and 64-byte round trips over one
# veth pair, everything in the same minute, one core per end. docs/benchmarks.md explains the
# method and its pitfalls. Run as root on a machine that is otherwise idle.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/common.sh
. bench/veth.sh

usage() {
    cat <<'END'
usage: bench/run.sh [options]
  --mtu BYTES       of the veth pair: 9000 (default) or 1500
  --mode MODE       wire (default): no segmentation offload on the link, every packet is real
                    asis: the link as it comes; super-packets of 64 KB pass through whole
  --kinds LIST      of bulk, block, spin (default: bulk,block,spin)
  --time SECONDS    of each measurement (default: 3)
  --rounds N        (default: 3)
  --cpus A,B        cores of client and server (default: 0,1)
  --out DIRECTORY   keep the results there (default: thrown away)
SRD and PEER_BENCH name the programs (default: target/release/srd, bench/target/release/peer-bench).
END
}

mtu=9000 mode=wire kinds=bulk,block,spin time=3 rounds=3 cpus=0,1 out=
read_options "mtu mode kinds time rounds cpus out" "" "$@"
choice --mode "$mode" wire asis

srd=${SRD:-target/release/srd}
peer=${PEER_BENCH:-bench/target/release/peer-bench}
need_root
need_file "$srd" "cargo build --release -p srd-cli"
need_file "$peer" "cargo build --release --manifest-path bench/Cargo.toml"
need_programs ip ethtool taskset chrt sysctl timeout

# Names that nobody else has, so that what is removed at the end is ours.
a=srd-bench-a-$$ b=srd-bench-b-$$
here=10.93.0.1 there=10.93.0.2
work=$(mktemp -d)
started=()

clean_up() {
    trap - EXIT INT TERM
    stop "${started[@]}"
    remove_namespaces
    restore_allowed
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# at NAMESPACE CPU COMMAND...: runs there, on one core, before everything that is not real-time.
at() {
    local name=$1 cpu=$2
    shift 2
    exec ip netns exec "$name" taskset -c "$cpu" chrt -r 1 "$@"
}

# serve COMMAND...: starts a server at the other end; its process is the last of $started.
serve() {
    (at "$b" "${cpus#*,}" "$@") >"$work/server.log" 2>&1 &
    started+=($!)
    sleep 0.5
}

# measure KIND WHO ROUND COMMAND...: runs a client; its JSON is the result, or a line says why not.
measure() {
    local result=$work/results/$1-$2-$3.json name="$1 $2"
    shift 3
    if (at "$a" "${cpus%,*}" timeout $((${time%.*} + 20)) "$@") >"$result" 2>"$work/client.log"; then
        return
    fi
    rm -f "$result"
    echo "$name failed: $(head -n 4 "$work/client.log" | tr '\n' ' ')" >&2
}

perf() {
    local kind=$1 who=$2 round=$3
    shift 3
    [ "$kind" = bulk ] || set -- "$@" --mode rr
    [ "$kind" != spin ] || set -- "$@" --busy-poll
    measure "$kind" "$who" "$round" "$srd" perf client $there --time "$time" --json - "$@"
}

# A server of its own for each measurement, so that none burns the core of the others.
quic() {
    local kind=$1 library=$2 round=$3 mode=bulk pid
    [ "$kind" = bulk ] || mode=rr
    rm -f "$work/cert.pem"
    serve "$peer" "$library" server $there:4433 --mtu "$mtu" --cert "$work/cert.pem"
    pid=${started[-1]}
    # A client that comes before the certificate would trust the one before.
    for _ in $(seq 100); do
        [ ! -s "$work/cert.pem" ] || break
        sleep 0.1
    done
    measure "$kind" "${library/-/_}" "$round" "$peer" "$library" client $there:4433 \
        --mtu "$mtu" --cert "$work/cert.pem" --mode $mode --time "$time"
    kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
    unset 'started[-1]'
}

one_round() {
    local kind=$1 round=$2
    perf "$kind" udp "$round" --transport udp
    [ "$kind" = spin ] || perf "$kind" tcp "$round" --transport tcp
    perf "$kind" srd_plain "$round" --encrypt off
    perf "$kind" srd_aes "$round" --job-key-file "$work/key"
    if [ "$kind" != spin ]; then
        quic "$kind" s2n-quic "$round"
        quic "$kind" quinn "$round"
    fi
}

mkdir "$work/results"
head -c 32 /dev/urandom | od -An -vtx1 | tr -d ' \n' >"$work/key"
connect "$a" "$b" "$mtu" "$mode" "$here" "$there"
use_cubic "$a" "$b"
serve "$srd" perf server --job-key-file "$work/key" --allow-plain

echo "veth, MTU $mtu, $mode; $rounds rounds of $time s; cores $cpus; load $(cut -d' ' -f1 /proc/loadavg)"
for round in $(seq "$rounds"); do
    for kind in ${kinds//,/ }; do one_round "$kind" "$round"; done
done
echo
"$peer" table "$work/results"
if [ -n "$out" ]; then
    mkdir -p "$out"
    cp "$work/results"/*.json "$out/"
fi
