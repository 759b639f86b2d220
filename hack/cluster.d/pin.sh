# Writes the Go modules in hack/kubernetes from hack/versions.
#
# Kubernetes is published as a module whose staging modules are required at v0.0.0 and replaced by folders of its own
# repository. A module that depends on it has to replace each of them by its published version (v1.X.Y -> v0.X.Y). That list
# changes with every release, so it is read from the release's own go.mod and never maintained by hand.

pin() {
    local which
    for which in default oldest newest; do
        (choose_kubernetes "$which"; pin_kubernetes)
    done
}

# Writes the pins of the chosen version; those of the default have etcd and CoreDNS too.
pin_kubernetes() {
    local mod staging modules replacements
    say "pinning Kubernetes $KUBERNETES_VERSION ($KUBERNETES)"
    mod=$(cd / && go mod download -json "k8s.io/kubernetes@v$KUBERNETES_VERSION" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
    [ -n "$mod" ] || die "k8s.io/kubernetes v$KUBERNETES_VERSION: the Go proxy has no such version"
    staging=v0.${KUBERNETES_VERSION#1.}
    modules=$(sed -n 's|^[[:space:]]*\(k8s.io/[^ ]*\) v0\.0\.0\( .*\)\{0,1\}$|\1|p' "$mod" | sort -u)
    # shellcheck disable=SC2086
    replacements=$(replacements "$staging" $modules)
    mkdir -p "$PINS"
    {
        echo "// Written by \`hack/cluster pin\` from hack/versions."
        echo "module recif/hack/kubernetes"
        sed -n '/^go [0-9]/p; /^godebug/p' "$mod"
        echo "tool ("
        printf '%s\n' "${KUBERNETES_PACKAGES[@]}"
        echo ")"
        echo "require ("
        echo "k8s.io/kubernetes v$KUBERNETES_VERSION"
        [ "$KUBERNETES" != default ] || printf '%s\n' "go.etcd.io/etcd/server/v3 v$ETCD_VERSION" "github.com/coredns/coredns v$COREDNS_VERSION"
        echo ")"
        echo "replace ("
        echo "$replacements"
        echo ")"
    } >"$PINS/go.mod"
    rm -f "$PINS/go.sum"
    (cd "$PINS" && go mod tidy) || die "the modules of Kubernetes $KUBERNETES_VERSION do not resolve"
    need_none_compiled "$staging"
    count_packages >"$PINS/packages"
}

# replacements VERSION MODULE…: prints for each module the version, or the newest patch below it if it was never published.
replacements() {
    local version=$1 module missing lacking taken patch
    shift
    missing=$(unpublished "$version" "$@")
    for module in "$@"; do
        taken=$version lacking=
        if grep -qFx "$module" <<<"$missing"; then
            lacking=$module
            for ((patch = ${version##*.} - 1; patch >= 0; patch--)); do
                taken=${version%.*}.$patch
                lacking=$(unpublished "$taken" "$module")
                [ -n "$lacking" ] || break
            done
            [ -z "$lacking" ] || die "$module was never published as ${version%.*}: choose another version of Kubernetes"
            say "$module was not published as $version: taking $taken"
        fi
        echo "$module => $module $taken"
    done
}

# unpublished VERSION MODULE…: prints those that the Go proxy says it does not have; any other failure ends.
unpublished() {
    local version=$1 answers other
    shift
    answers=$(cd / && go mod download -json "${@/%/@$version}") || true
    other=$(jq -r 'select(.Error and (.Error | test(": (40[34]|410) |unknown revision|not found") | not)).Error' <<<"$answers")
    [ -z "$other" ] || die "the Go proxy does not answer: $other"
    jq -r 'select(.Error).Path' <<<"$answers"
}

# need_none_compiled VERSION: ends unless all packages that are compiled are of modules of this version. A program with parts of
# two releases is untested.
need_none_compiled() {
    local others compiled
    others=$(sed -n 's|^[[:space:]]*\(k8s.io/[^ ]*\) => [^ ]* \([^ ]*\)$|\1 \2|p' "$PINS/go.mod" | awk -v version="$1" '$2 != version { print $1 }')
    [ -n "$others" ] || return 0
    compiled=$(cd "$PINS" && CGO_ENABLED=0 go list -deps -f '{{with .Module}}{{.Path}}{{end}}' "${KUBERNETES_PACKAGES[@]}" | sort -u | grep -Fx "$others" || true)
    [ -z "$compiled" ] || die "$(echo $compiled) of $1 were not published, and packages of them are compiled: choose another version of Kubernetes"
}

# Prints how many packages are compiled. Those of Go itself are common to both modules.
list_packages() { (cd "$1" && CGO_ENABLED=0 go list -deps -f '{{.ImportPath}}{{with .Module}} {{with .Replace}}{{.Version}}{{else}}{{.Version}}{{end}}{{end}}' "${@:2}"); }
count_packages() {
    { list_packages "$PINS" "${KUBERNETES_PACKAGES[@]}" && list_packages "$DEFAULT_PINS" "${OTHER_PACKAGES[@]}"; } | sort -u | wc -l
}
