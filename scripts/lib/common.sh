# Shared by the scripts: folders and messages. Sourced with `root` set to the repository's folder, and `script` to the script's path
# in it.
deps=$root/.deps
[[ -x $deps/cmake/bin/cmake ]] && PATH=$deps/cmake/bin:$PATH

# Messages go to stderr. stdout is left to the program that the script runs.
say() { printf '%s: %s\n' "$script" "$*" >&2; }
die() {
  say "$*"
  exit 4
}

# Prints the comment at the head of the script.
usage() { sed -n '2,/^set /s/^# \{0,1\}//p' "$root/$script"; }

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
