# Debian packages, and the components that are built from their Go modules.
#
# Nothing here downloads a prebuilt binary: Kubernetes, etcd and CoreDNS come through the Go module proxy with checksums
# pinned in hack/kubernetes, everything else comes from Debian. A build is moved as a whole into a folder named by version
# and pins, so that an interrupted build is never used as a finished one.

PACKAGES=(containerd runc containernetworking-plugins iptables iproute2 conntrack catatonit buildah jq socat openssl
    busybox-static ca-certificates curl util-linux mount procps kmod make
    gcc libc6-dev) # Rust has no linker of its own, and some crates compile C
# Additional packages of the tests and of hack/lint, including a browser and shells; hack/peers installs the rest.
TEST_PACKAGES=(python3-venv postgresql chromium shellcheck zsh fish)
KUBERNETES_PARTS=(kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl)
KUBERNETES_PACKAGES=("${KUBERNETES_PARTS[@]/#/k8s.io/kubernetes/cmd/}")
OTHER_PACKAGES=(./etcd ./coredns)
DEFAULT_PINS=$HACK/kubernetes/default

# choose_kubernetes default|oldest|newest: sets the version and the folder of its pins.
choose_kubernetes() {
    . "$HACK/versions"
    case $1 in
    default) ;;
    oldest) KUBERNETES_VERSION=$KUBERNETES_VERSION_OLDEST ;;
    newest) KUBERNETES_VERSION=$KUBERNETES_VERSION_NEWEST ;;
    *) die "RECIF_KUBERNETES is '$1': it can be default, oldest or newest" ;;
    esac
    KUBERNETES=$1 PINS=$HACK/kubernetes/$1
}
choose_kubernetes "${RECIF_KUBERNETES:-default}"

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

# unpacked_package PACKAGE VERSION: prints a folder of the cache with a Debian package that is unpacked and not installed, so that no
# service of it starts.
unpacked_package() {
    local package=$1 out=$CACHE/$1-$2 new
    new=$out.new
    [ ! -d "$out" ] || { echo "$out"; return; }
    lock "$CACHE/$package-lock"
    if [ ! -d "$out" ]; then
        command -v apt-get >/dev/null || die "$package comes from a Debian package, and this machine has no apt-get: put its programs, $2 or later, into $out/usr/bin"
        say "unpacking $package"
        rm -rf "$new"
        mkdir -p "$new"
        chmod 755 "$new"
        # As root, apt reads the package as a user of its own where it can, and says so where it cannot.
        (cd "$new" && { apt-get download "$package" || { apt-get update && apt-get download "$package"; }; }) >"$out.log" 2>&1 </dev/null 9>&- ||
            { tail -5 "$out.log" >&2; die "could not download Debian's package $package: run 'apt-get update' as root and try again"; }
        dpkg-deb -x "$new/$package"_*.deb "$new" || die "could not unpack Debian's package $package"
        rm -f "$new"/*.deb
        mv "$new" "$out"
        rm -f "$out.log"
    fi
    unlock
    echo "$out"
}

need_packages() { need_none "$(missing_packages)"; }
need_test_packages() { need_none "$(missing_test_packages)"; }
need_none() { [ -z "$1" ] || die "missing packages: $(echo $1): install them with 'hack/cluster packages'"; }

# Prints the cache folder of the components, which is named by their version and their pins.
parts_dir() {
    local pins
    pins=$({
        [ "$KUBERNETES" = default ] || cat "$PINS/go.mod" "$PINS/go.sum"
        cd "$DEFAULT_PINS" && cat go.mod go.sum ./*/main.go
    } | sha256sum | cut -c1-8)
    echo "$CACHE/cluster-$KUBERNETES_VERSION-$pins"
}

# need_pinned FOLDER MODULE VERSION
need_pinned() {
    grep -Eq "$2 v$3( //.*)?\$" "$1/go.mod" ||
        die "${1#"$ROOT/"}/go.mod has not $2 at $3 as hack/versions says: run 'hack/cluster pin' and commit"
}

# compile_parts FOLDER FLAGS PACKAGE…: compiles programs of a module. With -v there is a line per package, which `hack/up` counts.
compile_parts() {
    (cd "$1" && CGO_ENABLED=0 go build -v -trimpath -buildvcs=false -ldflags "$2" -o "$(parts_dir).new/" "${@:3}" </dev/null) 9>&-
}

# Compiles all components of the default in one `go build`, since most packages are common to them; of another version
# Kubernetes and then the others, from the pins of the default. The results become the cache folder.
build_programs() {
    local minor=${KUBERNETES_VERSION#1.} out package stamps='' began=$SECONDS
    out=$(parts_dir)
    [ ! -d "$out" ] || return 0
    need_pinned "$PINS" k8s.io/kubernetes "$KUBERNETES_VERSION"
    need_pinned "$DEFAULT_PINS" go.etcd.io/etcd/server/v3 "$ETCD_VERSION"
    need_pinned "$DEFAULT_PINS" github.com/coredns/coredns "$COREDNS_VERSION"
    command -v go >/dev/null || die "building the cluster's parts needs Go (see the go line of ${PINS#"$ROOT/"}/go.mod): install it in /usr/local/go or put it on PATH"
    say "building Kubernetes $KUBERNETES_VERSION, etcd $ETCD_VERSION and CoreDNS $COREDNS_VERSION"
    # Without these version stamps a component of Kubernetes reports v0.0.0, in decisions by version and in its User-Agent.
    for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        stamps+=" -X $package.gitVersion=v$KUBERNETES_VERSION -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*} -X $package.gitCommit=none"
    done
    rm -rf "$out.new"
    mkdir -p "$out.new"
    if [ "$KUBERNETES" = default ]; then
        compile_parts "$PINS" "-s -w$stamps" "${KUBERNETES_PACKAGES[@]}" "${OTHER_PACKAGES[@]}"
    else
        compile_parts "$PINS" "-s -w$stamps" "${KUBERNETES_PACKAGES[@]}" && compile_parts "$DEFAULT_PINS" "-s -w" "${OTHER_PACKAGES[@]}"
    fi >"$out.log" 2>&1 ||
        { tail -20 "$out.log" >&2; die "building the cluster's parts failed (log: $out.log)"; }
    mv "$out.new" "$out"
    rm -f "$out.log"
    say "built the cluster's parts in $((SECONDS - began))s"
}

# A finished build is moved to its place as a whole, so that a cluster does not wait for the build of another version.
build_parts() {
    if [ -d "$(parts_dir)" ] && [ -f "$(pause_archive)" ]; then
        return
    fi
    lock "$CACHE"
    build_programs
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
