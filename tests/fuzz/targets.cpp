// One function for each kind of file.
#include "fuzz.hpp"
#include "runner/base/error.hpp"
#include "runner/base/foreign_json.hpp"
#include "runner/base/text.hpp"
#include "runner/chat/layouts.hpp"
#include "runner/chat/loss_spans.hpp"
#include "runner/checkpoint/hf.hpp"
#include "runner/checkpoint/safetensors.hpp"
#include "runner/config/config.hpp"
#include "runner/data/csv_reader.hpp"
#include "runner/data/document_file.hpp"
#include "runner/data/image.hpp"
#include "runner/data/json_records.hpp"
#include "runner/data/parquet_records.hpp"
#include "runner/data/table.hpp"
#include "runner/exchange/import_runs.hpp"
#include "runner/import/deepspeed_config.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/ledger/merge.hpp"
#include "runner/logging/crc32.hpp"
#include "runner/pretrained/gguf_file.hpp"
#include "runner/pretrained/model_files.hpp"
#include "runner/tokenizers/hf_tokenizer.hpp"

namespace runner::fuzz {

namespace {

namespace fs = std::filesystem;
constexpr std::string_view cut = "\n@@@\n";  ///< between parts of a file of the corpus

std::vector<std::string> parts_of(std::string_view bytes) {
  std::vector<std::string> parts;
  for (size_t at; (at = bytes.find(cut)) != bytes.npos; bytes.remove_prefix(at + cut.size()))
    parts.emplace_back(bytes.substr(0, at));
  parts.emplace_back(bytes);
  return parts;
}

void write(const fs::path& file, std::string_view bytes) {
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << bytes;
}

/// Reads each of several ways, of which the first may fail.
template <typename... Ways>
void each(const Ways&... ways) {
  const auto one = [](const auto& way) {
    try {
      way();
    } catch (const Error&) {
    }
  };
  (one(ways), ...);
}

void use(const Tokenizer& tokenizer) {
  for (const char* text : {"a", "The cat's 12 hats.\n\n \tNa\u00efve \u4f60\u597d e\u0301 \U0001f600</s><s>", "",
                           "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"})
    each([&] {
      const auto tokens = tokenizer.encode(text, true);
      (void)tokenizer.decode(tokens);
      (void)tokenizer.encode_with_offsets(text);
    });
}

void read_all(const Records& records) {
  size_t last = 0;
  for (const auto& part : records.parts(64))
    records.for_each(part, [&](const JsonRecord& record, size_t end) {
      each([&] { chat::RecordReader::detect(record, {}).read(record); });
      last = end;
      return true;
    });
  (void)records.place_of(last);
}

void read_gguf(const fs::path& file, std::string_view) {
  const GgufFile gguf(file);
  for (const auto& tensor : gguf.tensors()) (void)gguf.data(tensor);
  each([&] { model_of_hf_folder(file); }, [&] { (void)read_model_file(file / "tokenizer_config.json"); },
       [&] { use(HfTokenizer(file / "tokenizer.json")); });
}

void read_safetensors(const fs::path& file, std::string_view) {
  const SafetensorsFile weights(file);
  for (const auto& tensor : weights.tensors()) (void)tensor.name.size();
}

void read_charsmap(const fs::path& file, std::string_view bytes) {
  static constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string base64;
  for (size_t i = 0; i + 3 <= bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) group = group << 8 | static_cast<unsigned char>(bytes[i + k]);
    for (int shift = 18; shift >= 0; shift -= 6) base64 += digits[group >> shift & 63];
  }
  const nlohmann::json tokenizer = {
      {"normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", base64}}},
      {"model", {{"type", "WordLevel"}, {"vocab", {{"a", 0}, {"?", 1}}}, {"unk_token", "?"}}}};
  const auto whole = file.parent_path() / "whole.json";
  write(whole, tokenizer.dump());
  use(HfTokenizer(whole));
}

void read_template(const fs::path&, std::string_view bytes) {
  const auto parts = parts_of(bytes);
  const auto record = foreign_json<chat::Json>(parts.back(), nullptr, true);
  const auto chat_template =
      chat::ChatTemplate::from_text("t", parts.front(), {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  chat::RenderRequest request;
  request.options.limits.steps = 1'000'000;
  const auto conversation = chat::RecordReader::detect(record, {}).read(record);
  supervised_text(chat_template, conversation, {}, request);
}

std::string bytes_of(auto number) { return {reinterpret_cast<const char*>(&number), sizeof number}; }

/// The corpus has messages without their lengths and checksums, because no change would pass those.
void read_events(const fs::path& file, std::string_view bytes) {
  const auto checked = [](const std::string& text) {
    const uint32_t sum = crc32<castagnoli_polynomial>(text);
    return text + bytes_of(static_cast<uint32_t>((sum >> 15 | sum << 17) + 0xa282ead8u));
  };
  std::string all;
  for (const auto& part : parts_of(bytes)) all += checked(bytes_of(uint64_t{part.size()})) + checked(part);
  const auto events = file.parent_path() / "events.out.tfevents.1.a";
  write(events, all);
  read_tensorboard_runs(events);
}

void read_wandb_file(const fs::path& file, std::string_view bytes) {
  std::string all(":W&B\0\0\0", 7);
  for (const auto& part : parts_of(bytes)) {
    if (all.size() + 7 + part.size() > 32768) break;  // a block
    const std::string typed = "\1" + part;
    all += bytes_of(crc32<zlib_polynomial>(typed)) + bytes_of(static_cast<uint16_t>(part.size())) + typed;
  }
  const auto run = file.parent_path() / "run-abc.wandb";
  write(run, all);
  read_wandb_runs(run);
}

void read_mlflow_store(const fs::path& file, std::string_view bytes) {
  const fs::path folder = file.parent_path() / "store";
  if (bytes.starts_with("SQLite")) return void(read_mlflow_runs(file));
  for (const auto& part : parts_of(bytes)) {
    const auto name = fs::path("/" + part.substr(0, part.find('\n'))).lexically_normal().relative_path();
    if (!name.has_filename() || name.string().size() > 200 || name.string().find('\0') != std::string::npos) continue;
    std::error_code ignored;
    fs::create_directories((folder / name).parent_path(), ignored);
    std::ofstream(folder / name) << part.substr(std::min(part.size(), name.string().size() + 1));
  }
  read_mlflow_runs(folder);
}

void merge(const fs::path& file, std::string_view) {
  const auto home = (file.parent_path() / "home").string();
  merge_bundle(home, file);
  Ledger ledger(home, Ledger::Mode::write);
}

void read_deepspeed_file(const fs::path&, std::string_view bytes) {
  const auto located = parse_located_json(std::string(bytes), "ds.json");
  deepspeed_as_recipe(located);
}

}  // namespace

const std::vector<Target>& targets() {
  static const std::vector<Target> list = {
      {"gguf", read_gguf},
      {"safetensors", read_safetensors},
      {"tokenizer", [](const fs::path& file, std::string_view) { use(HfTokenizer(file)); }},
      {"sentencepiece", [](const fs::path& file, std::string_view) { use(*open_sentencepiece(file)); }},
      {"tiktoken", [](const fs::path& file, std::string_view) { use(*open_tiktoken(file, "\\p{L}+|.")); }},
      {"charsmap", read_charsmap},
      {"template", read_template},
      {"hf_config",
       [](const fs::path& file, std::string_view) {
         const auto folder = file.parent_path() / "model";
         fs::create_directory(folder);
         fs::copy_file(file, folder / "config.json");
         model_of_hf_folder(folder);
       }},
      {"image", [](const fs::path& file, std::string_view) { read_image(file.string()); }},
      {"csv",
       [](const fs::path& file, std::string_view) {
         each([&] { read_csv({file.string()}, {}); }, [&] { read_all(CsvRecords(file, "auto")); },
              [&] { read_csv_runs(file); });
       }},
      {"json_lines", [](const fs::path& file, std::string_view) { read_all(JsonRecords(file, true)); }},
      {"parquet",
       [](const fs::path& file, std::string_view) {
         each([&] { read_parquet({file.string()}, {}); }, [&] { read_all(ParquetRecords(file)); });
       }},
      {"tensorboard", read_events},
      {"wandb", read_wandb_file},
      {"mlflow", read_mlflow_store},
      {"bundle", merge},
      {"documents",
       [](const fs::path& file, std::string_view) {
         const DocumentFile documents(file);
         std::vector<int64_t> targets(documents.ends().empty() ? 0 : static_cast<size_t>(documents.ends().back()));
         documents.ignore_unsupervised(0, targets);
       }},
      {"recipe", [](const fs::path&,
                    std::string_view bytes) { (void)print_recipe(parse_recipe(std::string(bytes), "recipe.toml")); }},
      {"deepspeed", read_deepspeed_file},
  };
  return list;
}

}  // namespace runner::fuzz
