// GGUF files: the conversion of every data type, and damaged files.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstring>
#include <random>

#include "runner/base/error.hpp"
#include "runner/base/limits.hpp"
#include "runner/base/text.hpp"
#include "runner/pretrained/gguf_file.hpp"
#include "tests/support/gguf_builder.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

struct GgufFolder : TemporaryFolder {
  fs::path write(const std::string& bytes) const {
    std::ofstream(path / "model.gguf", std::ios::binary) << bytes;
    return path / "model.gguf";
  }
  std::string fault(const std::string& bytes) const {
    try {
      GgufFile file(write(bytes));
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::usage);
      CHECK_THAT(error.what(), ContainsSubstring("model.gguf: byte "));
      return error.what();
    }
    return "nothing was thrown";
  }
};

GgufBuilder small_file() {
  GgufBuilder file;
  file.add("general.architecture", "llama");
  file.add("a.list", std::vector<std::string>{"one", "two"});
  file.add("an.epsilon", 1e-5f);
  file.add_floats("first", {2, 3}, {0, 1, 2, 3, 4, 5});
  file.add_tensor("second", 8, {1, 32}, std::string(34, '\1'));
  return file;
}

}  // namespace

TEST_CASE("blocks of every GGUF type have the floats of ggml", "[gguf][rank3]") {
  const auto table = nlohmann::json::parse(read_file(RUNNER_SOURCE_DIR "/tests/pretrained/reference/blocks.json"));
  CHECK(table.size() == 12);
  for (const auto& [name, entry] : table.items()) {
    CAPTURE(name);
    const auto blocks = from_hex(entry.at("blocks").get<std::string>()).value();
    const auto floats = from_hex(entry.at("floats").get<std::string>()).value();
    std::vector<float> expected(floats.size() / sizeof(float));
    std::memcpy(expected.data(), floats.data(), floats.size());
    const auto* type = find_gguf_type(name);
    REQUIRE(type);
    const auto bytes = std::as_bytes(std::span(blocks));
    std::vector<float> all(expected.size());
    decode_gguf(*type, bytes, 0, all);
    CHECK(all == expected);
    // Parts that begin and end inside of blocks.
    for (const size_t begin : {1u, 7u}) {
      std::vector<float> part(expected.size() - begin - 3);
      decode_gguf(*type, bytes, static_cast<int64_t>(begin), part);
      CHECK(std::equal(part.begin(), part.end(), expected.begin() + static_cast<ptrdiff_t>(begin)));
    }
  }
}

TEST_CASE("metadata and tensors of a GGUF file", "[gguf]") {
  GgufFolder folder;
  const GgufFile file(folder.write(small_file().bytes()));
  CHECK(file.metadata()["general.architecture"] == "llama");
  CHECK(file.metadata()["a.list"] == nlohmann::json{"one", "two"});
  CHECK(file.metadata()["an.epsilon"] == 1e-5);
  REQUIRE(file.tensors().size() == 2);
  const auto* first = file.find("first");
  REQUIRE(first);
  CHECK(first->shape == std::vector<int64_t>{2, 3});
  std::vector<float> values(4);
  decode_gguf(*first->type, file.data(*first), 1, values);
  CHECK(values == std::vector<float>{1, 2, 3, 4});
}

TEST_CASE("every truncated GGUF file is refused, and no damaged byte crashes", "[gguf]") {
  GgufFolder folder;
  const auto whole = small_file().bytes();
  for (size_t size = 0; size + 32 < whole.size(); ++size) {
    CAPTURE(size);
    CHECK(folder.fault(whole.substr(0, size)) != "nothing was thrown");
  }
  std::mt19937 random(3);
  for (size_t place = 0; place < whole.size(); ++place)
    for (const int value : {0, 255, static_cast<int>(random() % 256)}) {
      auto damaged = whole;
      damaged[place] = static_cast<char>(value);
      folder.fault(damaged);
    }
}

TEST_CASE("the metadata of a GGUF file are bounded", "[gguf]") {
  GgufFolder folder;
  using File = GgufBuilder;
  const auto fault_of_list = [&](uint64_t elements) {
    auto file = small_file();  // has a list of 2
    file.add("b.list", 9, File::number<uint32_t>(0) + File::number<uint64_t>(elements) + std::string(elements, '\1'));
    return folder.fault(file.bytes());
  };
  CHECK(fault_of_list(gguf_elements_max - 2) == "nothing was thrown");
  CHECK_THAT(fault_of_list(gguf_elements_max - 1),
             ContainsSubstring("the lists up to `b.list` have more than 16777216 elements"));
  const auto nested = [](int depth) {
    std::string list;
    for (int i = 1; i < depth; ++i) list += File::number<uint32_t>(9) + File::number<uint64_t>(1);
    return list + File::number<uint32_t>(0) + File::number<uint64_t>(0);
  };
  auto deep = small_file(), deeper = small_file();
  deep.add("b.list", 9, nested(gguf_nesting_max));
  deeper.add("b.list", 9, nested(gguf_nesting_max + 1));
  CHECK(folder.fault(deep.bytes()) == "nothing was thrown");
  CHECK_THAT(folder.fault(deeper.bytes()), ContainsSubstring("`b.list` has more than 4 lists inside each other"));
  // A text that fills a sparse file.
  const auto path = folder.write("GGUF" + File::number<uint32_t>(3) + File::number<uint64_t>(0) +
                                 File::number<uint64_t>(1) + File::number<uint64_t>(1) + "a" +
                                 File::number<uint32_t>(8) + File::number<uint64_t>(gguf_metadata_bytes_max + 1));
  fs::resize_file(path, gguf_metadata_bytes_max + 100);
  CHECK_THROWS_WITH(GgufFile(path), ContainsSubstring("`a` has 1073741825 bytes, and at most 1073741824 are allowed"));
}

TEST_CASE("faults of a GGUF file are named with their place", "[gguf]") {
  GgufFolder folder;
  CHECK_THAT(folder.fault("JUNK and more bytes"), ContainsSubstring("byte 0: this is not a GGUF file"));
  auto other = small_file();
  other.version = 1;
  CHECK_THAT(folder.fault(other.bytes()),
             ContainsSubstring("byte 4: version 1 of the format is not supported; allowed: 2 or 3"));
  other.version = 3u << 24;
  CHECK_THAT(folder.fault(other.bytes()), ContainsSubstring("byte 4: the file is big endian"));
  auto many = small_file().bytes();
  many[15] = 1;
  CHECK_THAT(folder.fault(many), ContainsSubstring("byte 8: 72057594037927938 tensors cannot be in"));

  const auto fault_with = [&](auto&& change) {
    auto file = small_file();
    change(file);
    return folder.fault(file.bytes());
  };
  using File = GgufBuilder;
  CHECK_THAT(fault_with([](File& file) { file.add("long", 8, File::number<uint64_t>(1ull << 40)); }),
             ContainsSubstring("`long` has 1099511627776 bytes, and"));
  CHECK_THAT(fault_with([](File& file) {
               file.add("long", 9, File::number<uint32_t>(8) + File::number<uint64_t>(1ull << 60));
             }),
             ContainsSubstring("`long` has 1152921504606846976 elements, and"));
  CHECK_THAT(fault_with([](File& file) { file.add("\xff", "text"); }),
             ContainsSubstring("the name of a value is not UTF-8"));
  CHECK_THAT(fault_with([](File& file) { file.add_floats("third\xff", {1}, {1}); }),
             ContainsSubstring("the name of a tensor is not UTF-8"));
  CHECK_THAT(fault_with([](File& file) { file.add("odd", 77, ""); }),
             ContainsSubstring("a value has the unknown type 77"));
  CHECK_THAT(fault_with([](File& file) { file.add("a.list", "again"); }), ContainsSubstring("`a.list` occurs twice"));
  CHECK_THAT(fault_with([](File& file) { file.add("general.alignment", 0u); }),
             ContainsSubstring("general.alignment = 0 is not a usable alignment"));
  CHECK_THAT(fault_with([](File& file) { file.add_floats("first", {1}, {1}); }),
             ContainsSubstring("`first` occurs twice"));
  CHECK_THAT(fault_with([](File& file) { file.add_tensor("third", 99, {1}, ""); }),
             ContainsSubstring("`third` has the unknown type 99"));
  CHECK_THAT(fault_with([](File& file) {
               file.add_tensor("third", 8, {2, 33}, "");
             }),
             ContainsSubstring("`third` has rows of 33 elements, which are not blocks of 32 (Q8_0)"));
  CHECK_THAT(fault_with([](File& file) {
               file.add_tensor("third", 0, {1ull << 40, 1ull << 40}, "");
             }),
             ContainsSubstring("`third` has more elements than 64 bits can count"));
  CHECK_THAT(fault_with([](File& file) {
               file.add_tensor("third", 0, {1, 1, 1, 1, 1}, "");
             }),
             ContainsSubstring("`third` has 5 dimensions; at most 4 are allowed"));
  CHECK_THAT(fault_with([](File& file) { file.add_tensor("third", 0, {1000}, ""); }),
             ContainsSubstring("`third` ends at 4096 of the data, and the file ends at 96: it is truncated"));
  CHECK_THAT(fault_with([](File& file) { file.add_tensor("third", 0, {1}, "", 0); }), ContainsSubstring("overlap"));
  CHECK_THAT(fault_with([](File& file) { file.add_tensor("third", 0, {1}, "", 4); }),
             ContainsSubstring("`third` begins at 4 of the data, which is not a multiple of 32"));
}
