// SHA-256 and HMAC against the published examples: FIPS 180-4 and RFC 4231.
#include <catch2/catch_test_macros.hpp>

#include "runner/base/sha256.hpp"

using namespace runner;

namespace {

std::string hex(std::span<const uint8_t> bytes) {
  std::string text;
  for (const uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::string hash_in_pieces(const std::string& text, size_t piece) {
  Sha256 hash;
  for (size_t begin = 0; begin < text.size(); begin += piece) hash.add(bytes_of_text(text.substr(begin, piece)));
  return hex(hash.finish());
}

std::string code(const std::string& key, const std::string& text) {
  Hmac hmac(bytes_of_text(key));
  hmac.add(bytes_of_text(text));
  return hex(hmac.finish());
}

}  // namespace

TEST_CASE("SHA-256 gives the published hashes, also of bytes that arrive in pieces") {
  CHECK(hash_in_pieces("", 1) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hash_in_pieces("abc", 3) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hash_in_pieces("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56) ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  for (const size_t piece : {63, 64, 65, 1'000'000})
    CHECK(hash_in_pieces(std::string(1'000'000, 'a'), piece) ==
          "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("HMAC-SHA-256 gives the published codes, and one object many of them") {
  CHECK(code(std::string(20, '\x0b'), "Hi There") ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(code("Jefe", "what do ya want for nothing?") ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(code(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First") ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  Hmac hmac(bytes_of_text("Jefe"));
  for (int i = 0; i < 2; ++i) {
    hmac.add(bytes_of_text("what do ya want for nothing?"));
    CHECK(hex(hmac.finish()) == "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  }
}

TEST_CASE("codes are compared in all bytes") {
  const std::array<uint8_t, 3> a = {1, 2, 3}, b = {1, 2, 4};
  CHECK(equal_in_constant_time(a, a));
  CHECK_FALSE(equal_in_constant_time(a, b));
  CHECK_FALSE(equal_in_constant_time(a, std::span(a).first(2)));
}
