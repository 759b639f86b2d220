# Clusters of kind, k3d and minikube: RECIF_CLUSTER=kind|k3d|minikube[:NAME]. Checked with stand-ins of these programs only.
#
# All the rest is as for RECIF_CLUSTER=existing, with a kubeconfig and images of its own.
choose_tool() {
    TOOL=${1%%:*} TOOL_NAME=recif CLUSTER=existing
    [[ $1 != *:* ]] || TOOL_NAME=${1#*:}
    [[ $TOOL_NAME =~ ^[a-z0-9][a-z0-9-]{0,30}$ ]] || die "cluster name '$TOOL_NAME': use lower-case letters, digits and '-', 31 at most"
    STATE=${XDG_STATE_HOME:-$HOME/.local/state}/recif/$TOOL-$TOOL_NAME
    export KUBECONFIG=$STATE/kubeconfig
}
# with_tool VERB ARGUMENTS…: list prints the names of all clusters; connect starts an existing one and writes its kubeconfig.
with_tool() {
    local name=$TOOL_NAME image
    case "$TOOL $1" in
    "kind list") kind get clusters ;;
    "kind create") kind create cluster --name "$name" --wait 120s ;;
    "kind connect") kind get kubeconfig --name "$name" >"$KUBECONFIG" ;;
    "kind load") kind load docker-image "${@:2}" --name "$name" ;;
    "kind delete") kind delete cluster --name "$name" ;;
    "k3d list") k3d cluster list --no-headers | cut -d' ' -f1 ;;
    "k3d create") k3d cluster create "$name" --kubeconfig-update-default=false --wait ;;
    "k3d connect") k3d cluster start "$name" && k3d kubeconfig get "$name" >"$KUBECONFIG" ;;
    "k3d load") k3d image import "${@:2}" --cluster "$name" ;;
    "k3d delete") k3d cluster delete "$name" ;;
    "minikube list") { minikube profile list --light --output json || true; } | jq -r '.valid[]?.Name' ;;
    "minikube create" | "minikube connect") minikube start --profile "$name" ;;
    "minikube load") for image in "${@:2}"; do minikube image load "$image" --profile "$name" || return 1; done ;;
    "minikube delete") minikube delete --profile "$name" ;;
    esac
}
# Creates the cluster if it is missing, and notes that, because only such a cluster is deleted.
start_tool_cluster() {
    local program
    for program in "$TOOL" docker kubectl jq; do command -v "$program" >/dev/null || die "RECIF_CLUSTER=$RECIF_CLUSTER needs $program: install it"; done
    mkdir -p "$STATE"
    if ! with_tool list 2>/dev/null | grep -qx "$TOOL_NAME"; then
        say "creating cluster $TOOL_NAME with $TOOL"
        touch "$STATE/created"
        with_tool create >&2 || die "$TOOL could not create cluster $TOOL_NAME: 'make down' removes what there is of it"
    fi
    with_tool connect >&2 || die "$TOOL could not start cluster $TOOL_NAME"
}
# Builds the images and loads them. They are named by their content, so that changed ones roll out.
load_into_tool() {
    local target names=() ids=
    for target in operator runner proxy; do
        say "building image $target with docker"
        docker build --build-arg PROFILE=release --target "$target" --tag "recif.local/$target:dev" "$ROOT" >&2 || die "docker could not build image $target"
        ids+=$(docker image inspect --format '{{.Id}}' "recif.local/$target:dev")
    done
    copy_recif
    RECIF_IMAGES=recif.local RECIF_VERSION=$(sha256sum <<<"$ids" | cut -c1-12)
    for target in operator runner proxy; do
        names+=("recif.local/$target:$RECIF_VERSION")
        docker tag "recif.local/$target:dev" "recif.local/$target:$RECIF_VERSION"
    done
    with_tool load "${names[@]}" >&2 || die "$TOOL could not load the images"
}
# Copies the command line out of the operator's image to where print_env puts it on PATH. One that runs is replaced, not overwritten.
copy_recif() {
    local container copied=yes
    container=$(docker create recif.local/operator:dev) || die "docker could not open image operator"
    mkdir -p "$STATE/bin"
    docker cp "$container:/recif" "$STATE/bin/recif.new" >&2 || copied=no
    docker rm "$container" >/dev/null || true
    [ "$copied" = yes ] || die "docker could not copy recif out of image operator"
    mv "$STATE/bin/recif.new" "$STATE/bin/recif"
}
delete_tool_cluster() {
    [ -f "$STATE/created" ] || die "make up did not create cluster $TOOL_NAME: delete it with $TOOL"
    with_tool delete >&2 || die "$TOOL could not delete cluster $TOOL_NAME"
    rm -rf "$STATE"
}
