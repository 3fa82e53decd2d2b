// preprocessor_config.json of Hugging Face's image processors.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/base/error.hpp"
#include "runner/data/image_augment.hpp"
#include "runner/data/image_processor.hpp"

using namespace runner;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using nlohmann::json;

namespace {

Recipe::Data read(const json& config, ImageCrop crop = ImageCrop::centre) {
  Recipe::Data data;
  const auto found = take_image_processor(config, data);  // may throw
  CHECK(found == crop);
  return data;
}

}  // namespace

TEST_CASE("rank 11: image processors of ResNet and CLIP crop the centre", "[rank11][images]") {
  // microsoft/resnet-50
  const auto resnet = read(json::parse(R"({"crop_pct": 0.875, "do_normalize": true, "do_resize": true,
    "feature_extractor_type": "ConvNextFeatureExtractor", "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225], "resample": 3, "size": 224})"));
  CHECK(resnet.image_size == 224);
  CHECK(resized_side(resnet) == 256);
  CHECK(resnet.interpolation == "bicubic");
  CHECK(resnet.mean == std::vector{0.485, 0.456, 0.406});
  // openai/clip-vit-base-patch32, with other sizes
  for (const int64_t shorter : {224, 256, 232, 518, 97}) {
    const auto clip = read({{"do_resize", true},
                            {"size", {{"shortest_edge", shorter}}},
                            {"do_center_crop", true},
                            {"crop_size", {{"height", 96}, {"width", 96}}},
                            {"resample", 2},
                            {"do_normalize", false}});
    CHECK(clip.image_size == 96);
    CHECK(resized_side(clip) == shorter);
    CHECK(clip.mean == std::vector{0.0, 0.0, 0.0});
    CHECK(clip.std == std::vector{1.0, 1.0, 1.0});
  }
}

TEST_CASE("rank 11: the image processor of ViT resizes complete images to a square", "[rank11][images]") {
  // google/vit-base-patch16-224
  const auto vit = read(json::parse(R"({"do_normalize": true, "do_resize": true, "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5], "resample": 2, "size": {"height": 224, "width": 224}})"),
                        ImageCrop::none);
  CHECK(vit.image_size == 224);
  CHECK(vit.interpolation == "bilinear");
  CHECK(vit.mean == std::vector{0.5, 0.5, 0.5});
  Image image{.width = 2, .height = 1, .pixels = {10, 10, 10, 250, 250, 250}};
  auto small = vit;
  small.image_size = 2;
  const auto seen = squashed_image(small, image);
  CHECK(seen.pixels == std::vector<uint8_t>{10, 10, 10, 250, 250, 250, 10, 10, 10, 250, 250, 250});
  CHECK(read({{"crop_pct", 0.875}, {"size", {{"shortest_edge", 384}}}}, ImageCrop::none).image_size == 384);
}

TEST_CASE("rank 11: of an odd margin, the smaller half is cut off first, as the exported processor does",
          "[rank11][images]") {
  Recipe::Data data;
  data.image_size = 2;
  data.crop_pct = 0.4;  // the shorter side becomes 5, so the margin is 3
  Image image{.width = 5, .height = 5, .pixels = {}};
  for (uint8_t place = 0; place < 25; ++place)
    image.pixels.insert(image.pixels.end(), 3, static_cast<uint8_t>(place * 10));
  const auto first = [&](bool to_even) { return validation_image(data, image, to_even).pixels.at(0); };
  CHECK(first(false) == 60);  // row 1, column 1: 3 // 2 = 1
  CHECK(first(true) == 120);  // round(1.5) = 2, in checkpoints without the rule
  CHECK(image_processor(data).at("size").at("shortest_edge") == 5);
}

TEST_CASE("rank 11: what is written as an image processor is read as the same", "[rank11][images]") {
  Recipe::Data data;
  data.image_size = 32;
  data.crop_pct = 0.9;
  data.interpolation = "bicubic";
  data.mean = {0.1, 0.2, 0.3};
  const auto again = read(image_processor(data));
  CHECK(again.image_size == 32);
  CHECK(resized_side(again) == resized_side(data));
  CHECK(again.interpolation == "bicubic");
  CHECK(again.mean == data.mean);
  CHECK(again.std == data.std);
}

TEST_CASE("rank 11: an image processor that reads images in another way is refused", "[rank11][images]") {
  const auto refused = [](const json& config, const std::string& message) {
    CHECK_THROWS_MATCHES(read(config), Error, MessageMatches(ContainsSubstring(message)));
  };
  const json resnet = {{"crop_pct", 0.875}, {"size", 224}};
  auto with = [&](const char* key, const json& value) {
    auto config = resnet;
    config[key] = value;
    return config;
  };
  refused(with("resample", 1), "resample = 1 is not supported; 2 (bilinear) and 3 (bicubic) are");
  refused(with("do_rescale", false), "rescale_factor");
  refused(with("do_resize", false), "do_resize = false is not supported");
  refused(with("size", {{"height", 3}, {"width", 4}}), "images are square");
  refused(with("size", "big"), "has the wrong type");
  refused(with("image_mean", json::array({0.5})), "three channels");
}
