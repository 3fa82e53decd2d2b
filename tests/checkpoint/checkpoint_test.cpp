// Checkpoints: pieces of N ranks are read as other pieces on M ranks; publishing checks, replaces, and never exposes an
// incomplete checkpoint.
#include "runner/checkpoint/checkpoint.hpp"

#include <atomic>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <random>
#include <thread>

#include "support.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

struct Tensor {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> data;
  int64_t numel() const { return *checked_numel(shape); }
};

class Random {
 public:
  explicit Random(unsigned seed) : generator_(seed) {}
  int64_t operator()(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(generator_);
  }

 private:
  std::mt19937 generator_;
};

std::vector<Tensor> random_tensors(Random& random) {
  const char* dtypes[] = {"F32", "BF16", "F64", "I64", "U8"};
  std::vector<Tensor> tensors(static_cast<size_t>(random(1, 6)));
  for (size_t i = 0; i < tensors.size(); ++i) {
    auto& tensor = tensors[i];
    tensor.name = "param/t" + std::to_string(i);
    tensor.dtype = dtypes[random(0, 4)];
    for (int64_t dims = random(0, 3); dims > 0; --dims) tensor.shape.push_back(random(0, 12) == 0 ? 0 : random(1, 12));
    tensor.data.resize(static_cast<size_t>(tensor.numel() * dtype_bytes(tensor.dtype)));
    for (auto& byte : tensor.data) byte = static_cast<std::byte>(random(0, 255));
  }
  return tensors;
}

uint64_t rank_file_bytes(const fs::path& checkpoint) {
  uint64_t bytes = 0;
  for (const auto& file : fs::directory_iterator(checkpoint))
    if (file.path().extension() == ".safetensors") bytes += file.file_size();
  return bytes;
}

/// Returns borders 0 = b0 <= b1 <= ... <= total.
std::vector<int64_t> random_cut(Random& random, int64_t total) {
  std::vector<int64_t> borders = {0, total};
  for (int64_t cuts = random(0, 4); cuts > 0; --cuts) borders.push_back(random(0, total));
  std::sort(borders.begin(), borders.end());
  borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
  return borders;
}

std::vector<Piece> piece(const std::vector<float>& values, int64_t offset, std::vector<int64_t> shape,
                         const std::string& name = "param/w") {
  return {{name, "F32", std::move(shape), offset, bytes_of(values)}};
}

}  // namespace

TEST_CASE("pieces that N ranks wrote are read as other pieces, and only the requested bytes are read") {
  Random random(20);
  for (int round = 0; round < 40; ++round) {
    Folder folder;
    auto tensors = random_tensors(random);
    auto ranks = static_cast<size_t>(random(1, 5));
    std::vector<std::vector<Piece>> pieces(ranks);
    for (const auto& tensor : tensors) {
      auto borders = random_cut(random, tensor.numel());
      auto element = static_cast<size_t>(dtype_bytes(tensor.dtype));
      if (tensor.numel() == 0) pieces[0].push_back({tensor.name, tensor.dtype, tensor.shape, 0, {}});
      for (size_t i = 0; i + 1 < borders.size(); ++i)
        pieces[static_cast<size_t>(random(0, static_cast<int64_t>(ranks) - 1))].push_back(
            {tensor.name, tensor.dtype, tensor.shape, borders[i],
             std::span<const std::byte>(tensor.data)
                 .subspan(static_cast<size_t>(borders[i]) * element,
                          static_cast<size_t>(borders[i + 1] - borders[i]) * element)});
    }
    std::vector<nlohmann::json> entries(ranks);
    {
      std::vector<std::jthread> threads;
      for (size_t rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] {
          CheckpointWriter writer(folder.path, 7, static_cast<int>(rank), static_cast<int>(ranks));
          entries[rank] = nlohmann::json::parse(writer.write_rank(pieces[rank]).dump());  // as through a store
        });
    }
    nlohmann::json state = {{"step", 7}, {"loss", 0.1 + round}, {"text", "ä\n"}, {"list", {1, 2.5, nullptr}}};
    auto path = CheckpointWriter(folder.path, 7, 0, static_cast<int>(ranks)).publish(entries, state);
    CHECK(path == folder / "step-000007");

    Checkpoint checkpoint(path);
    const uint64_t verified = checkpoint.bytes_read();
    CHECK(verified == rank_file_bytes(path));
    CHECK(Checkpoint(path, /*verify=*/false).bytes_read() == 0);
    CHECK(checkpoint.step() == 7);
    CHECK(checkpoint.world_size() == static_cast<int64_t>(ranks));
    CHECK(checkpoint.state() == state);
    REQUIRE(checkpoint.tensors().size() == tensors.size());
    uint64_t asked = 0;
    for (const auto& tensor : tensors) {
      CHECK(checkpoint.shape(tensor.name) == tensor.shape);
      CHECK(checkpoint.dtype(tensor.name) == tensor.dtype);
      auto element = dtype_bytes(tensor.dtype);
      auto borders = random_cut(random, tensor.numel());
      for (size_t i = 0; i + 1 < borders.size(); ++i) {
        if (random(0, 3) == 0) continue;  // a rank need not read everything
        int64_t length = borders[i + 1] - borders[i];
        std::vector<std::byte> out(static_cast<size_t>(length * element));
        checkpoint.read(tensor.name, borders[i], length, out);
        asked += out.size();
        CHECK(std::equal(out.begin(), out.end(), tensor.data.begin() + borders[i] * element));
      }
    }
    CHECK(checkpoint.bytes_read() == verified + asked);
    CHECK(names_in(folder.path) == std::vector<std::string>{"step-000007"});
  }
}

TEST_CASE("the file of a rank describes its contents") {
  Folder folder;
  auto path = publish_small(folder.path, 50);
  CHECK(names_in(path) ==
        std::vector<std::string>{"manifest.json", "rank-00000.safetensors", "rank-00001.safetensors"});
  SafetensorsFile file(path / "rank-00001.safetensors");
  REQUIRE(file.tensors().size() == 1);
  CHECK(file.tensors()[0].name == "param/w[3:6]");
  CHECK(file.tensors()[0].shape == std::vector<int64_t>{3});
  CHECK(file.metadata().at("step") == "50");
  CHECK(file.metadata().at("rank") == "1");
  CHECK(file.metadata().at("world_size") == "2");
  CHECK(nlohmann::json::parse(file.metadata().at("pieces")) ==
        nlohmann::json::parse(R"([{"tensor":"param/w","dtype":"F32","shape":[2,3],"offset":3,"length":3}])"));
}

TEST_CASE("a missing tensor is refused with the nearest name") {
  Folder folder;
  auto path = publish_small(folder.path, 50);
  Checkpoint checkpoint(path);
  CHECK_FALSE(checkpoint.has("parm/w"));
  CHECK(message_of([&] { checkpoint.shape("parm/w"); }) ==
        path.string() + " has no tensor `parm/w` (did you mean `param/w`?)");
  CHECK(message_of([&] { checkpoint.dtype("optimizer"); }) == path.string() + " has no tensor `optimizer`");
  std::vector<std::byte> out(4);
  CHECK_THROWS_AS(checkpoint.read("param/w", 6, 1, out), std::logic_error);
  CHECK_THROWS_AS(checkpoint.read("param/w", -1, 1, out), std::logic_error);
  CHECK_THROWS_AS(checkpoint.read("param/w", 0, 2, out), std::logic_error);
}

TEST_CASE("publishing refuses pieces that leave a gap, overlap or disagree, and leaves nothing") {
  Folder folder;
  std::vector<float> three(3);
  auto publish = [&](const std::vector<Piece>& first, const std::vector<Piece>& second) {
    std::vector<nlohmann::json> entries = {CheckpointWriter(folder.path, 5, 0, 2).write_rank(first),
                                           CheckpointWriter(folder.path, 5, 1, 2).write_rank(second)};
    CheckpointWriter(folder.path, 5, 0, 2).publish(entries, {});
  };
  auto fails_with = [](const std::string& text) { return MessageMatches(ContainsSubstring(text)); };
  CHECK_THROWS_MATCHES(publish(piece(three, 0, {7}), piece(three, 4, {7})), std::logic_error,
                       fails_with("step 5: elements [3, 4) of `param/w` are in no file"));
  CHECK_THROWS_MATCHES(publish(piece(three, 0, {7}), piece(three, 3, {7})), std::logic_error,
                       fails_with("step 5: elements [6, 7) of `param/w` are in no file"));
  CHECK_THROWS_MATCHES(publish(piece(three, 0, {5}), piece(three, 2, {5})), std::logic_error,
                       fails_with("step 5: elements [2, 3) of `param/w` occur twice"));
  CHECK_THROWS_MATCHES(publish(piece(three, 0, {6}), piece(three, 3, {3, 2})), std::logic_error,
                       fails_with("ranks disagree about dtype or shape of `param/w`"));
  CHECK_THROWS_MATCHES(publish(piece(three, 4, {6}), {}), std::logic_error,
                       fails_with("[4, 7) is not a piece of `param/w`"));
  CHECK(names_in(folder.path).empty());
}

TEST_CASE("publishing needs the entry of every rank and the file of every entry") {
  Folder folder;
  std::vector<float> three(3);
  auto write = [&](int rank, int64_t offset) {
    return CheckpointWriter(folder.path, 5, rank, 2).write_rank(piece(three, offset, {6}));
  };
  CheckpointWriter writer(folder.path, 5, 0, 2);
  auto first = write(0, 0);
  CHECK_THROWS_MATCHES(writer.publish({first}, {}), std::logic_error,
                       MessageMatches(ContainsSubstring("entries of ranks 0, not of each of 2")));
  first = write(0, 0);
  CHECK_THROWS_AS(writer.publish({first, first}, {}), std::logic_error);
  first = write(0, 0);
  auto second = write(1, 3);
  fs::path missing = folder / ".step-000005.1.tmp/rank-00001.safetensors";
  fs::remove(missing);
  CHECK(
      message_of([&] {
        writer.publish({first, second}, {});
      }) ==
      missing.string() +
          " is missing or incomplete (No such file or directory): all nodes must share the run's filesystem");
  CHECK(names_in(folder.path).empty());
}

TEST_CASE("files of another attempt with more ranks for the same step are not part of the checkpoint") {
  Folder folder;
  std::vector<float> values(6);
  CheckpointWriter(folder.path, 50, 4, 5, /*attempt=*/7).write_rank(piece(values, 0, {6}));
  write_text(folder / ".step-000050.7.tmp/rank-00000.safetensors", "half a file of that attempt");
  auto path = publish_small(folder.path, 50, 10);
  CHECK(names_in(path) ==
        std::vector<std::string>{"manifest.json", "rank-00000.safetensors", "rank-00001.safetensors"});
  CHECK(read_small(Checkpoint(path)) == std::vector<float>{10, 11, 12, 13, 14, 15});
}

TEST_CASE("a late writer cannot change the file that replaced its file") {
  Folder folder;
  std::vector<float> old_values(3, -1), values(3, 1);
  auto old_writer = std::make_unique<SafetensorsWriter>(folder / "x", std::vector<TensorInfo>{{"t", "F32", {3}}});
  write_safetensors(folder / "x", {{"t", "F32", {3}, bytes_of(values)}});
  old_writer->write(bytes_of(old_values));
  SafetensorsFile file(folder / "x");
  CHECK(std::equal(bytes_of(values).begin(), bytes_of(values).end(), file.data(*file.find("t")).begin()));
}

TEST_CASE("saving a step again replaces its checkpoint, which exists at every moment") {
  Folder folder;
  auto path = publish_small(folder.path, 50, 0);
  std::atomic<bool> stop{false};
  std::atomic<int> looks{0}, absent{0};
  {
    std::jthread observer([&] {
      while (!stop) {
        if (::access((path / "manifest.json").c_str(), F_OK) != 0) ++absent;
        ++looks;
      }
    });
    for (int i = 1; i <= 20; ++i) publish_small(folder.path, 50, static_cast<float>(i));
    stop = true;
  }
  CHECK(looks > 0);
  CHECK(absent == 0);
  CHECK(names_in(folder.path) == std::vector<std::string>{"step-000050"});
  CHECK(read_small(Checkpoint(path))[0] == 20);
}

TEST_CASE("an open checkpoint can be read completely after it was replaced and removed") {
  Folder folder;
  auto path = publish_small(folder.path, 50, 0);
  Checkpoint checkpoint(path);
  publish_small(folder.path, 50, 100);
  fs::remove_all(path);
  CHECK(read_small(checkpoint) == std::vector<float>{0, 1, 2, 3, 4, 5});
}

TEST_CASE("temporary folders of earlier attempts are removed for all steps, and those of this attempt stay") {
  Folder folder;
  for (const char* name : {".step-000050.tmp", ".step-000060.1.tmp", ".step-000070.2.tmp", ".step-000050.3.tmp"})
    fs::create_directories(folder / name);
  remove_leftovers(folder.path, 3);
  CHECK(names_in(folder.path) == std::vector<std::string>{".step-000050.3.tmp"});
}

TEST_CASE("a rank that cannot write leaves no file, and publishing with its entry leaves no folder") {
  Folder folder;
  std::vector<float> values(3);
  CheckpointWriter writer(folder.path, 5, 0, 2);
  auto entry = writer.write_rank(piece(values, 0, {6}));
  nlohmann::json failed = {{"rank", 1}, {"failed", "no space"}};
  CHECK(message_of([&] {
          writer.publish({entry, failed}, {});
        }) == "cannot write " + (folder / "step-000005").string() + ": rank 1: no space");
  CHECK(names_in(folder.path).empty());
}

TEST_CASE("the error of a rank names the checkpoint that it cannot write") {
  Folder folder;
  std::vector<float> values(6);
  write_text(folder / "checkpoints", "a file where the folder should be");
  CheckpointWriter writer(folder / "checkpoints", 5, 0, 1);
  CHECK_THAT(message_of([&] { writer.write_rank(piece(values, 0, {6})); }),
             ContainsSubstring("cannot write " + (folder / "checkpoints/step-000005").string() + ": "));
  CHECK(names_in(folder.path) == std::vector<std::string>{"checkpoints"});
}
