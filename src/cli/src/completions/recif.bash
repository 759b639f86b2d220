# Completion of recif in bash: the program itself says what may follow.
_recif() {
    local line tab=$'\t' directive=4 width=0 lines=() program=${COMP_WORDS[0]/#\~\//$HOME/}
    COMPREPLY=()
    while IFS= read -r line; do
        if [[ $line == :* ]]; then directive=${line#:}; else lines+=("$line"); fi
    done < <("$program" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    ((directive & 2)) && compopt -o nospace 2>/dev/null
    ((directive & 4)) || compopt -o default 2>/dev/null
    # A word that is inserted has no description: of a single one, and in menus.
    if ((${#lines[@]} == 1 || COMP_TYPE == 37 || COMP_TYPE == 42)); then
        COMPREPLY=("${lines[@]%%"$tab"*}")
        return
    fi
    for line in "${lines[@]%%"$tab"*}"; do ((${#line} > width)) && width=${#line}; done
    for line in "${lines[@]}"; do
        if [[ $line == *"$tab"* ]]; then
            printf -v line '%-*s  (%s)' "$width" "${line%%"$tab"*}" "${line#*"$tab"}"
        fi
        COMPREPLY+=("$line")
    done
}
complete -F _recif recif
