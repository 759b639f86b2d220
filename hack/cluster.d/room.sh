# Namespaces of the cluster: one process that only waits (and reaps), in network, PID and mount namespaces of its own.
#
# All other processes are started next to it with nsenter, so its end, even by SIGKILL, ends all of them: the kernel kills
# every process of a PID namespace when its first one ends, and mounts and addresses are removed with the last process that
# uses them.

# room_pid [NODE]: prints the process id of the first process as seen from the machine; an id that was reused by another
# process does not count.
room_pid() {
    local pid started
    read -r pid started 2>/dev/null <"$STATE/$(on "${1:-1}" room)" || return 1
    [ "$(process_start "$pid")" = "$started" ] && echo "$pid"
}
process_start() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
is_running() { room_pid >/dev/null; }

inside() { inside_node 1 "$@"; }
inside_node() { nsenter -t "$(room_pid "$1")" -n -p -m -- "${@:2}"; }
inside_with_env() {
    nsenter -t "$(room_pid)" -n -p -m -- env -C "$PWD" "KUBECONFIG=$STATE/pki/admin.kubeconfig" "PATH=$(parts_dir):$PATH" "$@"
}

# Loads kernel modules that a distribution does not load by default. They are loaded outside, because the namespaces have no
# permission.
load_modules() {
    load_module br_netfilter test -e /proc/sys/net/bridge/bridge-nf-call-iptables
    load_module overlay grep -qw overlay /proc/filesystems
}
# load_module NAME COMMAND…: loads a module unless the command finds its feature, which may also be built in.
load_module() {
    local module=$1
    shift
    "$@" || { modprobe "$module" || true; } 2>/dev/null
    "$@" || die "the kernel has no $module, which the node needs: run 'modprobe $module' outside of any container"
}

open_room() {
    local log=$STATE/logs/room.log
    load_modules
    open_namespaces 1
    { inside ip link add node0 type bridge && furnish 1; } 2>"$log" || { tail -3 "$log" >&2; die "could not set up the namespaces"; }
}

# open_namespaces NODE [COMMAND…]: starts the first process of the node's namespaces, by way of COMMAND.
open_namespaces() {
    local node=$1 outer pid deadline=$((SECONDS + 10))
    shift
    # A session of its own, so that Ctrl-C at the terminal that started it does not reach it.
    setsid "$@" unshare --net --pid --mount --fork --kill-child --mount-proc catatonit -P </dev/null >/dev/null 2>&1 9>&- &
    outer=$!
    disown
    until pid=$(first_process "$outer"); do
        [ -d "/proc/$outer" ] && [ "$SECONDS" -lt "$deadline" ] || die "the kernel gave no namespaces: this needs root with CAP_SYS_ADMIN"
        sleep 0.02
    done
    echo "$pid $(process_start "$pid")" >"$STATE/$(on "$node" room)"
}
# Prints the descendant of a process that is catatonit; each process on the way has one child.
first_process() {
    local pid=$1
    while [ "$(cat "/proc/$pid/comm" 2>/dev/null)" != catatonit ]; do
        pid=$(cat "/proc/$pid/task/$pid/children" 2>/dev/null) && pid=${pid// /} && [ -n "$pid" ] || return 1
    done
    echo "$pid"
}

# Mounts: folders with fixed paths are private to the node and start empty. Addresses: that of the node is on node0, which on
# node 1 is a bridge, with a default route, without which programs consider the node's address unreachable.
furnish() {
    local node=$1 other routes=
    for other in $(nodes); do
        [ "$other" = "$node" ] || routes+="ip route add $(pods_of "$other") via $(node_ip "$other"); "
    done
    mkdir -p /var/lib/cni
    inside_node "$node" sh -eu -c "
        mount --make-rshared /
        for dir in /run /var/lib/cni /var/log; do mount -t tmpfs -o mode=755 tmpfs \$dir; done
        mkdir -p /run/lock /run/recif
        ip link set lo up
        ip addr add $(node_ip "$node")/18 dev node0
        ip link set node0 up
        ip route add default dev node0
        $routes
        sysctl -qw net.ipv4.ip_forward=1
        sysctl -qw net.bridge.bridge-nf-call-iptables=1
    "
}

close_room() {
    local pid node
    if pid=$(room_pid); then
        kill -9 "$pid" 2>/dev/null || true
        wait_for 20 "the namespaces to end" sh -c "! test -d /proc/$pid" || true
    fi
    rm -f "$STATE/room" "$STATE"/room@* "$STATE"/*.sock "$STATE"/run/*
    for node in $(nodes); do remove_cgroups "$node"; done
}

# Each kubelet keeps its cgroups below one of its own, so that no two of them clean up each other's Pods.
CGROUPS=/sys/fs/cgroup
cgroup_name() { on "$1" "recif-$CLUSTER"; }
cgroup_roots() {
    local dir name
    name=$(cgroup_name "$1")
    if [ -f $CGROUPS/cgroup.controllers ]; then
        echo "$CGROUPS/$name"
    else
        for dir in $CGROUPS/*/; do
            [ -L "${dir%/}" ] || echo "$dir$name"
        done
    fi
}
make_cgroups() {
    local dir
    [ ! -f $CGROUPS/cgroup.controllers ] || pass_controllers_on $CGROUPS
    for dir in $(cgroup_roots "$1"); do
        mkdir -p "$dir"
        # A new cpuset is empty, and an empty one accepts no process.
        if [ -f "$dir/cpuset.cpus" ] && [ -f "$dir/../cpuset.mems" ]; then
            cat "$dir/../cpuset.cpus" >"$dir/cpuset.cpus"
            cat "$dir/../cpuset.mems" >"$dir/cpuset.mems"
        fi
    done
}
# In cgroup v2 a group has the controllers that its parent delegates, and the kubelet refuses a group that lacks one of the
# root's. They are enabled one at a time: a controller that cannot be delegated does not prevent the others.
pass_controllers_on() {
    local controller
    for controller in $(cat "$1/cgroup.controllers"); do
        case $controller in
        cpu | cpuset | memory | pids | hugetlb | io) { echo "+$controller" >"$1/cgroup.subtree_control"; } 2>/dev/null || true ;;
        esac
    done
}
remove_cgroups() {
    local dir
    for dir in $(cgroup_roots "$1"); do
        [ ! -d "$dir" ] || find "$dir" -depth -type d -exec rmdir {} + 2>/dev/null || true
    done
}

# relay NAME PORT TARGET: forwards a port of the machine's loopback to an address inside. Two halves are connected by a unix
# socket; the outer half is outside of the network namespace only, so it ends with the other processes.
relay() {
    local name=$1 port=$2 target=$3
    spawn "relay-$name-in" socat "UNIX-LISTEN:$STATE/$name.sock,fork,unlink-early,mode=600" "TCP:$target"
    spawn_outside_network "relay-$name" socat "TCP-LISTEN:$port,bind=127.0.0.1,fork,reuseaddr" "UNIX-CONNECT:$STATE/$name.sock"
}

# relay_port NAME: prints the loopback port of a relay, which is constant for this cluster as long as no other process takes
# it.
relay_port() {
    local file=$STATE/$1.port port
    port=$(cat "$file" 2>/dev/null) || port=
    while [ -z "$port" ] || port_is_taken "$port"; do port=$((20000 + RANDOM % 10000)); done
    echo "$port" >"$file"
    echo "$port"
}
port_is_taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# expose NAME TARGET: starts a relay that is not one of the components and prints its port. The same target keeps its port.
expose() {
    local name=$1 target=$2 port
    if [ "$(process_state "relay-$name")" = running ] && [ "$(process_state "relay-$name-in")" = running ] &&
        [ "$(cat "$STATE/run/$name.target")" = "$target" ]; then
        cat "$STATE/$name.port"
        return
    fi
    end_relay "$name"
    port=$(relay_port "$name")
    relay "$name" "$port" "$target"
    echo "$target" >"$STATE/run/$name.target"
    wait_for 5 "port $port to open" port_is_taken "$port" >&2 || die "nothing listens on port $port: see $STATE/logs/relay-$name.log"
    echo "$port"
}
end_relay() {
    local process pid comm
    for process in "relay-$1" "relay-$1-in"; do
        [ "$(process_state "$process")" != stopped ] || continue
        read -r pid comm <"$STATE/run/$process"
        inside kill -9 "$pid" || true
    done
}
