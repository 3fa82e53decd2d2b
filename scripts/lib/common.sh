# Shared by the scripts: folders and messages. Sourced with `root` set to the repository's folder.
deps=$root/.deps
[[ -x $deps/cmake/bin/cmake ]] && PATH=$deps/cmake/bin:$PATH

# Messages go to stderr. stdout is left to the program that the script runs.
say() { printf '%s: %s\n' "$script" "$*" >&2; }
die() {
  say "$*"
  exit 4
}

# The compiler is CXX or g++; g++-12 if g++ is older than 12.
gxx_is_old() { [[ ! ${CXX:-} ]] && (($(g++ -dumpversion | cut -d. -f1) < 12)); }

# Runs the rest of the script exclusively: a second process waits here until the first is done.
lock() {
  mkdir -p "$(dirname "$1")"
  exec 9>"$1"
  flock -n 9 && return
  say "waiting for another process, which holds the lock $1"
  flock 9
}
