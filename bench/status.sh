#!/usr/bin/env bash
# What readers of `srd card` cost its packets: round trips of a quiet pair of instances beside many
# others, in turns without a reader and with one that asks four times a second. Run as root on a
# machine that is otherwise idle; on a busy one many short turns say more than few long ones.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/common.sh

usage() {
    cat <<'END'
usage: bench/status.sh [options]
  --instances N     (default: 200), each with two interfaces; the first two are the quiet pair
  --kinds LIST      of json (`srd card status --json`), metrics (OpenMetrics over HTTP) and page
                    (the page's status.json with flows) (default: json,metrics,page)
  --per-second N    how often each reader asks (default: 4)
  --pings N         round trips of each turn, 5 ms apart (default: 200)
  --rounds N        turns of each sort (default: 20)
  --realtime        the packet thread and ping have real-time priority: on a busy machine that leaves
                    what the packet thread itself does for readers
  --out DIRECTORY   keep the round trips there (default: thrown away)
SRD names the program (default: target/release/srd).
END
}

instances=200 kinds=json,metrics,page per_second=4 pings=200 rounds=20 realtime= out=
read_options "instances kinds per-second pings rounds out" "realtime" "$@"
case ,$kinds, in *,json,* | *,metrics,* | *,page,*) ;; *) usage >&2; refuse "unknown --kinds: $kinds" ;; esac

srd=${SRD:-target/release/srd}
[ -z "$realtime" ] || realtime="chrt -f 20"
need_root
need_file "$srd" "cargo build --release -p srd-cli"
need_programs ip nsenter ping curl chrt

. bench/card.sh
# Beginning of the names of instances.
prefix=s$$x
[ -n "$out" ] || out=$work
mkdir -p "$out"

{
    echo '[vpc.main]
cidr = ["10.0.0.0/16"]
[acl.open]
ingress = ["100 allow all from 0.0.0.0/0"]
egress = ["100 allow all to 0.0.0.0/0"]
[subnet.s]
cidr = "10.0.0.0/16"
acl = "open"
[group.g]
ingress = ["all from 10.0.0.0/16"]
egress = ["all to 10.0.0.0/16"]'
    for n in $(seq "$instances"); do
        printf '[instance.%s%s]\ntype = "c7i.large"\n' "$prefix" "$n"
        for device in 0 1; do
            at=$((n * 2 + device + 8))
            printf '[interface.%s%s-%s]\nsubnet = "s"\naddress = ["10.0.%s.%s"]\n' \
                "$prefix" "$n" "$device" $((at / 200)) $((at % 200 + 10))
            printf 'groups = ["g"]\ninstance = "%s%s"\ndevice_index = %s\n' "$prefix" "$n" "$device"
        done
    done
} >"$work/vpc.toml"

address=127.0.0.1:9472
start_card "$work/vpc.toml" --metrics $address

# The threads that move packets.
workers=$(grep -l '^srd-worker-' /proc/$card/task/*/comm | cut -d/ -f5)
[ -n "$workers" ] || refuse "the card has no thread whose name begins with srd-worker-"
for thread in $workers; do
    [ -z "$realtime" ] || chrt -f -p 20 "$thread"
done

# Asks again and again, each time in the background: one that is late keeps no other waiting.
read_again() {
    local pause
    pause=$(awk "BEGIN { print 1 / $per_second }")
    while :; do
        case $1 in
            json) card status --json - >/dev/null & ;;
            metrics) inside curl -s -o /dev/null "http://$address/metrics" & ;;
            page) inside curl -s -o /dev/null "http://$address/status.json?instance=${prefix}1" & ;;
        esac
        sleep "$pause"
    done
}

# Time that the threads of packets have had a processor, in microseconds.
worked() {
    local thread
    for thread in $workers; do cat /proc/$card/task/"$thread"/schedstat; done |
        awk '{ sum += $1 } END { print int(sum / 1000) }'
}

at=$((2 * 2 + 8))
to=10.0.$((at / 200)).$((at % 200 + 10))
measure() {
    local before after
    before=$(worked)
    $realtime ip netns exec "srd-i-${prefix}1" ping -n -i 0.005 -c "$pings" "$to" |
        sed -n 's/.*time=\([0-9.]*\) ms/\1/p' | sort -n >"$out/$1-$2"
    after=$(worked)
    awk -v what="$1" -v round="$2" -v us=$((after - before)) -v sent="$pings" '{ all[NR] = $1 }
        END {
            if (NR < 1) { print "no ping came back"; exit 1 }
            printf "%-8s %2d  p50 %7.3f ms  p99 %7.3f ms  most %7.3f ms  lost %d  packet thread %d us\n",
                what, round, all[int((NR + 1) / 2)], all[int(NR * 0.99)], all[NR], sent - NR, us
        }' "$out/$1-$2" | tee -a "$out/figures"
}

size=$(card status --json - | wc -c)
echo "$instances instances, $((instances * 2)) interfaces, a status of $size bytes"
measure warm 0 >/dev/null
for round in $(seq "$rounds"); do
    for kind in none ${kinds//,/ }; do
        if [ "$kind" != none ]; then
            read_again "$kind" &
            beside=$!
        fi
        measure "$kind" "$round"
        if [ -n "$beside" ]; then
            kill "$beside" 2>/dev/null || true
            wait "$beside" 2>/dev/null || true
            beside=
        fi
    done
done
echo "all rounds together, and p99 beside that without a reader:"
quiet=
for kind in none ${kinds//,/ }; do
    sort -n "$out/$kind"-* >"$out/$kind"
    [ -n "$quiet" ] || quiet=$(awk '{ all[NR] = $1 } END { print all[int(NR * 0.99)] }' "$out/$kind")
    us=$(awk -v of="$kind" '$1 == of { sum += $(NF - 1) } END { print sum }' "$out/figures")
    awk -v of="$kind" -v quiet="$quiet" -v us="$us" '{ all[NR] = $1 }
        END {
            p99 = all[int(NR * 0.99)]
            printf "%-8s p50 %.3f ms  p99 %.3f ms (%+.1f %%)  p99.9 %.3f ms  most %.3f ms  packet thread %.3f s\n",
                of, all[int((NR + 1) / 2)], p99, (p99 / quiet - 1) * 100, all[int(NR * 0.999)], all[NR], us / 1e6
        }' "$out/$kind"
done
