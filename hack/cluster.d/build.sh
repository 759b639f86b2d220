# Debian packages, and the components that are built from their Go modules.
#
# Nothing here downloads a prebuilt binary: Kubernetes, etcd and CoreDNS come through the Go module proxy with checksums
# pinned in hack/kubernetes, everything else comes from Debian. A build is moved as a whole into a folder named by version
# and pins, so that an interrupted build is never used as a finished one.

PACKAGES=(containerd runc containernetworking-plugins iptables iproute2 conntrack catatonit buildah jq socat openssl
    busybox-static ca-certificates curl util-linux mount procps kmod make
    gcc libc6-dev) # Rust has no linker of its own, and some crates compile C
# Additional packages of the tests, including a browser; hack/peers installs the rest.
TEST_PACKAGES=(python3-venv postgresql chromium)
KUBERNETES_PARTS=(kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl)

# missing_of PACKAGE…: prints those that are not installed.
missing_of() {
    local package
    for package in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
    done
}
# Node, which builds the web UI, may come from other sources than Debian; then it includes npm.
missing_packages() {
    missing_of "${PACKAGES[@]}"
    command -v npm >/dev/null || printf '%s\n' nodejs npm
}
missing_test_packages() { missing_of "${TEST_PACKAGES[@]}"; }

# Non-interactive: changed configuration files are kept, a running installer is waited for, and a conflict that would remove
# packages (Docker's own containerd) is an error.
install_packages() {
    local missing log
    command -v apt-get >/dev/null || die "the local cluster is made of Debian packages, and this machine has no apt-get"
    missing=$(missing_packages && missing_test_packages)
    [ -n "$missing" ] || return 0
    need_root
    say "installing $(echo $missing)"
    no_server_of_its_own
    log=$(mktemp)
    {
        apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends --no-remove \
            -o DPkg::Lock::Timeout=120 -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold $missing
    } >"$log" 2>&1 </dev/null || { tail -5 "$log" >&2; die "apt-get could not install: $(echo $missing)"; }
    rm -f "$log"
}

# Debian's PostgreSQL starts a server at its installation; the tests start and stop their own.
no_server_of_its_own() {
    local settings=/etc/postgresql-common/createcluster.d/recif.conf
    [ ! -e /etc/postgresql-common ] || return 0
    mkdir -p "$(dirname "$settings")"
    echo 'create_main_cluster = false' >"$settings"
}

need_packages() { need_none "$(missing_packages)"; }
need_test_packages() { need_none "$(missing_test_packages)"; }
need_none() { [ -z "$1" ] || die "missing packages: $(echo $1): install them with 'hack/cluster packages'"; }

# Prints the cache folder of a kind of components, which is named by its version and its pins.
parts_dir() {
    local pins
    pins=$(cd "$HACK/kubernetes/$1" && cat go.mod go.sum $(ls ./*.go 2>/dev/null) | sha256sum | cut -c1-8)
    echo "$CACHE/$1-$2-$pins"
}
kubernetes_dir() { parts_dir kubernetes "$KUBERNETES_VERSION"; }
etcd_dir() { parts_dir etcd "$ETCD_VERSION"; }
coredns_dir() { parts_dir coredns "$COREDNS_VERSION"; }

# build_module KIND VERSION MODULE OUTPUT ARGUMENTS…: runs one `go build`, whose results become the cache folder of the
# kind.
build_module() {
    local kind=$1 version=$2 module=$3 output=$4 out began=$SECONDS
    shift 4
    out=$(parts_dir "$kind" "$version")
    [ ! -d "$out" ] || return 0
    grep -Eq "$module v$version( //.*)?\$" "$HACK/kubernetes/$kind/go.mod" ||
        die "hack/kubernetes/$kind/go.mod is not at $version as hack/versions says: run 'hack/cluster pin' and commit"
    command -v go >/dev/null || die "building the cluster's parts needs Go (see the go line of hack/kubernetes/$kind/go.mod): install it in /usr/local/go or put it on PATH"
    say "building $kind $version"
    rm -rf "$out.new"
    mkdir -p "$out.new"
    (cd "$HACK/kubernetes/$kind" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$out.new/$output" "$@" </dev/null) >"$out.log" 2>&1 9>&- ||
        { tail -20 "$out.log" >&2; die "building $kind failed (log: $out.log)"; }
    mv "$out.new" "$out"
    rm -f "$out.log"
    say "built $kind in $((SECONDS - began))s"
}

build_parts() {
    local minor=${KUBERNETES_VERSION#1.} package stamps=
    lock "$CACHE"
    # Without these version stamps a component reports v0.0.0, in decisions by version and in its User-Agent.
    for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        stamps+=" -X $package.gitVersion=v$KUBERNETES_VERSION -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*} -X $package.gitCommit=none"
    done
    build_module kubernetes "$KUBERNETES_VERSION" k8s.io/kubernetes "" \
        -ldflags "-s -w$stamps" \
        "${KUBERNETES_PARTS[@]/#/k8s.io/kubernetes/cmd/}"
    build_module etcd "$ETCD_VERSION" go.etcd.io/etcd/server/v3 etcd -ldflags "-s -w" go.etcd.io/etcd/server/v3
    build_module coredns "$COREDNS_VERSION" github.com/coredns/coredns coredns -ldflags "-s -w" .
    build_pause
    unlock
}

# The pause image, which holds the namespaces of a Pod open: a process that only reaps zombies.
build_pause() {
    local out context
    need_packages
    out=$(pause_archive)
    [ ! -f "$out" ] || return 0
    context=$(mktemp -d)
    cp /usr/bin/catatonit "$context/"
    printf 'FROM scratch\nCOPY catatonit /catatonit\nENTRYPOINT ["/catatonit", "-P"]\n' >"$context/Dockerfile"
    build_image "$context/Dockerfile" "$context" recif.local/pause:1
    save_image "$out" recif.local/pause:1
    rm -rf "$context"
}
pause_archive() { echo "$CACHE/pause-$(dpkg-query -W -f '${Version}' catatonit).tar"; }
