# Jobs that run at the same time, each in a process group of its own with its output in a log.
#
# What a job says goes through a file, so that only the waiting process writes to the terminal. A job that fails ends the
# others. The command that starts jobs calls end_jobs when it exits, also by Ctrl-C, which does not reach the jobs.

JOBS=() # names of all, in order
declare -A JOB_PID=() JOB_KEY=() JOB_BEGAN=() JOB_TOOK=()
JOBS_DIR=

# Compilers of Go and Rust side by side take up to 6 GB.
memory_bytes() { awk '$1 == "MemTotal:" { printf "%.0f", $2 * 1024 }' /proc/meminfo; }
choose_order() {
    SIDE_BY_SIDE=yes
    [ "$(memory_bytes)" -lt 8000000000 ] || return 0
    SIDE_BY_SIDE=no
    say "less than 8 GB of memory: one job after the other"
}

# job NAME KEY COMMAND…: starts a command or function. NAME is for people; under KEY its time is kept for the next run.
job() {
    local name=$1 key=$2
    shift 2
    [ -n "$JOBS_DIR" ] || {
        JOBS_DIR=$(mktemp -d)
        : >"$JOBS_DIR/events"
        mkfifo "$JOBS_DIR/never"
        exec 7<"$JOBS_DIR/events" 8<>"$JOBS_DIR/never"
        # Without these bash goes on after a signal that did not reach the program that it waits for.
        trap 'exit 130' INT
        trap 'exit 143' TERM
        trap 'exit 129' HUP
        choose_order
    }
    # With job control a background process leads a group.
    set -m
    RECIF_EVENTS=$JOBS_DIR/events CARGO_TERM_COLOR=never "$@" </dev/null >"$JOBS_DIR/$name.log" 2>&1 7<&- 8<&- 9>&- &
    set +m
    JOB_PID[$name]=$!
    JOBS+=("$name")
    JOB_KEY[$name]=$key
    JOB_BEGAN[$name]=$SECONDS
    [ "$SIDE_BY_SIDE" = yes ] || watch_jobs
}

await_jobs() {
    watch_jobs
    end_jobs
}

# Starts no process while it waits: compilers use up the process ids within minutes, and bash 5.2 can then take the exit of its own
# short child for that of an earlier one, and wait until a job ends.
watch_jobs() {
    local name _
    PROGRESS_AT=$SECONDS
    while [ ${#JOB_PID[@]} -gt 0 ]; do
        for name in "${!JOB_PID[@]}"; do
            kill -0 "${JOB_PID[$name]}" 2>/dev/null || finish_job "$name"
        done
        show_events
        show_progress
        # A pause: nothing is ever written there.
        read -r -t 0.2 -u 8 _ || true
    done
    clear_line
}

finish_job() {
    local name=$1 status=0
    wait "${JOB_PID[$name]}" 2>/dev/null || status=$?
    JOB_TOOK[$name]=$((SECONDS - JOB_BEGAN[$name]))
    if [ "$status" != 0 ]; then
        show_events
        clear_line
        mkdir -p "$CACHE"
        mv "$JOBS_DIR/$name.log" "$CACHE/failed.log"
        tail -n 30 "$CACHE/failed.log" >&2
        die "$name failed: its log is above, and as a whole in $CACHE/failed.log"
    fi
    remember_time "${JOB_KEY[$name]}" "${JOB_TOOK[$name]}"
    unset "JOB_PID[$name]"
}

group_is_gone() { ! kill -0 -- "-$1" 2>/dev/null; }
end_jobs() {
    local pid
    for pid in "${JOB_PID[@]}"; do kill -TERM -- "-$pid" 2>/dev/null || true; done
    for pid in "${JOB_PID[@]}"; do
        wait_for 5 "" group_is_gone "$pid" || kill -KILL -- "-$pid" 2>/dev/null || true
    done
    JOB_PID=()
    trap - INT TERM HUP
    [ -z "$JOBS_DIR" ] || {
        exec 7<&- 8<&-
        rm -rf "$JOBS_DIR"
    }
    JOBS_DIR=
}

# Prints what jobs said since the last call: the file stays open, and a read at its end sees what was appended later.
show_events() {
    local line
    while IFS= read -r -u 7 line; do
        clear_line
        printf '%s\n' "$line" >&2
    done
}
