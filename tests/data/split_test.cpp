// Training and validation splits.
#include <catch2/catch_test_macros.hpp>

#include "tests/data/support.hpp"

using namespace runner;
using namespace runner::test;

namespace {

Recipe::Data counted(const DataFolder& folder, int tokens, double fraction) {
  std::vector<uint16_t> ids;
  for (int i = 0; i < tokens; ++i) ids.push_back(static_cast<uint16_t>(i));
  auto data = bin_data({folder.write_tokens("a.bin", ids)});
  data.validation_fraction = fraction;
  return data;
}

std::unique_ptr<Dataset> open(const Recipe::Data& data, Split split, int64_t seq_len = 4) {
  return open_dataset(data, split, seq_len, 65536, "unused");
}

}  // namespace

TEST_CASE("the last fraction of the tokens, rounded to the nearest, is for validation, and the parts are disjoint") {
  DataFolder folder;
  auto data = counted(folder, 101, 0.25);  // 25.25 tokens
  auto train = open(data, Split::train, 1), validation = open(data, Split::validation, 1);
  auto head = stream_of(*train), tail = stream_of(*validation);
  CHECK(head.size() == 76);
  CHECK(head.front() == 0);
  CHECK(head.back() == 75);
  CHECK(tail.size() == 25);
  CHECK(tail.front() == 76);
  CHECK(tail.back() == 100);
  CHECK(open(counted(folder, 101, 0.255), Split::validation, 1)->size() == 25);  // 25.755 tokens, rounded to 26
}

TEST_CASE("the position of the split is the same for every sequence length") {
  DataFolder folder;
  auto data = counted(folder, 200, 0.3);
  for (int64_t seq_len : {1, 2, 7, 59}) CHECK(read_sample(*open(data, Split::validation, seq_len), 0).inputs[0] == 140);
}

TEST_CASE("a fraction that leaves no sample is refused, and the error names one that works") {
  DataFolder folder;
  std::string path = folder / "a.bin";
  CHECK(error_of([&] { open(counted(folder, 1000, 0.004), Split::validation); }) ==
        "usage: data.validation_fraction = 0.004 leaves 4 of 1000 tokens for validation; one sample of data.seq_len = "
        "4 needs 5: the "
        "fraction must be at least 0.005");
  CHECK(error_of([&] { open(counted(folder, 1000, 0.996), Split::train); }) ==
        "usage: data.validation_fraction = 0.996 leaves 4 of 1000 tokens for training; one sample of data.seq_len = 4 "
        "needs 5: the "
        "fraction must be at most 0.995");
  CHECK(error_of([&] { open(counted(folder, 9, 0.5), Split::train); }) ==
        "usage: data.validation_fraction = 0.5: " + path +
            " has 9 tokens; one training and one validation sample of data.seq_len = 4 need 10");
  CHECK(open(counted(folder, 1000, 0.005), Split::validation)->size() == 1);
  CHECK(open(counted(folder, 1000, 0.995), Split::train)->size() == 1);
}

TEST_CASE("the fraction that an error names works for every size") {
  DataFolder folder;
  for (int tokens : {40, 77, 1003, 65537})
    for (int64_t seq_len : {3, 11, 17}) {
      std::string error = error_of([&] { open(counted(folder, tokens, 0), Split::validation, seq_len); });
      double fraction = std::stod(error.substr(error.rfind(' ')));
      CHECK(open(counted(folder, tokens, fraction), Split::validation, seq_len)->size() == 1);
      error = error_of([&] { open(counted(folder, tokens, 1), Split::train, seq_len); });
      fraction = std::stod(error.substr(error.rfind(' ')));
      CHECK(open(counted(folder, tokens, fraction), Split::train, seq_len)->size() >= 1);
    }
}

TEST_CASE("validation files are a separate stream, and without them there is no validation") {
  DataFolder folder;
  auto data = text_data({folder.write("train.txt", "training text")});
  CHECK(open(data, Split::validation) == nullptr);
  data.validation = {folder.write("val.txt", "valid")};
  auto validation = open(data, Split::validation);
  CHECK(validation->size() == 1);
  CHECK(read_sample(*validation, 0).inputs == std::vector<int64_t>{'v', 'a', 'l', 'i'});
  CHECK(open(data, Split::train)->size() == 3);
  CHECK(error_of([&] { open(data, Split::validation, 5); }) ==
        "usage: data.validation: " + data.validation[0] + " has 5 tokens; one sample of data.seq_len = 5 needs 6");
  data.validation_fraction = 0.1;
  CHECK(error_of([&] { open(data, Split::train); }) ==
        "usage: data.validation and data.validation_fraction exclude each other");
}
