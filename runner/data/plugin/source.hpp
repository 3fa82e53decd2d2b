// The data of a plug-in: what it gives, and the processes that read it.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"
#include "runner/data/data.hpp"
#include "runner/data/plugin/messages.hpp"
#include "runner/data/records.hpp"
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

/// The mistake of a plug-in, which goes on, with the record that a question begins with.
class RecordFault : public Error {
 public:
  using Error::Error;
};

/// Functions may be called from several threads: each question is answered by a process that has no other, and there are at most
/// `processes` of them. They throw Error(usage) with the plug-in's mistake, of records RecordFault, or Error(environment).
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

/// Opens the samples of a plug-in as open_dataset() does. With data.validation_fraction, samples drawn at random, always the same, are for
/// validation. Every integer is checked against the classes that the plug-in states, and the targets that count against the weight of the
/// sample.
std::unique_ptr<Dataset> open_plugin_samples(const Recipe::Data& data, Split split, int64_t seq_len,
                                             int64_t vocab_size);

/// The records of one path of data.train or data.validation. They are read by processes of the plug-in, as many as there are threads that
/// ask. Their size is an estimate from the first ones, parts have at most 4096 records, and places are "mine.db, record 17", counted from 0
/// as the plug-in does. Throws Error(usage) with the plug-in's mistake.
std::unique_ptr<Records> open_plugin_records(const Recipe::Data& data, const fs::path& path);

}  // namespace runner
