// A cluster environment for a scheduler that starts one process on each machine of a job and sets RACK_NODE, RACK_NODES, RACK_HEAD and
// RACK_JOB.
#include <cstdlib>
#include <runner/plugins/parts.hpp>
#include <stdexcept>

using namespace runner;

class Rack final : public parts::ClusterEnvironment {
 public:
  explicit Rack(const parts::Options& options)
      : prefix_(options.text("prefix", "RACK_")), port_(static_cast<int>(options.integer("port", 0))) {}

  parts::Ranks ranks() override {
    return {.node_rank = number("NODE"),
            .num_nodes = number("NODES"),
            .main_address = variable("HEAD"),
            .main_port = port_,
            .job_id = variable("JOB")};
  }

 private:
  std::string variable(const std::string& name) const {
    const char* value = std::getenv((prefix_ + name).c_str());
    if (!value) throw std::runtime_error(prefix_ + name + " is not set: is this process started by the scheduler?");
    return value;
  }
  int number(const std::string& name) const {
    try {
      return std::stoi(variable(name));
    } catch (const std::logic_error&) {
      throw std::runtime_error(prefix_ + name + " is not a number");
    }
  }
  const std::string prefix_;
  const int port_;
};

RUNNER_PARTS(.cluster_environment = [](const parts::Options& options) -> std::unique_ptr<parts::ClusterEnvironment> {
  return std::make_unique<Rack>(options);
})
