# A registry of images that asks for a password: Debian's docker-registry, in the namespaces of node 1. It is for tests, and no part of
# a cluster's start.
#
# It is on loopback, because containerd speaks plain HTTP to a registry there. Its data is in the cluster's folder, and so is `login`,
# its user and password as ctr and curl take them.

REGISTRY=127.0.0.1:5000
# Version of Debian 12. Later ones do too.
REGISTRY_VERSION=2.8

# write_registry_config FOLDER: the login changes with each cluster.
write_registry_config() {
    local dir=$1 salt
    mkdir -p "$dir"
    [ -s "$dir/login" ] || (umask 077 && echo "puller:$(openssl rand -hex 16)" >"$dir/login")
    # The registry takes hashes by bcrypt alone, which Perl's crypt makes; each Debian has Perl. The last of 22 characters has two bits.
    salt=$(openssl rand -hex 11)
    (umask 077 && SALT="\$2b\$05\$${salt%?}." perl -F: -lane 'print "$F[0]:", crypt($F[1], $ENV{SALT})' "$dir/login" >"$dir/htpasswd")
    cat >"$dir/config.yml" <<EOF
version: 0.1
log: {level: warn, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: $dir/images}}
http: {addr: $REGISTRY, secret: $salt}
auth: {htpasswd: {realm: recif, path: $dir/htpasswd}}
EOF
}

# push_image IMAGE NAME: pushes an image of node 1.
push_image() {
    [ "$(part_state registry)" = running ] || die "the registry is not running: start it with 'hack/cluster start-registry'"
    inside ctr -n k8s.io image push --plain-http --user "$(cat "$STATE/registry/login")" "$REGISTRY/$2" "$1" >/dev/null ||
        die "could not push $1: see 'hack/cluster logs registry'"
}
