# Components of the cluster: for each its command line and its readiness check.
#
# A component is one process inside the namespaces of its node, whose process id in these namespaces is in run/NAME. Each
# can be stopped, killed and paused on its own, which the fault tests do.

CONTROL_PLANE=(etcd apiserver controller-manager scheduler relay)
# Prints the parts of all nodes.
node_parts() {
    local node
    printf '%s\n' containerd kubelet proxy dns
    for node in $(nodes); do [ "$node" = 1 ] || printf '%s\n' "containerd@$node" "kubelet@$node" "proxy@$node"; done
}

# spawn NAME COMMAND…: starts a process inside, detached from this one, with its output in logs/NAME.log.
spawn() { spawn_with "-n -p -m" "$@"; }
spawn_outside_network() { spawn_with "-p -m" "$@"; }
spawn_with() {
    local namespaces=$1 name=$2
    shift 2
    # shellcheck disable=SC2086
    nsenter -t "$(room_pid "$(node_of "$name")")" $namespaces -- sh -c '
        state=$1 name=$2; shift 2
        cd /
        setsid "$@" </dev/null >>"$state/logs/$name.log" 2>&1 &
        echo "$! $(basename "$1" | cut -c1-15)" >"$state/run/$name"
    ' sh "$STATE" "$name" "$@" 9>&-
}

# process_state NAME: prints running, paused or stopped.
process_state() {
    local pid comm stat
    read -r pid comm 2>/dev/null <"$STATE/run/$1" || { echo stopped; return; }
    stat=$(cat "/proc/$(room_pid "$(node_of "$1")")/root/proc/$pid/stat" 2>/dev/null) || { echo stopped; return; }
    case $stat in
    *"($comm) Z"* | *"($comm) X"*) echo stopped ;;
    *"($comm) T"*) echo paused ;;
    *"($comm)"*) echo running ;;
    *"(setsid)"* | *"(sh)"*) echo running ;;
    *) echo stopped ;;
    esac
}
processes_of() { if [ "$1" = relay ]; then echo relay-api relay-api-in; else echo "$1"; fi; }
part_state() {
    local process
    for process in $(processes_of "$1"); do process_state "$process"; done | sort -r | head -1
}
# Without a node no Pod ever runs: the user of such a cluster sets the status of a Deployment, and no controller may
# overwrite it.
controllers() { if [ -f "$STATE/without-node" ]; then echo '*,-deployment-controller,-replicaset-controller'; else echo '*'; fi; }
choose_controllers() {
    local before
    before=$(controllers)
    if [ "$1" = no ]; then touch "$STATE/without-node"; else rm -f "$STATE/without-node"; fi
    [ "$(controllers)" = "$before" ] || stop_part controller-manager
}
known_part() {
    local parts
    mapfile -t parts < <(printf '%s\n' "${CONTROL_PLANE[@]}"; node_parts; echo registry)
    [[ " ${parts[*]} " == *" $1 "* ]] || die "no part '$1': there are ${parts[*]}"
}
part_log() { known_part "$1"; cat "$STATE/logs/$(processes_of "$1" | cut -d' ' -f1).log"; }

start_part() {
    local parts pki=$STATE/pki node dir lost=()
    parts=$(parts_dir)
    known_part "$1"
    node=$(node_of "$1")
    dir=$(node_dir "$node")
    [ "$(part_state "$1")" = stopped ] || return 0
    case ${1%@*} in
    etcd)
        spawn etcd "$parts/etcd" --name recif --data-dir "$STATE/etcd" --unsafe-no-fsync --log-level warn \
            --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
            --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
            --initial-cluster recif=http://127.0.0.1:2380 ;;
    apiserver)
        # The tests use mutating policies, which are v1 since 1.36.
        local minor=${KUBERNETES_VERSION#1.} alpha=()
        [ "${minor%%.*}" -ge 36 ] || alpha=(--feature-gates MutatingAdmissionPolicy=true --runtime-config admissionregistration.k8s.io/v1alpha1=true)
        spawn apiserver "$parts/kube-apiserver" --etcd-servers http://127.0.0.1:2379 \
            --bind-address "$NODE_IP" --advertise-address "$NODE_IP" --secure-port 6443 --allow-privileged \
            --tls-cert-file "$pki/apiserver.crt" --tls-private-key-file "$pki/apiserver.key" --cert-dir "$STATE/run" \
            --client-ca-file "$pki/ca.crt" --token-auth-file "$pki/tokens.csv" --authorization-mode Node,RBAC \
            --enable-admission-plugins NodeRestriction --service-cluster-ip-range "$SERVICE_RANGE" \
            --service-account-issuer https://kubernetes.default.svc.cluster.local \
            --service-account-key-file "$pki/service-accounts.key" --service-account-signing-key-file "$pki/service-accounts.key" \
            --kubelet-client-certificate "$pki/kubelet-client.crt" --kubelet-client-key "$pki/kubelet-client.key" \
            --kubelet-preferred-address-types InternalIP \
            --audit-policy-file "$STATE/config/audit.yaml" --audit-log-path "$STATE/audit.log" --audit-log-maxsize 1000 --audit-log-maxbackup 1 "${alpha[@]}" ;;
    controller-manager)
        # A single node would count as lost whenever the machine is busy.
        ! are_several || lost=(--node-monitor-grace-period 10s --node-monitor-period 2s)
        spawn controller-manager "$parts/kube-controller-manager" --kubeconfig "$pki/controller-manager.kubeconfig" \
            --controllers "$(controllers)" --leader-elect=false --kube-api-qps 300 --kube-api-burst 600 --use-service-account-credentials --root-ca-file "$pki/ca.crt" \
            --service-account-private-key-file "$pki/service-accounts.key" --cert-dir "$STATE/run" --bind-address 127.0.0.1 "${lost[@]}" ;;
    scheduler)
        spawn scheduler "$parts/kube-scheduler" --kubeconfig "$pki/scheduler.kubeconfig" --leader-elect=false \
            --kube-api-qps 300 --kube-api-burst 600 --cert-dir "$STATE/run" --bind-address 127.0.0.1 ;;
    relay)
        signal_part KILL relay
        relay api "$(relay_port api)" "$NODE_IP:6443"
        write_kubeconfig "$STATE/kubeconfig" "https://127.0.0.1:$(cat "$STATE/api.port")" "$(admin_token)" ;;
    containerd)
        make_cgroups "$node"
        spawn "$1" containerd --config "$dir/config/containerd.toml" ;;
    kubelet)
        spawn "$1" "$parts/kubelet" --kubeconfig "$pki/$1.kubeconfig" --config "$dir/config/kubelet.yaml" \
            --root-dir "$dir/kubelet" --cert-dir "$dir/kubelet/pki" --hostname-override "$(node_name "$node")" --node-ip "$(node_ip "$node")" ;;
    proxy)
        spawn "$1" "$parts/kube-proxy" --kubeconfig "$pki/proxy.kubeconfig" --hostname-override "$(node_name "$node")" \
            --cluster-cidr "$POD_RANGE" --proxy-mode iptables --conntrack-max-per-core 0 --oom-score-adj 0 ;;
    dns)
        spawn dns "$parts/coredns" -conf "$STATE/config/Corefile" ;;
    registry)
        parts=$(unpacked_package docker-registry "$REGISTRY_VERSION")
        write_registry_config "$STATE/registry"
        spawn registry "$parts/usr/bin/docker-registry" serve "$STATE/registry/config.yml" ;;
    esac
}

signal_part() {
    local process pid comm
    known_part "$2"
    for process in $(processes_of "$2"); do
        [ "$(process_state "$process")" != stopped ] || continue
        read -r pid comm <"$STATE/run/$process"
        inside_node "$(node_of "$process")" sh -c "kill -$1 $pid" || true
    done
}
is_stopped() { [ "$(part_state "$1")" = stopped ]; }
# The API server waits minutes for its watches when it is stopped; this function does not wait for that.
stop_part() {
    signal_part TERM "$1"
    signal_part CONT "$1"
    wait_for 5 "" is_stopped "$1" || { signal_part KILL "$1"; wait_for 5 "$1 to end" is_stopped "$1"; }
}

part_verb() {
    case $1 in
    start) start_part "$2"; await_part "$2" ;;
    stop) stop_part "$2" ;;
    restart) stop_part "$2"; start_part "$2"; await_part "$2" ;;
    kill) signal_part KILL "$2"; wait_for 5 "$2 to end" is_stopped "$2" ;;
    pause) signal_part STOP "$2" ;;
    resume) signal_part CONT "$2" ;;
    esac
}

# Waits for the readiness of a component; on a timeout it prints the last lines of the log and ends.
await_part() {
    wait_for "${PART_SECONDS:-60}" "$1" part_serves "$1" || {
        tail -n 15 "$STATE/logs/$(processes_of "$1" | cut -d' ' -f1).log" >&2 || true
        die "$1 does not come up; its whole log: $STATE/logs"
    }
}
part_serves() {
    local node
    [ "$(part_state "$1")" = running ] || return 1
    node=$(node_of "$1")
    case ${1%@*} in
    etcd) inside curl -fsm 2 http://127.0.0.1:2379/health ;;
    apiserver) inside curl -fsm 2 --cacert "$STATE/pki/ca.crt" "https://$NODE_IP:6443/readyz" ;;
    controller-manager) inside curl -fskm 2 https://127.0.0.1:10257/healthz ;;
    scheduler) inside curl -fskm 2 https://127.0.0.1:10259/healthz ;;
    relay) curl -fsm 2 --cacert "$STATE/pki/ca.crt" "https://127.0.0.1:$(cat "$STATE/api.port")/readyz" ;;
    containerd) inside_node "$node" ctr version ;;
    kubelet) inside_node "$node" curl -fsm 2 http://127.0.0.1:10248/healthz ;;
    proxy) inside_node "$node" curl -fsm 2 http://127.0.0.1:10256/livez ;;
    dns) inside curl -fsm 2 http://127.0.0.1:8181/ready ;;
    # 401 is an answer too.
    registry) inside curl -sm 2 "http://$REGISTRY/v2/" ;;
    esac
}
