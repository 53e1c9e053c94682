# Functions that read the output of one script each and write it as Markdown tables; bench/all.sh reads
# this file. Each is a filter from standard input to standard output; bench/common.sh is read before.

# sockets_table: of bench/run.sh, and of bench/tunnel.sh, whose tables have the same columns. The first
# column has 18 characters, or 44 in the table of ratios; the others have ten.
sockets_table() {
    awk '
        function trim(text) { gsub(/^ +| +$/, "", text); return text }
        function line(name, from, note,   at, cell, text) {
            text = "| " trim(name) note " |"
            for (at = from + 1; at <= length($0); at += 10) {
                cell = trim(substr($0, at, 10))
                if (cell != "") { text = text " " cell " |"; cells++ }
            }
            return text
        }
        function head(name, width,   at, rule) {
            cells = 0
            print line(name, width, "")
            rule = "|---|"
            for (at = 0; at < cells; at++) rule = rule "--:|"
            print rule
            in_table = width
        }
        /^$/ { if (in_table || !body) print ""; in_table = 0; body = 1; next }
        !body { print "- " $0; next }
        / sealed with / { if (in_table) print ""; in_table = 0; print "- " $0; next }
        /^ratios within a round/ { head(substr($0, 1, 44), 44); next }
        /^                  / { head(title, 18); next }
        !in_table { title = $0; next }
        {
            note = ""
            if (match($0, /  \([0-9]+ of [0-9]+ succeeded\)$/)) {
                note = " " substr($0, RSTART + 2)
                $0 = substr($0, 1, RSTART - 1)
            }
            print line(substr($0, 1, in_table), in_table, note)
        }'
}

# cloud_table: of bench/cloud.sh with the kinds tcp1, tcp8 and udp. A turn without one of the three
# rates is left out.
cloud_table() {
    awk "$statistics"'
        NR == 1 {
            print "- " $0 "\n"
            print "| load | turns | veth | `srd up` | least | most | instances | least | most | `srd up` / veth |" \
                " instances / veth | instances / `srd up` |"
            print "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
            next
        }
        $3 != "veth" { next }
        !($1 in turns) { order[++kinds] = $1; turns[$1] = 0 }
        /nan/ || $4 <= 0 || $7 <= 0 { next }
        { n = ++turns[$1]; veth[$1, n] = $4 + 0; up[$1, n] = $7 + 0; card[$1, n] = $9 + 0 }
        function rate(of, kind, n,   i) {
            for (i = 1; i <= n; i++) value[i] = of[kind, i]
            sort(value, n)
            return sprintf(" %.2f |", median(value, n))
        }
        function ratio(of, to, kind, n,   i) {
            for (i = 1; i <= n; i++) value[i] = of[kind, i] / to[kind, i]
            sort(value, n)
            return sprintf(" %.2f |", median(value, n))
        }
        END {
            what["tcp1"] = "one TCP flow, Gb/s"
            what["tcp8"] = "eight TCP flows, Gb/s"
            what["udp"] = "UDP, 1,400 bytes, thousand datagrams/s"
            for (k = 1; k <= kinds; k++) {
                kind = order[k]; n = turns[kind]
                text = "| " what[kind] " | " n " |"
                if (n > 0) {
                    text = text rate(veth, kind, n) rate(up, kind, n)
                    text = text sprintf(" %.2f | %.2f |", value[1], value[n])
                    text = text rate(card, kind, n) sprintf(" %.2f | %.2f |", value[1], value[n])
                    text = text ratio(up, veth, kind, n) ratio(card, veth, kind, n) ratio(card, up, kind, n)
                } else text = text " | | | | | | | | | |"
                print text
            }
        }'
}

# provider_table: of crates/srd-ofi/pairs.sh.
provider_table() {
    awk "$statistics"'
        function begin(text) {
            print "| " text ": bytes | provider | median | quartiles | least | most | / `tcp` |"
            print "|--:|---|--:|---|--:|--:|--:|"
        }
        $1 ~ /^fi_/ && $4 == "median" {
            if ($1 != test) {
                if (test != "") print ""
                test = $1
                begin(test (test ~ /pingpong/ ? ", us per half round trip" : ", MB/s"))
            }
            printf "| %s | %s | %s | %s to %s | %s | %s | %.2f |\n", $2, $3, $5, $14, $15, $7, $9, $12
        }
        $1 == "cold" {
            runs++
            for (i = 3; i + 2 <= NF; i += 3) {
                gsub(/[()]/, "", $(i + 2))
                if (runs == 1) who[++rows] = $i
                rate[$i, runs] = $(i + 1) + 0; ratio[$i, runs] = $(i + 2) + 0
            }
        }
        END {
            if (!runs) exit
            print "\n| cold start, MB/s | median | least | most | / `tcp` |\n|---|--:|--:|--:|--:|"
            for (i = 1; i <= rows; i++) {
                for (n = 1; n <= runs; n++) { value[n] = rate[who[i], n]; other[n] = ratio[who[i], n] }
                sort(value, runs); sort(other, runs)
                printf "| %s | %.1f | %.1f | %.1f | %.2f |\n", who[i], median(value, runs), value[1],
                    value[runs], median(other, runs)
            }
        }'
}

# card_table: of the example `vpc` of srd-card, whose lines begin with the measurement. The first is that
# to which the ratios are.
card_table() {
    awk '
        BEGIN {
            print "| 64-byte packets | million packets/s | ns a packet | / first |\n|---|--:|--:|--:|"
        }
        match($0, /: [0-9.]+ M packets\/s, [0-9]+ ns a packet$/) {
            what = substr($0, 1, RSTART - 1)
            sub(/, [0-9]+ judged$/, "", what)
            split(substr($0, RSTART + 2), part, " ")
            if (!first) first = part[1]
            printf "| %s | %.2f | %d | %.2f |\n", what, part[1], part[4], part[1] / first
        }'
}

# paths_table: of the JSON of `srd lab run single-flow` and `srd lab run failover`, one after the other.
# The second table has the form of the current figures in docs/perf-notes.md; xtask draws the figure
# of the README from such a table.
paths_table() {
    python3 -c '
import json, statistics, sys

text, at, runs = sys.stdin.read().strip(), 0, {}
decoder = json.JSONDecoder()
while at < len(text):
    found, at = decoder.raw_decode(text, at)
    while at < len(text) and text[at].isspace():
        at += 1
    for experiment in found["experiments"]:
        for case in experiment["cases"]:
            for run in case["runs"]:
                for figure in run["measured"]["figures"]:
                    if figure["name"] in ("of the uplinks", "of what was left"):
                        key = (case["name"], figure["name"])
                        of = runs.setdefault(key, {})
                        of.setdefault(run["variant"], []).append(figure["value"])

over = lambda above, below: above / below if below else float("nan")
middle = {key: {variant: statistics.median(values) for variant, values in of.items()}
          for key, of in runs.items()}
print("| case | share | over | runs | median | least | most | / plain |")
print("|---|---|---|--:|--:|--:|--:|--:|")
for (case, name), of in runs.items():
    for variant, values in of.items():
        ratio = over(middle[case, name][variant], middle[case, name]["plain"])
        print(f"| {case} | {name} | {variant} | {len(values)} | {middle[case, name][variant]:.3f} "
              f"| {min(values):.3f} | {max(values):.3f} | {ratio:.2f} |")
print()
print("| what | bar | plain | Express | ratio | command |\n|---|---|---|---|---|---|")
for what, bar, name, cases, command in (
    ("one TCP flow, 4 / 8 uplinks, of their sum", "0.85", "of the uplinks",
     ("4 spines", "8 spines"), "single-flow"),
    ("a link at a tenth, of what was left, 1 / 16 flows", "0.9", "of what was left",
     ("link slows to a tenth, 1 flow", "link slows to a tenth, 16 flows"), "failover"),
):
    both = [middle[case, name] for case in cases]
    plain, express = ([of[variant] for of in both] for variant in ("plain", "express"))
    joined = lambda values, form: " / ".join(format(value, form) for value in values)
    ratios = [over(*pair) for pair in zip(express, plain)]
    shown = (joined(plain, ".3f"), joined(express, ".3f"), joined(ratios, ".2f"))
    print(f"| {what} | {bar} | " + " | ".join(shown) + f" | `srd lab run {command}` |")
'
}
