#include "runner/data/record_reader.hpp"

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/data/tokenizers.hpp"

namespace runner {

namespace {

/// The name of a column in the records.
std::string column_of(const Recipe::Data& data, const std::string& column) {
  if (!data.columns) return column;
  const auto found = data.columns->find(column);
  return found == data.columns->end() ? column : found->second;
}

/// Plain text in one column. All its tokens are supervised.
class TextReader final : public RecordReader {
 public:
  TextReader(const Recipe::Data& data, std::unique_ptr<Tokenizer> tokenizer)
      : column_(column_of(data, "text")),
        packing_(data.packing.value_or("wrapped")),
        tokenizer_(std::move(tokenizer)) {}

  Document read(const JsonRecord& record) const override {
    Document document{.tokens = tokenizer_->encode(text_of(record), /*add_special_tokens=*/true), .supervised = {}};
    // Without an end of text, the model never learns to stop. A tokenizer without this token gets an empty line.
    if (const auto eos = tokenizer_->special_tokens().eos) {
      if (document.tokens.empty() || document.tokens.back() != *eos) document.tokens.push_back(*eos);
    } else {
      const auto end = tokenizer_->encode_continuation("\n\n");
      document.tokens.insert(document.tokens.end(), end.begin(), end.end());
    }
    return document;
  }
  nlohmann::json settings() const override { return {{"data.layout", "text"}, {"data.columns", {{"text", column_}}}}; }
  const std::string& tokenizer_hash() const override { return tokenizer_->hash(); }
  int64_t vocab_size() const override { return tokenizer_->vocab_size(); }
  std::string packing() const override { return packing_; }

 private:
  const std::string& text_of(const JsonRecord& record) const {
    const auto found = record.find(column_);
    if (found == record.end()) throw usage_error("the record has no column `{}`; {}", column_, columns_of(record));
    if (!found->is_string())
      throw usage_error("column `{}` must be a string, not {} {}", column_, found->is_array() ? "an" : "a",
                        found->type_name());
    return found->get_ref<const std::string&>();
  }
  std::string columns_of(const JsonRecord& record) const {
    std::vector<std::string> names;
    for (const auto& [name, value] : record.items()) names.push_back(name);
    const auto near = nearest(column_, names);
    return fmt::format("it has {}{}", names.empty() ? "none" : join(names, ", "),
                       near ? fmt::format("; set data.columns = {{ text = \"{}\" }}", *near) : "");
  }

  std::string column_, packing_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace

std::unique_ptr<RecordReader> make_record_reader(const Recipe::Data& data, const std::vector<std::string>&,
                                                 const std::string& cache_dir) {
  return std::make_unique<TextReader>(data, open_tokenizer(data, cache_dir));
}

}  // namespace runner
