// Tokenised files in the formats of nanoGPT and llm.c.
#include <catch2/catch_test_macros.hpp>

#include "tests/data/support.hpp"

using namespace runner;
using namespace runner::test;

namespace {

std::string bin_error(const Recipe::Data& data, int64_t vocab_size = 50257) {
  return error_of([&] { open_dataset(data, Split::train, 4, vocab_size, "unused"); });
}

template <typename Item>
std::string with_header(int32_t magic, int32_t version, int32_t count, const std::vector<Item>& tokens) {
  std::vector<int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return std::string(reinterpret_cast<const char*>(header.data()), 1024) +
         std::string(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(Item));
}

const std::vector<uint16_t> nine{5, 50256, 7, 8, 1000, 10, 11, 12, 13};
const std::vector<int64_t> nine_ids(nine.begin(), nine.end());

}  // namespace

TEST_CASE("raw files of 16-bit and 32-bit tokens are read, and several files form one stream") {
  DataFolder folder;
  std::vector<uint32_t> wide{5, 128000, 7, 8, 9};
  auto small = open_dataset(bin_data({folder.write_tokens("a.bin", nine)}), Split::train, 4, 50257, "unused");
  CHECK(small->size() == 2);
  CHECK(stream_of(*small) == nine_ids);
  auto large =
      open_dataset(bin_data({folder.write_tokens("b.bin", wide)}, "uint32"), Split::train, 2, 128256, "unused");
  CHECK(stream_of(*large) == std::vector<int64_t>(wide.begin(), wide.end()));
  std::vector<uint16_t> head(nine.begin(), nine.begin() + 3), tail(nine.begin() + 3, nine.end());
  auto both = bin_data({folder.write_tokens("head.bin", head), folder.write_tokens("tail.bin", tail)});
  CHECK(stream_of(*open_dataset(both, Split::train, 4, 50257, "unused")) == nine_ids);
}

TEST_CASE("llm.c's header is recognised and skipped") {
  DataFolder folder;
  auto gpt2 =
      bin_data({folder.write("gpt2.bin", with_header(20240520, 1, 9, nine)), folder.write_tokens("raw.bin", nine)});
  auto tokens = stream_of(*open_dataset(gpt2, Split::train, 17, 50257, "unused"));
  CHECK(std::equal(nine_ids.begin(), nine_ids.end(), tokens.begin()));
  CHECK(std::equal(nine_ids.begin(), nine_ids.end(), tokens.begin() + 9));
  std::vector<uint32_t> wide{1, 2, 128255, 4, 5};
  auto llama = bin_data({folder.write("llama.bin", with_header(20240801, 7, 5, wide))}, "uint32");
  CHECK(stream_of(*open_dataset(llama, Split::train, 4, 128256, "unused")) == std::vector<int64_t>{1, 2, 128255, 4, 5});
}

TEST_CASE("a file that contradicts its header, the recipe or its size is refused") {
  DataFolder folder;
  std::string path = folder / "a.bin";
  auto error = [&](const std::string& content, const std::string& dtype = "uint16") {
    folder.write("a.bin", content);
    return bin_error(bin_data({path}, dtype));
  };
  CHECK(error(std::string(11, 'x')) == "usage: " + path +
                                           " has 11 bytes, which is not a whole number of uint16 tokens; is "
                                           "data.token_dtype wrong, or the file cut off?");
  CHECK(error(std::string(18, 'x'), "uint32") == "usage: " + path +
                                                     " has 18 bytes, which is not a whole number of uint32 tokens; is "
                                                     "data.token_dtype wrong, or the file cut off?");
  CHECK(error("x") == "usage: " + path +
                          " has 1 bytes, which is not a whole number of uint16 tokens; is data.token_dtype wrong, "
                          "or the file cut off?");
  std::string good = with_header(20240520, 1, 9, nine);
  CHECK(error(good.substr(0, 1000)) ==
        "usage: " + path + " begins like a token file of llm.c but ends within its header of 1024 bytes");
  CHECK(error(with_header(20240520, 2, 9, nine)) ==
        "usage: " + path + " has llm.c's header of version 2; version 1 can be read");
  CHECK(error(good, "uint32") ==
        "usage: " + path + " has llm.c's header for uint16 tokens, but the recipe has data.token_dtype = \"uint32\"");
  for (const std::string& damaged : {good.substr(0, good.size() - 1), good.substr(0, good.size() - 2)})
    CHECK(error(damaged) == "usage: " + path + ": llm.c's header promises 9 tokens of 2 bytes, but " +
                                std::to_string(damaged.size() - 1024) +
                                " bytes follow it; the file is cut off or damaged");
  CHECK(error(good, "int16") == "usage: data.token_dtype = \"int16\": it can be \"uint16\" or \"uint32\"");
}

TEST_CASE("a header without tokens is too short for a sample") {
  DataFolder folder;
  std::string path = folder.write("a.bin", with_header<uint16_t>(20240520, 1, 0, {}));
  CHECK(bin_error(bin_data({path})) ==
        "usage: data.train: " + path + " has 0 tokens; one sample of data.seq_len = 4 needs 5");
}

TEST_CASE("ids outside the vocabulary are refused with file, position and id") {
  DataFolder folder;
  std::string good = folder.write_tokens("good.bin", nine), path = folder / "bad.bin";
  folder.write_tokens("bad.bin", nine);
  CHECK(bin_error(bin_data({good}), 50257).empty());
  CHECK(bin_error(bin_data({path}), 50256) ==
        "usage: " + path +
            ": token 50256 at position 1 is not in the vocabulary of 50256 (ids 0 to 50255); is model.vocab_size or "
            "data.token_dtype = \"uint16\" wrong?");
  folder.write("bad.bin", with_header(20240520, 1, 9, nine));
  CHECK(bin_error(bin_data({good, path}), 50000).find("good.bin: token 50256 at position 1 ") != std::string::npos);
  folder.write_tokens("bad.bin", std::vector<uint32_t>{1, 2, 3, 4, 4'000'000'000});
  CHECK(bin_error(bin_data({path}, "uint32")) ==
        "usage: " + path +
            ": token 4000000000 at position 4 is not in the vocabulary of 50257 (ids 0 to 50256); is model.vocab_size "
            "or data.token_dtype = \"uint32\" wrong?");
}

TEST_CASE("token files define neither a tokenizer nor a vocabulary") {
  CHECK_FALSE(tokenizer_vocab_size(bin_data({"x"}), "unused"));
  CHECK(error_of([] { make_tokenizer(bin_data({"x"}), "unused"); }) ==
        "usage: data.format = \"bin\" contains tokens already and has no tokenizer");
}
