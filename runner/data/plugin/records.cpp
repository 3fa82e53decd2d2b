// The records of a plug-in.
#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>

#include "runner/base/error.hpp"
#include "runner/data/plugin/source.hpp"
#include "runner/data/utf8.hpp"

namespace runner {

namespace {

/// The next record of an answer, which then begins behind it.
std::string_view next_record(std::string_view& answer) {
  uint64_t size = 0;
  std::memcpy(&size, answer.data(), sizeof size);
  const auto record = answer.substr(sizeof size, size);
  answer.remove_prefix(sizeof size + size);
  return record;
}

PluginQuestion records_from(size_t begin, size_t end) {
  return {
      .kind = PluginQuestion::Kind::records, .begin = static_cast<int64_t>(begin), .end = static_cast<int64_t>(end)};
}

class PluginRecords final : public Records {
 public:
  PluginRecords(const Recipe::Data& data, const fs::path& path)
      : path_(path),
        source_(std::make_unique<PluginSource>(data, std::vector<std::string>{path.string()}, data.seq_len.value_or(1),
                                               std::thread::hardware_concurrency())),
        content_(source_->content(0)) {
    if (!content_.records)
      throw usage_error("data.plugin: {} gives samples, and records are needed here", *data.plugin);
    constexpr size_t looked_at = 64;
    try {
      const auto answer = source_->ask(records_from(0, std::min(size(), looked_at)));
      size_t read = 0;
      for (std::string_view rest = answer; !rest.empty(); ++read) next_record(rest);
      bytes_ = std::max<size_t>(1, (answer.size() - read * sizeof(uint64_t)) * size() / read);
    } catch (const RecordFault&) {  // for_each() counts the others
    }
  }
  const fs::path& path() const override { return path_; }
  size_t size() const override { return static_cast<size_t>(content_.count); }
  /// An estimate from the first records: a plug-in does not know its bytes.
  size_t bytes() const override { return bytes_; }
  /// Parts of at most 4096 records, whatever `bytes` are, so that they do not depend on the estimate.
  std::vector<Range> parts(size_t) const override {
    constexpr size_t largest = 4096, parts_most = 256;
    const size_t step = std::max(largest, (size() + parts_most - 1) / parts_most);
    std::vector<Range> parts;
    for (size_t begin = 0; begin < size(); begin += step) parts.push_back({begin, std::min(size(), begin + step)});
    return parts;
  }
  void for_each(Range part, const std::function<bool(const JsonRecord&, size_t end)>& use) const override {
    FaultyRows faulty;
    size_t index = part.begin;
    const auto here = [&] { return place(index); };
    bool more = true;
    while (more && index < part.end) {
      std::string answer;
      try {
        answer = source_->ask(records_from(index, part.end));
      } catch (const RecordFault& error) {
        faulty.add(error, here);
        ++index;
        more = !faulty.enough();
      } catch (const Error&) {
        faulty.raise(/*all=*/false);
        throw;
      }
      for (std::string_view rest = answer; more && !rest.empty(); ++index) {
        try {
          more = use_record(parse(next_record(rest), index), index, use);
        } catch (const Error& error) {
          faulty.add(error, here);
        }
        more = more && !faulty.enough();
      }
    }
    faulty.raise(/*all=*/index >= size());
  }
  std::string place_of(size_t end) const override { return place(end - 1); }

 private:
  std::string place(size_t index) const { return fmt::format("{}, record {}", path_.string(), index); }
  bool use_record(const JsonRecord& record, size_t index,
                  const std::function<bool(const JsonRecord&, size_t end)>& use) const {
    try {
      return use(record, index + 1);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: {}", place(index), error.what()));
    }
  }
  JsonRecord parse(std::string_view bytes, size_t index) const {
    if (content_.text) {
      try {
        check_utf8(path_, bytes, 0, bytes.size());
      } catch (const Error&) {
        throw usage_error("{}: the text is not UTF-8", place(index));
      }
      return JsonRecord{{"text", bytes}};
    }
    try {
      auto record = JsonRecord::parse(bytes);
      if (record.is_object()) return record;
      throw usage_error("{}: a record must be an object with named columns, {{\"text\": ...}}; this one is {} {}",
                        place(index), record.is_array() ? "an" : "a", record.type_name());
    } catch (const nlohmann::json::exception& error) {
      throw usage_error("{}: not JSON: {}", place(index), error.what());
    }
  }

  fs::path path_;
  std::unique_ptr<PluginSource> source_;
  PluginContent content_ = {};
  size_t bytes_ = 1;
};

}  // namespace

std::unique_ptr<Records> open_plugin_records(const Recipe::Data& data, const fs::path& path) {
  return std::make_unique<PluginRecords>(data, path);
}

}  // namespace runner
