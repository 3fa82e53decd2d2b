// The statements of a plug-in that needs LibTorch about itself: `runner` has no LibTorch, so a process of runner-worker opens the library.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace runner {

/// Starts `runner-worker FLAG FILE FILE`, which reads `request` from the first file and writes its answer to the second one.
/// request["plugin"], the library, and `key`, a key of the recipe, are for messages. Throws Error(usage) with the answer's "error", or if there is no
/// answer; Error(environment) without a worker. `environment`: added to that of this process.
nlohmann::json ask_worker(const std::string& flag, const nlohmann::json& request, const std::string& key,
                          const std::map<std::string, std::string>& environment = {});

/// The answer of ask_worker() about a library of [plugins] with its options. Asks once for each state of the library and each set of
/// options. Thread-safe. Throws Error(usage) also if there is no such file.
nlohmann::json ask_about_part(const std::string& flag, const std::string& library, const nlohmann::json& options,
                              const std::string& key);

/// The state of the worker's program, in the same words while it does not change. Throws Error(environment) without a worker.
std::string worker_identity();

}  // namespace runner
