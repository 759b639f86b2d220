# Images without a registry: built by buildah in a separate store, saved as an archive, imported into containerd.

buildah_here() { buildah --root "$CACHE/buildah" --runroot "$CACHE/buildah-run" --storage-driver vfs "$@" 9>&-; }

# build_image DOCKERFILE CONTEXT NAME ARGUMENTS…
build_image() {
    local file=$1 context=$2 name=$3 log
    shift 3
    log=$(mktemp)
    buildah_here bud --isolation chroot --timestamp 0 -f "$file" -t "$name" "$@" "$context" >"$log" 2>&1 </dev/null ||
        { tail -20 "$log" >&2; die "building image $name failed"; }
    rm -f "$log"
}

# need_movable PROGRAM…: ends unless each is a position-independent executable (ELF's type ET_DYN), which ASLR moves.
need_movable() {
    local program
    for program in "$@"; do
        [ "$(od --endian=little -An -tu2 -j16 -N2 "$program" | tr -d ' ')" = 3 ] ||
            die "$program is not position-independent: see the linker flags in build.rs and hack/build-proxy"
    done
}

# save_image ARCHIVE NAME
save_image() {
    rm -f "$1.new"
    buildah_here push -q "$2" "docker-archive:$1.new:$2" >/dev/null || die "saving image $2 failed"
    mv "$1.new" "$1"
    buildah_here rmi -f "$2" >/dev/null
}

load_images() {
    local node
    for node in $(running_nodes); do load_images_on "$node" "$@"; done
}
# load_images_on NODE ARCHIVE…
load_images_on() {
    local node=$1 archive
    shift
    for archive in "$@"; do
        [ -f "$archive" ] || die "no such image archive: $archive"
        inside_node "$node" ctr -n k8s.io image import --no-unpack "$archive" >/dev/null ||
            die "containerd did not take $archive: see 'hack/cluster logs $(on "$node" containerd)'"
    done
}

# image NAME KEY BUILD…: runs BUILD to make recif.local/NAME:dev unless its archive exists, and loads it unless the cluster
# has it. Its archives are in IMAGES.
IMAGES=$CACHE/images
image() {
    local name=$1 key=$2 archive=$IMAGES/$1-$2.tar node
    shift 2
    if [ ! -f "$archive" ]; then
        say "building image $name"
        "$@"
        save_image "$archive" "recif.local/$name:dev"
        find "$IMAGES" -name "$name-[0-9a-f]*.tar" ! -name "$name-$key.tar" -mtime +1 -delete
    fi
    is_running && [ "$CLUSTER" != existing ] || return 0
    for node in $(running_nodes); do load "$node" "$name" "$key" "$archive"; done
}
load() {
    local node=$1 name=$2 key=$3 loaded
    loaded=$(node_dir "$node")/images
    [ "$(cat "$loaded/$name" 2>/dev/null)" != "$key" ] || return 0
    load_images_on "$node" "$4"
    inside_node "$node" ctr -n k8s.io image tag --force "recif.local/$name:dev" "recif.local/$name:$key" >/dev/null
    [ "$name" != runner ] || inside_node "$node" ctr -n k8s.io image tag --force recif.local/runner:dev docker.io/library/corail:latest >/dev/null
    mkdir -p "$loaded"
    echo "$key" >"$loaded/$name"
    say "loaded image $(on "$node" "$name") ($key)"
}

sum() { cat "$@" | sha256sum | cut -c1-12; }

# Builds the base of the product's images: the files that a dynamically linked program needs, from Debian packages of the
# versions that this machine links against. (A static program cannot resolve names with glibc.) With an argument, such as arm64,
# that of another architecture, from the libraries of Debian's cross compiler.
base_packages() { dpkg-query -W -f '${Package}=${Version}\n' "libc6${1:+-$1-cross}" "libgcc-s1${1:+-$1-cross}" ca-certificates; }
base_recipe() { base_packages "$@"; declare -f build_base copy_libraries; }
build_base() {
    local dir root package packages platform=()
    packages=$(base_packages "$@")
    BASE=recif.local/base:$(base_recipe "$@" | sum -)
    ! buildah_here inspect --type image "$BASE" >/dev/null 2>&1 || return 0
    say "building the base image${1:+ for $1}"
    dir=$(mktemp -d)
    root=$dir/root
    mkdir -p "$root/etc/ssl/certs" "$root/tmp" "$root/lib" "$root/usr"
    for package in $packages; do
        (cd "$dir" && { apt-get download "$package" || { apt-get update && apt-get download "${package%%=*}"; }; }) >"$dir/log" 2>&1 ||
            { tail -3 "$dir/log" >&2; die "apt-get could not download $package"; }
    done
    for package in "$dir"/*.deb; do dpkg -x "$package" "$dir/unpacked"; done
    copy_libraries "$dir/unpacked" "$root" "$@"
    # Our programs do not use character sets, vectors of C's mathematics, NIS and debuggers.
    rm -rf "$root"/{,usr/}lib/*/{gconv,lib{mvec,nsl,nss_compat,nss_hesiod,thread_db}[.-]*}
    cat "$dir"/unpacked/usr/share/ca-certificates/mozilla/*.crt >"$root/etc/ssl/certs/ca-certificates.crt"
    echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
    printf 'root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin\n' >"$root/etc/passwd"
    printf 'root:x:0:\nnonroot:x:65532:\n' >"$root/etc/group"
    chmod 1777 "$root/tmp"
    printf 'FROM scratch\nCOPY root /\nUSER 65532:65532\n' >"$dir/Dockerfile"
    [ -z "${1:-}" ] || platform=(--platform "linux/$1")
    build_image "$dir/Dockerfile" "$dir" "$BASE" "${platform[@]}"
    rm -rf "$dir"
}
# copy_libraries UNPACKED ROOT [ARCHITECTURE]: the cross compiler's libraries are in a folder of their own, below usr.
copy_libraries() {
    local libraries
    if [ -n "${3:-}" ]; then
        libraries=$(echo "$1"/usr/*-linux-gnu*)
        mkdir "$2/lib/$(basename "$libraries")"
        cp -a "$libraries/lib/." "$2/lib/$(basename "$libraries")/"
        (cd "$2/lib" && ln -s ./*/ld-linux-*.so.* .)
    else
        cp -a "$1/lib/." "$2/lib/"
        [ ! -d "$1/lib64" ] || cp -a "$1/lib64" "$2/"
        [ ! -d "$1/usr/lib" ] || { mkdir -p "$2/usr" && cp -a "$1/usr/lib" "$2/usr/lib"; }
    fi
}
