#!/usr/bin/env bash
# One TCP connection through `srd up` beside wireguard-go and beside the link alone, in turns, over
# one veth pair between two network namespaces. The daemons and iperf3 of one end share one core.
# docs/benchmarks.md explains the method. Run as root on a machine that is otherwise idle.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/common.sh
. bench/veth.sh

usage() {
    cat <<'END'
usage: bench/tunnel.sh [options]
  --mtu BYTES       of the veth pair: 9000 (default) or 1500
  --mode MODE       wire (default): no segmentation offload on the link, every packet is real
                    asis: the link as it comes; super-packets of 64 KB pass through whole
  --time SECONDS    of each measurement (default: 4)
  --rounds N        (default: 5)
  --cpus A,B        cores of client and server (default: 0,1)
  --out DIRECTORY   keep the reports of iperf3 there (default: thrown away)
SRD and WIREGUARD_GO name the programs (default: target/release/srd, and wireguard-go in PATH).
Debian's wireguard-go is of 2022; later versions use the segmentation offload of the kernel.
Exit codes: 0 measured, 1 a measurement failed, 2 usage, 3 a program is missing.
END
}

mtu=9000 mode=wire time=4 rounds=5 cpus=0,1 out=
read_options "mtu mode time rounds cpus out" "" "$@"
choice --mode "$mode" wire asis
for number in "$mtu" "$time" "$rounds"; do
    [[ $number =~ ^[1-9][0-9]{0,4}$ ]] || refuse "not a number: $number"
done
[[ $cpus =~ ^[0-9]+,[0-9]+$ ]] || refuse "--cpus: two cores, as 0,1"

srd=${SRD:-target/release/srd}
wireguard=${WIREGUARD_GO:-wireguard-go}
PATH=$PATH:/usr/sbin:/sbin
absent= packages=
# A program, and the Debian package that contains it.
while read -r program package; do
    command -v "$program" >/dev/null && continue
    absent+=" $program"
    case " $packages " in *" $package "*) ;; *) packages+=" $package" ;; esac
done <<END
$wireguard wireguard-go
wg wireguard-tools
iperf3 iperf3
ip iproute2
ethtool ethtool
ping iputils-ping
python3 python3
taskset util-linux
nsenter util-linux
sysctl procps
END
[ -z "$absent" ] || { echo "missing:$absent; apt-get install$packages" >&2; exit 3; }
need_root
need_file "$srd" "cargo build --release -p srd-cli"
srd=$(realpath "$srd")

# Names that nobody else has, so that what is removed at the end is ours.
a=srd-tunnel-a-$$ b=srd-tunnel-b-$$ wg_a=wga$$ wg_b=wgb$$
sockets=/var/run/wireguard
work=$(mktemp -d)
started=()

clean_up() {
    trap - EXIT INT TERM
    stop "${started[@]}"
    remove_namespaces
    restore_allowed
    rm -rf "$work" "$sockets/$wg_a.sock" "$sockets/$wg_b.sock"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

connect "$a" "$b" "$mtu" "$mode" 10.95.0.1 10.95.0.2
use_cubic "$a" "$b"

# at NAMESPACE CPU COMMAND...: runs there, on one core.
at() {
    local name=$1 cpu=$2
    shift 2
    exec nsenter --net=/run/netns/"$name" taskset -c "$cpu" "$@"
}
# serve LOG NAMESPACE CPU COMMAND...: starts a program there; its process is the last of $started.
serve() {
    local log=$work/$1.log
    shift
    (at "$@") >"$log" 2>&1 &
    started+=($!)
}
# fail MESSAGE LOG...: ends the script, with the last lines of the logs before the message.
fail() {
    local message=$1
    shift
    tail -n 5 "$@" >&2
    echo "$message" >&2
    exit 1
}

# srd_end LETTER NAMESPACE CPU ADDRESS OTHERS INNER OTHERS KEY_OF_OTHER: starts `srd up` of one end.
srd_end() {
    cat >"$work/srd-$1.toml" <<END
[interface]
name = "srd0"
address = ["$6/24"]
private_key_file = "$work/srd-$1.key"
listen = "$4:7471"
workers = 1
[control]
socket = "/run/srd/tunnel-$1-$$.sock"
[[peer]]
name = "other"
public_key = "$8"
endpoint = "$5:7471"
allowed = ["$7/32"]
END
    serve "srd-$1" "$2" "$3" "$srd" up -c "$work/srd-$1.toml"
}
for end in a b; do (umask 077; "$srd" genkey >"$work/srd-$end.key"); done
srd_end a "$a" "${cpus%,*}" 10.95.0.1 10.95.0.2 10.77.0.1 10.77.0.2 "$("$srd" pubkey <"$work/srd-b.key")"
srd_end b "$b" "${cpus#*,}" 10.95.0.2 10.95.0.1 10.77.0.2 10.77.0.1 "$("$srd" pubkey <"$work/srd-a.key")"

# wireguard_end LETTER NAMESPACE CPU INTERFACE OTHERS INNER OTHERS KEY_OF_OTHER: starts wireguard-go of
# one end. The MTU of its interface is that of wg-quick: 80 less than the link's.
wireguard_end() {
    local interface=$4 _
    serve "wg-$1" "$2" "$3" env LOG_LEVEL=error "$wireguard" -f "$interface"
    for _ in $(seq 100); do
        [ ! -S "$sockets/$interface.sock" ] || break
        sleep 0.1
    done
    [ -S "$sockets/$interface.sock" ] || fail "wireguard-go does not start" "$work/wg-$1.log"
    wg set "$interface" private-key "$work/wg-$1.key" listen-port 51820 \
        peer "$8" allowed-ips "$7/32" endpoint "$5:51820"
    ip -n "$2" addr add "$6/24" dev "$interface"
    ip -n "$2" link set dev "$interface" mtu $((mtu - 80)) up
}
for end in a b; do (umask 077; wg genkey >"$work/wg-$end.key"); done
wireguard_end a "$a" "${cpus%,*}" "$wg_a" 10.95.0.2 10.78.0.1 10.78.0.2 "$(wg pubkey <"$work/wg-b.key")"
wireguard_end b "$b" "${cpus#*,}" "$wg_b" 10.95.0.1 10.78.0.2 10.78.0.1 "$(wg pubkey <"$work/wg-a.key")"

serve iperf3 "$b" "${cpus#*,}" iperf3 -s

# reaches ADDRESS: returns when the other end answers at this address.
reaches() {
    local _
    for _ in $(seq 100); do
        ! ip netns exec "$a" ping -n -c 1 -W 1 "$1" >/dev/null 2>&1 || return 0
        sleep 0.2
    done
    fail "$1 does not answer" "$work"/*.log
}
for address in 10.95.0.2 10.77.0.2 10.78.0.2; do reaches "$address"; done

# Rate in Gb/s that the receiver counted.
cat >"$work/rate.py" <<'END'
import json, sys

report = json.load(open(sys.argv[1]))
if "error" in report:
    sys.exit(report["error"])
print(f"{report['end']['sum_received']['bits_per_second'] / 1e9:.3f}")
END
# measure WHO ROUND ADDRESS: adds a line to the file of rates.
measure() {
    local report=$work/results/tunnel-$1-$2.json rate
    (at "$a" "${cpus%,*}" timeout $((time + 20)) iperf3 -c "$3" -t "$time" --json) \
        >"$report" 2>"$work/client.log" || true
    rate=$(python3 "$work/rate.py" "$report" 2>>"$work/client.log") ||
        fail "$1, round $2: no rate" "$work/client.log"
    echo "$2 $1 $rate" >>"$work/rates"
}

mtu_of() { ip -n "$a" -o link show dev "$1" | sed -n 's/.* mtu \([0-9]*\).*/\1/p'; }
version=$("$wireguard" --version 2>/dev/null | head -n 1 || true)
echo "veth, MTU $mtu, $mode; $rounds rounds of $time s; cores $cpus; load $(cut -d' ' -f1 /proc/loadavg)"
echo "MTU of the tunnels: srd up $(mtu_of srd0), its default; wireguard-go $(mtu_of "$wg_a"), as of wg-quick"
echo "version: ${version:-unknown wireguard-go}; srd up is encrypted, with one worker"
mkdir "$work/results"
for round in $(seq "$rounds"); do
    measure veth "$round" 10.95.0.2
    measure srd_up "$round" 10.77.0.2
    measure wireguard_go "$round" 10.78.0.2
done
echo
awk "$statistics"'
    BEGIN {
        rows = split("veth srd_up wireguard_go", who, " ")
        name["veth"] = "veth"; name["srd_up"] = "srd up"; name["wireguard_go"] = "wireguard-go"
        pairs = split("srd_up/wireguard_go srd_up/veth wireguard_go/veth", pair, " ")
    }
    { rate[$2, $1] = $3 + 0; if ($1 + 0 > rounds) rounds = $1 + 0 }
    function row(width, title, format) {
        sort(value, rounds)
        printf "%-" width "s" format format format "\n", title, median(value, rounds), value[1], value[rounds]
    }
    END {
        printf "one TCP flow, median of %d\n%18s%10s%10s%10s\n", rounds, "", "Gb/s", "least", "most"
        for (i = 1; i <= rows; i++) {
            for (n = 1; n <= rounds; n++) value[n] = rate[who[i], n]
            row(18, name[who[i]], "%10.2f")
        }
        printf "\n%-44s%10s%10s%10s\n", "ratios within a round", "median", "least", "most"
        for (i = 1; i <= pairs; i++) {
            split(pair[i], side, "/")
            for (n = 1; n <= rounds; n++) value[n] = rate[side[1], n] / rate[side[2], n]
            row(44, name[side[1]] " / " name[side[2]] ", Gb/s", "%10.2f")
        }
    }' "$work/rates"
if [ -n "$out" ]; then
    mkdir -p "$out"
    cp "$work/results"/*.json "$out/"
fi
