// Lua strategies of a test, and comparisons of their training with ddp's. For the test's thread.
#pragma once
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "runner/base/files.hpp"
#include "tests/support/script_runs.hpp"
#include "tests/support/temporary_folder.hpp"

namespace runner::testing {

/// `run` with the strategy of `other`.
inline TinyRun like(const TinyRun& run, const TinyRun& other) {
  TinyRun changed = run;
  changed.strategy = other.strategy;
  changed.options = other.options;
  changed.make = other.make;
  return changed;
}

inline TinyRun as_ddp(const TinyRun& run) {
  TinyRun changed = run;
  changed.strategy = "ddp";
  changed.options = nlohmann::json::object();
  changed.make = nullptr;
  return changed;
}

inline void check_close(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) CHECK_THAT(a[i], Catch::Matchers::WithinRel(b[i], tolerance));
}

/// Requires bit-equal losses, norms, parameters and optimizer state.
inline void check_follows(const TinyResult& mine, const TinyResult& ddp, bool norms = true) {
  CHECK(mine.losses == ddp.losses);
  if (norms) CHECK(mine.norms == ddp.norms);
  for (const auto& [name, values] : ddp.state) {
    INFO(name);
    CHECK(mine.state.at(name) == values);
  }
}

/// The file of a strategy in a separate folder.
struct Script {
  TemporaryFolder folder;
  explicit Script(const std::string& text) { write_file_atomic(path(), text); }
  std::filesystem::path path() const { return folder.path / "mine.lua"; }
  std::string name() const { return "lua:" + path().string(); }
};

}  // namespace runner::testing
