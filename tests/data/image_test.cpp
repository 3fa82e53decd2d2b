// Image files have Pillow's pixels (make_images.py), also after resizing; folders become classes; changes depend on seed, epoch and
// sample only.
#include <sys/resource.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <future>
#include <set>
#include <thread>

#include "runner/base/limits.hpp"
#include "runner/data/data_check.hpp"
#include "runner/data/image.hpp"
#include "runner/data/image_augment.hpp"
#include "runner/data/image_data.hpp"
#include "runner/data/image_folder.hpp"
#include "runner/data/loader.hpp"
#include "tests/data/support.hpp"

using namespace runner;
using namespace runner::test;

namespace {

const fs::path images = fs::path(RUNNER_SOURCE_DIR) / "tests/data/reference/images";

std::vector<std::string> reference_files() {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(images))
    if (is_image_name(entry.path().string())) names.insert(entry.path().string());
  return {names.begin(), names.end()};
}

Recipe::Data image_data(const std::string& folder) {
  Recipe::Data data;
  data.format = "images";
  data.train = {folder};
  data.image_size = 16;
  return data;
}

void copy_image(const DataFolder& folder, const std::string& name, const std::string& to) {
  fs::create_directories(fs::path(folder / to).parent_path());
  fs::copy_file(images / name, folder / to);
}

std::vector<float> pixels_of(const Dataset& data, int64_t sample, const SampleDraw& draw) {
  HostBatch batch(1, data.fields());
  data.draw(sample, batch, 0, draw);
  const auto values = batch.values<float>(0);
  return {values.begin(), values.end()};
}

}  // namespace

TEST_CASE("rank 11: decoded and resized pixels are Pillow's", "[rank11][images]") {
  const auto expected = read_file(images / "pixels.bin");
  size_t at = 0;
  const auto check = [&](const std::string& file, const Image& image) {
    REQUIRE(at + image.pixels.size() <= expected.size());
    int most = 0;
    for (const uint8_t value : image.pixels)
      most = std::max(most, std::abs(value - static_cast<uint8_t>(expected[at++])));
    INFO(file << ", " << image.width << " x " << image.height);
    CHECK(most <= 1);
  };
  const auto files = reference_files();
  REQUIRE(files.size() == 12);
  for (const auto& file : files) {
    const auto image = read_image(file);
    REQUIRE(image.width == 29);
    REQUIRE(image.height == 23);
    check(file, image);
    check(file, crop_and_resize(image, {0, 0, 29, 23}, 16, 16, Interpolation::bilinear));
    check(file, crop_and_resize(image, {3, 2, 21, 18}, 40, 40, Interpolation::bilinear));
    check(file, crop_and_resize(image, {5, 5, 20, 16}, 12, 9, Interpolation::bicubic));
    check(file, crop_and_resize(image, {0, 0, 29, 23}, 60, 7, Interpolation::bicubic));
  }
  CHECK(at == expected.size());
}

TEST_CASE("rank 11: damaged images have an error with their path", "[rank11][images]") {
  DataFolder folder;
  for (const char* name : {"colour.jpg", "colour.png"}) {
    const auto whole = read_file(images / name);
    const auto cut = folder.write(std::string("cut_") + name, whole.substr(0, whole.size() / 2));
    CHECK(error_of([&] { read_image(cut); }).starts_with("usage: " + cut + ": the image is damaged: "));
  }
  auto huge = read_file(images / "colour.jpg");
  const auto frame = huge.find("\xFF\xC0");
  REQUIRE(frame != std::string::npos);
  huge.replace(frame + 5, 4, "\xFF\x00\xFF\x00", 4);  // height and width: 65280
  const auto large = folder.write("huge.jpg", huge);
  CHECK(error_of([&] { read_image(large); }) ==
        "usage: " + large + ": the image is damaged: it has more than 178956970 pixels");
  auto scans = read_file(images / "progressive.jpg");
  const auto first = scans.find("\xFF\xDA"), end = scans.find("\xFF\xC4", first);  // the first scan, up to a table
  const auto scan = scans.substr(first, end - first);
  for (int i = 0; i < 1100; ++i) scans.insert(end, scan);
  const auto long_file = folder.write("scans.jpg", scans);
  CHECK(error_of([&] { read_image(long_file); }) ==
        "usage: " + long_file + ": the image is damaged: it has more than 1000 scans");
  auto progressive = read_file(images / "progressive.jpg");
  progressive.replace(progressive.find("\xFF\xC2") + 5, 4, "\xFF\x00\xFF\x00", 4);
  const auto large_progressive = folder.write("huge_progressive.jpg", progressive);
  CHECK(error_of([&] { read_image(large_progressive); }) ==
        "usage: " + large_progressive + ": the image is damaged: it has more than 178956970 pixels");
  const auto other = folder.write("text.png", "not an image");
  CHECK(error_of([&] { read_image(other); }) == "usage: " + other + " is neither a JPEG nor a PNG file");
}

TEST_CASE("Threads that share an amount of memory never have more than it", "[images]") {
  SharedMemoryLimit memory(100);
  std::atomic<int64_t> now = 0, most = 0, parts = 0;
  {
    std::vector<std::jthread> threads;
    for (int64_t thread = 0; thread < 8; ++thread)
      threads.emplace_back([&, thread] {
        for (int64_t i = 0; i < 200; ++i) {
          const int64_t bytes = i % 50 == 0 ? 100 : 10 + 7 * thread;
          const auto part = memory.take(i % 50 == 0 ? 1'000'000 : bytes);  // more than all is all
          const int64_t used = now += bytes;
          for (int64_t before = most; used > before && !most.compare_exchange_weak(before, used);) {
          }
          std::this_thread::yield();
          ++parts;
          now -= bytes;
        }
      });
  }
  CHECK(parts == 8 * 200);
  CHECK(most <= 100);
}

TEST_CASE("An image waits until the images of other threads leave memory for it", "[images]") {
  using namespace std::chrono_literals;
  const auto path = (images / "colour.png").string();
  auto others = memory_of_images().take(images_in_memory_bytes_max);
  auto read = std::async(std::launch::async, [&] { return read_image(path).width; });
  CHECK(read.wait_for(200ms) == std::future_status::timeout);
  others = {};
  CHECK(read.get() == 29);
  for (const char* name : {"colour.jpg", "progressive.jpg"}) {
    const auto image = read_image((images / name).string());
    read = std::async(std::launch::async, [] {
      memory_of_images().take(images_in_memory_bytes_max);
      return int64_t{0};
    });
    INFO(name);
    CHECK(read.wait_for(50ms) == std::future_status::timeout);  // the image has its part until it is destroyed
  }
  CHECK(read.get() == 0);
}

TEST_CASE("The centre of a resized image is made without the rest of it", "[images]") {
  Recipe::Data data;
  data.image_size = 224;
  data.interpolation = GENERATE("bilinear", "bicubic");
  const auto filter = data.interpolation == "bicubic" ? Interpolation::bicubic : Interpolation::bilinear;
  for (const auto& [width, height, wide, high] : {std::array<int64_t, 4>{10, 300, 256, 7680},
                                                  {300, 10, 7680, 256},
                                                  {256, 301, 256, 301},
                                                  {400, 301, 340, 256},
                                                  {299, 2000, 256, 1712}}) {
    Image image{.width = width, .height = height};
    for (int64_t i = 0; i < width * height * 3; ++i) image.pixels.push_back(static_cast<uint8_t>(i * i % 251));
    const auto whole = crop_and_resize(image, {0, 0, width, height}, wide, high, filter);
    const ImageBox centre{(wide - 224) / 2, (high - 224) / 2, 224, 224};
    INFO(width << " x " << height);
    CHECK(validation_image(data, image).pixels == crop_and_resize(whole, centre, 224, 224, filter).pixels);
  }
  // All of it would have 537 GB.
  const Image narrow{.width = 1, .height = 2'700'000, .pixels = std::vector<uint8_t>(8'100'000, 7)};
  CHECK(validation_image(data, narrow).pixels == std::vector<uint8_t>(224 * 224 * 3, 7));
}

TEST_CASE("Bytes between the pixels and the end of a JPEG file are no damage", "[images]") {
  DataFolder folder;
  auto padded = read_file(images / "colour.jpg");
  padded.insert(padded.rfind("\xFF\xD9"), 258, '\0');
  CHECK(read_image(folder.write("padded.jpg", padded)).pixels == read_image(images / "colour.jpg").pixels);
}

TEST_CASE("Texts in a PNG file are not unpacked", "[images]") {
  DataFolder folder;
  auto file = read_file(images / "colour.png");
  const auto chunk = read_file(images / "zeros.zTXt");  // 7.9 MB of zeros
  constexpr size_t behind_header = 33;
  for (int i = 0; i < 60; ++i) file.insert(behind_header, chunk);
  const auto path = folder.write("texts.png", file);
  struct rusage before {
  }, after{};
  ::getrusage(RUSAGE_SELF, &before);
  CHECK(read_image(path).pixels == read_image(images / "colour.png").pixels);
  ::getrusage(RUSAGE_SELF, &after);
  CHECK(after.ru_maxrss - before.ru_maxrss < 100 << 10);  // KiB
}

TEST_CASE("Files that are no images, links in a circle and folders without images are named", "[images]") {
  DataFolder folder;
  auto data = image_data(folder / "data");
  for (const char* name : {"cat/a.png", "cat/more/b.png", "dog/c.png"})
    copy_image(folder, "colour.png", std::string("data/") + name);
  fs::create_directory_symlink(".", folder.path / "data/cat/loop");
  fs::create_directory_symlink("y", folder.path / "data/dog/x");
  fs::create_directory_symlink("x", folder.path / "data/dog/y");
  fs::create_directories(folder.path / "data/empty");
  folder.write("data/cat/more/d.WEBP", "RIFF");
  folder.write("data/dog/e.txt", "a dog");
  folder.write("data/dog/f.txt", "a dog");
  const auto listed = list_images(data, Split::train);
  CHECK(listed.entries.size() == 3);
  CHECK(listed.classes == std::vector<std::string>{"cat", "dog"});
  const std::vector<std::string> notes = {
      "data.train: the folder " + (folder / "data/empty") + " has no images, so it is no class",
      "data.train: left out, because images are .jpg, .jpeg and .png files: 2 files .txt, 1 file .webp, 2 files that "
      "cannot be opened"};
  CHECK(listed.notes == notes);
  CHECK(data_notes(data) == notes);
  fs::create_directories(folder.path / "data/bird");
  folder.write("data/bird/g.gif", "GIF89a");
  CHECK(error_of([&] { list_images(data, Split::train); }) ==
        "usage: data.train: the folder " + (folder / "data/bird") +
            " has no .jpg, .jpeg or .png files: convert its images (1 file .gif)");
  fs::remove_all(folder.path / "data/bird");
  copy_image(folder, "colour.png", "data/caf\xE9/h.png");
  CHECK(error_of([&] { list_images(data, Split::train); }) ==
        "usage: data.train: the name " + (folder / "data/caf\\xE9/h.png") + " is not UTF-8; rename it");
  CHECK(error_of([&] { list_unlabelled_images({folder / "data"}); }) ==
        "usage: the name " + (folder / "data/caf\\xE9/h.png") + " is not UTF-8; rename it");
}

TEST_CASE("A damaged image is found before the training, and the error says how to leave it out", "[images]") {
  DataFolder folder;
  auto data = image_data(folder / "data");
  for (const char* name : {"cat/a.jpg", "dog/b.jpg"}) copy_image(folder, "colour.jpg", std::string("data/") + name);
  CHECK(find_data_problems(data, 1, 1, folder / "cache").empty());
  const auto whole = read_file(images / "colour.jpg");
  const auto damaged = folder.write("data/dog/c.jpg", whole.substr(0, 300));
  const auto page = folder.write("data/dog/d.jpg", "<html>");
  const auto problems = find_data_problems(data, 1, 1, folder / "cache");
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].key == "data.train");
  CHECK(problems[0].message ==
        damaged + ": the image is damaged: Premature end of JPEG file (and 1 more of 4 that were looked at: " + page +
            "); data.skip_corrupt = true leaves out damaged images");
  const auto first = page + " is neither a JPEG nor a PNG file";
  CHECK(damaged_inputs({folder / "data/dog"}, first) ==
        first + " (and 1 more of 3 that were looked at: " + damaged + ")");
  data.validation_fraction = 0.5;  // its images are those of data.train
  CHECK(find_data_problems(data, 1, 1, folder / "cache").at(0).key == "data.train");
  data.validation_fraction.reset();
  data.validation = {folder / "none"};
  CHECK(find_data_problems(data, 1, 1, folder / "cache").at(0).message ==
        "data.validation: " + folder / "none" +
            " does not exist; instead of it, data.validation_fraction = 0.2 takes a part of the images of data.train");
  data.validation.clear();
  data.skip_corrupt = true;
  CHECK(open_images(data, Split::train, folder / "cache")->size() == 2);
  // An image that cannot be read now may be sound.
  fs::create_symlink("/sys/devices/system/cpu/online", folder.path / "data/dog/e.jpg");
  CHECK(error_of([&] {
          open_images(data, Split::train, folder / "cache");
        }).starts_with("environment: cannot map " + (folder / "data/dog/e.jpg")));
}

TEST_CASE("rank 11: classes are in order of their bytes, and damaged images can be left out", "[rank11][images]") {
  DataFolder folder;
  copy_image(folder, "colour.png", "data/class10/a.png");
  copy_image(folder, "grey.png", "data/class9/b.png");
  copy_image(folder, "colour.jpg", "data/Z/c.JPG");
  fs::create_directories(folder / "data/empty");
  auto data = image_data(folder / "data");
  CHECK(image_classes(data) == std::vector<std::string>{"Z", "class10", "class9"});
  const auto whole = read_file(images / "colour.jpg");
  fs::create_directories(folder / "data/Z");
  const auto damaged = folder.write("data/Z/d.jpg", whole.substr(0, 300));
  const auto opened = open_images(data, Split::train, folder / "cache");
  CHECK(opened->size() == 4);
  CHECK(error_of([&] { pixels_of(*opened, 1, {}); }).starts_with("usage: " + damaged));
  data.skip_corrupt = true;
  const auto sound = open_images(data, Split::train, folder / "cache");
  CHECK(sound->size() == 3);
  CHECK(sound->describe() == "3 images of 3 classes, without 1 that are damaged");
  const auto learned = sound->learned();
  CHECK(learned.at("label2id").at("class10") == 1);
  // Images to predict, in an order that is not that of their names.
  const auto inputs = open_image_inputs(data, {folder / "data/class9", folder / "data/Z"}, learned);
  CHECK(inputs.samples->size() == 2);
  REQUIRE(inputs.names.size() == 2);
  CHECK(inputs.names[1].at("file") == folder / "data/Z/c.JPG");
  CHECK(error_of([&] { open_image_inputs(data, {damaged}, learned); }) ==
        "usage: all images are damaged, the first is " + damaged);
  fs::create_directories(folder / "data/more");
  copy_image(folder, "colour.png", "data/more/e.png");
  CHECK(error_of([&] { open_images(data, Split::train, folder / "cache", learned); }) ==
        "usage: data.train has the classes Z, class10, class9, more, and the checkpoint was trained with Z, class10, "
        "class9");
}

TEST_CASE("rank 11: one class, and folders of splits, are refused", "[rank11][images]") {
  DataFolder folder;
  auto data = image_data(folder / "photos");
  const auto add = [&](const std::string& path) { copy_image(folder, "colour.png", path + "/a.png"); };
  const auto error = [&] { return error_of([&] { image_classes(data); }); };
  add("photos/train/cat");
  add("photos/train/dog");
  CHECK(error() == "usage: data.train: the folders in " + data.train[0] +
                       " are the classes, and a model needs two of them; found: train; did you mean " + data.train[0] +
                       "/train?");
  add("photos/val/cat");
  CHECK(error().find("found: train, val; did you mean " + data.train[0] + "/train?") != std::string::npos);
  data.train = {folder / "photos/train"};
  CHECK(error().empty());
  fs::remove_all(folder.path / "photos/train/dog");
  CHECK(error().find("found: cat") != std::string::npos);
}

TEST_CASE("rank 11: augmentation is a function of seed, epoch and sample", "[rank11][images]") {
  DataFolder folder;
  for (const char* name : {"0/a.png", "0/b.png", "1/c.png", "1/d.png", "1/e.png"})
    copy_image(folder, "colour.png", std::string("data/") + name);
  auto data = image_data(folder / "data");
  data.color_jitter = 0.4;
  const auto opened = open_images(data, Split::train, folder / "cache");
  const auto one = pixels_of(*opened, 0, {.epoch = 2, .seed = 1});
  CHECK(one == pixels_of(*opened, 0, {.epoch = 2, .seed = 1}));
  CHECK(one != pixels_of(*opened, 0, {.epoch = 3, .seed = 1}));
  CHECK(one != pixels_of(*opened, 0, {.epoch = 2, .seed = 2}));
  CHECK(one != pixels_of(*opened, 1, {.epoch = 2, .seed = 1}));
  // The batches of two ranks with two workers are those of one.
  std::vector<float> apart, whole;
  for (int rank = 0; rank < 2; ++rank) {
    Loader loader(
        *opened,
        {.global_batch_size = 4, .micro_batch_size = 1, .data_rank = rank, .data_ranks = 2, .seed = 3, .workers = 2});
    StepBatch step;
    loader.next(step);
    for (const auto& micro : step.micro_batches)
      for (const float value : micro.values<float>(0)) apart.push_back(value);
  }
  Loader loader(*opened, {.global_batch_size = 4, .micro_batch_size = 4, .seed = 3});
  StepBatch step;
  loader.next(step);
  for (const float value : step.micro_batches[0].values<float>(0)) whole.push_back(value);
  CHECK(apart == whole);
}
