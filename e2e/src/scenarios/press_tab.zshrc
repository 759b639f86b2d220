fpath=($ZDOTDIR $fpath)
autoload -U compinit
compinit -u -D

TERM=vt100
stty columns 200 rows 50
PS1='<PROMPT>'
# Shows what a completion lists and what is on the command line then, and begins another line.
complete_and_show() {
    zle expand-or-complete
    zle -R
    print -r -- "<LINE>$LBUFFER</LINE>"
    BUFFER=
    zle reset-prompt
}
zle -N complete_and_show
bindkey '^I' complete_and_show
