# Sourced: builds the measured programs with the profile of releases, and the measuring programs. Later builds do not change
# their copies in FOLDER. RECIF_PROFILE=dev measures a debug build, for a quick look.
export RECIF_PROFILE=${RECIF_PROFILE:-dist}

built_in() { echo "${CARGO_TARGET_DIR:-target}/$([ "$1" = dev ] && echo debug || echo "$1")"; }

# measured FOLDER PROGRAM…: builds programs of package recif.
measured() {
    local folder=$1 program; shift
    mkdir -p "$folder"
    for program in "$@"; do
        if [ "$program" = recif-proxy ]; then
            hack/build-proxy
        else
            cargo build -q --locked --profile "$RECIF_PROFILE" --bin "$program" </dev/null
        fi
        cp "$(built_in "$RECIF_PROFILE")/$program" "$folder/"
    done
}

# measuring FOLDER PROGRAM…: builds programs of package e2e, which need no link-time optimisation. With the features of the whole
# workspace: with its own ones alone 23 crates would be compiled anew.
measuring() {
    local folder=$1 program; shift
    mkdir -p "$folder"
    for program in "$@"; do
        cargo build -q --locked --release --workspace --bin "$program" </dev/null
        cp "$(built_in release)/$program" "$folder/"
    done
}
