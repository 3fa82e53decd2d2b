// Slices of tensors: common elements of two slicings, checkpoints of slices, and checkpoints of format version 1.
#include "strategies/engine/slice.hpp"

#include <numeric>

#include "runner/checkpoint/manifest.hpp"
#include "support.hpp"
#include "tests/support/slicings.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

/// A checkpoint of one tensor "param/w" whose parts are distributed among two ranks.
fs::path publish_parts(const fs::path& folder, const Sizes& shape, const std::vector<SlicePart>& parts,
                       const std::vector<float>& values) {
  std::vector<std::vector<float>> kept;
  std::vector<std::vector<Piece>> pieces(2);
  for (const auto& part : parts) {
    auto& data = kept.emplace_back();
    for (int64_t element : elements_of(part, shape))  // some are outside the tensor
      data.push_back(element < std::ssize(values) ? values[static_cast<size_t>(element)] : 0);
  }
  for (size_t i = 0; i < parts.size(); ++i)
    pieces[i % 2].push_back({.tensor = "param/w",
                             .dtype = "F32",
                             .global_shape = shape,
                             .offset = parts[i].begin,
                             .data = bytes_of(kept[i]),
                             .slice = parts[i].slice});
  std::vector<nlohmann::json> entries;
  for (int rank : {0, 1})
    entries.push_back(CheckpointWriter(folder, 1, rank, 2).write_rank(pieces[static_cast<size_t>(rank)]));
  return CheckpointWriter(folder, 1, 0, 2).publish(entries, nlohmann::json::object());
}

std::vector<float> numbers(const Sizes& shape) {
  std::vector<float> values(static_cast<size_t>(slice_numel({}, shape)));
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

}  // namespace

TEST_CASE("the common elements of two parts of a tensor are found in runs, each once") {
  Drawn draw(3);
  for (int round = 0; round < 300; ++round) {
    const Sizes shape = random_shape(draw);
    for (const auto& a : random_slicing(draw, shape))
      for (const auto& b : random_slicing(draw, shape)) {
        const auto of_a = elements_of(a, shape), of_b = elements_of(b, shape);
        std::vector<int64_t> found, expected;
        for_each_common(shape, a, b, [&](int64_t at_a, int64_t at_b, int64_t count) {
          for (int64_t i = 0; i < count; ++i) {
            found.push_back(of_a.at(static_cast<size_t>(at_a - a.begin + i)));
            REQUIRE(found.back() == of_b.at(static_cast<size_t>(at_b - b.begin + i)));
          }
        });
        for (int64_t element : of_a)
          if (std::find(of_b.begin(), of_b.end(), element) != of_b.end()) expected.push_back(element);
        std::sort(found.begin(), found.end());
        std::sort(expected.begin(), expected.end());
        REQUIRE(found == expected);
      }
  }
}

TEST_CASE("two contiguous parts have one run in common") {
  int64_t runs = 0;
  auto count = [&](int64_t, int64_t, int64_t) { ++runs; };
  for_each_common({8, 6}, {{}, 3, 40}, {{{2, 0}, {4, 6}}, 0, 24}, count);  // rows 2 to 5
  CHECK(runs == 1);
  for_each_common({8, 6}, {{}, 0, 48}, {{{0, 2}, {8, 3}}, 0, 24}, count);  // columns 2 to 4: a run in each row
  CHECK(runs == 9);
  for_each_common({}, {{}, 0, 1}, {{}, 0, 1}, count);
  CHECK(runs == 10);
}

TEST_CASE("a checkpoint that was written in any slicing is read in any other, and only the requested bytes are read") {
  Drawn draw(5);
  for (int round = 0; round < 60; ++round) {
    Folder folder;
    const Sizes shape = random_shape(draw);
    const auto values = numbers(shape);
    Checkpoint checkpoint(publish_parts(folder.path, shape, random_slicing(draw, shape), values));
    const uint64_t verified = checkpoint.bytes_read();
    for (const auto& part : random_slicing(draw, shape)) {
      std::vector<float> read(static_cast<size_t>(part.end - part.begin)), expected;
      checkpoint.read("param/w", part, std::as_writable_bytes(std::span(read)));
      for (int64_t element : elements_of(part, shape)) expected.push_back(values[static_cast<size_t>(element)]);
      REQUIRE(read == expected);
    }
    CHECK(checkpoint.bytes_read() == verified + values.size() * sizeof(float));
  }
}

TEST_CASE("slices that overlap, leave elements out or are outside the tensor are not published") {
  Folder folder;
  const Sizes shape{4, 6};
  auto fault = [&](const std::vector<SlicePart>& parts) -> std::string {
    try {
      publish_parts(folder.path, shape, parts, numbers(shape));
    } catch (const std::logic_error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  const TensorSlice left{{0, 0}, {4, 2}}, right{{0, 2}, {4, 4}}, wide{{0, 1}, {4, 5}};
  CHECK(fault({{left, 0, 8}, {right, 0, 16}}) == "nothing was thrown");
  CHECK(fault({{left, 0, 8}, {wide, 0, 20}}).ends_with("the slices [0:4, 0:2] and [0:4, 1:6] of `param/w` overlap"));
  CHECK(fault({{left, 0, 8}, {{}, 0, 24}}).ends_with("the slices [:] and [0:4, 0:2] of `param/w` overlap"));
  CHECK(fault({{left, 0, 8}}).ends_with("16 of the 24 elements of `param/w` are in no file"));
  CHECK(fault({{left, 0, 8}, {right, 0, 12}}).ends_with("elements [12, 16) of `param/w`[0:4, 2:6] are in no file"));
  CHECK(fault({{left, 0, 8}, {left, 4, 8}, {right, 0, 16}})
            .ends_with("elements [4, 8) of `param/w`[0:4, 0:2] occur twice"));
  CHECK(fault({{{{0, 3}, {4, 4}}, 0, 16}}).ends_with("[0, 16) is not a piece of `param/w[0:4, 3:7]`"));
}

TEST_CASE("a rank's file and the manifest name slices, and a manifest with a wrong one is refused") {
  Folder folder;
  const Sizes shape{4, 6};
  const std::vector<SlicePart> parts{{{{0, 0}, {4, 2}}, 0, 8}, {{{0, 2}, {4, 4}}, 0, 16}};
  const auto path = publish_parts(folder.path, shape, parts, numbers(shape));
  CHECK(SafetensorsFile(path / "rank-00001.safetensors").tensors()[0].name == "param/w[0:4, 2:6][0:16]");
  const auto file = path / "manifest.json";
  auto manifest = nlohmann::json::parse(read_file(file));
  CHECK(manifest.at("version") == 2);
  auto& slice = manifest["tensors"]["param/w"]["pieces"][0]["slice"];
  CHECK(slice == nlohmann::json::parse(R"({"start": [0, 0], "size": [4, 2]})"));
  auto after = [&](const nlohmann::json& wrong) {
    slice = wrong;
    seal_manifest(manifest);
    write_text(file, manifest.dump());
    auto said = message_of([&] { Checkpoint checkpoint(path); });
    return said.substr(said.find("manifest.json"));
  };
  const std::string place = "manifest.json: tensors.`param/w`.pieces[0].slice ";
  CHECK(after({{"start", {0, 5}}, {"size", {4, 2}}}) ==
        place + R"(= {"size":[4,2],"start":[0,5]} is not a slice of a tensor [4, 6])");
  CHECK(after({{"start", {0}}, {"size", {4}}}) ==
        place + R"(= {"size":[4],"start":[0]} is not a slice of a tensor [4, 6])");
  CHECK(after({{"start", {0, 1}}, {"size", {4}}}) ==
        place + R"(= {"size":[4],"start":[0,1]} is not a slice of a tensor [4, 6])");
  CHECK(after({{"start", {0, 0}}}) == place + "has no `size`");
  CHECK(after({{"start", {0, -1}}, {"size", {4, 2}}}) ==
        "manifest.json: tensors.`param/w`.pieces[0].slice.start[1] = -1 is not a valid size");
}

TEST_CASE("a checkpoint of format version 1 is read") {
  // An earlier version of the program wrote it: two ranks of fsdp with SGD, after step 3.
  Checkpoint checkpoint(fs::path(RUNNER_SOURCE_DIR) / "tests/cases/checkpoints/version-1/step-000003");
  CHECK(nlohmann::json::parse(read_file(checkpoint.path() / "manifest.json")).at("version") == 1);
  CHECK(checkpoint.step() == 3);
  CHECK(checkpoint.world_size() == 2);
  // The bytes of the two ranks' pieces of one tensor, which a reader gets as one piece and as columns.
  const std::string name = "param/embedding.tokens.weight";
  const Sizes shape = checkpoint.shape(name);
  REQUIRE(shape == Sizes{16, 4});
  std::vector<float> whole(16 * 4), columns(16 * 3);
  checkpoint.read(name, 0, 16 * 4, std::as_writable_bytes(std::span(whole)));
  CHECK(whole.front() == 0x1.4a83180000000p-6f);
  CHECK(whole.back() == 0x1.c2ecf60000000p-7f);
  checkpoint.read(name, {{{0, 1}, {16, 3}}, 0, 16 * 3}, std::as_writable_bytes(std::span(columns)));
  for (size_t row = 0; row < 16; ++row)
    for (size_t column = 0; column < 3; ++column) CHECK(columns[row * 3 + column] == whole[row * 4 + 1 + column]);
}
