# Completion of runner for bash: source it, or put it into ~/.local/share/bash-completion/completions/runner
_runner() {
  local line=${COMP_LINE:0:COMP_POINT} words=() word="" quote="" candidate i char
  local before=""  # the part of the last word that bash treats as earlier words
  for ((i = 0; i < ${#line}; i++)); do
    char=${line:i:1}
    if [[ $char == "\\" && $quote != "'" ]]; then
      i=$((i + 1))
      word+=${line:i:1}
    elif [[ -n $quote ]]; then
      if [[ $char == "$quote" ]]; then quote=""; else word+=$char; fi
    elif [[ $char == [\"\'] ]]; then
      quote=$char before=$word
    elif [[ $char == [[:space:]] ]]; then
      [[ -n $word ]] && words+=("$word")
      word="" before=""
    else
      word+=$char
      if [[ $char == [=:] ]]; then before=$word; fi
    fi
  done
  words+=("$word")
  COMPREPLY=()
  while IFS=$'\t' read -r candidate _; do
    candidate=${candidate#"$before"}
    case $quote in
      \") candidate=${candidate//\\/\\\\} candidate=${candidate//\"/\\\"} candidate=${candidate//\$/\\\$}
          candidate=${candidate//\`/\\\`} ;;
      \') candidate=${candidate//\'/\'\\\'\'} ;;
      *) if [[ $candidate == *[!A-Za-z0-9_.,:=@%+/-]* ]]; then printf -v candidate %q "$candidate"; fi ;;
    esac
    COMPREPLY+=("$candidate")
  done < <("${words[0]}" __complete "${words[@]:1}" 2>/dev/null)
  if [[ ${#COMPREPLY[@]} -gt 0 && ${COMPREPLY[0]} == *[=:] ]]; then compopt -o nospace; fi
}
complete -o default -F _runner runner
