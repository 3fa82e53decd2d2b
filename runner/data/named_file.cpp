#include "runner/data/named_file.hpp"

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/chat/layouts.hpp"
#include "runner/data/data.hpp"
#include "runner/data/data_sources.hpp"
#include "runner/data/labelled_texts.hpp"
#include "runner/data/records.hpp"
#include "runner/data/source_files.hpp"

namespace runner {

namespace {

/// Whether the record has the texts that `data` reads.
bool fits(const Recipe::Data& data, const JsonRecord& record) {
  const auto columns = data.columns.value_or(Recipe::Data::Columns());
  if (data.labels_texts()) {
    const auto there = [&](const std::string& field) {
      const auto other = columns.find(field);
      return record.contains(other == columns.end() ? field : other->second);
    };
    return there("text") && (!data.has_text_pairs() || there("text_pair"));
  }
  try {
    const auto reader = data.layout == "auto" ? chat::RecordReader::detect(record, columns)
                                              : chat::RecordReader(chat::layout_of_name(data.layout), columns);
    reader.read(record);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// The columns of texts with labels if the settings name none.
std::optional<Recipe::Data::Columns> unnamed_columns(Recipe::Data data, const std::string& file) {
  const bool known = !data.train.empty() || data.columns;  // false: a folder that does not say its columns
  data.columns.reset();
  auto columns = text_columns(data, file);
  if (known && columns)
    throw usage_error("{} has pairs of texts (text_pair), and the model was trained on single texts", file);
  return columns;
}

}  // namespace

Recipe::Data settings_for_file(const Recipe::Data& training, const std::string& file) {
  training.is_plugin() ? check_source_paths("data.validation", {file}) : check_source_files("data.validation", {file});
  std::vector<Recipe::Data> all;
  for (auto& source : sources_of(training)) {
    auto& data = all.emplace_back(std::move(source.data));
    if (!data.is_plugin() && !data.has_token_ids()) data.format = record_format_of(file, data.format);
  }
  auto chosen = all.begin();
  if (all.size() > 1 && chosen->has_records()) {
    const auto record = first_record(*chosen, file);
    const auto found = std::ranges::find_if(all, [&](const auto& data) { return fits(data, record); });
    if (found != all.end()) chosen = found;
  }
  auto& data = *chosen;
  if (data.labels_texts() && (!data.columns || data.columns->empty())) data.columns = unnamed_columns(data, file);
  return data;
}

}  // namespace runner
