# What fish offers on TAB after "armload".
function __armload_complete
    set -l program (string replace -r '^~(?=/)' $HOME -- (commandline -opc)[1])
    $program __complete fish (commandline -cp | string collect) 2>/dev/null
end
complete -c armload -f -k -a '(__armload_complete)'
