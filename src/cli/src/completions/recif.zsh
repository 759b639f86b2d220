#compdef recif
# Completion of recif in zsh: the program itself says what may follow.
_recif() {
    local line directive=4 program=${words[1]/#\~\//$HOME/}
    local -a described suffix
    for line in "${(@f)$("$program" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        if [[ $line == :* ]]; then
            directive=${line#:}
        elif [[ $line == *$'\t'* ]]; then
            described+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
        elif [[ -n $line ]]; then
            described+=("${line//:/\\:}")
        fi
    done
    (( directive & 2 )) && suffix=(-S '')
    (( directive & 4 )) || _files
    (( ${#described} )) && _describe -V recif described "${suffix[@]}"
}
if [[ $funcstack[1] == _recif ]]; then _recif "$@"; else compdef _recif recif; fi
