// Parsing and formatting of names, numbers and durations.
#include "runner/base/text.hpp"

#include <catch2/catch_test_macros.hpp>
#include <limits>

#include "runner/base/metric_names.hpp"

using namespace runner;

TEST_CASE("nearest finds likely typing errors and no other names") {
  std::vector<std::string> names{"n_layers", "n_heads", "dim", "max_seq_len"};
  CHECK(nearest("n_layer", names) == "n_layers");
  CHECK(nearest("nheads", names) == "n_heads");
  CHECK(nearest("max_sqe_len", names) == "max_seq_len");
  CHECK(nearest("dmi", names) == "dim");
  CHECK(nearest("max_seq", names) == "max_seq_len");
  CHECK_FALSE(nearest("n_", names));
  CHECK_FALSE(nearest("n_h", {"n_heads", "n_hidden"}));
  CHECK_FALSE(nearest("optimizer", names));
  CHECK_FALSE(nearest("xyz", names));
}

TEST_CASE("durations are parsed and written back as the same text") {
  using std::chrono::seconds;
  CHECK(parse_duration("30m") == seconds(1800));
  CHECK(parse_duration("1d12h") == seconds(129600));
  CHECK(parse_duration("0s") == seconds(0));
  CHECK(parse_duration("01:12:00:30") == seconds(129630));
  for (const char* bad : {"", "30", "m", "12h1d", "1h1h", "-3m", "1.5h", "3w", "1:00:00", "1::0:0", "1:2h:0:0"})
    CHECK_FALSE(parse_duration(bad));
  for (const char* text : {"30m", "1d12h", "1h1m1s", "45s"}) CHECK(write_duration(*parse_duration(text)) == text);
}

TEST_CASE("sizes, counts and seconds are parsed and formatted") {
  CHECK(parse_bytes("22GiB") == 22ll << 30);
  CHECK(parse_bytes("512 MB") == 512'000'000);
  CHECK(parse_bytes("1e9") == 1'000'000'000);
  CHECK_FALSE(parse_bytes("many"));
  CHECK(format_bytes(1536) == "1.50 KiB");
  CHECK(format_bytes(12) == "12 B");
  CHECK(format_count(17'040'000) == "17.0 M");
  CHECK(counted(1, "step") + ", " + counted(0, "step") == "1 step, 0 steps");
  CHECK(format_duration(200) == "3m 20s");
  CHECK(format_duration(0.42) == "0.42 s");
  CHECK(format_duration(0.0421) == "42 ms");
  CHECK(format_duration(0.00149) == "1.5 ms");
  CHECK(format_duration(0) == "0.00 s");
}

TEST_CASE("values of metrics have four decimals, or an exponent where these do not show them, and NaN has no sign") {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinite = std::numeric_limits<double>::infinity();
  CHECK(metric_text(2.5) == "2.5000");
  CHECK(metric_text(0) == "0.0000");
  CHECK(metric_text(2.25e-6) == "2.250e-06");
  CHECK(metric_text(-250000) == "-2.500e+05");
  CHECK(exact_metric_text(0.1) == "0.1");
  for (const auto& text : {metric_text, exact_metric_text}) {
    CHECK(text(-nan) == "nan");
    CHECK(text(-infinite) == "-inf");
  }
}

TEST_CASE("ranks are named with their nodes, and three or more consecutive ranks form a range") {
  CHECK(describe_ranks({0, 1, 4, 5, 6}) == "ranks 0, 1, 4-6");
  CHECK(name_ranks({1}, 2, 2) == "rank 1 of 2");
  CHECK(name_ranks({1}, 2, 1) == "rank 1 of 2 (node 1)");
  CHECK(name_ranks({2, 3}, 4, 2) == "ranks 2, 3 of 4 (node 1)");
  CHECK(name_ranks({0, 4, 5, 6, 7, 12}, 16, 4) == "ranks 0, 4-7, 12 of 16 (nodes 0, 1, 3)");
}

TEST_CASE("the first byte that is not UTF-8 is found") {
  CHECK_FALSE(first_invalid_utf8("plain, \xc3\xa9, \xe2\x82\xac, \xf0\x9f\x98\x80"));
  CHECK(first_invalid_utf8("ab\xff") == 2);
  for (size_t before = 0; before < 20; ++before)  // eight bytes are looked at together
    for (size_t after = 0; after < 20; ++after) {
      const std::string begin(before, 'a'), end(after, 'b');
      CHECK(first_invalid_utf8(begin + "\xff" + end) == before);
      CHECK_FALSE(first_invalid_utf8(begin + "\xe2\x82\xac" + end + "\xc3\xa9"));
    }
  CHECK(escape_invalid_utf8("\xe9t\xc3\xa9\xff") == "\\xE9t\xc3\xa9\\xFF");
  CHECK(from_hex(to_hex("\xe9"
                        "a")) ==
        "\xe9"
        "a");
  for (const char* wrong : {"e", "e9a", "-1", "zz"}) CHECK_FALSE(from_hex(wrong));
  CHECK(first_invalid_utf8("\xc3") == 0);           // incomplete
  CHECK(first_invalid_utf8("a\xe0\x80\x80") == 1);  // overlong encoding
  CHECK(first_invalid_utf8("\xed\xa0\x80") == 0);   // surrogate
}
