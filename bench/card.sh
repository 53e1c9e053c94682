# A card in a network namespace of its own, for scripts that measure it; they read this file. It
# makes the directory `work`. At the end of the script it ends the card and the process `beside`, if
# there is one, and removes the namespace and the directory.

# A name that nobody else has, so that what is removed at the end is ours.
machine=srd-card-$$
work=$(mktemp -d)
card= beside=

clean_up() {
    trap - EXIT INT TERM
    [ -z "$beside" ] || kill "$beside" 2>/dev/null || true
    if [ -n "$card" ]; then
        kill "$card" 2>/dev/null || true
        wait "$card" 2>/dev/null || true
    fi
    ip netns del "$machine" 2>/dev/null || true
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

inside() { nsenter --net=/run/netns/"$machine" "$@"; }
# card COMMAND [ARGUMENT...]: a command of `srd card` for the card.
card() {
    local command=$1
    shift
    inside "$srd" card "$command" --socket "$work/card.sock" "$@"
}

# start_card FILE [OPTION...]: starts the card with a VPC's file, and waits until it answers.
start_card() {
    ip netns add "$machine"
    ip -n "$machine" link set lo up
    # Not by `card`: the process that is started has to be the card.
    nsenter --net=/run/netns/"$machine" "$srd" card up --socket "$work/card.sock" "${@:2}" -- "$1" \
        >"$work/log" 2>&1 &
    card=$!
    until card status >/dev/null 2>&1; do
        kill -0 $card 2>/dev/null || { cat "$work/log" >&2; exit 1; }
        sleep 0.5
    done
}
