// The data format "bin": pre-tokenised files, raw as in nanoGPT, or with the header of llm.c.
#include <algorithm>
#include <array>
#include <cstring>

#include "runner/base/error.hpp"
#include "runner/data/formats.hpp"
#include "runner/data/source_files.hpp"

namespace runner {

namespace {

/// llm.c's header is 256 int32: magic, version, number of tokens, zeros. The magic determines the width of a token. No
/// raw file starts with it: as uint16, its low half is not in GPT-2's vocabulary; as uint32, it is not in any
/// vocabulary.
struct HeaderKind {
  int32_t magic, version;
  size_t item_bytes;
};
constexpr std::array<HeaderKind, 2> header_kinds{{{20240520, 1, 2}, {20240801, 7, 4}}};
constexpr size_t header_bytes = 256 * sizeof(int32_t);

struct Layout {
  size_t header_bytes, item_bytes;
};

std::string dtype_of(size_t item_bytes) { return item_bytes == 2 ? "uint16" : "uint32"; }

class BinFile final : public TokenFile {
 public:
  BinFile(const fs::path& path, Layout layout, int64_t vocab_size)
      : TokenFile(path, layout.header_bytes, layout.item_bytes), vocab_size_(vocab_size) {}

 private:
  void check(int64_t first, int64_t count) const override {
    if (item_bytes() == 2)
      check_items<uint16_t>(first, count);
    else
      check_items<uint32_t>(first, count);
  }

  template <typename Item>
  void check_items(int64_t first, int64_t count) const {
    if (vocab_size_ > std::numeric_limits<Item>::max()) return;
    auto range = items<Item>().subspan(static_cast<size_t>(first), static_cast<size_t>(count));
    Item largest = 0;  // this loop vectorises; a bad token is searched for only if there is one
    for (Item id : range) largest = std::max(largest, id);
    if (largest < vocab_size_) return;
    auto bad = std::ranges::find_if(range, [&](Item id) { return id >= vocab_size_; });
    throw usage_error(
        "{}: token {} at position {} is not in the vocabulary of {} (ids 0 to {}); is model.vocab_size or "
        "data.token_dtype = \"{}\" wrong?",
        path().string(), *bad, first + (bad - range.begin()), vocab_size_, vocab_size_ - 1, dtype_of(item_bytes()));
  }

  int64_t vocab_size_;
};

size_t item_bytes_of(const std::string& token_dtype) {
  if (token_dtype == "uint16") return 2;
  if (token_dtype == "uint32") return 4;
  throw usage_error("data.token_dtype = \"{}\": it can be \"uint16\" or \"uint32\"", token_dtype);
}

/// A raw file has no type. Throws Error(usage) if it seems to be another kind of file, or tokens of another type.
void check_raw(const fs::path& path, size_t size, size_t item_bytes) {
  if (auto kind = other_than_tokens(path.string()); !kind.empty())
    throw usage_error("{} looks like {}; data.format = \"bin\" reads raw tokens", path.string(), kind);
  if (size % item_bytes != 0)
    throw usage_error(
        "{} has {} bytes, which is not a whole number of {} tokens; is data.token_dtype wrong, or the file cut off?",
        path.string(), size, dtype_of(item_bytes));
  const std::string wider = wider_tokens(path.string(), item_bytes);
  if (wider.empty()) return;
  throw usage_error(
      "{} looks like {} tokens: read as data.token_dtype = \"{}\", every second one is 0. {}. "
      "If the file really contains such {} ids, give it llm.c's header, which names the type.",
      path.string(), wider, dtype_of(item_bytes),
      wider == "uint32"
          ? "Set data.token_dtype = \"uint32\""
          : "Convert it, for example with numpy: fromfile(FILE, \"int64\").astype(\"uint32\").tofile(NEW)",
      dtype_of(item_bytes));
}

/// The layout of a file. Refuses a header that contradicts the recipe or the size of the file.
Layout layout_of(const fs::path& path, size_t item_bytes) {
  MappedFile file(path);
  size_t size = file.bytes().size();
  std::array<int32_t, 3> header{};
  std::memcpy(header.data(), file.bytes().data(), std::min(sizeof(header), size));
  auto kind = std::ranges::find(header_kinds, header[0], &HeaderKind::magic);
  if (kind == header_kinds.end()) {
    check_raw(path, size, item_bytes);
    return {0, item_bytes};
  }
  if (size < header_bytes)
    throw usage_error("{} begins like a token file of llm.c but ends within its header of {} bytes", path.string(),
                      header_bytes);
  if (header[1] != kind->version)
    throw usage_error("{} has llm.c's header of version {}; version {} can be read", path.string(), header[1],
                      kind->version);
  if (kind->item_bytes != item_bytes)
    throw usage_error("{} has llm.c's header for {} tokens, but the recipe has data.token_dtype = \"{}\"",
                      path.string(), dtype_of(kind->item_bytes), dtype_of(item_bytes));
  if (size - header_bytes != static_cast<size_t>(header[2]) * item_bytes)
    throw usage_error(
        "{}: llm.c's header promises {} tokens of {} bytes, but {} bytes follow it; the file is cut off or damaged",
        path.string(), header[2], item_bytes, size - header_bytes);
  return {header_bytes, item_bytes};
}

}  // namespace

std::unique_ptr<TokenFile> open_raw_tokens(const fs::path& path, size_t item_bytes, int64_t vocab_size) {
  return std::make_unique<BinFile>(path, Layout{0, item_bytes}, vocab_size);
}

OpenData open_bin(const Source& source) {
  std::vector<std::unique_ptr<TokenFile>> files;
  size_t item_bytes = item_bytes_of(source.data.token_dtype);
  for (const auto& file : source.files)
    files.push_back(std::make_unique<BinFile>(file, layout_of(file, item_bytes), source.vocab_size));
  return {.stream = std::make_shared<TokenStream>(std::move(files))};
}

}  // namespace runner
