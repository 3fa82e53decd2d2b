#include "runner/plugins/ask_worker.hpp"

#include <sys/stat.h>

#include <map>
#include <mutex>
#include <thread>

#include "runner/base/capture.hpp"
#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/held_signals.hpp"
#include "runner/base/own_program.hpp"
#include "runner/base/scratch_folder.hpp"
#include "runner/base/text.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/plugins/library.hpp"

namespace runner {

namespace {

fs::path worker_program() { return beside_program("runner-worker"); }

/// Runs the program, and kills it when one of the signals arrives.
Captured capture_until(const HeldSignals& signals, const std::vector<std::string>& command, CaptureOptions options) {
  constexpr std::chrono::milliseconds pause{20};
  std::stop_source stop;
  options.stop = stop.get_token();
  const std::jthread watch([&](const std::stop_token& ended) {
    while (!ended.stop_requested() && !signals.any()) std::this_thread::sleep_for(pause);
    if (signals.any()) stop.request_stop();
  });
  return capture(command, options);
}

}  // namespace

std::string worker_identity() {
  const auto worker = worker_program();
  struct stat status {};
  if (::stat(worker.c_str(), &status) != 0)
    throw environment_error("{} is missing: build it, or reinstall runner", worker.string());
  return fmt::format("{} {}.{}", status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
}

nlohmann::json ask_worker(const std::string& flag, const nlohmann::json& request, const std::string& key,
                          const std::map<std::string, std::string>& environment) {
  (void)worker_identity();
  const auto library = request.at("plugin").get<std::string>();
  const HeldSignals signals;  // until the folder is removed
  const ScratchFolder scratch(fs::temp_directory_path());
  const auto question = scratch.path() / "request.json", answer = scratch.path() / "description.json";
  write_file_atomic(question, request.dump());
  constexpr std::chrono::minutes longest{5};
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) variables.push_back(fmt::format("{}={}", name, value));
  const auto ended = capture_until(signals, {worker_program().string(), flag, question.string(), answer.string()},
                                   {.timeout = longest, .environment = variables, .with_stderr = true});
  if (ended.too_late && signals.any())
    throw Error(ExitCode::interrupted, fmt::format("stopped while {} was asked about", library));
  if (ended.too_late)
    throw usage_error("{}: the process that was asked about {} took more than {} minutes", key, library,
                      longest.count());
  if (!fs::exists(answer))
    throw usage_error("{}: the process that was asked about {} ended {}{}", key, library,
                      ended.status < 0 ? "by a signal, without an answer" : fmt::format("with status {}", ended.status),
                      trim(ended.output).empty() ? "" : fmt::format(": {}", trim(ended.output)));
  auto description = nlohmann::json::parse(read_file(answer));
  if (const auto error = description.find("error"); error != description.end())
    throw usage_error("{}", error->get<std::string>());
  return description;
}

nlohmann::json ask_about_part(const std::string& flag, const std::string& library, const nlohmann::json& options,
                              const std::string& key) {
  static std::mutex mutex;
  static std::map<std::string, nlohmann::json> known;
  check_library_file(library, key);
  const nlohmann::json request = {{"plugin", library}, {"options", options}};
  const std::string state = flag + request.dump() + xxh3_hex(MappedFile(library).bytes());
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(state); found != known.end()) return found->second;
  return known.emplace(state, ask_worker(flag, request, key)).first->second;
}

}  // namespace runner
