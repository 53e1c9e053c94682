#!/usr/bin/env bash
# The longest gap between the packets of two instances while `srd card apply` gives the same card new
# instances and elastic addresses, and removes them again. Run as root on a machine that is otherwise
# idle.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/common.sh

usage() {
    cat <<'END'
usage: bench/apply.sh [options]
  --instances N     number of new instances (default: 20)
  --addresses N     number of new elastic addresses, each mapped to an address of an instance
                    (default: 100; at most 196)
  --rounds N        number of times that they are added and removed (default: 5)
SRD names the program (default: target/release/srd).
END
}

instances=20 addresses=100 rounds=5
read_options "instances addresses rounds" "" "$@"
[ "$addresses" -le 196 ] || { usage >&2; refuse "--addresses: at most 196"; }

srd=${SRD:-target/release/srd}
need_root
need_file "$srd" "cargo build --release -p srd-cli"
need_programs ip nsenter ping

. bench/card.sh
# Beginning of the names of instances.
prefix=a$$x

# cloud NEW ELASTIC: two instances, the target of the elastic addresses, and so many new ones.
cloud() {
    local n secondary=
    for n in $(seq "$addresses"); do secondary+=", \"10.0.2.$((n + 10))\""; done
    echo '[vpc.main]
cidr = ["10.0.0.0/16"]
[internet_gateway.door]
[route_table.public]
routes = ["0.0.0.0/0 to internet_gateway door"]
[acl.open]
ingress = ["100 allow all from 0.0.0.0/0"]
egress = ["100 allow all to 0.0.0.0/0"]
[subnet.s]
cidr = "10.0.0.0/16"
route_table = "public"
acl = "open"
[group.g]
ingress = ["all from 10.0.0.0/16"]'
    for n in 1 2 3; do
        printf '[instance.%s%s]\ntype = "c7i.24xlarge"\n' "$prefix" "$n"
        printf '[interface.%s%s]\nsubnet = "s"\naddress = ["10.0.1.%s"%s]\n' "$prefix" "$n" \
            $((n + 10)) "$([ "$n" != 3 ] || echo "$secondary")"
        printf 'groups = ["g"]\ninstance = "%s%s"\n' "$prefix" "$n"
    done
    for n in $(seq "$1"); do
        printf '[instance.%snew%s]\ntype = "c7i.large"\n' "$prefix" "$n"
        printf '[interface.%snew%s]\nsubnet = "s"\naddress = ["10.0.3.%s"]\n' "$prefix" "$n" $((n + 10))
        printf 'groups = ["g"]\ninstance = "%snew%s"\n' "$prefix" "$n"
    done
    for n in $(seq "$2"); do
        printf '[elastic_address.e%s]\npublic = "198.51.100.%s"\n' "$n" $((n + 10))
        printf 'interface = "%s3"\nprivate = "10.0.2.%s"\n' "$prefix" $((n + 10))
    done
}
cloud 0 0 >"$work/few.toml"
cloud "$instances" "$addresses" >"$work/many.toml"

start_card "$work/few.toml"

# gaps NAME: the longest gap between two answers of a ping every millisecond, and lost packets.
gaps() {
    awk -v what="$1" -F'[][ ]' '
        /bytes from/ { if (last) { gap = $2 - last; if (gap > most) most = gap } last = $2; came++ }
        /packets transmitted/ { lost = $1 - came }
        END { printf "%-10s %5d answers  longest gap %6.1f ms  lost %d\n", what, came, most * 1e3, lost }
    ' "$work/ping"
}
ping_for() {
    ip netns exec "srd-i-${prefix}1" ping -D -n -i 0.001 -w "$1" 10.0.1.12 >"$work/ping" &
    beside=$!
}
ping_done() {
    kill -INT "$beside" 2>/dev/null || true
    wait "$beside" 2>/dev/null || true
    beside=
}
apply() {
    local began=${EPOCHREALTIME/./}
    card apply "$work/$1.toml" >/dev/null
    took=$(((${EPOCHREALTIME/./} - began) / 1000))
}

echo "$instances instances and $addresses elastic addresses; load $(cut -d' ' -f1 /proc/loadavg)"
ping_for 3
wait "$beside"
beside=
gaps "no apply"
for round in $(seq "$rounds"); do
    for file in many few; do
        ping_for 120
        sleep 1
        apply $file
        sleep 1
        ping_done
        gaps "$file $round"
        echo "           apply took $took ms"
    done
done
