# Completion of runner for fish: put it as runner.fish into ~/.config/fish/completions
function __runner_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l found ($words[1] __complete $words[2..-1] 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c runner -f -a '(__runner_complete)'
