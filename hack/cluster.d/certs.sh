# Credentials for the API server: one certificate authority, one serving certificate, one token per system user.
#
# Tokens instead of client certificates keep a kubeconfig readable and do not depend on the clock. The serving certificate
# is a leaf that is not an authority itself: clients that use rustls refuse any other one.

SYSTEM_USERS=(
    "admin admin system:masters"
    "controller-manager system:kube-controller-manager"
    "scheduler system:kube-scheduler"
    "kubelet system:node:$NODE_NAME system:nodes"
    "proxy system:kube-proxy"
    "dns system:coredns"
)

make_certificates() {
    local dir=$STATE/pki
    if [ -f "$dir/tokens.csv" ]; then
        make_node_tokens
        return
    fi
    rm -rf "$dir"
    mkdir -p "$dir"
    chmod 700 "$dir"
    {
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=recif-$CLUSTER" \
            -addext "keyUsage=critical,keyCertSign,cRLSign" -keyout "$dir/ca.key" -out "$dir/ca.crt"
        make_leaf apiserver /CN=kube-apiserver serverAuth \
            "IP:127.0.0.1,IP:$NODE_IP,IP:$API_SERVICE_IP,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local"
        make_leaf kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client clientAuth DNS:kube-apiserver
        openssl genrsa -out "$dir/service-accounts.key" 2048
    } 2>"$dir/openssl.log" || { tail -3 "$dir/openssl.log" >&2; die "openssl could not make the certificates"; }
    make_tokens
    make_node_tokens
}

make_leaf() {
    local dir=$STATE/pki name=$1
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "$2" -keyout "$dir/$name.key" -out "$dir/$name.csr"
    openssl x509 -req -in "$dir/$name.csr" -CA "$dir/ca.crt" -CAkey "$dir/ca.key" -CAcreateserial -days 3650 -out "$dir/$name.crt" \
        -extfile <(printf 'basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=%s\nsubjectAltName=%s\n' "$3" "$4")
}

make_tokens() {
    local line
    # shellcheck disable=SC2086
    for line in "${SYSTEM_USERS[@]}"; do make_token $line; done >"$STATE/pki/tokens.new"
    mv "$STATE/pki/tokens.new" "$STATE/pki/tokens.csv"
}
# The API server reads tokens only when it starts.
make_node_tokens() {
    local node part
    for node in $(nodes); do
        part=$(on "$node" kubelet)
        [ -f "$STATE/pki/$part.kubeconfig" ] || make_token "$part" "system:node:$(node_name "$node")" system:nodes >>"$STATE/pki/tokens.csv"
    done
}
# make_token PART USER [GROUP]: writes a kubeconfig, and prints the line for the API server.
make_token() {
    local token
    token=$(openssl rand -hex 16)
    echo "$token,$2,$2,\"${3:-}\""
    write_kubeconfig "$STATE/pki/$1.kubeconfig" "https://$NODE_IP:6443" "$token"
}

admin_token() { sed -n 's/,admin,.*//p' "$STATE/pki/tokens.csv"; }

# write_kubeconfig FILE SERVER TOKEN
write_kubeconfig() {
    cat >"$1" <<EOF
apiVersion: v1
kind: Config
current-context: recif-$CLUSTER
contexts: [{name: recif-$CLUSTER, context: {cluster: recif-$CLUSTER, user: recif-$CLUSTER}}]
clusters: [{name: recif-$CLUSTER, cluster: {server: "$2", certificate-authority-data: $(base64 -w0 "$STATE/pki/ca.crt")}}]
users: [{name: recif-$CLUSTER, user: {token: $3}}]
EOF
    chmod 600 "$1"
}
