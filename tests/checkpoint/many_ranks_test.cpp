// A checkpoint of 1,024 ranks: a rank opens the files and reads the records that it needs, and no others.
#include "runner/base/text.hpp"
#include "runner/checkpoint/manifest.hpp"
#include "tests/checkpoint/support.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

constexpr int ranks = 1024, tensors = 8;
constexpr int64_t part = 4;  ///< elements of a tensor that a rank has

std::string tensor_name(int tensor) { return fmt::format("param/{}", tensor); }
float value(int tensor, int64_t element) { return static_cast<float>(tensor * 10'000 + element); }

/// Tensors of 1,024 parts, one a rank. Tensor 0 is a matrix: ranks with even numbers have the left half of its columns, the others the
/// right half.
fs::path publish_many(const fs::path& folder) {
  std::vector<nlohmann::json> entries;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::vector<float>> values(tensors, std::vector<float>(part));
    std::vector<Piece> pieces;
    for (int tensor = 0; tensor < tensors; ++tensor) {
      auto& own = values[static_cast<size_t>(tensor)];
      const int64_t begin = tensor == 0 ? rank / 2 * part : rank * part;
      Piece piece{
          .tensor = tensor_name(tensor), .dtype = "F32", .global_shape = {ranks * part}, .offset = begin, .data = {}};
      if (tensor == 0) {
        piece.global_shape = {ranks / 2, 2 * part};
        piece.slice = {{0, rank % 2 * part}, {ranks / 2, part}};
      }
      for (int64_t i = 0; i < part; ++i)
        own[static_cast<size_t>(i)] =
            value(tensor, tensor == 0 ? rank / 2 * 2 * part + rank % 2 * part + i : begin + i);
      piece.data = bytes_of(own);
      pieces.push_back(piece);
    }
    entries.push_back(CheckpointWriter(folder, 7, rank, ranks).write_rank(pieces));
  }
  return CheckpointWriter(folder, 7, 0, ranks).publish(entries, {{"attempt", 1}});
}

/// Reads elements of a tensor and compares them.
void check_elements(const Checkpoint& checkpoint, int tensor, int64_t begin, int64_t end) {
  std::vector<float> values(static_cast<size_t>(end - begin));
  checkpoint.read(tensor_name(tensor), begin, end - begin, std::as_writable_bytes(std::span(values)));
  bool right = true;
  for (int64_t i = begin; i < end; ++i) right = right && values[static_cast<size_t>(i - begin)] == value(tensor, i);
  CHECK(right);
}

/// A checkpoint that all tests here read, and copies of it that they damage.
const fs::path& many() {
  static Folder folder;
  static const fs::path path = publish_many(folder.path);
  return path;
}

void overwrite(const fs::path& file, int64_t at, const std::string& bytes) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(at);
  stream << bytes;
}

}  // namespace

TEST_CASE("a rank of the same world opens one of 1,024 files, and reads its own bytes and a few records", "[many]") {
  const auto checkpoint = Checkpoint::on_demand(many());
  CHECK(checkpoint.files_opened() == 0);
  CHECK(checkpoint.index_bytes_read() == 0);
  CHECK(checkpoint.step() == 7);
  CHECK(checkpoint.tensors().size() == tensors);
  constexpr int rank = 700;
  for (int tensor = 1; tensor < tensors; ++tensor) check_elements(checkpoint, tensor, rank * part, (rank + 1) * part);
  CHECK(checkpoint.files_opened() == 1);
  CHECK(checkpoint.bytes_read() == (tensors - 1) * part * sizeof(float));
  // Bisection of 1,024 records, the record itself, and the next one, which ends the search.
  CHECK(checkpoint.index_bytes_read() <= (tensors - 1) * (11 + 2) * sizeof(PieceRecord));
}

TEST_CASE("a rank of another world opens the files that have its elements", "[many]") {
  const auto checkpoint = Checkpoint::on_demand(many());
  const int64_t elements = ranks * part, begin = elements / 3, end = 2 * elements / 3;
  for (int tensor = 1; tensor < tensors; ++tensor) check_elements(checkpoint, tensor, begin, end);
  CHECK(checkpoint.files_opened() == static_cast<size_t>((end - 1) / part - begin / part + 1));
}

TEST_CASE("a rank reads rows of a matrix that ranks have stored by columns", "[many]") {
  const auto checkpoint = Checkpoint::on_demand(many());
  check_elements(checkpoint, 0, 5 * 2 * part, 7 * 2 * part);
  CHECK(checkpoint.files_opened() == 4);
  std::vector<float> right(part);
  checkpoint.read(tensor_name(0), {{{0, part}, {ranks / 2, part}}, 9 * part, 10 * part},
                  std::as_writable_bytes(std::span(right)));
  CHECK(right.front() == value(0, 9 * 2 * part + part));
  CHECK(checkpoint.files_opened() == 5);
}

TEST_CASE("a checkpoint that is opened completely has the same pieces, and its hashes are verified", "[many]") {
  const Checkpoint checkpoint(many());
  for (int tensor = 0; tensor < tensors; ++tensor) check_elements(checkpoint, tensor, 0, ranks * part);
  const auto manifest = read_manifest(many());
  CHECK(manifest.tensors.at(tensor_name(0)).pieces.size() == ranks);
  CHECK(manifest.tensors.at(tensor_name(0)).runs.empty());
  CHECK(read_manifest_only(many()).tensors.at(tensor_name(0)).runs.size() == 2);
}

TEST_CASE("damage of the list of pieces is found", "[many]") {
  Folder folder;
  const fs::path copy = folder / "step-000007", pieces = copy / pieces_name;
  fs::copy(many(), copy);
  SECTION("a changed byte") {
    overwrite(pieces, 100, "\x7f");
    CHECK(message_of([&] { Checkpoint opened(copy); }).starts_with(pieces.string() + " is corrupted: its hash is "));
  }
  SECTION("missing bytes") {
    fs::resize_file(pieces, 64);
    const auto text = fmt::format("{} has 64 bytes instead of {}", pieces.string(), ranks * tensors * 32);
    CHECK(message_of([&] { Checkpoint opened(copy); }) == text);
    CHECK(message_of([&] { Checkpoint::on_demand(copy); }) == text);
  }
  SECTION("a record that reaches beyond its file, for a rank that reads on demand") {
    overwrite(pieces, (ranks + 3) * 32 + 8, std::string(7, '\x7f'));  // the byte in the file
    const auto checkpoint = Checkpoint::on_demand(copy);
    check_elements(checkpoint, 1, 0, part);
    CHECK(message_of([&] { check_elements(checkpoint, 1, 3 * part, 4 * part); }) ==
          fmt::format("{}: corrupted: record {} is not a piece of a file", pieces.string(), ranks + 3));
  }
  SECTION("elements that no record has, for a rank that reads on demand") {
    overwrite(pieces, (ranks + 3) * 32 + 24, std::string("\x02", 1));  // the length
    const auto checkpoint = Checkpoint::on_demand(copy);
    CHECK(message_of([&] { check_elements(checkpoint, 1, 3 * part, 4 * part); }) ==
          fmt::format("{}: 2 of 4 elements of `param/1` are in its files", copy.string()));
  }
}

TEST_CASE("a file that is missing or truncated is found when a rank reads from it", "[many]") {
  Folder folder;
  const fs::path copy = folder / "step-000007";
  fs::copy(many(), copy);
  fs::remove(copy / "rank-00003.safetensors");
  fs::resize_file(copy / "rank-00004.safetensors", 10);
  const auto checkpoint = Checkpoint::on_demand(copy);
  check_elements(checkpoint, 1, 0, 3 * part);
  CHECK(message_of([&] { check_elements(checkpoint, 1, 3 * part, 4 * part); }) ==
        (copy / "rank-00003.safetensors").string() + " is missing");
  CHECK(message_of([&] {
          check_elements(checkpoint, 1, 4 * part, 5 * part);
        }).starts_with((copy / "rank-00004.safetensors").string() + " is truncated: 10 of "));
}

TEST_CASE("a checkpoint of few pieces has them in its manifest, as earlier versions of the program read it", "[many]") {
  Folder folder;
  const auto path = publish_small(folder.path, 3);
  CHECK(names_in(path) ==
        std::vector<std::string>{"manifest.json", "rank-00000.safetensors", "rank-00001.safetensors"});
  CHECK(nlohmann::json::parse(std::ifstream(path / manifest_name)).at("version") == 2);
  const auto checkpoint = Checkpoint::on_demand(path);
  CHECK(read_small(checkpoint) == std::vector<float>{0, 1, 2, 3, 4, 5});
}
