// This is the only file that uses LibTorch's profiler: its C++ interface is not documented as stable.
#include "runner/train/operator_trace.hpp"

#include <fmt/ranges.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <cstdlib>
#include <set>

namespace runner {

namespace {

namespace impl = torch::profiler::impl;
namespace kineto = torch::autograd::profiler;

std::set<impl::ActivityType> activities(bool device) {
  std::set<impl::ActivityType> set{impl::ActivityType::CPU};
  if (device) set.insert(impl::ActivityType::CUDA);
  return set;
}

std::string shapes_of(const kineto::KinetoEvent& event) {
  std::string text;
  if (!event.hasShapes()) return text;
  for (const auto& shape : event.shapes())
    if (!shape.empty()) text += fmt::format("{}[{}]", text.empty() ? "" : " ", fmt::join(shape, ", "));
  return text;
}

}  // namespace

OperatorTrace::~OperatorTrace() {
  if (running_) kineto::disableProfiler();
}

void OperatorTrace::start() {
  if (running_) return;
  // Without this, the profiler writes to stderr that there is no GPU.
  ::setenv("KINETO_LOG_LEVEL", "5", /*overwrite=*/0);
  const impl::ProfilerConfig config(impl::ProfilerState::KINETO, /*report_input_shapes=*/true);
  kineto::prepareProfiler(config, activities(device_));
  kineto::enableProfiler(config, activities(device_));
  running_ = true;
}

void OperatorTrace::stop() {
  if (!running_) return;
  running_ = false;
  const auto result = kineto::disableProfiler();
  for (const auto& event : result->events()) {
    if (event.isHiddenEvent()) continue;
    const bool host = event.deviceType() == c10::DeviceType::CPU;
    events_.push_back({.name = event.name(),
                       .track = host ? fmt::format("operators, thread {}", event.startThreadId())
                                     : fmt::format("device stream {}", event.deviceResourceId()),
                       .begin = static_cast<int64_t>(event.startNs()),
                       .nanoseconds = static_cast<int64_t>(event.durationNs()),
                       .shapes = shapes_of(event)});
  }
}

}  // namespace runner
