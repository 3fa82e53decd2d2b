# Compiler, ccache, linker, warnings and sanitizers for all targets.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "g++ 12 or newer is needed; name it in a new build folder: CXX=g++-12 cmake --preset release")
endif()

# GCC collects garbage less often: 3 to 10 % less time for a file, and up to 0.5 GB more memory, in all less than the 2 GiB for a job that
# scripts/lib/build.sh counts with.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:--param ggc-min-heapsize=1048576>")
endif()

find_program(CCACHE ccache)
if(CCACHE)
  # With precompiled headers ccache needs these two sloppiness flags (ccache manual, "Precompiled headers"). Paths relative to
  # the source folder let build folders and clones share results, including those of precompiled headers.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}
      CCACHE_NOHASHDIR=1 ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()

find_program(MOLD mold)
if(MOLD AND NOT RUNNER_SANITIZE)
  execute_process(COMMAND ${MOLD} --version OUTPUT_VARIABLE mold_version)
  string(REGEX MATCH "[0-9]+[.][0-9.]+" mold_version "${mold_version}")
  if(mold_version VERSION_GREATER_EQUAL 1.10)  # 1.0.3 of Ubuntu 22.04 links wrongly
    add_link_options(-fuse-ld=mold)
  endif()
endif()

if(RUNNER_SANITIZE)
  add_compile_options(-fsanitize=${RUNNER_SANITIZE} -fno-omit-frame-pointer -g)
  add_link_options(-fsanitize=${RUNNER_SANITIZE})
  add_compile_options(-Wno-maybe-uninitialized)  # GCC 12 reports it wrongly in instrumented code
endif()

add_library(runner_warnings INTERFACE)
target_compile_options(runner_warnings INTERFACE -Wall -Wextra)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12.3)
  # Warnings are errors only with the compiler version of the developers, because newer ones may find more.
  # GCC 12 wrongly reports overlapping copies inside std::string's operator+ (GCC bug 105651).
  target_compile_options(runner_warnings INTERFACE -Werror -Wno-restrict)
endif()
