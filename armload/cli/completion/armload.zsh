#compdef armload
# What zsh offers on TAB after "armload".
_armload() {
    local end insert word about line
    local -a whole whole_shown open open_shown one_per_line
    while IFS=$'\t' read -r end insert word about; do
        line=$word
        if [[ -n $about ]]; then
            line="${(r:24:)word}$about"
            line=${line[1,COLUMNS-1]}
            one_per_line=(-l)
        fi
        if [[ $end == whole ]]; then
            whole+=("$insert") whole_shown+=("$line")
        else
            open+=("$insert") open_shown+=("$line")
        fi
    done < <(${~words[1]} __complete zsh "${(j: :)words[1,CURRENT-1]} $QIPREFIX$IPREFIX$PREFIX" 2>/dev/null)
    (( $#open )) && compadd -U -Q $one_per_line -V armload -S '' -d open_shown -a open
    (( $#whole )) && compadd -U -Q $one_per_line -V armload -d whole_shown -a whole
}
if [[ $funcstack[1] == _armload ]]; then # loaded from fpath, at the first TAB
    _armload
else
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
    compdef _armload armload
fi
