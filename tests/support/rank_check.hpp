// A check for threads that are ranks. Catch2's assertions are not thread-safe.
#pragma once
#include <stdexcept>
#include <string>

/// Throws if `condition` is false. run_ranks wakes the other ranks and rethrows on the test's thread.
#define RANK_CHECK(...)                                                                                       \
  do {                                                                                                        \
    if (!(__VA_ARGS__))                                                                                       \
      throw std::runtime_error(std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": " + #__VA_ARGS__); \
  } while (false)
