# What fish offers on TAB after "armload".
function __armload_complete
    set -l program (commandline -opc)[1]
    eval $program __complete fish (string escape -- (commandline -cp)) 2>/dev/null
end
complete -c armload -f -k -a '(__armload_complete)'
