// XXH3-128 hashes of texts, bytes and streams, compared with the output of xxh128sum.
#include "runner/base/xxh3.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace runner;

TEST_CASE("the hash of a text, of bytes and of a stream is XXH3-128 as xxh128sum prints it") {
  CHECK(xxh3_hex("") == "99aa06d3014798d86001c324468d497f");
  const std::string text = "runner\n";
  auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  CHECK(xxh3_hex(text) == "7aebdc8c2f4609832ff8083053456c1f");
  CHECK(xxh3_hex(bytes) == xxh3_hex(text));
  Xxh3 stream;
  stream.update(bytes.first(3));
  stream.update(bytes.subspan(3));
  CHECK(stream.hex() == xxh3_hex(text));
}
