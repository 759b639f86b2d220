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
