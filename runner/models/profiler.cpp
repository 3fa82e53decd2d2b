#include "runner/models/profiler.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "runner/base/descriptor.hpp"
#include "runner/base/error.hpp"
#include "runner/base/remove_oldest.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/models/plugin/spec.hpp"
#include "runner/models/profile_question.hpp"
#include "runner/plugins/ask_worker.hpp"

namespace runner {

namespace {

using nlohmann::json;

constexpr const char* purpose = "the prediction of memory";

constexpr const char* profile_extension = ".profiles";
constexpr uintmax_t most_profile_bytes = uintmax_t{64} << 20;  ///< of one file, and of all

using KnownProfiles = std::map<std::string, std::shared_ptr<const BlockProfiles>>;  ///< by question, as JSON

/// A file of recorded profiles: answers of the worker that are kept between processes.
/// Each line has a question and its answer, and is written at once, so that several processes can add to the file.
class ProfileFile {
 public:
  /// `about`: everything that all answers of the file depend on. Files that were not used for the longest time are removed, if all files of
  /// the folder have more than 64 MiB.
  ProfileFile(const std::filesystem::path& folder, const std::string& about)
      : path_(folder / (xxh3_hex(about) + profile_extension)) {}
  /// Lines that are damaged are left out.
  KnownProfiles read() const {
    KnownProfiles known;
    std::error_code missing;
    if (const auto bytes = std::filesystem::file_size(path_, missing); missing || bytes > most_profile_bytes)
      return known;
    std::filesystem::last_write_time(path_, std::filesystem::file_time_type::clock::now(), missing);  // it is used
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) {
      if (line.empty()) continue;
      try {
        const auto one = json::parse(line);
        known[one.at("question").dump()] = std::make_shared<const BlockProfiles>(profiles_from(one.at("answer")));
      } catch (const std::exception&) {  // damaged: asked again
      }
    }
    return known;
  }

  /// Nothing is lost if it cannot be written: the worker is asked again.
  void add(const std::string& question, const json& answer) const {
    std::error_code ignored;
    const auto folder = path_.parent_path();
    if (std::filesystem::create_directories(folder, ignored); !std::filesystem::exists(path_, ignored))
      remove_oldest(folder, profile_extension, most_profile_bytes);
    // The line before may have been cut off by a full disk.
    const auto text = "\n" + json{{"question", json::parse(question)}, {"answer", answer}}.dump() + "\n";
    const Descriptor file(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (file.is_open()) (void)!::write(file.get(), text.data(), text.size());
  }

 private:
  std::filesystem::path path_;
};

/// The knowledge of this process about one source.
struct Answers {
  KnownProfiles known;
  std::optional<ProfileFile> file;
};

/// Whether the profiles can be those of the model's blocks. `block_of`: of each block, its place in the profiles; null: the same.
bool fit(const BlockProfiles& profiles, const ModelSpec& model, const std::vector<size_t>* block_of) {
  if (!block_of && profiles.size() != model.blocks.size()) return false;
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    const size_t place = block_of ? (*block_of)[b] : b;
    if (place >= profiles.size()) return false;
    for (const auto* pass : {&profiles[place].plain, &profiles[place].recomputed})
      for (const auto* moments : {&pass->backward, &pass->weight})
        for (const auto& moment : *moments)
          if (moment.parameter.value_or(0) >= std::max<size_t>(1, model.blocks[b].parameters.size())) return false;
  }
  return true;
}

/// The knowledge of this process about all sources, which share one worker.
class Knowledge {
 public:
  static Knowledge& get() {
    static Knowledge knowledge;
    return knowledge;
  }

  void keep(const std::filesystem::path& folder, const std::string& machine) {
    const std::lock_guard lock(mutex_);
    folder_ = folder;
    machine_ = machine;
  }

  void dismiss() {
    const std::lock_guard lock(mutex_);
    worker_.reset();
  }

  /// `fits`: whether profiles can be the answer. Others are asked for again, because a file may be damaged.
  template <class Fits>
  std::shared_ptr<const BlockProfiles> of(const ModelSource& source, const std::string& source_text,
                                          const ProfileQuestion& question, const Fits& fits) {
    const auto text = to_json(question).dump();
    const std::lock_guard lock(mutex_);
    auto& answers = answers_of(source, source_text);
    const auto found = answers.known.find(text);
    if (found != answers.known.end() && fits(*found->second)) return found->second;
    auto answer = record ? std::make_shared<const BlockProfiles>(record.load()(source, question))
                         : ask(source_text, text, answers.file);
    if (!fits(*answer)) throw environment_error("{}: the worker's answer is about another model", purpose);
    return answers.known[text] = std::move(answer);
  }

  std::atomic<RecordProfiles> record = nullptr;

 private:
  Answers& answers_of(const ModelSource& source, const std::string& text) {
    const auto [found, fresh] = answers_.try_emplace(text);
    auto& answers = found->second;
    if (fresh && !source.code.empty()) worker_.reset();  // it may have opened the library before that changed
    if (fresh && !record && !folder_.empty()) {
      answers.file.emplace(folder_, json{text, worker_identity(), machine_}.dump());
      answers.known = answers.file->read();
    }
    return answers;
  }

  std::shared_ptr<const BlockProfiles> ask(const std::string& source, const std::string& question,
                                           const std::optional<ProfileFile>& file) {
    if (!worker_) worker_.emplace(std::vector<std::string>{"--profiles", folder_.string()}, purpose);
    const auto answer =
        worker_->ask(json{{"source", json::parse(source)}, {"question", json::parse(question)}}, "profiles");
    if (file) file->add(question, answer);
    return std::make_shared<const BlockProfiles>(profiles_from(answer));
  }

  std::mutex mutex_;
  std::filesystem::path folder_;
  std::string machine_;
  std::map<std::string, Answers> answers_;  ///< by source
  std::optional<Conversation> worker_;
};

/// Whether the profiles of a stage's blocks are not those of the whole model: its backwards have two parts, or a tied parameter has a copy.
bool is_special(const ModelSpec& model, PipelineSchedule schedule) {
  const auto& stage = *model.stage;
  return splits_backward(schedule) || (stage.tied && (stage.has_first || stage.has_last));
}

class Profiler : public BlockProfiler {
 public:
  explicit Profiler(ModelSource source) : source_(std::move(source)), text_(to_json(source_).dump()) {}

  std::shared_ptr<const BlockProfiles> profiles(const Job& job, DType leaf) const override {
    auto question = question_about(job, leaf);
    const auto& model = *job.model;
    const auto* places = model.stage && !is_special(model, job.pipeline.schedule) ? &model.stage->block_of : nullptr;
    if (places) {
      question.stage.reset();
      question.schedule = {};
    }
    const auto recorded = Knowledge::get().of(
        source_, text_, question, [&](const BlockProfiles& profiles) { return fit(profiles, model, places); });
    if (!places) return recorded;
    BlockProfiles own;
    for (const size_t block : *places) own.push_back((*recorded)[block]);
    return std::make_shared<const BlockProfiles>(std::move(own));
  }

 private:
  ModelSource source_;
  std::string text_;
};

}  // namespace

std::shared_ptr<const BlockProfiler> make_profiler(ModelSource source) {
  return std::make_shared<const Profiler>(std::move(source));
}

void keep_descriptions(const std::filesystem::path& folder, const std::string& machine) {
  Knowledge::get().keep(folder, machine);
  keep_plugin_descriptions(folder);
}

void dismiss_profile_worker() { Knowledge::get().dismiss(); }

bool record_in_process(RecordProfiles record) {
  Knowledge::get().record = record;
  return true;
}

}  // namespace runner
