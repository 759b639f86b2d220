# Start, stop and status of a cluster.
#
# `start` is idempotent: it opens the namespaces unless they are open, then starts every component that does not run.
# Leftovers of a crash (a stale process id, cgroups, sockets) are removed before the namespaces are opened again.

start_cluster() {
    local with_node=yes
    while [ $# -gt 0 ]; do
        case $1 in
        --no-kubelet) with_node=no ;;
        --nodes) choose_nodes "${2:?--nodes needs a number}"; shift ;;
        *) die "start knows only --nodes and --no-kubelet" ;;
        esac
        shift
    done
    need_same_kubernetes
    if is_whole "$with_node"; then
        say "cluster '$CLUSTER' is running"
        return 0
    fi
    need_packages
    build_parts
    mkdir -p "$STATE"
    lock "$STATE"
    echo "$KUBERNETES" >"$STATE/kubernetes"
    is_running || {
        mkdir -p "$STATE/logs" "$STATE/run"
        close_room
        rm -f "$STATE"/logs/*.log
        make_certificates
        write_config
        open_room
        say "opened the namespaces of cluster '$CLUSTER'"
    }
    choose_controllers "$with_node"
    start_and_await etcd
    start_and_await apiserver
    start_and_await relay controller-manager scheduler
    say "control plane ready (Kubernetes $KUBERNETES_VERSION)"
    [ "$with_node" = no ] || start_nodes
    wait_for 30 "the default service account" kubectl_here -n default get serviceaccount default ||
        die "no default service account: see 'hack/cluster logs controller-manager'"
    link_tools
    unlock
    say "cluster '$CLUSTER' is running"
}

# Prints the RECIF_KUBERNETES of the cluster's data, nothing if it has none. An older version cannot read all that a newer wrote.
kubernetes_of_data() { [ ! -d "$STATE/etcd" ] || cat "$STATE/kubernetes" 2>/dev/null || echo default; }
need_same_kubernetes() {
    local has
    has=$(kubernetes_of_data)
    [ "${has:-$KUBERNETES}" = "$KUBERNETES" ] ||
        die "cluster '$CLUSTER' was created with RECIF_KUBERNETES=$has: set that, remove the cluster with 'hack/cluster clean', or name another with RECIF_CLUSTER"
}

is_whole() {
    local part parts=("${CONTROL_PLANE[@]}")
    is_running || return 1
    # shellcheck disable=SC2207
    [ "$1" = no ] || parts+=($(node_parts))
    for part in "${parts[@]}"; do [ "$(part_state "$part")" = running ] || return 1; done
    part_serves relay >/dev/null 2>&1
}

start_and_await() {
    local part
    for part in "$@"; do start_part "$part"; done
    for part in "$@"; do await_part "$part"; done
}

start_nodes() {
    local node log
    kubectl_here apply --server-side --force-conflicts -f "$STATE/config/dns.yaml" >/dev/null || die "could not create the DNS Service"
    for node in $(nodes); do
        room_pid "$node" >/dev/null || open_node "$node"
        start_and_await "$(on "$node" containerd)"
        inside_node "$node" ctr -n k8s.io image ls -q | grep -qx recif.local/pause:1 || load_images_on "$node" "$(pause_archive)"
        start_and_await "$(on "$node" kubelet)" "$(on "$node" proxy)"
    done
    start_and_await dns
    for node in $(nodes); do
        log=$STATE/logs/$(on "$node" kubelet).log
        wait_for 60 "" node_is_ready "$node" || {
            tail -n 15 "$log" >&2
            die "node $(node_name "$node") does not become Ready; kubelet's whole log: $log"
        }
        say "node $(node_name "$node") ready"
    done
}
node_is_ready() { kubectl_here wait --for condition=Ready --timeout 5s "node/$(node_name "$1")"; }

kubectl_here() { "$(parts_dir)/kubectl" --kubeconfig "$STATE/kubeconfig" "$@"; }

stop_cluster() {
    [ -d "$STATE" ] || return 0
    lock "$STATE"
    close_room
    unlock
    say "cluster '$CLUSTER' is stopped"
}

clean_cluster() {
    stop_cluster
    rm -rf "$STATE"
}

link_tools() {
    mkdir -p "$STATE/bin"
    ln -sfn "$(parts_dir)/kubectl" "$STATE/bin/kubectl"
    ln -sfn "$(binaries_dir)/recif" "$STATE/bin/recif"
}
binaries_dir() {
    local folder=${RECIF_PROFILE:-release}
    [ "$folder" != dev ] || folder=debug
    echo "${CARGO_TARGET_DIR:-$ROOT/target}/$folder"
}

print_env() {
    if [ "$CLUSTER" = existing ]; then
        : "${KUBECONFIG:?RECIF_CLUSTER=existing needs KUBECONFIG}"
        if [ -n "$TOOL" ]; then
            printf 'export PATH=%q:$PATH\nexport KUBECONFIG=%q\nexport RECIF_CLUSTER=%q\n' "$STATE/bin" "$KUBECONFIG" "$RECIF_CLUSTER"
        else
            printf 'export PATH=%q:$PATH\n' "$(binaries_dir)"
        fi
        return
    fi
    printf 'export PATH=%q:$PATH\nexport KUBECONFIG=%q\nexport RECIF_CLUSTER=%q\nexport RECIF_STATE=%q\n' "$STATE/bin" "$STATE/kubeconfig" "$CLUSTER" "$STATE"
    # For what is run in this shell later.
    case $(kubernetes_of_data) in
    oldest | newest) echo "export RECIF_KUBERNETES=$(kubernetes_of_data)" ;;
    *) echo "unset RECIF_KUBERNETES" ;;
    esac
}

print_status() {
    local part
    if [ "$CLUSTER" = existing ]; then
        echo "cluster ${RECIF_CLUSTER:-existing}: ${KUBECONFIG:-no KUBECONFIG set}"
        return
    fi
    if ! is_running; then
        echo "cluster $CLUSTER: stopped (state: $STATE)"
        return
    fi
    need_same_kubernetes
    echo "cluster $CLUSTER: Kubernetes $KUBERNETES_VERSION"
    for part in "${CONTROL_PLANE[@]}" $(node_parts); do printf '  %-20s %s\n' "$part" "$(part_state "$part")"; done
    echo "  kubeconfig           $STATE/kubeconfig"
    echo "  audit log            $STATE/audit.log"
    echo "  logs                 $STATE/logs"
}
