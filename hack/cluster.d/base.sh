# Names, paths and messages that the other files share.
#
# State (certificates, data, logs) belongs to one cluster and is removed by `clean`. Binaries belong to a version and are
# kept in the cache, outside the checkout, for every cluster and every later checkout.

. "$HACK/path"

# Commands that a command starts count from its start.
export RECIF_STARTED_AT=${RECIF_STARTED_AT:-$EPOCHSECONDS}
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/recif

# Addresses inside the namespaces, from the range that RFC 2544 reserves for test networks: of the first node, of all Pods
# (nodes.sh divides them), and of Services.
NODE_IP=198.18.0.1
POD_RANGE=198.18.64.0/18
SERVICE_RANGE=198.19.0.0/16
API_SERVICE_IP=198.19.0.1
DNS_IP=198.19.0.10
NODE_NAME=recif

# In a job (jobs.sh) a message goes to the file of events, from where the waiting process prints it.
say() {
    local line
    line=$(printf '%4ds  %s' $((EPOCHSECONDS - RECIF_STARTED_AT)) "$*")
    if [ -n "${RECIF_EVENTS:-}" ]; then echo "$line" >>"$RECIF_EVENTS"; else echo "$line" >&2; fi
}
die() {
    printf 'hack/%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# With kind, k3d or minikube the rest is as for an existing cluster.
choose_cluster() {
    CLUSTER=$1 TOOL=
    case $1 in
    kind | k3d | minikube | kind:* | k3d:* | minikube:*) choose_tool "$1"; return ;;
    esac
    [[ $CLUSTER =~ ^[a-z0-9][a-z0-9-]{0,30}$ ]] || die "cluster name '$CLUSTER': use lower-case letters, digits and '-', 31 at most"
    STATE=${XDG_STATE_HOME:-$HOME/.local/state}/recif/$CLUSTER
}

need_root() { [ "$(id -u)" = 0 ] || die "namespaces and packages need root: run it with sudo"; }
need_own() { [ "$CLUSTER" != existing ] || die "RECIF_CLUSTER=${RECIF_CLUSTER:-existing} is not a cluster of hack/cluster: it is not started or stopped from here"; }
need_running() {
    need_own
    need_root
    is_running || die "cluster '$CLUSTER' is not running: start it with 'hack/cluster start'"
    need_same_kubernetes
}

# Only one invocation at a time changes a cluster; the lock ends with the process (children close descriptor 9).
lock() {
    mkdir -p "$1"
    exec 9>"$1/lock"
    flock -w 900 9 || die "another hack/cluster has been working on $1 for 15 minutes: end it"
}
# try_lock FOLDER MESSAGE: the same without waiting, for actions that should not queue.
try_lock() {
    mkdir -p "$1"
    exec 9>"$1/lock"
    flock -n 9 || die "$2"
}
unlock() { exec 9>&-; }

# wait_for SECONDS WHAT COMMAND…: true as soon as the command succeeds; false after the time, with a message unless WHAT is
# empty.
wait_for() {
    local deadline=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$deadline" ] || { [ -z "$what" ] || say "gave up waiting for $what"; return 1; }
        sleep 0.1
    done
}
