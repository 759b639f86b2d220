# Writes the Go module hack/kubernetes from hack/versions.
#
# Kubernetes is published as a module whose staging modules are required at v0.0.0 and replaced by folders of its own
# repository. A module that depends on it has to replace each of them by its published version (v1.X.Y -> v0.X.Y). That list
# changes with every release, so it is read from the release's own go.mod and never maintained by hand.

pin() {
    local dir=$HACK/kubernetes mod staging
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
        echo "require ("
        echo "k8s.io/kubernetes v$KUBERNETES_VERSION"
        echo "go.etcd.io/etcd/server/v3 v$ETCD_VERSION"
        echo "github.com/coredns/coredns v$COREDNS_VERSION"
        echo ")"
        echo "replace ("
        sed -n "s|^[[:space:]]*\(k8s.io/[^ ]*\) v0\.0\.0\( .*\)\{0,1\}\$|\1 => \1 $staging|p" "$mod"
        echo ")"
    } >"$dir/go.mod"
    rm -f "$dir/go.sum"
    (cd "$dir" && go mod tidy && CGO_ENABLED=0 go list -deps "${PARTS_PACKAGES[@]}" | wc -l >"$dir/packages")
}
