# What bash offers on TAB after "armload".
_armload() {
    local candidate
    COMPREPLY=()
    while IFS= read -r candidate; do
        COMPREPLY+=("$candidate")
    done < <("$1" __complete bash "${COMP_LINE:0:COMP_POINT}" "$COMP_WORDBREAKS" 2>/dev/null)
}
complete -o nospace -o nosort -F _armload armload 2>/dev/null || complete -o nospace -F _armload armload
