# Writes the Go modules under hack/kubernetes from hack/versions.
#
# Kubernetes is published as a module whose staging modules are required at v0.0.0 and replaced by folders of its own
# repository. A module that depends on it has to replace each of them by its published version (v1.X.Y -> v0.X.Y). That list
# changes with every release, so it is read from the release's own go.mod and never maintained by hand.

pin_kubernetes() {
    local dir=$HACK/kubernetes/kubernetes mod staging
    mod=$(cd / && go mod download -json "k8s.io/kubernetes@v$KUBERNETES_VERSION" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
    [ -n "$mod" ] || die "k8s.io/kubernetes v$KUBERNETES_VERSION: the Go proxy has no such version"
    staging=v0.${KUBERNETES_VERSION#1.}
    {
        echo "// Written by \`hack/cluster pin\` from hack/versions."
        echo "module recif/hack/kubernetes"
        sed -n '/^go [0-9]/p; /^godebug/p' "$mod"
        echo "tool ("
        printf 'k8s.io/kubernetes/cmd/%s\n' "${KUBERNETES_PARTS[@]}"
        echo ")"
        echo "require k8s.io/kubernetes v$KUBERNETES_VERSION"
        echo "replace ("
        sed -n "s|^[[:space:]]*\(k8s.io/[^ ]*\) v0\.0\.0\( .*\)\{0,1\}\$|\1 => \1 $staging|p" "$mod"
        echo ")"
    } >"$dir/go.mod"
    rm -f "$dir/go.sum"
    (cd "$dir" && go mod tidy)
}

pin_etcd() {
    local dir=$HACK/kubernetes/etcd
    cat >"$dir/go.mod" <<EOF
// Written by \`hack/cluster pin\` from hack/versions.
module recif/hack/etcd
go 1.26.0
tool go.etcd.io/etcd/server/v3
require go.etcd.io/etcd/server/v3 v$ETCD_VERSION
EOF
    rm -f "$dir/go.sum"
    (cd "$dir" && go mod tidy)
}

pin_coredns() {
    local dir=$HACK/kubernetes/coredns
    cat >"$dir/go.mod" <<EOF
// Written by \`hack/cluster pin\` from hack/versions.
module recif/hack/coredns
go 1.26.0
require github.com/coredns/coredns v$COREDNS_VERSION
EOF
    rm -f "$dir/go.sum"
    (cd "$dir" && go mod tidy)
}

pin() {
    pin_kubernetes
    pin_etcd
    pin_coredns
}
