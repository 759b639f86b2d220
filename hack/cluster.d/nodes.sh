# Nodes of the cluster. Node 1 is in the namespaces of the control plane. Each further one has network, PID and mount
# namespaces of its own, below those of node 1: they end with them, and the end of a node's first process ends that node
# alone. It is connected to node 1's bridge by a pair of veth devices.
#
# The names of what belongs to such a node end with @ and its number: the part kubelet@2, run/kubelet@2, logs/kubelet@2.log,
# room@2. Its data and configuration are in node2.

nodes() { seq "$(cat "$STATE/nodes" 2>/dev/null || echo 1)"; }
are_several() { [ "$(nodes | wc -l)" -gt 1 ]; }
running_nodes() {
    local node
    for node in $(nodes); do ! room_pid "$node" >/dev/null || echo "$node"; done
}

# on NODE NAME: prints the name of what node 1 has as NAME.
on() { if [ "$1" = 1 ]; then echo "$2"; else echo "$2@$1"; fi; }
node_of() { if [[ $1 = *@* ]]; then echo "${1##*@}"; else echo 1; fi; }
node_name() { if [ "$1" = 1 ]; then echo "$NODE_NAME"; else echo "$NODE_NAME-$1"; fi; }
node_dir() { if [ "$1" = 1 ]; then echo "$STATE"; else echo "$STATE/node$1"; fi; }
node_ip() { echo "198.18.0.$1"; }
pods_of() { echo "198.18.$((48 + 16 * $1)).0/20"; }

# The number of nodes is kept until the cluster is removed. Tokens, routes and the time after which a node counts as lost
# depend on it, so it changes only while the cluster is stopped.
choose_nodes() {
    local before
    [[ $1 =~ ^[1-4]$ ]] || die "--nodes $1: a cluster has 1 to 4 nodes"
    before=$(nodes | wc -l)
    [ "$1" != "$before" ] || return 0
    [ "$1" -gt "$before" ] || die "cluster '$CLUSTER' has $before nodes: remove it with 'hack/cluster clean' before a start with fewer"
    ! is_running || die "cluster '$CLUSTER' runs with fewer nodes: stop it with 'hack/cluster stop' first"
    mkdir -p "$STATE"
    echo "$1" >"$STATE/nodes"
}

# Opens the namespaces of a further node, also after its end by kill_node.
open_node() {
    local node=$1 log
    log=$STATE/logs/$(on "$node" room).log
    forget_node "$node"
    mkdir -p "$(node_dir "$node")"
    open_namespaces "$node" nsenter -t "$(room_pid)" -n -p -m --
    { connect_node "$node" && furnish "$node"; } 2>"$log" || { tail -3 "$log" >&2; die "could not set up the namespaces of node $node"; }
}

# Without an address of its own the bridge takes that of a port, and changes it when a node comes or goes.
connect_node() {
    nsenter -t "$(room_pid)" -n -- sh -eu -c "
        ip link set node0 address 02:00:00:00:00:01
        ip link add node$1 type veth peer name node0 netns $(room_pid "$1")
        ip link set node$1 master node0 up
    "
}

need_further_node() {
    [[ $1 =~ ^[2-4]$ ]] || die "node '$1' cannot be lost: 2 to 4 can, and node 1 has the control plane"
    room_pid "$1" >/dev/null || die "node $1 is not running: 'hack/cluster start' starts it"
}

# Ends a node as a power failure does: nothing that it still sends arrives.
kill_node() {
    local pid
    cut_node "$1"
    pid=$(room_pid "$1")
    kill -9 "$pid"
    wait_for 20 "" sh -c "! test -d /proc/$pid" || die "node $1 does not end"
    forget_node "$1"
}
cut_node() { need_further_node "$1"; inside ip link set "node$1" down; }
reconnect_node() { need_further_node "$1"; inside ip link set "node$1" up; }

# The kernel may keep the network of a node that ended for a while, and with it the pair of devices.
forget_node() {
    inside ip link del "node$1" 2>/dev/null || true
    rm -f "$STATE/room@$1" "$STATE"/run/*"@$1"
    remove_cgroups "$1"
}
