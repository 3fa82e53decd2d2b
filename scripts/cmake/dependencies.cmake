# Imported targets of all packages: the system's through find_package, pinned ones from RUNNER_DEPS.
list(APPEND CMAKE_PREFIX_PATH ${RUNNER_DEPS}/tomlplusplus/usr ${RUNNER_DEPS}/gloo/usr ${RUNNER_DEPS}/catch2/usr)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(lua REQUIRED IMPORTED_TARGET lua5.4)
# Linked statically where that is possible: bytecode of the build (runner/lua/CMakeLists.txt) must be loaded by the Lua that wrote it.
find_library(LUA_ARCHIVE NAMES liblua5.4.a HINTS ${lua_LIBDIR})
if(LUA_ARCHIVE)
  set_target_properties(PkgConfig::lua PROPERTIES INTERFACE_LINK_LIBRARIES "${LUA_ARCHIVE};m;${CMAKE_DL_LIBS}")
endif()
pkg_check_modules(sentencepiece REQUIRED IMPORTED_TARGET sentencepiece)
find_package(JPEG REQUIRED)
find_package(PNG REQUIRED)
pkg_check_modules(yaml REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
find_path(TOMLPLUSPLUS_INCLUDE toml++/toml.h REQUIRED NO_CACHE)
find_path(XXHASH_INCLUDE xxhash.h REQUIRED)

# SQLite: the pinned amalgamation, compiled as one C file.
add_library(sqlite3 STATIC ${RUNNER_DEPS}/sqlite/sqlite3.c)
target_include_directories(sqlite3 SYSTEM PUBLIC ${RUNNER_DEPS}/sqlite)
target_compile_definitions(sqlite3 PRIVATE SQLITE_DQS=0 SQLITE_THREADSAFE=1 SQLITE_DEFAULT_MEMSTATUS=0
                           SQLITE_OMIT_DEPRECATED SQLITE_OMIT_LOAD_EXTENSION SQLITE_LIKE_DOESNT_MATCH_BLOBS)
target_compile_options(sqlite3 PRIVATE -w -O1)  # builds in half the time of -O2, and the ledger needs little of a run's time

find_package(Catch2 3 QUIET)  # only for the tests

if(RUNNER_TORCH)
  find_path(GLOO_INCLUDE gloo/context.h REQUIRED NO_CACHE)
  include(libtorch)
endif()
