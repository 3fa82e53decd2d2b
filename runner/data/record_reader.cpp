#include "runner/data/record_reader.hpp"

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/chat/layouts.hpp"
#include "runner/chat/loss_spans.hpp"
#include "runner/data/plugin/source.hpp"
#include "runner/data/tokenizers.hpp"

namespace runner {

namespace {

using chat::Conversation;

/// Whether the byte ranges of a token and of a span overlap. Both lists are in order, so spans are left behind. A token of the text
/// without bytes, such as a space that the tokenizer writes at one of its ends, is taken for the byte there.
class Supervised {
 public:
  explicit Supervised(const chat::SupervisedText& text)
      : spans_(text.spans), last_byte_(std::max<size_t>(text.text.size(), 1) - 1) {}
  bool operator()(const Token& token) {
    if (token.added) return false;
    const size_t begin = std::min(token.begin, last_byte_);
    while (next_ < spans_.size() && spans_[next_].end <= begin) ++next_;
    return next_ < spans_.size() && spans_[next_].begin < std::max(token.end, begin + 1);
  }

 private:
  const std::vector<chat::ByteSpan>& spans_;
  size_t last_byte_;
  size_t next_ = 0;
};

chat::TrainOn train_on_of(const Recipe::Data& data) {
  try {
    auto train_on = chat::TrainOn::from_names(data.train_on);
    train_on.input = data.train_on_input;
    return train_on;
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("data.{}", error.what()));
  }
}

class LayoutReader final : public RecordReader {
 public:
  LayoutReader(const Recipe::Data& data, const chat::RecordReader& layout, std::unique_ptr<Tokenizer> tokenizer)
      : layout_(layout),
        columns_(data.columns.value_or(chat::Columns())),
        train_on_(train_on_of(data)),
        packing_(
            data.packing.value_or(layout.layout() == chat::Layout::text && !data.masks_tokens() ? "wrapped" : "none")),
        masks_(data.masks_tokens()),
        tokenizer_(std::move(tokenizer)),
        special_(tokenizer_->special_tokens()) {
    template_ = chat_template_of(data, layout.layout());
    settings_ = {{"data.layout", layout_name(layout.layout())}, {"data.columns", columns_}};
    if (layout.layout() != chat::Layout::text) {
      settings_["data.train_on"] = data.train_on;
      settings_["data.train_on_input"] = data.train_on_input;
    }
    if (masks_) settings_["data.objective"] = data.objective;
    if (data.is_plugin()) settings_["data.plugin"] = plugin_identity(data);
    if (data.format == "csv") settings_["data.delimiter"] = data.delimiter;
    if (!template_) return;
    settings_["data.chat_template"] = {
        {"name", template_->chosen(false).name()},
        {"xxh3", xxh3_hex(template_->chosen(false).source() + "\n" + template_->chosen(true).source() + "\n" +
                          template_->special_tokens().dump())}};
  }

  Document read(const JsonRecord& record) const override {
    const Conversation conversation = layout_.read(record);
    return encode(text_of(conversation), /*whole_text=*/conversation.form != Conversation::Form::messages);
  }
  std::vector<std::string> texts(const JsonRecord& record) const override {
    return {text_of(layout_.read(record)).text};
  }

  nlohmann::json settings() const override { return settings_; }
  const std::string& tokenizer_hash() const override { return tokenizer_->hash(); }
  int64_t vocab_size() const override { return tokenizer_->vocab_size(); }
  std::string packing() const override { return packing_; }

 private:
  chat::SupervisedText text_of(const Conversation& conversation) const {
    if (conversation.form == Conversation::Form::messages) {
      if (!template_)
        throw usage_error("the record has messages, and the tokenizer has no chat template: set data.chat_template");
      chat::RenderRequest request{
          .tools = conversation.tools, .documents = conversation.documents, .variables = conversation.variables};
      return chat::supervised_text(*template_, conversation, train_on_, request);
    }
    if (conversation.form == Conversation::Form::pair) {
      const auto text = conversation.prompt + conversation.completion;
      return {.text = text, .spans = {{train_on_.input ? 0 : conversation.prompt.size(), text.size()}}};
    }
    return {.text = conversation.text, .spans = {{0, conversation.text.size()}}};
  }

  /// `whole_text`: the tokenizer's special tokens are added around it. A template has written those of messages.
  Document encode(const chat::SupervisedText& text, bool whole_text) const {
    Document document;
    Supervised supervised(text);
    for (const auto& token : tokenizer_->encode_with_offsets(text.text, whole_text)) {
      document.tokens.push_back(token.id);
      document.supervised.push_back(supervised(token) && !(masks_ && tokenizer_->is_special(token.id)));
    }
    if (whole_text && !masks_) add_end(document);
    return document;
  }

  /// Without an end of text, the model never learns to stop. A tokenizer without this token gets an empty line.
  void add_end(Document& document) const {
    auto& [tokens, supervised] = document;
    if (!special_.eos) {
      for (int32_t id : tokenizer_->encode_continuation("\n\n")) {
        tokens.push_back(id);
        supervised.push_back(true);
      }
    } else if (tokens.empty() || tokens.back() != *special_.eos) {
      tokens.push_back(*special_.eos);
      supervised.push_back(true);
    } else {
      supervised.back() = true;
    }
  }

  chat::RecordReader layout_;
  chat::Columns columns_;
  chat::TrainOn train_on_;
  std::string packing_;
  bool masks_;  ///< the tokens are for masked language modelling, so special ones are not supervised
  std::unique_ptr<Tokenizer> tokenizer_;
  SpecialTokens special_;
  std::optional<chat::ChatTemplate> template_;
  nlohmann::json settings_;
};

/// Reads the text, or two, that a label belongs to. The data set adds the tokens around them.
class TextReader final : public RecordReader {
 public:
  TextReader(const Recipe::Data& data, std::unique_ptr<Tokenizer> tokenizer)
      : columns_(data.columns.value_or(Recipe::Data::Columns())), tokenizer_(std::move(tokenizer)) {
    names_ = {column_of("text")};
    if (data.has_text_pairs()) names_.push_back(column_of("text_pair"));
    settings_ = {{"data.layout", "text"}, {"data.columns", columns_}, {"data.objective", data.objective}};
    if (data.format == "csv") settings_["data.delimiter"] = data.delimiter;
    if (data.is_plugin()) settings_["data.plugin"] = plugin_identity(data);
  }

  Document read(const JsonRecord& record) const override { return documents(record).front(); }
  std::vector<Document> documents(const JsonRecord& record) const override {
    std::vector<Document> documents;
    for (const auto& text : texts(record)) documents.push_back({.tokens = tokenizer_->encode(text), .supervised = {}});
    return documents;
  }
  std::vector<std::string> texts(const JsonRecord& record) const override {
    std::vector<std::string> texts;
    for (const auto& name : names_) {
      const auto cell = record.find(name);
      if (cell == record.end()) refuse_record(record, name);
      if (!cell->is_string()) throw usage_error("`{}` must be a text, not {}", name, cell->type_name());
      texts.push_back(cell->get<std::string>());
    }
    return texts;
  }
  nlohmann::json settings() const override { return settings_; }
  const std::string& tokenizer_hash() const override { return tokenizer_->hash(); }
  int64_t vocab_size() const override { return tokenizer_->vocab_size(); }
  std::string packing() const override { return "none"; }

 private:
  std::string column_of(const std::string& field) const {
    const auto found = columns_.find(field);
    return found == columns_.end() ? field : found->second;
  }
  [[noreturn]] void refuse_record(const JsonRecord& record, const std::string& name) const {
    std::vector<std::string> there;
    for (const auto& [key, value] : record.items()) there.push_back(key);
    const auto near = nearest(name, there);
    throw usage_error("there is no column `{}`{}; the record has {}: data.columns = {{ text = \"COLUMN\" }} names it",
                      name, near ? fmt::format(" (did you mean `{}`?)", *near) : "", join(there, ", "));
  }

  Recipe::Data::Columns columns_;
  std::vector<std::string> names_;
  std::unique_ptr<Tokenizer> tokenizer_;
  nlohmann::json settings_;
};

/// The layout that data.layout names, or that the first record has.
chat::RecordReader layout_of(const Recipe::Data& data, const std::vector<std::string>& files) {
  const auto columns = data.columns.value_or(chat::Columns());
  if (data.layout != "auto") return chat::RecordReader(chat::layout_of_name(data.layout), columns);
  std::optional<chat::RecordReader> found;
  for (const auto& file : files) {
    const auto records = open_records(data, file);
    constexpr size_t enough = 1 << 20;
    for (const auto& part : records->parts(enough)) {
      records->for_each(part, [&](const JsonRecord& record, size_t) {
        found = chat::RecordReader::detect(record, columns);
        return false;
      });
      if (found) return *found;
    }
  }
  throw usage_error("data.train: {} no record", files.size() == 1 ? files[0] + " has" : "the files have");
}

}  // namespace

std::unique_ptr<RecordReader> make_record_reader(const Recipe::Data& data, const std::vector<std::string>& files,
                                                 const std::string& cache_dir) {
  return make_record_reader(data, files, open_tokenizer(data, cache_dir));
}

std::unique_ptr<RecordReader> make_record_reader(const Recipe::Data& data, const std::vector<std::string>& files,
                                                 std::unique_ptr<Tokenizer> tokenizer) {
  if (data.labels_texts()) return std::make_unique<TextReader>(data, std::move(tokenizer));
  return std::make_unique<LayoutReader>(data, layout_of(data, files), std::move(tokenizer));
}

}  // namespace runner
