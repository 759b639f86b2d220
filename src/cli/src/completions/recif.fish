# Completion of recif in fish: the program itself says what may follow.
function __recif_complete
    set -l words (commandline -opc)
    set -l begun (commandline -ct)
    for line in (command $words[1] __complete $words[2..-1] "$begun" 2>/dev/null)
        switch $line
            case ':0'
                __fish_complete_path "$begun"
            case ':*'
            case '*'
                echo $line
        end
    end
end
complete -c recif -f -a '(__recif_complete)'
