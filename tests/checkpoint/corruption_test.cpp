// Any damage to the files of a checkpoint is detected and named before loading starts.
#include <functional>

#include "runner/checkpoint/manifest.hpp"
#include "support.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

const std::string rank_file = "rank-00001.safetensors";

/// Publishes steps 50 and 100, damages step 100, and returns the error of opening it, without the path of the
/// checkpoint.
std::string after(const std::function<void(const fs::path&)>& damage, bool with_previous = true) {
  Folder folder;
  if (with_previous) publish_small(folder.path, 50);
  auto path = publish_small(folder.path, 100);
  damage(path);
  auto message = message_of([&] { Checkpoint checkpoint(path); });
  auto prefix = path.string() + "/";
  return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
}

/// The same for a change of the manifest that keeps its hash valid.
std::string after_edit(const std::function<void(nlohmann::json&)>& edit) {
  return after(
      [&](const fs::path& path) {
        auto manifest = nlohmann::json::parse(read_file(path / "manifest.json"));
        edit(manifest);
        seal_manifest(manifest);
        write_text(path / "manifest.json", manifest.dump());
      },
      false);
}

nlohmann::json& piece(nlohmann::json& manifest, size_t index) {
  return manifest["tensors"]["param/w"]["pieces"][index];
}

}  // namespace

TEST_CASE("damaged files are named with the damage and the previous good checkpoint") {
  CHECK(after([](const fs::path&) {}) == "nothing was thrown");
  CHECK(after([](const fs::path& path) { fs::remove(path / rank_file); }) ==
        "rank-00001.safetensors is missing; the previous good checkpoint is step-000050");
  CHECK(after([](const fs::path& path) { fs::remove(path / "manifest.json"); }) ==
        "manifest.json is missing; the previous good checkpoint is step-000050");
  auto full = fs::file_size(publish_small(Folder().path, 100) / rank_file);
  CHECK(after([](const fs::path& path) { fs::resize_file(path / rank_file, 100); }) ==
        fmt::format("rank-00001.safetensors is truncated: 100 of {} bytes; the previous good checkpoint is step-000050",
                    full));
  CHECK(after([](const fs::path& path) { fs::resize_file(path / rank_file, 0); }) ==
        fmt::format("rank-00001.safetensors is truncated: 0 of {} bytes; the previous good checkpoint is step-000050",
                    full));
  CHECK(after([&](const fs::path& path) { fs::resize_file(path / rank_file, full + 1); }) ==
        fmt::format(
            "rank-00001.safetensors has grown: {} instead of {} bytes; the previous good checkpoint is step-000050",
            full + 1, full));
  CHECK(after([](const fs::path& path) { fs::remove(path / rank_file); }, false) ==
        "rank-00001.safetensors is missing");
}

TEST_CASE("one flipped bit anywhere in a rank's file is detected") {
  Folder folder;
  publish_small(folder.path, 50);
  auto path = publish_small(folder.path, 100);
  const auto content = read_file(path / rank_file);
  for (size_t at : {size_t{0}, size_t{9}, content.size() / 2, content.size() - 12, content.size() - 1}) {
    auto flipped = content;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x10);
    write_text(path / rank_file, flipped);
    CHECK(message_of([&] { Checkpoint checkpoint(path); }) ==
          fmt::format("{} is corrupted: its hash is {} instead of {}; the previous good checkpoint is step-000050",
                      (path / rank_file).string(), xxh3_hex(flipped), xxh3_hex(content)));
    CHECK_NOTHROW(Checkpoint(path, /*verify=*/false));
  }
}

TEST_CASE("a change of any byte of the manifest is detected") {
  Folder folder;
  auto path = publish_small(folder.path, 100, 0, {{"loss", 1.25}, {"rng", 12345678901234567}});
  const auto content = read_file(path / "manifest.json");
  const auto sound = nlohmann::json::parse(content);
  int different = 0;
  for (size_t at = 0; at < content.size(); ++at) {
    auto flipped = content;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x01);
    if (nlohmann::json::parse(flipped, nullptr, false) == sound) continue;  // white space
    write_text(path / "manifest.json", flipped);
    CHECK(message_of([&] { read_manifest(path); }).starts_with((path / "manifest.json").string() + ": "));
    ++different;
  }
  CHECK(different > 400);
}

TEST_CASE("a file that is not a manifest, or is from a newer version, is refused") {
  auto with_text = [](const std::string& text) {
    return after([&](const fs::path& path) { write_text(path / "manifest.json", text); }, false);
  };
  CHECK(with_text("") == "manifest.json: this is not the manifest of a checkpoint");
  CHECK(with_text("garbage") == "manifest.json: this is not the manifest of a checkpoint");
  CHECK(with_text("[1, 2]") == "manifest.json: this is not the manifest of a checkpoint");
  CHECK(with_text("{\"format\": 3}") == "manifest.json: this is not the manifest of a checkpoint");
  CHECK(with_text(R"({"format": "runner-checkpoint"})") == "manifest.json: has no `version`");
  CHECK(with_text(R"({"format": "runner-checkpoint", "version": 1})") == "manifest.json: has no `xxh3`");
  CHECK(with_text(R"({"format": "runner-checkpoint", "version": 4, "anything": "else"})") ==
        "manifest.json: format version 4, but this program reads up to version 3: use a newer runner");
}

TEST_CASE("numbers in a manifest are checked before they are used") {
  CHECK(after_edit([](auto&) {}) == "nothing was thrown");
  CHECK(after_edit([](auto& m) { m["step"] = -1; }) == "manifest.json: step = -1 is not a valid size");
  CHECK(after_edit([](auto& m) { m["step"] = "100"; }) == "manifest.json: step = \"100\" is not a valid size");
  CHECK(after_edit([](auto& m) { m["world_size"] = 1.5; }) == "manifest.json: world_size = 1.5 is not a valid size");
  CHECK(after_edit([](auto& m) { m["created"] = "now"; }) == "manifest.json: created is not a number");
  CHECK(after_edit([](auto& m) { m.erase("tensors"); }) == "manifest.json: has no `tensors`");
  CHECK(after_edit([](auto& m) { m["tensors"] = 3; }) == "manifest.json: tensors is not a table");
  CHECK(after_edit([](auto& m) { m["files"] = nlohmann::json::array(); }) == "manifest.json: files is not a table");
  CHECK(after_edit([](auto& m) {
          m["files"]["../x"] = {{"bytes", 1}, {"xxh3", ""}};
        }) == "manifest.json: files.`../x` is not the name of a file in the same folder");
  CHECK(after_edit([](auto& m) { m["files"]["rank-00000.safetensors"]["bytes"] = 18446744073709551615u; }) ==
        "manifest.json: files.`rank-00000.safetensors`.bytes = 18446744073709551615 is not a valid size");
  CHECK(after_edit([](auto& m) { m["tensors"]["param/w"]["dtype"] = "F31"; }) ==
        "manifest.json: tensors.`param/w`.dtype = `F31` cannot be read");
  CHECK(after_edit([](auto& m) {
          m["tensors"]["param/w"]["shape"] = {2, -3};
        }) == "manifest.json: tensors.`param/w`.shape[1] = -3 is not a valid size");
  CHECK(after_edit([](auto& m) { m["tensors"]["param/w"]["shape"] = 6; }) ==
        "manifest.json: tensors.`param/w`.shape is not a list");
  CHECK(after_edit([](auto& m) {
          m["tensors"]["param/w"]["shape"] = {int64_t{1} << 40, int64_t{1} << 40};
        }) == "manifest.json: tensors.`param/w`.shape has too many elements");
}

TEST_CASE("pieces that are outside their file, overlap or leave a gap are refused") {
  CHECK(after_edit([](auto& m) { piece(m, 0)["file"] = "rank-00009.safetensors"; }) ==
        "manifest.json: tensors.`param/w`.pieces[0] is in `rank-00009.safetensors`, which is not among the files");
  CHECK(after_edit([](auto& m) {
          m["files"]["rank-00000.safetensors"]["bytes"] = 400;
          piece(m, 0)["byte"] = 392;
        }) ==
        "manifest.json: tensors.`param/w`.pieces[0] = 3 elements from byte 392 reaches beyond the 400 bytes of "
        "rank-00000.safetensors");
  CHECK(after_edit([](auto& m) { piece(m, 0)["byte"] = INT64_MAX; })
            .starts_with("manifest.json: tensors.`param/w`.pieces[0] = 3 elements from byte 9223372036854775807 "
                         "reaches beyond the "));
  CHECK(after_edit([](auto& m) {
          piece(m, 0)["length"] = INT64_MAX;
        }).starts_with("manifest.json: tensors.`param/w`.pieces[0] = 9223372036854775807 elements from byte "));
  CHECK(after_edit([](auto& m) { piece(m, 1)["offset"] = 2; }) ==
        "manifest.json: elements [2, 3) of `param/w` occur twice");
  CHECK(after_edit([](auto& m) { piece(m, 1)["offset"] = 0; }) ==
        "manifest.json: elements [0, 3) of `param/w` occur twice");
  CHECK(after_edit([](auto& m) { piece(m, 1)["offset"] = INT64_MAX; }) ==
        "manifest.json: elements [3, 9223372036854775807) of `param/w` are in no file");
  CHECK(after_edit([](auto& m) { piece(m, 1)["length"] = 2; }) ==
        "manifest.json: elements [5, 6) of `param/w` are in no file");
  CHECK(after_edit([](auto& m) { m["tensors"]["param/w"]["shape"] = {5}; }) ==
        "manifest.json: elements [3, 6) of `param/w` are beyond its 5 elements");
  CHECK(after_edit([](auto& m) { m["tensors"]["param/w"]["pieces"] = nlohmann::json::array(); }) ==
        "manifest.json: elements [0, 6) of `param/w` are in no file");
}

TEST_CASE("the previous good checkpoint is one that passes verification") {
  Folder folder;
  publish_small(folder.path, 10);
  auto middle = publish_small(folder.path, 20);
  auto last = publish_small(folder.path, 30);
  fs::resize_file(middle / rank_file, 10);
  fs::remove(last / rank_file);
  CHECK(message_of([&] { Checkpoint checkpoint(last); }) ==
        (last / rank_file).string() + " is missing; the previous good checkpoint is step-000010");
  CHECK(message_of([&] {
          Checkpoint checkpoint(last.string() + "/");
        }).ends_with("; the previous good checkpoint is step-000010"));
  CHECK(message_of([&] { Checkpoint checkpoint(folder / "step-000040"); }) ==
        (folder / "step-000040").string() + ": there is no such checkpoint");
}
