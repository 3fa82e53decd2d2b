// A replacement of runner-worker without torch. Each rank runs the behaviour of the argument "RANK=BEHAVIOUR" or
// "*=BEHAVIOUR".
#include <arpa/inet.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runner/base/text.hpp"
#include "runner/launch/events.hpp"

using namespace runner;
using nlohmann::json;

namespace {

std::atomic<bool> stop{false};
int rank = 0, world_size = 1;

int number(const char* name) { return std::atoi(std::getenv(name)); }
void pause_briefly() { ::usleep(2000); }
void wait_for_stop() {
  while (!stop) pause_briefly();
}
[[noreturn]] void wait_for_kill() {
  while (true) pause_briefly();
}

/// One word for each rank, in the memory that the supervisor made.
std::atomic<int>* shared_words() {
  void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, number("RUNNER_SHM_FD"), 0);
  if (memory == MAP_FAILED) std::abort();
  return static_cast<std::atomic<int>*>(memory);
}

/// Rank 0 accepts connections on the inherited socket until every other rank has connected and sent its rank; then it
/// answers. No rank returns before all ranks have called this.
int meet() {
  int met = 0;
  if (rank == 0) {
    std::vector<int> connections;
    for (int peer = 1; peer < world_size; ++peer) {
      connections.push_back(::accept(number("RUNNER_LISTEN_FD"), nullptr, nullptr));
      int said = 0;
      if (::read(connections.back(), &said, sizeof said) == sizeof said) met += said;
    }
    for (int connection : connections)
      if (::write(connection, &met, sizeof met) != sizeof met) std::abort();
    return met;
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(number("MASTER_PORT")));
  ::inet_pton(AF_INET, std::getenv("MASTER_ADDR"), &address.sin_addr);
  int connection = ::socket(AF_INET, SOCK_STREAM, 0);
  if (::connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) std::abort();
  int sum = 0;
  bool joined =
      ::write(connection, &rank, sizeof rank) == sizeof rank && ::read(connection, &sum, sizeof sum) == sizeof sum;
  return joined ? rank : -1;
}

int share() {
  auto* words = shared_words();
  words[rank] = rank + 1;
  int sum = 0;
  for (int peer = 0; peer < world_size; ++peer) {
    while (words[peer] == 0) pause_briefly();
    sum += words[peer];
  }
  return sum;
}

json environment_seen() {
  json seen = json::object();
  for (const char* name :
       {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT",
        "RUNNER_LISTEN_FD", "RUNNER_SHM_FD", "RUNNER_NODE_ADDRESS", "RUNNER_DEVICE_INDEX", "OMP_NUM_THREADS"})
    if (const char* value = std::getenv(name)) seen[name] = value;
  return seen;
}

/// The result of a behaviour is the exit code. `text` follows the first colon in the behaviour's argument.
using Behaviour = std::function<int(EventSink& events, const std::string& text)>;
const std::map<std::string, Behaviour> behaviours{
    {"finish",
     [](EventSink& events, const std::string&) {
       events.emit("finished", {{"step", 3}, {"final_loss", 0.1}});
       return 0;
     }},
    {"settle",
     [](EventSink& events, const std::string&) {
       events.emit_soon("note", [] { return json{{"message", "before"}}; });
       events.settle();
       events.emit("note", {{"message", "after"}});
       return 0;
     }},
    {"fail",  // fail:KIND:MESSAGE
     [](EventSink& events, const std::string& text) {
       size_t colon = text.find(':');
       events.emit("failed", {{"kind", text.substr(0, colon)}, {"message", text.substr(colon + 1)}});
       return 1;
     }},
    {"fail-in-turn",  // rank 0 fails first; the others fail when asked to stop, with a clock that is behind
     [](EventSink& events, const std::string&) {
       meet();
       if (rank == 0) {
         events.emit("failed", {{"kind", "error"}, {"message", "first"}});
         return 1;
       }
       wait_for_stop();
       std::string line = to_line({{"event", "failed"}, {"time", 1.0}, {"kind", "error"}, {"message", "second"}});
       return ::write(number("RUNNER_EVENT_FD"), line.data(), line.size()) > 0 ? 1 : 2;
     }},
    {"fail-among-all",  // fail-among-all:KIND:MESSAGE; fails after all ranks have met
     [](EventSink& events, const std::string& text) {
       meet();
       size_t colon = text.find(':');
       events.emit("failed", {{"kind", text.substr(0, colon)}, {"message", text.substr(colon + 1)}});
       return 1;
     }},
    {"fail-and-hang",
     [](EventSink& events, const std::string&) -> int {
       events.emit("failed", {{"kind", "oom"}, {"message", "out of memory"}});
       wait_for_kill();
     }},
    {"print-and-exit",  // print-and-exit:CODE
     [](EventSink&, const std::string& text) {
       for (int line = 1; line <= 12; ++line) std::printf("line %d\n", line);
       return std::atoi(text.c_str());
     }},
    {"abort", [](EventSink&, const std::string&) -> int { std::abort(); }},
    {"signal",  // signal:NUMBER
     [](EventSink&, const std::string& text) -> int {
       ::signal(std::atoi(text.c_str()), SIG_DFL);  // sanitizers install handlers
       ::raise(std::atoi(text.c_str()));
       return 0;
     }},
    {"stop-for",  // stop-for:SECONDS; another process continues it
     [](EventSink& events, const std::string& text) {
       if (const pid_t parent = ::getpid(); ::fork() == 0) {
         ::usleep(static_cast<useconds_t>(std::atof(text.c_str()) * 1e6));
         ::kill(parent, SIGCONT);
         ::_exit(0);
       }
       ::raise(SIGSTOP);
       events.emit("finished", {{"step", 3}, {"final_loss", 0.1}});
       return 0;
     }},
    {"wait",
     [](EventSink& events, const std::string&) {
       events.emit("ready", {{"pid", ::getpid()}});
       wait_for_stop();
       events.emit("stopping", {{"step", 7}, {"reason", "signal"}});
       return 3;
     }},
    {"wait-among-all",
     [](EventSink& events, const std::string&) {
       meet();
       wait_for_stop();
       events.emit("stopping", {{"step", 7}, {"reason", "signal"}});
       return 3;
     }},
    {"ignore",
     [](EventSink& events, const std::string&) -> int {
       events.emit("ready", {{"pid", ::getpid()}});
       wait_for_kill();
     }},
    {"wait-unprepared",  // like a worker that is still starting
     [](EventSink& events, const std::string&) -> int {
       ::signal(SIGTERM, SIG_DFL);
       events.emit("ready", {{"pid", ::getpid()}});
       wait_for_kill();
     }},
    {"starting",  // has no handler, and is not ready
     [](EventSink& events, const std::string&) -> int {
       ::signal(SIGTERM, SIG_DFL);
       events.emit("starting");
       wait_for_kill();
     }},
    {"fail-at-stop",
     [](EventSink& events, const std::string&) {
       events.emit("ready");
       wait_for_stop();
       events.emit("failed", {{"kind", "environment"}, {"message", "no space left for the checkpoint"}});
       return 4;
     }},
    {"finish-at-stop",
     [](EventSink& events, const std::string&) {
       events.emit("ready");
       wait_for_stop();
       return 0;
     }},
    {"die-marked",  // kills itself after setting its word, which the peers read
     [](EventSink&, const std::string&) -> int {
       shared_words()[rank] = 1;
       ::raise(SIGKILL);
       return 0;
     }},
    {"notice",  // notice:RANK; fails when that rank has died, as a peer's collective does
     [](EventSink& events, const std::string& text) {
       while (shared_words()[std::atoi(text.c_str())] == 0) pause_briefly();
       events.emit("failed", {{"kind", "collective"}, {"message", "rank " + text + " has gone"}});
       return 1;
     }},
    {"garbage",
     [](EventSink& events, const std::string&) {
       events.flush();
       std::string bytes =
           "not json\n{\"event\": 3}\n\xff\xfe\n{\"event\":\"note\",\"rank\":77,\"message\":\"kept\"}\n{\"cut";
       return ::write(number("RUNNER_EVENT_FD"), bytes.data(), bytes.size()) > 0 ? 0 : 1;
     }},
    {"environment",
     [](EventSink& events, const std::string&) {
       events.emit("note", {{"environment", environment_seen()}});
       return 0;
     }},
    {"meet",
     [](EventSink& events, const std::string&) {
       events.emit("note", {{"sum", meet()}});
       return 0;
     }},
    {"share",
     [](EventSink& events, const std::string&) {
       events.emit("note", {{"sum", share()}});
       return 0;
     }},
    {"child",  // child:CODE; leaves a child in its process group and exits
     [](EventSink& events, const std::string& text) {
       pid_t child = ::fork();
       if (child == 0) wait_for_kill();
       events.emit("note", {{"child", child}});
       return std::atoi(text.c_str());
     }},
};

}  // namespace

int main(int argc, char** argv) {
  ::signal(SIGTERM, [](int) { stop = true; });
  rank = number("RANK");
  world_size = number("WORLD_SIZE");
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    size_t equals = argument.find('=');
    std::string who = argument.substr(0, equals), what = argument.substr(equals + 1);
    if (who != "*" && who != std::to_string(rank)) continue;
    size_t colon = what.find(':');
    EventSink events(rank);
    return behaviours.at(what.substr(0, colon))(events, colon == std::string::npos ? "" : what.substr(colon + 1));
  }
  return 99;
}
