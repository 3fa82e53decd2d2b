// LibTorch's own operators, and the kernels of a device, as events of a trace. They come from LibTorch's profiler.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace runner {

class OperatorTrace {
 public:
  struct Event {
    std::string name;
    std::string track;           ///< the thread or the device's stream
    int64_t begin, nanoseconds;  ///< begin: Unix time in nanoseconds
    std::string shapes;          ///< of the inputs: "[8, 128] [128, 64]"
  };

  /// `device`: also the kernels of a device that has its own activities in LibTorch's profiler.
  explicit OperatorTrace(bool device) : device_(device) {}
  ~OperatorTrace();
  /// Begins to record what the calling thread and the autograd threads execute.
  void start();
  /// Ends it, and adds what was recorded to events(). Does nothing if it was not started.
  void stop();
  const std::vector<Event>& events() const { return events_; }

 private:
  bool device_, running_ = false;
  std::vector<Event> events_;
};

}  // namespace runner
