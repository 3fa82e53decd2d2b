// The data of a plug-in: what it gives, and the processes that read it.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"
#include "runner/data/plugin/messages.hpp"
#include "strategies/engine/batch_field.hpp"

namespace runner {

class PluginProcess;

/// The content of a path of a plug-in.
struct PluginContent {
  int64_t count = 0;
  bool records = false, text = false, weighs = false;
  std::vector<BatchField> fields = {};  ///< of samples
  std::vector<int64_t> classes = {};    ///< of each field; 0: not stated

  /// The field of this name, or null.
  const BatchField* find(const std::string& name) const;
};

/// Functions may be called from several threads: each question is answered by a process that has no other, and there are at most
/// `processes` of them. They throw Error(usage) with the plug-in's mistake, or Error(environment).
class PluginSource {
 public:
  PluginSource(const Recipe::Data& data, std::vector<std::string> paths, int64_t seq_len, int64_t processes);
  ~PluginSource();
  PluginSource(const PluginSource&) = delete;
  PluginSource& operator=(const PluginSource&) = delete;

  const std::vector<std::string>& paths() const { return paths_; }
  PluginContent content(size_t path);
  std::string ask(PluginQuestion question);

 private:
  std::unique_ptr<PluginProcess> take();
  void give_back(std::unique_ptr<PluginProcess> process);

  nlohmann::json start_;
  std::vector<std::string> paths_;
  int64_t most_;
  std::mutex mutex_;  ///< guards the members below
  std::condition_variable changed_;
  std::vector<std::unique_ptr<PluginProcess>> idle_;
  int64_t running_ = 0;
};

/// The content of the first path of data.train. Kept in this process, for the same state of library and file.
PluginContent plugin_content(const Recipe::Data& data, int64_t seq_len);

/// The facts that determine the data of a plug-in, in addition to its files: {"name", "xxh3" of the library's bytes, "options"}.
nlohmann::json plugin_identity(const Recipe::Data& data);

}  // namespace runner
