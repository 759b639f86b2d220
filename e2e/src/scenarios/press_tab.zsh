# Types each argument into an interactive zsh that is at a terminal of its own, presses Tab, and prints all that it writes then.
zmodload zsh/zpty
zpty shell zsh -d -i
zpty -r shell seen '*<PROMPT>*' || exit 1
for typed in "$@"; do
    zpty -w -n shell "$typed"$'\t'
    zpty -r shell seen '*<PROMPT>*' || exit 1
    print -r -- "$seen"
done
zpty -d shell
