// The real launchers start this program in tests. It prints the placement that it detects as one JSON line.
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "runner/base/error.hpp"
#include "runner/launch/cluster.hpp"

int main(int argc, char** argv) {
  try {
    runner::Placement p = runner::find_placement("auto", runner::process_environment());
    if (argc > 1) runner::check_placement(p, std::atoi(argv[1]), 1);
    nlohmann::json line{{"cluster", p.cluster},        {"launched", p.launched},     {"rank", p.rank},
                        {"world_size", p.world_size},  {"local_rank", p.local_rank}, {"local_size", p.local_size},
                        {"node_rank", p.node_rank},    {"num_nodes", p.num_nodes},   {"master_addr", p.master_addr},
                        {"master_port", p.master_port}};
    std::string text = "placement " + line.dump() + "\n";
    bool written = ::write(1, text.data(), text.size()) > 0;  // one write, because the ranks share the pipe
    // Under load MPICH's mpiexec sometimes dies of SIGPIPE if the program ends too early.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return written ? 0 : 1;
  } catch (const runner::Error& error) {
    std::string text = std::string("refused ") + error.what() + "\n";
    return ::write(1, text.data(), text.size()) > 0 ? static_cast<int>(error.code()) : 1;
  }
}
