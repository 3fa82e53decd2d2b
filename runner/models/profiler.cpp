#include "runner/models/profiler.hpp"

#include <fcntl.h>

#include <atomic>
#include <fstream>
#include <map>
#include <mutex>

#include "runner/base/descriptor.hpp"
#include "runner/base/error.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/models/plugin/spec.hpp"
#include "runner/plugins/ask_worker.hpp"
#include "runner/plugins/conversation.hpp"

namespace runner {

namespace {

using nlohmann::json;
using Known = std::map<std::string, std::shared_ptr<const BlockProfiles>>;  ///< by question

constexpr const char* purpose = "the prediction of memory";

/// A file of answers about one source: the state of the worker that gave them, and then a line for each. Another state makes it void.
class AnswerFile {
 public:
  AnswerFile(const std::filesystem::path& folder, const std::string& source)
      : path_(folder / ("profiles-" + xxh3_hex(source) + ".jsonl")), worker_(worker_identity(purpose)) {}

  /// A line that another process has not written to its end is left out.
  Known read() {
    Known known;
    std::ifstream file(path_);
    std::string line;
    if (!std::getline(file, line) || line != json(worker_).dump()) return known;
    begun_ = true;
    while (std::getline(file, line)) {
      const auto one = json::parse(line, nullptr, /*allow_exceptions=*/false);
      try {
        if (one.is_object())
          known[one.at("question").dump()] = std::make_shared<const BlockProfiles>(profiles_from(one.at("answer")));
      } catch (const json::exception&) {  // damaged: asked again
      }
    }
    return known;
  }

  /// Nothing is lost if it cannot be written: the worker is asked again.
  void add(const std::string& question, const json& answer) {
    std::string text = begun_ ? "" : json(worker_).dump() + "\n";
    text += json{{"question", json::parse(question)}, {"answer", answer}}.dump() + "\n";
    std::error_code ignored;
    std::filesystem::create_directories(path_.parent_path(), ignored);
    const int mode = begun_ ? 0 : O_TRUNC;
    const Descriptor file(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | mode, 0644));
    if (file.is_open() && ::write(file.get(), text.data(), text.size()) == std::ssize(text)) begun_ = true;
  }

 private:
  std::filesystem::path path_;
  std::string worker_;
  bool begun_ = false;  ///< the file has the first line
};

/// What this process knows about one source.
struct Answers {
  Known known;
  std::optional<AnswerFile> file;
};

/// Of this process. All sources share one worker.
class Memory {
 public:
  static Memory& get() {
    static Memory memory;
    return memory;
  }

  void keep(const std::filesystem::path& folder) {
    const std::lock_guard lock(mutex_);
    folder_ = folder;
  }

  void dismiss() {
    const std::lock_guard lock(mutex_);
    worker_.reset();
  }

  std::shared_ptr<const BlockProfiles> of(const ModelSource& source, const std::string& source_text,
                                          const ProfileQuestion& question) {
    const auto text = to_json(question).dump();
    const std::lock_guard lock(mutex_);
    auto& answers = answers_of(source_text);
    if (const auto found = answers.known.find(text); found != answers.known.end()) return found->second;
    auto& answer = answers.known[text];
    try {
      answer = record ? std::make_shared<const BlockProfiles>(record.load()(source, question))
                      : ask(source_text, text, answers.file);
    } catch (...) {
      answers.known.erase(text);
      throw;
    }
    return answer;
  }

  std::atomic<RecordProfiles> record = nullptr;

 private:
  Answers& answers_of(const std::string& source) {
    const auto [found, fresh] = answers_.try_emplace(source);
    auto& answers = found->second;
    if (fresh && !record && !folder_.empty()) {
      answers.file.emplace(folder_, source);
      answers.known = answers.file->read();
    }
    return answers;
  }

  std::shared_ptr<const BlockProfiles> ask(const std::string& source, const std::string& question,
                                           std::optional<AnswerFile>& file) {
    if (!worker_) worker_.emplace(std::vector<std::string>{"--profiles", folder_.string()}, purpose);
    const auto answer =
        worker_->ask(json{{"source", json::parse(source)}, {"question", json::parse(question)}}).at("profiles");
    if (file) file->add(question, answer);
    return std::make_shared<const BlockProfiles>(profiles_from(answer));
  }

  std::mutex mutex_;
  std::filesystem::path folder_;
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
    const auto& stage = job.model->stage;
    if (!stage || is_special(*job.model, job.pipeline.schedule)) return Memory::get().of(source_, text_, question);
    question.stage.reset();
    question.schedule = {};
    const auto whole = Memory::get().of(source_, text_, question);
    BlockProfiles own;
    for (const size_t block : stage->block_of) own.push_back((*whole)[block]);
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

void keep_descriptions(const std::filesystem::path& folder) {
  Memory::get().keep(folder);
  keep_plugin_descriptions(folder);
}

void dismiss_profile_worker() { Memory::get().dismiss(); }

bool record_in_process(RecordProfiles record) {
  Memory::get().record = record;
  return true;
}

}  // namespace runner
