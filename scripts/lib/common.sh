# Shared by the scripts: where things are, and how they talk. Sourced with `root` set to the repository's folder.
deps=$root/.deps
[[ -x $deps/cmake/bin/cmake ]] && PATH=$deps/cmake/bin:$PATH

# Talk goes to stderr; stdout belongs to whatever the script runs in the end.
say() { printf '%s: %s\n' "$script" "$*" >&2; }
die() {
  say "$*"
  exit 4
}

# The compiler is CXX or g++, and g++-12 where g++ is older than that.
gxx_is_old() { [[ ! ${CXX:-} ]] && (($(g++ -dumpversion | cut -d. -f1) < 12)); }

# Runs the rest of the script alone: a second one waits here until the first is done.
lock() {
  mkdir -p "$(dirname "$1")"
  exec 9>"$1"
  flock -n 9 && return
  say "waiting for another one that is at work (it holds $1)"
  flock 9
}
