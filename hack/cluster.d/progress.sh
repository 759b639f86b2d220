# What the jobs of jobs.sh have done so far, and how long the rest will take.
#
# Counts come from the compilers' own output. The time left is the time that a job took here last time; the first time it is
# computed from the CPU seconds of a reference machine and from how many of them this machine gave in a second so far.

clear_line() { [ ! -t 2 ] || printf '\r\e[K' >&2; }

# Prints a line of progress each 30 s; on a terminal each second, in place.
show_progress() {
    local every=30 end='\n' text
    [ ! -t 2 ] || { every=1; end=''; }
    [ $((SECONDS - PROGRESS_AT)) -ge "$every" ] || return 0
    PROGRESS_AT=$SECONDS
    text=$(progress_text)
    [ -n "$text" ] || return 0
    clear_line
    # shellcheck disable=SC2059
    printf "%4ds  %s$end" $((EPOCHSECONDS - RECIF_STARTED_AT)) "$text" >&2
}
progress_text() {
    local name text='' left
    for name in "${JOBS[@]}"; do
        [ -z "${JOB_PID[$name]:-}" ] || text+="${text:+ | }$(count_of "$name")"
    done
    left=$(time_left)
    [ "$left" -le 0 ] || text+=" | about $(roughly "$left") left"
    echo "$text"
}

# count_of JOB: prints its name, and what is compiled of how much.
count_of() {
    local log done=0 total
    case ${JOB_KEY[$1]} in
    parts)
        log=$(parts_dir).log
        [ -f "$log" ] || { echo "$1"; return; }
        done=$(grep -Evc '^(go|hack|#)[: ]' "$log") || true
        total=$(cat "$PINS/packages") ;;
    recif | dev)
        log=$JOBS_DIR/$1.log
        done=$(grep -Ec '^ *Compiling ' "$log") || true
        total=$(awk '$1 == "crates:" { sum += $2 } END { print sum + 0 }' "$log") ;;
    *) echo "$1"; return ;;
    esac
    if [ "$total" = 0 ]; then echo "$1"; else echo "$1 $((done < total ? done : total))/$total"; fi
}
# note_crates ARGUMENTS…: says to the line of progress how many crates a build of these packages has.
note_crates() {
    [ -n "${RECIF_EVENTS:-}" ] || return 0
    echo "crates: $(cargo tree --locked --edges normal,build --prefix none --format '{p}' "$@" | sed 's/ (\*)$//; s/ (proc-macro)$//' | sort -u | wc -l)"
}

# reference_cpu KEY: prints CPU seconds on the reference machine.
reference_cpu() {
    case $1 in
    parts) echo 590 ;;
    recif) echo 880 ;;
    dev) echo 500 ;;
    *) echo 0 ;;
    esac
}
# cpu_of_group PID: prints the CPU seconds that a process group and its ended children used.
cpu_of_group() {
    { cat /proc/[0-9]*/stat 2>/dev/null || true; } | sed 's/.*) //' |
        awk -v group="$1" -v hertz="$(getconf CLK_TCK)" '$3 == group { sum += $12 + $13 + $14 + $15 } END { print int(sum / hertz) }'
}
# Prints the seconds left, 0 if unknown. In the first minute all CPUs are taken as available.
time_left() {
    local name key last elapsed cpu rest left=0 work=0 used=0 longest=1
    for name in "${!JOB_PID[@]}"; do
        key=${JOB_KEY[$name]}
        elapsed=$((SECONDS - JOB_BEGAN[$name]))
        last=$(last_time "$key")
        if [ -n "$last" ]; then
            [ $((last - elapsed)) -le "$left" ] || left=$((last - elapsed))
            continue
        fi
        cpu=$(cpu_of_group "${JOB_PID[$name]}")
        rest=$(($(reference_cpu "$key") - cpu))
        [ "$rest" -le 0 ] || work=$((work + rest))
        used=$((used + cpu))
        [ "$elapsed" -le "$longest" ] || longest=$elapsed
    done
    if [ "$longest" -lt 60 ] || [ "$used" = 0 ]; then
        used=$(nproc) longest=1
    fi
    rest=$((work * longest / used))
    echo $((rest > left ? rest : left))
}

# expected_time KEY…: prints how many seconds jobs with these keys take together.
expected_time() {
    local key last longest=0 work=0
    for key in "$@"; do
        last=$(last_time "$key")
        if [ -z "$last" ]; then
            work=$((work + $(reference_cpu "$key") / $(nproc)))
        elif [ "$last" -gt "$longest" ]; then
            longest=$last
        fi
    done
    echo $((work > longest ? work : longest))
}

last_time() { sed -n "s/^$1 //p" "$CACHE/times" 2>/dev/null || true; }
remember_time() {
    mkdir -p "$CACHE"
    { grep -v "^$1 " "$CACHE/times" 2>/dev/null || true; echo "$1 $2"; } >"$CACHE/times.$$"
    mv "$CACHE/times.$$" "$CACHE/times"
}

# human SECONDS: prints 45 s, 4 min 50 s, or for a quarter of an hour and more 16 min.
human() {
    if [ "$1" -lt 60 ]; then echo "$1 s"; elif [ "$1" -ge 900 ]; then echo "$((($1 + 30) / 60)) min"; else echo "$(($1 / 60)) min $(($1 % 60)) s"; fi
}
# roughly SECONDS: prints 45 s, or minutes.
roughly() { if [ "$1" -lt 60 ]; then echo "$1 s"; else echo "$((($1 + 59) / 60)) min"; fi; }
