# The system packages that scripts/setup installs with apt. Sourced by it.

packages_pin="packages 9"  # increase when the lists below grow
test_packages_pin="test_packages 5"

# Each row: package, a command or header that shows that it is installed, and its purpose.
packages='
g++                  g++                               the compiler
cmake                cmake                             the build
ninja-build          ninja                             the build
ccache               ccache                            builds again in seconds
mold                 mold                              links ten times faster
pkg-config           pkg-config                        finds the libraries
git                  git                               records the state of the working directory
unzip                unzip                             unpacks wheels
python3              python3                           setup itself, layout check
libcli11-dev         include/CLI/CLI.hpp               command line
libspdlog-dev        include/spdlog/spdlog.h           log
libfmt-dev           include/fmt/format.h              text
liblua5.4-dev        include/lua5.4/lua.h              scripts in recipes
nlohmann-json3-dev   include/nlohmann/json.hpp         JSON
libsentencepiece-dev include/sentencepiece_processor.h tokenizer
libxxhash-dev        include/xxhash.h                  checksums
libpcre2-dev         include/pcre2.h                   regular expressions of tokenizers
libutf8proc-dev      include/utf8proc.h                characters and normal forms
libjpeg62-turbo-dev  include/jpeglib.h                 JPEG images
libyaml-dev          include/yaml.h                    YAML configurations of other tools
libcurl4-openssl-dev curl-config                       requests to MLflow and webhooks
libpng-dev           include/png.h                     PNG images
libcpp-httplib-dev   include/httplib.h                 the page of runner ui
gnuplot-nox          gnuplot                           runner plot writes SVG and PNG
'

# The launchers, and a Python with torch and those dependencies of transformers that have no pinned wheels. The system's torch
# is for CPUs only, so it needs a tenth of the space of PyPI's.
test_packages='
openmpi-bin          mpirun.openmpi                    Open MPI
mpich                mpirun.mpich                      MPICH
slurmctld            sbin/slurmctld                    Slurm
slurmd               sbin/slurmd                       Slurm
slurm-client         srun                              Slurm
munge                sbin/munged                       Slurm
procps               pgrep                             Slurm
chromium             chromium                          the page of runner ui
zsh                  zsh                               completion
fish                 fish                              completion
python3-torch        torchrun                          torchrun, transformers
python3-regex        lib/python3/dist-packages/regex   transformers
python3-yaml         lib/python3/dist-packages/yaml    transformers
python3-tqdm         lib/python3/dist-packages/tqdm    transformers
python3-filelock     lib/python3/dist-packages/filelock transformers
python3-fsspec       lib/python3/dist-packages/fsspec  transformers
python3-requests     lib/python3/dist-packages/requests transformers
python3-packaging    lib/python3/dist-packages/packaging transformers
python3-jinja2       lib/python3/dist-packages/jinja2  chat templates
'

there() { # there SIGN
  case $1 in
    */*) system_has "$1" ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

# The version that apt can install, e.g. "3.7.1-0.3"; nothing or "(none)" if the package is not available.
candidate() { LC_ALL=C apt-cache policy "$1" 2>/dev/null | sed -n 's/^  Candidate: //p'; }

system_name() { (. "${RUNNER_SYSTEM:-}/etc/os-release" 2>/dev/null && printf '%s' "${PRETTY_NAME:-}") || printf 'this system'; }

lists=old
refresh_lists() {
  [[ $lists == old ]] || return 0
  apt-get update >&2 && lists=new || say "apt-get update failed; using the existing package lists"
}

# apt_install PACKAGE...: each as "NAME (WHY)". Installs them as root; otherwise prints the command.
apt_install() {
  local reason names=() lacking=()
  command -v apt-get >/dev/null || die "missing packages: $(printf '%s, ' "$@")and there is no apt-get to install them"
  for reason in "$@"; do names+=("${reason%% *}"); done
  [[ $(id -u) == 0 ]] || die "$(printf 'Debian packages are missing: %s' "$(IFS=, && printf '%s' "$*" | sed 's/),/), /g')")
  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${names[*]}"
  say "installing Debian packages: $(IFS=, && printf '%s' "$*" | sed 's/),/), /g')"
  refresh_lists
  for reason in "$@"; do
    [[ $lists == old || $(candidate "${reason%% *}") == [0-9]* ]] || lacking+=("$reason")
  done
  ((${#lacking[@]} == 0)) ||
    die "$(system_name) does not have these packages: $(IFS=, && printf '%s' "${lacking[*]}" | sed 's/),/), /g'). Debian 12, Ubuntu 22.04 and later versions have them"
  DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${names[@]}" >&2 ||
    die "apt-get could not install ${names[*]}; see its output above"
}

missing=()
find_missing() { # find_missing TABLE
  local package sign why
  missing=()
  while read -r package sign why; do
    [[ ! $package ]] || there "$sign" || missing+=("$package ($why)")
  done <<<"$1"
}

# Without these packages the tests that need them are skipped, so a failure here is not a failure of setup.
install_test_packages() {
  find_missing "$test_packages"
  if ((${#missing[@]} > 0)); then
    (apt_install "${missing[@]}") || {
      say "continuing without them: the tests that need them will be skipped"
      return
    }
  fi
  mark "$test_packages_pin"
}

install_packages() {
  find_missing "$packages"
  python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=("python3-venv (setup itself)")
  ((${#missing[@]} == 0)) || apt_install "${missing[@]}"
  ! gxx_is_old || there g++-12 || apt_install "g++-12 (the compiler: g++ is older)"
  cmake_is_new_enough || have "$cmake_pin" "$deps/cmake/bin/cmake" || bring_cmake
  mark "$packages_pin"
}
