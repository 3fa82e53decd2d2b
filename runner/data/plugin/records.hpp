// The records of a plug-in. They are read by processes of the plug-in, as many as there are threads that ask.
#pragma once
#include <memory>

#include "runner/data/plugin/source.hpp"
#include "runner/data/records.hpp"

namespace runner {

class PluginRecords final : public Records {
 public:
  /// Opens one path of data.train or data.validation. Throws Error(usage) with the plug-in's mistake.
  PluginRecords(const Recipe::Data& data, const fs::path& path);
  const fs::path& path() const override { return path_; }
  size_t size() const override { return static_cast<size_t>(content_.count); }
  /// An estimate from the first records: a plug-in does not know its bytes.
  size_t bytes() const override { return bytes_; }
  /// Parts of at most 4096 records, whatever `bytes` are, so that they do not depend on the estimate.
  std::vector<Range> parts(size_t bytes) const override;
  /// Places are "mine.db, record 17", counted from 0 as the plug-in does.
  void for_each(Range part, const std::function<bool(const JsonRecord&, size_t end)>& use) const override;
  std::string place_of(size_t end) const override { return place(end - 1); }

 private:
  std::string place(size_t index) const;
  JsonRecord parse(std::string_view bytes, size_t index) const;

  fs::path path_;
  std::unique_ptr<PluginSource> source_;
  PluginContent content_ = {};
  size_t bytes_ = 0;
};

}  // namespace runner
