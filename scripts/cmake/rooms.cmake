# runner_room(NAME SOURCES ... [TORCH] [CONTROL] [LINKS ...])   one static library, named after its folder, with the project's flags;
#   CONTROL: code that does not compute much is compiled with -O1, in three quarters of the time
# runner_test(NAME SOURCES ... [TORCH] [LONG] [LINKS ...])   one Catch2 program; LONG: ctest starts its tests first
#   ctest lists its test cases one by one. With TORCH it lists parts of about 12 cases, because loading LibTorch takes as long as a case.
#
# Most of the build time of a file is spent on headers. So each kind of file has a precompiled header, and several files of a
# library are compiled together (RUNNER_UNITY; the preset `dev` turns it off, so a change rebuilds only one file). Therefore a name
# in an anonymous namespace must be unique in its library.
function(runner_precompiled_header name)  # runner_precompiled_header(NAME HEADERS ... LINKS ...)
  cmake_parse_arguments(ARG "" "" "HEADERS;LINKS" ${ARGN})
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/${name}.cpp CONTENT "")
  add_library(${name} STATIC ${CMAKE_BINARY_DIR}/${name}.cpp)
  target_link_libraries(${name} PUBLIC runner_warnings fmt::fmt nlohmann_json::nlohmann_json Threads::Threads ${ARG_LINKS})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name} PRIVATE -fPIC -fpch-preprocess)
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
endfunction()
set(unoptimized $<$<CONFIG:Release>:-O0>)  # of tests without LibTorch; code must have the -O of its precompiled header
set(common_headers <algorithm> <chrono> <filesystem> <fmt/format.h> <fstream> <functional> <map> <memory> <nlohmann/json.hpp> <optional>
                   <set> <sstream> <string> <variant> <vector>)
runner_precompiled_header(common_pch HEADERS ${common_headers})
if(Catch2_FOUND)
  runner_precompiled_header(test_pch HEADERS ${common_headers} <catch2/catch_test_macros.hpp> <catch2/generators/catch_generators.hpp>
                            <catch2/matchers/catch_matchers_floating_point.hpp> <catch2/matchers/catch_matchers_string.hpp>
                            LINKS Catch2::Catch2)
  target_compile_options(test_pch PRIVATE ${unoptimized})
endif()
if(RUNNER_TORCH)
  runner_precompiled_header(torch_pch HEADERS "${CMAKE_SOURCE_DIR}/strategies/collective/libtorch.hpp" ${common_headers}
                            <torch/csrc/distributed/c10d/ProcessGroup.hpp> LINKS torch::cpu)
endif()

# runner_flags(TARGET ON|OFF [HEADER])   with LibTorch or not; HEADER is the precompiled header of a file without LibTorch
function(runner_flags target torch)
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(${target} PUBLIC runner_warnings fmt::fmt nlohmann_json::nlohmann_json Threads::Threads)
  if(torch)
    target_link_libraries(${target} PUBLIC torch::cpu)
    set(header torch_pch)
  elseif(ARGC GREATER 2)
    set(header ${ARGV2})
    target_compile_options(${target} PRIVATE $<$<STREQUAL:${header},test_pch>:${unoptimized}>)
  else()
    set(header common_pch)
  endif()
  # Libraries and programs can share one precompiled header only if programs are compiled like libraries (-fPIC).
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC -fpch-preprocess)
  target_precompile_headers(${target} REUSE_FROM ${header})
endfunction()

# Flags of code that need not be fast. At -O1 GCC 12 wrongly warns of copies beyond the end of strings.
set(quick_flags $<$<CONFIG:Release>:-O1> -Wno-array-bounds -Wno-stringop-overflow)

function(runner_room name)
  cmake_parse_arguments(ARG "TORCH;CONTROL" "" "SOURCES;LINKS" ${ARGN})
  if(ARG_TORCH AND NOT RUNNER_TORCH)
    return()
  endif()
  add_library(${name} STATIC ${ARG_SOURCES})
  runner_flags(${name} ${ARG_TORCH})
  if(ARG_CONTROL)
    target_compile_options(${name} PRIVATE ${quick_flags})
  endif()
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${RUNNER_UNITY} UNITY_BUILD_BATCH_SIZE 24)
  target_link_libraries(${name} PUBLIC ${ARG_LINKS})
endfunction()

if(Catch2_FOUND)
  include(Catch)
endif()
function(runner_test name)
  cmake_parse_arguments(ARG "TORCH;LONG" "" "SOURCES;LINKS" ${ARGN})
  if(ARG_TORCH AND NOT RUNNER_TORCH)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  runner_flags(${name} ${ARG_TORCH} test_pch)
  if(ARG_TORCH)
    target_compile_options(${name} PRIVATE ${quick_flags})
    target_link_libraries(${name} PRIVATE quick_end)
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_LINKS} assertions_on_one_thread Catch2::Catch2WithMain)
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${RUNNER_UNITY} UNITY_BUILD_BATCH_SIZE 16)
  target_compile_definitions(${name} PRIVATE RUNNER_SOURCE_DIR="${CMAKE_SOURCE_DIR}" RUNNER_BINARY_DIR="${CMAKE_BINARY_DIR}")
  set(cost 1)
  if(ARG_LONG)
    set(cost 10)
  elseif(ARG_TORCH)
    set(cost 5)  # a part takes as long as many cases, so it starts before them
  endif()
  if(NOT ARG_TORCH)
    catch_discover_tests(${name} TEST_PREFIX "${name}: " DISCOVERY_MODE PRE_TEST PROPERTIES COST ${cost})
    return()
  endif()
  runner_count_cases(cases ${ARG_SOURCES})
  math(EXPR parts "${cases} / 12 + 1")
  foreach(part RANGE 1 ${parts})
    math(EXPR index "${part} - 1")
    add_test(NAME "${name}: part ${part} of ${parts}" COMMAND ${name} --shard-count ${parts} --shard-index ${index} --allow-running-no-tests)
    set_tests_properties("${name}: part ${part} of ${parts}" PROPERTIES COST ${cost} SKIP_RETURN_CODE 4 TIMEOUT 900)
  endforeach()
endfunction()

# runner_count_cases(VARIABLE FILES ...)   the number of test cases in files
function(runner_count_cases variable)
  set(count 0)
  foreach(file ${ARGN})
    file(STRINGS ${file} cases REGEX "^TEST_CASE")
    list(LENGTH cases found)
    math(EXPR count "${count} + ${found}")
  endforeach()
  set(${variable} ${count} PARENT_SCOPE)
endfunction()
