// tokenizer.json by hand: mistakes with their places, special tokens, tiktoken files, and texts that are no tokenizers.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/limits.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/tokenizers/hf_tokenizer.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/trained_bpe.hpp"

using namespace runner;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using nlohmann::json;

namespace {

struct TextPlace : TemporaryFolder {
  fs::path write(const std::string& name, const std::string& content) const {
    std::ofstream(path / name, std::ios::binary) << content;
    return path / name;
  }
  /// A BPE of a few characters, changed by `patch` (RFC 7386).
  fs::path tokenizer(const json& patch = json::object()) const {
    json file = {{"version", "1.0"},
                 {"added_tokens",
                  {{{"id", 5}, {"content", "<s>"}, {"special", true}, {"normalized", false}},
                   {{"id", 6}, {"content", "</s>"}, {"special", true}, {"normalized", false}}}},
                 {"normalizer", nullptr},
                 {"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "never"}}},
                 {"post_processor",
                  {{"type", "TemplateProcessing"},
                   {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
                   {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {5}}, {"tokens", {"<s>"}}}}}}}},
                 {"decoder", {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "never"}}},
                 {"model",
                  {{"type", "BPE"},
                   {"unk_token", "?"},
                   {"vocab", {{"?", 0}, {"a", 1}, {"b", 2}, {"_", 3}, {"ab", 4}}},
                   {"merges", {"a b"}}}}};
    file.merge_patch(patch);
    return write("tokenizer.json", file.dump());
  }
};

template <typename Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::usage);
    return error.what();
  }
  return "";
}

using Ids = std::vector<int32_t>;

std::string base64_of(const std::string& bytes) {
  static constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0);
    for (int shift = 18; shift >= 0; shift -= 6) text += digits[group >> shift & 63];
  }
  text.resize((bytes.size() * 4 + 2) / 3);
  return text;
}

}  // namespace

TEST_CASE("a tokenizer.json is opened with its special tokens") {
  TextPlace place;
  const auto file = place.tokenizer();
  place.write("tokenizer_config.json",
              R"({"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>", "pad_token": null})");
  place.write("special_tokens_map.json", R"({"bos_token": "</s>", "pad_token": "b"})");
  const auto tokenizer = open_tokenizer_file(place.path);
  CHECK(tokenizer->vocab_size() == 7);
  CHECK(tokenizer->encode("ab a<s>b c") == Ids{4, 3, 1, 5, 2, 3, 0});
  CHECK(tokenizer->encode("ab", true) == Ids{5, 4});
  CHECK(tokenizer->encode_with_offsets("a é</s>b", true) ==
        std::vector<Token>{{5, 0, 0, true}, {1, 0, 1}, {3, 1, 2}, {0, 2, 4}, {6, 4, 8}, {2, 8, 9}});
  CHECK(tokenizer->decode(Ids{5, 4, 3, 1, 6}) == "<s>ab a</s>");
  CHECK(tokenizer->decode(Ids{5, 4, 3, 1, 6}, true) == "ab a");
  CHECK(tokenizer->token_to_id("ab") == 4);
  CHECK(tokenizer->token_to_id("<s>") == 5);
  CHECK(tokenizer->token_to_id("zz") == std::nullopt);
  CHECK(tokenizer->id_to_token(6) == "</s>");
  CHECK(tokenizer->id_to_token(7) == std::nullopt);
  const auto roles = tokenizer->special_tokens();
  CHECK(roles.bos == 5);  // tokenizer_config.json wins
  CHECK(roles.eos == 6);
  CHECK(roles.pad == 2);
  CHECK(roles.unk == 0);
  CHECK((tokenizer->is_special(5) && !tokenizer->is_special(4)));
  CHECK(tokenizer->hash() == xxh3_hex(read_file(file)));
  std::vector<std::string> names;
  for (const auto& copied : tokenizer->files()) names.push_back(copied.name);
  CHECK(names == std::vector<std::string>{"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"});
  CHECK(message_of([&] { tokenizer->decode(Ids{1, 7}); }) == "token 7 is not in the tokenizer's vocabulary of 7");
  CHECK(message_of([&] { tokenizer->encode("a\xff"); }) == "the text is not UTF-8: byte 0xff at offset 1");
  CHECK(tokenizer->encode("").empty());
}

TEST_CASE("Llama's settings decide about the tokens around a text") {
  TextPlace place;
  place.tokenizer();
  const auto ids = [&](const std::string& config) {
    place.write("tokenizer_config.json", config);
    return open_tokenizer_file(place.path)->encode("a", true);
  };
  CHECK(
      ids(R"({"tokenizer_class": "LlamaTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "add_bos_token": false,
                "add_eos_token": true})") == Ids{1, 6});
  CHECK(ids(R"({"tokenizer_class": "GPT2Tokenizer", "bos_token": "<s>", "add_bos_token": false})") == Ids{5, 1});
  CHECK_THAT(message_of([&] { ids(R"({"tokenizer_class": "LlamaTokenizer", "add_eos_token": true})"); }),
             ContainsSubstring("tokenizer_config.json: /: add_bos_token is true, but there is no bos_token"));
  CHECK_THAT(message_of([&] { ids(R"({"eos_token": "<end>"})"); }),
             ContainsSubstring("tokenizer_config.json: /eos_token: tokenizer.json has no token \"<end>\""));
}

TEST_CASE("the time of expressions is bounded for a text, also if others have cut it") {
  TextPlace place;
  const auto split = [](const char* expression) {
    return json{{"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", "Isolated"}};
  };
  const HfTokenizer tokenizer(place.tokenizer(
      {{"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split("b"), split("(?:a|aa){1,18}[bc]")}}}}}));
  std::string text;
  for (int i = 0; i < 1000; ++i) text += i % 50 == 0 ? "<s>" : std::string(30, 'a') + "b";
  try {
    tokenizer.encode(text);
    FAIL("it took the time that it wanted");
  } catch (const Error& error) {
    CHECK_THAT(error.what(), ContainsSubstring("of processor time for a text of 29."));
  }
  CHECK(tokenizer.encode("aab") == Ids{1, 1, 2});  // the next text has its own time
}

TEST_CASE("mistakes in tokenizer.json are named with their place") {
  TextPlace place;
  const auto mistake = [&](const json& patch) {
    const auto file = place.tokenizer(patch);
    auto message = message_of([&] { HfTokenizer{file}; });
    const auto prefix = file.string() + ": ";
    return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
  };
  CHECK(mistake({{"normalizer", {{"type", "Lowercse"}}}}) ==
        "/normalizer/type: \"Lowercse\" instead of Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, "
        "Replace, Prepend, BertNormalizer, Precompiled, Nmt or ByteLevel; did you mean Lowercase?");
  CHECK(mistake({{"pre_tokenizer", {{"type", "UnicodeScripts"}}}}) ==
        "/pre_tokenizer/type: the pre-tokenizer UnicodeScripts is not supported");
  CHECK(
      mistake({{"pre_tokenizer",
                {{"type", "Sequence"},
                 {"pretokenizers",
                  {{{"type", "Digits"}},
                   {{"type", "Split"}, {"pattern", {{"Regex", "[a&&b]"}}}, {"behavior", "Isolated"}}}}}}}) ==
      "/pre_tokenizer/pretokenizers/1/pattern/Regex: regular expression: `&&` in a class at offset 2 is not supported");
  CHECK(
      mistake(
          {{"pre_tokenizer",
            {{"type", "Split"}, {"pattern", {{"String", ""}}}, {"behavior", "Isolated"}, {"replacement", nullptr}}}}) ==
      "/pre_tokenizer/pattern/String: an empty pattern is not supported");
  CHECK(mistake({{"model", {{"dropout", 0.1}}}}) ==
        "/model/dropout: dropout of merges is not supported: the same text must always have the same tokens");
  CHECK(mistake({{"model", {{"merges", {"a b", "b c"}}}}}) ==
        "/model/merges/1: the token \"c\" is not in the vocabulary");
  CHECK(mistake({{"model", {{"merges", {"ab"}}}}}) ==
        "/model/merges/0: \"ab\" instead of two tokens with a space between them");
  CHECK(mistake({{"model", {{"vocab", {{"a", "1"}}}}}}) == "/model/vocab/a: \"1\" instead of an integer");
  CHECK(mistake({{"model", {{"vocab", {{"a", 268435455}}}}}}) ==
        "/model/vocab/a: the id 268435455 is far above the number of entries, 5: the file is damaged");
  CHECK(mistake({{"model", {{"type", "Unigram"}, {"vocab", json::array()}, {"merges", nullptr}}}}) ==
        "/model/vocab: the vocabulary is empty");
  const json none = {{"?", nullptr}, {"a", nullptr}, {"b", nullptr}, {"_", nullptr}, {"ab", nullptr}};
  CHECK(mistake({{"model", {{"type", "WordLevel"}, {"vocab", none}}},
                 {"added_tokens", nullptr},
                 {"post_processor", nullptr}}) == "/model/vocab: the vocabulary is empty");
  CHECK(mistake({{"model", {{"unk_token", "<unk>"}}}}) == "/model/unk_token: \"<unk>\" is not in the vocabulary");
  CHECK(mistake({{"model", {{"type", "WordPiece"}, {"unk_token", "[UNK]"}}}}) ==
        "/model/unk_token: \"[UNK]\" is not in the vocabulary");
  CHECK(mistake({{"model", nullptr}}) == "/: this is not a tokenizer.json: it has no `model`");
  CHECK(mistake({{"added_tokens", {{{"id", 9}, {"content", "<x>"}}}}}) ==
        "/added_tokens/0/id: the token \"<x>\" would have id 5: the id must be that of the model's vocabulary, or the "
        "next free "
        "one");
  CHECK(mistake({{"post_processor", {{"single", {{{"SpecialToken", {{"id", "<t>"}}}}}}}}}) ==
        "/post_processor/special_tokens: `<t>` is missing; did you mean `<s>`?");
  CHECK(mistake({{"decoder", {{"type", "Strip"}, {"content", "ab"}, {"start", 1}, {"stop", 0}}}}) ==
        "/decoder/content: \"ab\" instead of one character");
  const std::string shortened = std::string(80, 'x') + "...", long_text(1 << 20, 'x');
  CHECK(mistake({{"model", {{"merges", {long_text}}}}}) ==
        "/model/merges/0: \"" + shortened + "\" instead of two tokens with a space between them");
  CHECK(mistake({{"model", {{"merges", {"a " + long_text}}}}}) ==
        "/model/merges/0: the token \"" + shortened + "\" is not in the vocabulary");
  CHECK(mistake({{"model", {{"type", long_text}}}}).size() < 400);
  CHECK_THAT(message_of([&] { HfTokenizer{place.write("broken.json", "{\n  \"model\": [1,}\n")}; }),
             ContainsSubstring("broken.json:2:15: this is not JSON: "));
}

TEST_CASE("the bytes, depth and tokens of a tokenizer are bounded") {
  TextPlace place;
  const auto mistake = [&](const json& patch) { return message_of([&] { HfTokenizer{place.tokenizer(patch)}; }); };
  const std::string longest(token_bytes_max, 'x'), longer(token_bytes_max + 1, 'x');
  const std::string fault = "a token has 4097 bytes; at most 4096 are allowed";
  const auto vocabulary = [](const std::string& token) {
    return json{{"model", {{"vocab", {{token, 5}}}}}, {"added_tokens", nullptr}, {"post_processor", nullptr}};
  };
  CHECK(mistake(vocabulary(longest)).empty());
  CHECK_THAT(mistake(vocabulary(longer)), EndsWith("/model/vocab: " + fault));
  const auto added = [](const std::string& token) {
    return json{{"added_tokens", {{{"id", 5}, {"content", "<s>"}}, {{"id", 6}, {"content", token}}}}};
  };
  CHECK(mistake(added(longest)).empty());
  CHECK_THAT(mistake(added(longer)), EndsWith("/added_tokens/1/content: " + fault));
  const auto pieces = [&](const std::string& token) {
    return mistake({{"model",
                     {{"type", "Unigram"},
                      {"vocab", json::array({json::array({"?", 0}), json::array({token, -1})})},
                      {"merges", nullptr}}},
                    {"added_tokens", nullptr},
                    {"post_processor", nullptr}});
  };
  CHECK(pieces(longest).empty());
  CHECK_THAT(pieces(longer), EndsWith("/model/vocab/1/0: " + fault));
  CHECK_THAT(pieces(std::string(1'000'000, 'x')),
             EndsWith("/model/vocab/1/0: a token has 1000000 bytes; at most 4096 are allowed"));
  const auto line = [](size_t quads) {
    std::string base64;
    for (size_t i = 0; i < quads; ++i) base64 += "YWFh";
    return base64;
  };
  const auto ranks = [&](const std::string& token) {
    return message_of([&] { open_tiktoken(place.write("a.tiktoken", "YQ== 0\n" + token + " 1\n"), "a+"); });
  };
  CHECK(ranks(line(1365) + "YQ==").empty());
  CHECK_THAT(ranks(line(1365) + "YWE="), ContainsSubstring("a.tiktoken:2: " + fault));

  const auto nested = [](size_t depth) {
    return "{\"model\": " + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  CHECK_THAT(message_of([&] { HfTokenizer{place.write("deep.json", nested(499))}; }),
             EndsWith("/model: array instead of an object"));
  for (const size_t depth : {size_t{500}, size_t{100'000}})
    CHECK_THAT(message_of([&] { HfTokenizer{place.write("deep.json", nested(depth))}; }),
               EndsWith("deep.json: this is not JSON: objects and lists are nested more than 500 deep"));
  CHECK_THAT(message_of([&] { HfTokenizer{place.write("large.json", "{\"model\": 1e999}")}; }),
             EndsWith("large.json: this is not JSON: number overflow parsing '1e999'"));
  const auto sparse = place.write("sparse.json", "");
  for (const auto& [bytes, message] : {std::pair(tokenizer_bytes_max, ":1:1: this is not JSON: "),
                                       {tokenizer_bytes_max + 1, " has 256.0 MiB; at most 256.0 MiB are read"}}) {
    fs::resize_file(sparse, bytes);
    CHECK_THAT(message_of([&] { HfTokenizer{sparse}; }), ContainsSubstring(sparse.string() + message));
  }
}

TEST_CASE("many added tokens are read") {
  TextPlace place;
  json tokens = json::array();
  for (int i = 0; i < 200'000; ++i) tokens.push_back({{"id", 5 + i}, {"content", fmt::format("<{}>", i)}});
  const HfTokenizer tokenizer(place.tokenizer({{"added_tokens", tokens}, {"post_processor", nullptr}}));
  CHECK(tokenizer.encode("<199999><0>a") == Ids{200'004, 5, 1});
}

TEST_CASE("the texts of a character map must be UTF-8") {
  TextPlace place;
  // One entry: "a" becomes the text at its offset.
  std::vector<uint32_t> units(128);
  units[0x61] = 0x61 | 0x100 | (0x60 << 10);
  const auto mistake = [&](const std::string& texts, uint32_t offset) {
    units[1] = offset;
    std::string blob("\0\x02\0\0", 4);
    blob.append(reinterpret_cast<const char*>(units.data()), 4 * units.size()).append(texts);
    return message_of([&] {
      const HfTokenizer tokenizer(
          place.tokenizer({{"normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", base64_of(blob)}}},
                           {"post_processor", nullptr}}));
      CHECK(tokenizer.encode("aa") == Ids{1, 1});  // the offset is inside of a character, so there is no entry
    });
  };
  std::string lead;
  for (int i = 0; i < 64; ++i)
    lead +=
        "\xF0"
        "aaa";
  CHECK_THAT(mistake(lead + '\0', 0),
             EndsWith("/normalizer/precompiled_charsmap: byte 0 of the map's texts is not UTF-8"));
  CHECK_THAT(mistake("b\xC3", 0), EndsWith("/normalizer/precompiled_charsmap: byte 1 of the map's texts is not UTF-8"));
  CHECK(mistake(std::string("\xC3\xA9\0", 3), 1).empty());
  const std::string longest(charsmap_text_bytes_max - 1, 'x');
  CHECK(mistake("\xC3\xA9" + longest.substr(1) + '\0', 1).empty());
  CHECK_THAT(mistake("\xC3\xA9" + longest + '\0', 1),
             EndsWith("/normalizer/precompiled_charsmap: a text of the map has 257 bytes; at most 256 are allowed"));
}

TEST_CASE("a SentencePiece model whose character map leads out of it is refused") {
  TextPlace place;
  const std::string model = read_file(RUNNER_SOURCE_DIR "/tests/fuzz/corpus/sentencepiece/small");
  const auto field = [](char tag, const std::string& bytes) {
    return std::string{tag, static_cast<char>(0x80 | (bytes.size() & 0x7f)), static_cast<char>(bytes.size() >> 7)} +
           bytes;
  };
  const auto with_map = [&](uint32_t unit, uint32_t value, const std::string& texts) {
    std::vector<uint32_t> units(256);
    units[0x61] = unit;
    units[1] = value | 1u << 31;
    std::string map("\0\x04\0\0", 4);
    map.append(reinterpret_cast<const char*>(units.data()), 4 * units.size()).append(texts);
    const auto file = place.write("tokenizer.model", model + field('\x1a', field('\x12', map)));
    return message_of([&] { (void)open_sentencepiece(file)->encode("a"); });
  };
  const uint32_t sound = 0x61 | 0x100 | (0x60 << 10), far = 0x61 | 0x100 | (0x1fffff << 10) | (1 << 9);
  CHECK(with_map(sound, 0, std::string("b\0", 2)).empty());
  for (const auto& fault :
       {with_map(far, 0, std::string("b\0", 2)), with_map(sound, 2, std::string("b\0", 2)), with_map(sound, 0, "b")})
    CHECK_THAT(fault, EndsWith("tokenizer.model is not a SentencePiece model"));
}

TEST_CASE("tokenizers are found by the content of files, and folders by their names") {
  TextPlace place;
  CHECK_THAT(
      message_of([&] { open_tokenizer_file(place.path); }),
      ContainsSubstring("is a folder without a tokenizer: it has neither tokenizer.json nor tokenizer.model nor"));
  place.write("vocab.json", "{}");
  CHECK_THAT(message_of([&] { open_tokenizer_file(place.path); }), ContainsSubstring("save_pretrained(FOLDER)"));
  CHECK_THAT(message_of([&] { open_tokenizer_file(place.write("text.txt", "some text\n")); }),
             ContainsSubstring("text.txt is neither a tokenizer.json nor a SentencePiece model nor a tiktoken file"));
  CHECK_THAT(message_of([&] { open_tokenizer_file(place.write("a.tiktoken", "YQ== 0\n!! 1\n")); }),
             ContainsSubstring("a.tiktoken:2: this is not Base64"));
  CHECK_THAT(message_of([&] { open_tokenizer_file(place.write("a.tiktoken", "YQ== 0\nYg== 1\n")); }),
             ContainsSubstring("a tiktoken file of 2 tokens: the expression that cuts words is only known for GPT-2"));
}

TEST_CASE("a tiktoken file gives the ids of the tokenizer with the same merges") {
  TextPlace place;
  const std::string text = "the cat sat on the mat. the catalogue of cats, and of the other animals\n";
  const HfTokenizer expected(place.write("tokenizer.json", trained_bpe(text, 300, {})));
  std::string lines;
  static constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (int32_t id = 0; id < expected.vocab_size(); ++id) {
    const auto bytes = expected.decode(Ids{id});
    std::string raw = id < 256 ? std::string() : bytes;
    if (id < 256)  // bytes that are not UTF-8 by themselves cannot be decoded
      for (int byte = 0; byte < 256; ++byte)
        if (auto own = expected.encode(std::string(1, static_cast<char>(byte % 128))); byte < 128 && own[0] == id)
          raw = char(byte);
    if (raw.empty()) raw = "\xff\xff" + std::to_string(id);
    for (size_t i = 0; i < raw.size(); i += 3) {
      uint32_t bits = 0;
      for (size_t k = 0; k < 3; ++k)
        bits = bits << 8 | (i + k < raw.size() ? static_cast<unsigned char>(raw[i + k]) : 0);
      for (size_t k = 0; k < 4; ++k) lines += i + k > raw.size() ? '=' : digits[bits >> (18 - 6 * k) & 63];
    }
    lines += " " + std::to_string(id) + "\n";
  }
  const auto file = place.write("tokens.tiktoken", lines);
  REQUIRE(looks_like_tiktoken(lines));
  const auto tokenizer = open_tiktoken(file, R"( ?\p{L}+|[^\p{L}]+)");
  const std::string other = "the other cat\n";
  CHECK(tokenizer->vocab_size() == expected.vocab_size());
  CHECK(tokenizer->encode("the other cat") == expected.encode("the other cat"));
  CHECK(tokenizer->decode(tokenizer->encode(other)) == other);
}

TEST_CASE("the bytes tokenizer has names for its tokens") {
  const auto bytes = make_bytes_tokenizer();
  CHECK(bytes->token_to_id("<0x0A>") == 10);
  CHECK(bytes->id_to_token(255) == "<0xFF>");
  CHECK(bytes->token_to_id("a") == std::nullopt);
  CHECK(bytes->encode_with_offsets("é") == std::vector<Token>{{0xc3, 0, 1}, {0xa9, 1, 2}});
  CHECK(bytes->safe_split("one\ntwo", 5) == 4u);
  CHECK(bytes->hash() == "bytes");
}
