// A replacement of `runner`: supervises fake workers, prints every event as a line, and exits with the outcome's code.
// Arguments: WORKER LOG_DIR LOCAL_SIZE GRACE_SECONDS BEHAVIOUR...
#include <cstdio>

#include "runner/launch/supervisor.hpp"

int main(int argc, char** argv) {
  runner::WorkerGroup group;
  group.worker = argv[1];
  group.log_dir = argv[2];
  group.local_size = group.world_size = std::atoi(argv[3]);
  group.grace_time = std::chrono::seconds(std::atoi(argv[4]));
  group.arguments.assign(argv + 5, argv + argc);
  runner::SupervisorHooks hooks;
  hooks.on_event = [](const nlohmann::json& event) {
    std::puts(event.dump().c_str());
    std::fflush(stdout);
  };
  return static_cast<int>(runner::supervise(group, hooks).code);
}
