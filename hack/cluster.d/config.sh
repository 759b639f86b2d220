# Configuration files of the components. They are rewritten at each start, so that an edit here reaches an existing cluster.

write_config() {
    local dir=$STATE/config node
    mkdir -p "$dir"
    write_control_plane_config "$dir"
    for node in $(nodes); do
        write_containerd_config "$node" "$(node_dir "$node")"
        write_kubelet_config "$node" "$(node_dir "$node")"
    done
    write_dns_config "$dir"
}

# The audit log has one line per request, and for a write by a ServiceAccount also one when it is received, without bodies:
# tests count requests with it.
write_control_plane_config() {
    cat >"$1/audit.yaml" <<EOF
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Metadata
  userGroups: [system:serviceaccounts]
  verbs: [create, update, patch, delete, deletecollection]
- level: Metadata
  omitStages: [RequestReceived]
EOF
}

# restrict_oom_score_adj: a container needs CAP_SYS_RESOURCE for a lower score than ours, and sandboxes deny that
# capability.
write_containerd_config() {
    local dir=$2/config
    mkdir -p "$dir/cni"
    cat >"$dir/containerd.toml" <<EOF
version = 2
root = "$2/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "recif.local/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$dir/cni"
EOF
    cat >"$dir/cni/10-recif.conflist" <<EOF
{"cniVersion": "0.4.0", "name": "recif", "plugins": [
  {"type": "bridge", "bridge": "pods0", "isGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "$(pods_of "$1")"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}
]}
EOF
}

# A removed image cannot be pulled again, so no image is removed to free space, and a nearly full disk does not cause an
# eviction. With several nodes each reports every two seconds, because one counts as lost after ten.
write_kubelet_config() {
    local dir=$2/config
    echo "nameserver $DNS_IP" >"$dir/resolv.conf"
    cat >"$dir/kubelet.yaml" <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
cgroupRoot: /$(cgroup_name "$1")
oomScoreAdj: 0
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 50Mi, nodefs.available: 1%, nodefs.inodesFree: 1%, imagefs.available: 1%}
maxPods: 500
podLogsDir: $2/pods
resolvConf: $dir/resolv.conf
clusterDNS: [$DNS_IP]
clusterDomain: cluster.local
registerWithTaints: []
shutdownGracePeriod: 0s
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $STATE/pki/ca.crt}}
authorization: {mode: Webhook}
EOF
    ! are_several || echo 'nodeLeaseDurationSeconds: 8' >>"$dir/kubelet.yaml"
}

# DNS runs as a plain process on the node, so it needs no image; that process is the only endpoint of its Service.
write_dns_config() {
    cat >"$1/Corefile" <<EOF
.:53 {
    errors
    health 127.0.0.1:8180
    ready 127.0.0.1:8181
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        kubeconfig $STATE/pki/dns.kubeconfig recif-$CLUSTER
        ttl 2
    }
    cache 2
}
EOF
    cat >"$1/dns.yaml" <<EOF
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: system:coredns}
rules:
- {apiGroups: [""], resources: [endpoints, services, pods, namespaces], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: system:coredns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:coredns}
subjects: [{kind: User, name: system:coredns, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec:
  clusterIP: $DNS_IP
  ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kube-dns, namespace: kube-system, labels: {kubernetes.io/service-name: kube-dns}}
addressType: IPv4
endpoints: [{addresses: [$NODE_IP], conditions: {ready: true}}]
ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
EOF
}
