// Helpers of the tests with files that other programs write and read.
#pragma once
#include "support.hpp"

namespace runner::testing {

/// Runs foreign_sources.py. The test is skipped if the program is not installed.
inline std::string python(const Workplace& place, const std::string& what, const fs::path& path) {
  const char* chosen = std::getenv("RUNNER_TEST_PYTHON");
  const std::string program = chosen ? chosen
                                     : "PYTHONPATH=" RUNNER_SOURCE_DIR "/.deps/transformers:" RUNNER_SOURCE_DIR
                                       "/.deps/wandb /usr/bin/python3";
  const std::string out = (place.path() / "python.out").string();
  const int status = std::system(fmt::format("{} {}/tests/keeping/foreign_sources.py {} {} >{} 2>{}.err", program,
                                             RUNNER_SOURCE_DIR, what, path.string(), out, out)
                                     .c_str());
  INFO(slurp(out + ".err"));
  if (WEXITSTATUS(status) == 77) SKIP(program << " cannot do this: " << slurp(out + ".err"));
  REQUIRE(status == 0);
  return slurp(out);
}

inline nlohmann::json points_of(const Workplace& place, const std::string& run, const std::string& metric) {
  const auto result = place.run({"metrics", run, "--name", metric, "--json"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  return result.json().at("points");
}

inline nlohmann::json show(const Workplace& place, const std::string& run) {
  return place.run({"show", run, "--json"}).json();
}

/// 1, 1/2, 1/3, ... as foreign_sources.py writes them.
inline void check_values(const nlohmann::json& points, size_t count, bool floats, double factor = 1) {
  REQUIRE(points.size() == count);
  for (size_t step = 0; step < count; ++step) {
    const double value = factor / static_cast<double>(step + 1);
    CHECK(points[step][0] == step);
    CHECK(points[step][1].get<double>() == (floats ? static_cast<double>(static_cast<float>(value)) : value));
  }
}

}  // namespace runner::testing
