// Prints the points of one metric to stdout as lines {"step", "value"}, for the sweep whose trial the run is (--report-metric).
#pragma once
#include <cstdio>

#include "runner/logging/run_listener.hpp"

namespace runner {

class ReportedMetric final : public RunListener {
 public:
  explicit ReportedMetric(std::string name) : name_(std::move(name)) {}
  std::string title() const override { return "the report to the sweep"; }
  void points(const PointGroup& group) override {
    for (const auto& point : group.points)
      if (point.name == name_) {
        std::printf("%s\n", nlohmann::json{{"step", point.step}, {"value", json_number(point.value)}}.dump().c_str());
        std::fflush(stdout);
      }
  }

 private:
  std::string name_;
};

}  // namespace runner
