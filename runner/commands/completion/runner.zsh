#compdef runner
# Completion of runner for zsh: put it as _runner into a folder of $fpath
_runner() {
  local -a plain described
  local candidate description
  while IFS=$'\t' read -r candidate description; do
    if [[ $candidate == *[=:] ]]; then plain+=("$candidate"); else described+=("${candidate//:/\\:}:$description"); fi
  done < <("${words[1]}" __complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)
  if (( ${#plain} + ${#described} == 0 )); then _files; return; fi
  (( ${#plain} )) && compadd -S '' -- "${plain[@]}"
  (( ${#described} )) && _describe runner described
}
if [[ $funcstack[1] == _runner ]]; then _runner "$@"; else compdef _runner runner; fi
