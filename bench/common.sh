# Options, programs and privileges of the scripts in this directory, which read this file. Each
# script defines `usage`, and sets the variables of its options to their default values first.

# refuse MESSAGE: ends the script because of wrong arguments.
refuse() {
    echo "$1" >&2
    exit 2
}

# read_options "NAME..." ["FLAG..."] ARGUMENT...: sets the variable of each option to its value, and
# that of each flag to `yes`. The variable has the option's name, with underscores for hyphens.
read_options() {
    local known=" $1 " flags=" $2 " name
    shift 2
    while [ $# -gt 0 ]; do
        name=${1#--}
        case $1 in
            --help | -h) usage; exit 0 ;;
            --*[!a-z-]* | [!-]* | -[!-]* | -- | "") name= ;;
        esac
        if [ -n "$name" ] && [[ $flags == *" $name "* ]]; then
            declare -g "${name//-/_}=yes"
            shift
        elif [ -n "$name" ] && [[ $known == *" $name "* ]]; then
            [ $# -ge 2 ] || refuse "$1 needs a value"
            declare -g "${name//-/_}=$2"
            shift 2
        else
            usage >&2
            refuse "unknown option: $1"
        fi
    done
}

# choice OPTION VALUE CHOICE...: refuses a value that is none of the choices.
choice() {
    local option=$1 value=$2 one
    shift 2
    for one in "$@"; do
        [ "$value" != "$one" ] || return 0
    done
    refuse "$option is one of: $*"
}

# need_root: ends the script if it does not run as root.
need_root() {
    [ "$(id -u)" = 0 ] || { echo "network namespaces need root: sudo $0" >&2; exit 1; }
}

# need_file FILE COMMAND: ends the script if a program is missing that COMMAND builds.
need_file() {
    [ -x "$1" ] || { echo "no $1: $2" >&2; exit 1; }
}

# need_programs NAME...: ends the script if a program is missing.
need_programs() {
    local program
    PATH=$PATH:/usr/sbin:/sbin
    for program in "$@"; do
        command -v "$program" >/dev/null || { echo "no $program" >&2; exit 1; }
    done
}

# stop PROCESS...: ends processes that the script has started, and waits for them.
stop() {
    local pid
    for pid in "$@"; do kill "$pid" 2>/dev/null || true; done
    for pid in "$@"; do wait "$pid" 2>/dev/null || true; done
}

# Functions of awk: sort(of, n) sorts an array of numbers; median(of, n) returns the median of a sorted
# array, which for an even number of values is the mean of the two in the middle.
statistics='
    function sort(of, n,   i, j, x) {
        for (i = 2; i <= n; i++) {
            x = of[i]
            for (j = i - 1; j > 0 && of[j] > x; j--) of[j + 1] = of[j]
            of[j + 1] = x
        }
    }
    function median(of, n) { return (of[int((n + 1) / 2)] + of[int(n / 2) + 1]) / 2 }
'
