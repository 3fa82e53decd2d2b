# Functions to configure and build, for the scripts that build. Sourced after common.sh.
build=$root/build

# A compiler process needs 2 GiB for LibTorch's headers, so the memory limits the number of jobs.
job_count() {
  local cores memory_kb
  cores=$(nproc)
  memory_kb=$(awk '/^MemAvailable/ { print $2 }' /proc/meminfo)
  ((memory_kb / 2097152 < cores)) && cores=$((memory_kb / 2097152))
  echo $((cores < 1 ? 1 : cores))
}

# Configures at first use, and after a change of the dependencies or of the named LibTorch. The build itself detects changes of
# CMake files.
configure() {
  local configured=$build/.configured libtorch=${RUNNER_LIBTORCH:-$deps/site/torch} before=""
  { read -r before <"$configured"; } 2>/dev/null || true
  [[ -e $build/build.ninja && $before == "$libtorch" && ! $deps/.pins -nt $configured && ! $deps/.cuda -nt $configured ]] && return
  say "configuring"
  ! gxx_is_old || export CXX=g++-12
  mkdir -p "$build"
  (cd "$root" && cmake --preset release -DRUNNER_LIBTORCH="$libtorch" >"$build/configure.log" 2>&1) || {
    cat "$build/configure.log" >&2
    die "cmake failed; see its output above"
  }
  printf '%s\n' "$libtorch" >"$configured"
}

# build_targets TARGET...: prints nothing if nothing is to do. Concurrent calls wait for each other.
build_targets() {
  local plan jobs
  lock "$root/.deps/.build.lock"
  configure
  ninja -C "$build" build.ninja >/dev/null 2>&1 || true  # ninja's plan ends at a reconfiguration, so that runs first
  plan=$(ninja -C "$build" -n "$@" 2>&1) || true
  if [[ $plan != *"no work to do"* ]]; then
    jobs=$(job_count)
    say "building what changed$(about_minutes "$jobs" <<<"$plan")"
    NINJA_STATUS="[%f of %t, %es] " ninja -C "$build" -j "$jobs" "$@" >&2 || die "the build failed; see the first error above"
  fi
  exec 9>&-
}

# Builds the programs. The CUDA module is one of them if scripts/setup has installed its libraries.
build_programs() {
  if [[ -e $deps/.cuda ]]; then build_targets app_cuda; else build_targets app; fi
}

# test_preset PRESET [PROGRAM...]: builds and tests a CMake preset whose folder is build-PRESET; only these test programs, if some
# are named. Presets without LibTorch have no worker: the tests that ask one about memory use the one of the usual build.
test_preset() {
  local preset=$1 programs
  shift
  programs=$(IFS='|' && printf '%s' "$*")
  cd "$root"
  cmake --preset "$preset"
  ninja -C "build-$preset" -j "$(job_count)" "$@"
  if [[ ! -e build-$preset/bin/runner-worker ]]; then
    build_programs
    ln -sf ../../build/bin/runner-worker "build-$preset/bin/runner-worker"
  fi
  ctest --preset "$preset" --no-tests=error -j "$(nproc)" ${programs:+-R "^($programs): "}
}

# Estimates the time of ninja's plan from seconds per step on one core: precompiled header, several files of a library, one
# file, link.
about_minutes() { # about_minutes JOBS
  awk -v jobs="$1" '
    /cmake_pch/ { seconds += 20; next } /Unity/ { seconds += 11; next } /Building/ { seconds += 3; next } /^\[/ { seconds += 0.5 }
    END { minutes = int(seconds / jobs / 60 + 0.5)
          if (minutes >= 1) printf(": about %d min on %d core(s), less if the cache has the results", minutes, jobs) }'
}
