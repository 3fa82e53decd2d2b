# Configuring and building, shared by scripts/runner and scripts/test. Sourced after common.sh.
build=$root/build

# Several compilers of LibTorch's headers at once take 2 GiB each: no more of them than memory allows.
job_count() {
  local cores memory_kb
  cores=$(nproc)
  memory_kb=$(awk '/^MemAvailable/ { print $2 }' /proc/meminfo)
  ((memory_kb / 2097152 < cores)) && cores=$((memory_kb / 2097152))
  echo $((cores < 1 ? 1 : cores))
}

# Configures when that was never done, or when what setup brought or the named LibTorch has changed since. What changes in
# the CMake files themselves is noticed by the build.
configure() {
  local configured=$build/.configured libtorch=${RUNNER_LIBTORCH:-$deps/site/torch} before=""
  { read -r before <"$configured"; } 2>/dev/null || true
  [[ -e $build/build.ninja && $before == "$libtorch" && ! $deps/.pins -nt $configured ]] && return
  say "configuring"
  ! gxx_is_old || export CXX=g++-12
  mkdir -p "$build"
  (cd "$root" && cmake --preset release -DRUNNER_LIBTORCH="$libtorch" >"$build/configure.log" 2>&1) || {
    cat "$build/configure.log" >&2
    die "cmake failed; what it said stands above"
  }
  printf '%s\n' "$libtorch" >"$configured"
}

# build_targets TARGET...: says nothing when nothing is to do. Two at once wait for each other.
build_targets() {
  local plan jobs
  lock "$root/.deps/.build.lock"
  configure
  ninja -C "$build" build.ninja >/dev/null 2>&1 || true  # a plan ends at the step that configures again, so that comes first
  plan=$(ninja -C "$build" -n "$@" 2>&1) || true
  if [[ $plan != *"no work to do"* ]]; then
    jobs=$(job_count)
    say "building what changed$(about_minutes "$jobs" <<<"$plan")"
    NINJA_STATUS="[%f of %t, %es] " ninja -C "$build" -j "$jobs" "$@" >&2 || die "the build failed; the first error stands above"
  fi
  exec 9>&-
}

# What the steps of ninja's plan take of one core, in seconds: a precompiled header, some files of a room together, one file, a link.
about_minutes() { # about_minutes JOBS
  awk -v jobs="$1" '
    /cmake_pch/ { seconds += 20; next } /Unity/ { seconds += 11; next } /Building/ { seconds += 3; next } /^\[/ { seconds += 0.5 }
    END { minutes = int(seconds / jobs / 60 + 0.5)
          if (minutes >= 1) printf(": about %d min on %d core(s), less if the cache has the results", minutes, jobs) }'
}
