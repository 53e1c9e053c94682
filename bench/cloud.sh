#!/usr/bin/env bash
# Instances of a cloud on two hosts beside `srd up` alone and beside the kernel's TCP: throughput in
# turns, and the round trips of one tenant beside another tenant's flood. The hosts are network
# namespaces, joined by one veth pair. Run as root on a machine that is otherwise idle.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/common.sh
. bench/veth.sh

usage() {
    cat <<'END'
usage: bench/cloud.sh [options]
  --mtu BYTES       of the veth pair: 1500 (default) or 9000
  --kinds LIST      of tcp1, tcp8 (TCP flows of iperf3), udp (1,400 bytes, no limit),
                    tenants (round trips of a pair of instances beside the other pair's flood),
                    overlay (round trips through `srd up` beside a flood)
                    (default: tcp1,tcp8,udp,tenants,overlay)
  --express on|off  of the instances' interfaces (default: on)
  --time SECONDS    of each measurement (default: 4)
  --rounds N        turns of tcp1, tcp8 and udp (default: 3)
  --pings N         round trips of each condition of tenants and overlay, 20 ms apart (default: 250)
SRD names the program (default: target/release/srd).
END
}

mtu=1500 kinds=tcp1,tcp8,udp,tenants,overlay express=on time=4 rounds=3 pings=250
read_options "mtu kinds express time rounds pings" "" "$@"
choice --express "$express" on off
[ "$express" = on ] && express=true || express=false

srd=${SRD:-target/release/srd}
need_root
need_file "$srd" "cargo build --release -p srd-cli"
need_programs ip nsenter iperf3 ping python3 timeout
srd=$(realpath "$srd")

# Names that nobody else has, so that what is removed at the end is ours.
alpha=srd-cloud-a-$$ beta=srd-cloud-b-$$ prefix=c$$
work=$(mktemp -d)
daemons=() servers=() flood=

clean_up() {
    trap - EXIT INT TERM
    stop $flood "${servers[@]}" "${daemons[@]}"
    remove_namespaces
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

connect "$alpha" "$beta" "$mtu" asis 10.94.0.1 10.94.0.2

for host in alpha beta; do (umask 077; "$srd" genkey >"$work/$host.key"); done
declare -A public
for host in alpha beta; do public[$host]=$("$srd" pubkey <"$work/$host.key"); done

{
    echo '[vpc.main]
cidr = ["10.0.0.0/16"]
[subnet.s]
cidr = "10.0.0.0/16"
[group.g]
ingress = ["all from 10.0.0.0/16"]'
    at=10
    for host in alpha beta; do
        for tenant in 1 2; do
            printf '[instance.%s-%s%s]\ntype = "c7i.24xlarge"\nhost = "%s"\n' "$prefix" "$host" $tenant $host
            printf '[interface.%s-%s%s]\nsubnet = "s"\naddress = ["10.0.0.%s"]\ngroups = ["g"]\n' \
                "$prefix" "$host" $tenant $at
            printf 'instance = "%s-%s%s"\nexpress = %s\nexpress_udp = %s\n' \
                "$prefix" "$host" $tenant $express $express
            at=$((at + 1))
        done
    done
} >"$work/vpc.toml"

# host NAME OTHER ADDRESS OTHERS INNER OTHERS: the configurations of one host.
host() {
    cat >"$work/$1-up.toml" <<END
[interface]
name = "srd0"
address = ["$5/24"]
private_key_file = "$work/$1.key"
listen = "$3:7471"
[control]
socket = "/run/srd/$prefix-$1.sock"
[[peer]]
name = "$2"
public_key = "${public[$2]}"
endpoint = "$4:7471"
allowed = ["$6/32"]
END
    cat >"$work/$1-card.toml" <<END
[interface]
mode = "cloud"
listen = "$3:7535"
private_key_file = "$work/$1.key"
[cloud]
vpc = "$work/vpc.toml"
host = "$1"
[[peer]]
host = "$2"
endpoint = "$4:7535"
public_key = "${public[$2]}"
END
}
host alpha beta 10.94.0.1 10.94.0.2 10.77.0.1 10.77.0.2
host beta alpha 10.94.0.2 10.94.0.1 10.77.0.2 10.77.0.1

for host in alpha beta; do
    namespace=${!host}
    # Not by a function: the process that is started has to be the daemon.
    nsenter --net=/run/netns/"$namespace" "$srd" up -c "$work/$host-up.toml" \
        >"$work/$host-up.log" 2>&1 &
    daemons+=($!)
    nsenter --net=/run/netns/"$namespace" "$srd" card up -c "$work/$host-card.toml" \
        --socket "$work/$host-card.sock" >"$work/$host-card.log" 2>&1 &
    daemons+=($!)
done

inside() { local name=$1; shift; ip netns exec "$name" "$@"; }
a1=srd-i-$prefix-alpha1 a2=srd-i-$prefix-alpha2 b1=srd-i-$prefix-beta1 b2=srd-i-$prefix-beta2
reaches() {
    local _
    for _ in $(seq 100); do
        ! inside "$1" ping -n -c 1 -W 1 "$2" >/dev/null 2>&1 || return 0
        sleep 0.2
    done
    echo "$1 does not reach $2" >&2
    tail -n 5 "$work"/*.log >&2
    exit 1
}
reaches "$alpha" 10.77.0.2
reaches "$a1" 10.0.0.12
reaches "$a2" 10.0.0.13

for name in $beta $b1 $b2; do
    ip netns exec "$name" iperf3 -s >/dev/null 2>&1 &
    servers+=($!)
done
sleep 0.5

# The receiver's rate: Gb/s of TCP, thousand datagrams a second of UDP.
cat >"$work/figure.py" <<'END'
import json, sys

end = json.load(sys.stdin)["end"]
if sys.argv[1] == "udp":
    total = end["sum"]
    print(f"{(total['packets'] - total['lost_packets']) / total['seconds'] / 1e3:.1f}")
else:
    print(f"{end['sum_received']['bits_per_second'] / 1e9:.2f}")
END
rate() {
    local kind=$1 name=$2 to=$3 options=
    case $kind in
        tcp8) options="-P 8" ;;
        udp) options="-u -b 0 -l 1400" ;;
    esac
    # shellcheck disable=SC2086
    inside "$name" timeout $((time + 20)) iperf3 -c "$to" -t "$time" --json $options |
        python3 "$work/figure.py" "$kind" 2>/dev/null || echo nan
}

echo "veth, MTU $mtu; ENA Express ${express/true/on}; $rounds rounds of $time s; load $(cut -d' ' -f1 /proc/loadavg)"
for kind in ${kinds//,/ }; do
    case $kind in tcp1 | tcp8 | udp) ;; *) continue ;; esac
    for round in $(seq "$rounds"); do
        wire=$(rate "$kind" "$alpha" 10.94.0.2)
        up=$(rate "$kind" "$alpha" 10.77.0.2)
        card=$(rate "$kind" "$a1" 10.0.0.12)
        echo "$kind $round $wire $up $card" | awk '{
            printf "%-5s %d  veth %8s  srd up %8s  card %8s  card over srd up %.2f\n", $1, $2, $3, $4, $5, $5 / $4 }'
    done
done

# 10,000 flows a second, each of one datagram from a port of its own.
cat >"$work/new_flows.py" <<'END'
import socket, sys, time

target, seconds = sys.argv[1], float(sys.argv[2])
began, sent = time.monotonic(), 0
while time.monotonic() - began < seconds:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as flow:
        flow.sendto(b"x" * 64, (target, 9))
    sent += 1
    ahead = began + sent / 10_000 - time.monotonic()
    if ahead > 0.001:
        time.sleep(ahead)
END
# flooding NAMESPACE WHAT ADDRESS: starts a flood in the background. Not by a function: the process
# that is started and stopped has to be the flood.
flooding() {
    local long=$((pings / 50 + 20))
    case $2 in
        alone) return ;;
        udp-1200) ip netns exec "$1" iperf3 -u -b 3G -l 1200 -c "$3" -t $long >/dev/null 2>&1 & ;;
        udp-64) ip netns exec "$1" iperf3 -u -b 0 -l 64 -c "$3" -t $long >/dev/null 2>&1 & ;;
        tcp-4) ip netns exec "$1" iperf3 -P 4 -c "$3" -t $long >/dev/null 2>&1 & ;;
        new-flows) ip netns exec "$1" python3 "$work/new_flows.py" "$3" $long >/dev/null 2>&1 & ;;
    esac
    flood=$!
    sleep 1
}
# beside WHO FLOODER ITS_TARGET PINGER ITS_TARGET: round trips without a flood and beside each.
beside() {
    local what
    for what in alone udp-1200 udp-64 tcp-4 new-flows alone; do
        flooding "$2" $what "$3"
        inside "$4" ping -n -i 0.02 -c "$pings" -W 1 "$5" |
            sed -n 's/.*time=\([0-9.]*\) ms/\1/p' | sort -n |
            awk -v who="$1" -v what=$what -v sent="$pings" '{ all[NR] = $1 }
                END {
                    if (NR < 1) { printf "%s %-10s none of %d came back\n", who, what, sent; exit }
                    printf "%s %-10s lost %3d of %d  p50 %8.3f ms  p99 %8.3f ms  most %8.3f ms\n",
                        who, what, sent - NR, sent, all[int((NR + 1) / 2)], all[int(NR * 0.99)], all[NR]
                }'
        [ -z "$flood" ] || stop "$flood"
        flood=
        # The server has one client at a time, and notices that it has gone.
        sleep 1
    done
}
case ,$kinds, in *,tenants,*) beside tenants "$a1" 10.0.0.12 "$a2" 10.0.0.13 ;; esac
case ,$kinds, in *,overlay,*) beside overlay "$alpha" 10.77.0.2 "$alpha" 10.77.0.2 ;; esac
