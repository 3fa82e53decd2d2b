// The keys of [model] and [data] for models whose rows are not sequences of tokens: tables and images.
#include "runner/config/key_adder.hpp"

// The rows of the tables are wrapped by hand.
// clang-format off

namespace runner::keys {

using nlohmann::json;

namespace {

/// Refuses all but lists of whole numbers from 1 on.
std::optional<std::string> widths_problem(json& value) {
  for (auto& width : value)
    if (!to_integer(width) || width.get<int64_t>() < 1) return "";
  return std::nullopt;
}

/// The keys of tables.
void add_tables(Adder<Recipe::Data>& add) {
  using D = Recipe::Data;
  const Facts table{.needs = {"data.format", {"csv", "parquet", "plugin"}}};
  const Facts labelled{.needs = {"data.format", {"csv", "parquet", "jsonl", "plugin"}}};
  add({.name = "target", .type = T::texts,
       .help = "Tables and texts with labels: the column that the model predicts, or a list of columns."}, &D::target, labelled);
  add({.name = "target_type", .type = T::choice,
       .help = "What the target is. class: one of several classes. binary: each target column has two values. number: a number. "
               "Default: follows from train.loss, or from the column.",
       .choices = {"auto", "class", "binary", "number"}}, &D::target_type, labelled);
  add({.name = "drop", .type = T::texts, .help = "Tables: columns that are not used."}, &D::drop, table);
  add({.name = "categorical", .type = T::texts,
       .help = "Tables: columns of numbers that are categories. Columns of texts always are. A category becomes a feature that "
               "is 0 or 1."}, &D::categorical, table);
  add({.name = "missing", .type = T::choice,
       .help = "How missing feature values are filled. mean: it gets the mean of the training data, and a further feature "
               "says that it is missing; of categories, missing is one more. drop: the row is left out, also a text without label. "
               "error: the run does not start.", .choices = {"mean", "drop", "error"}}, &D::missing, labelled);
  add({.name = "missing_values", .type = T::texts, .help = "Texts that stand for a missing cell, in addition to an empty cell."},
      &D::missing_values, labelled);
  add({.name = "standardize", .type = T::boolean,
       .help = "Features that are numbers get mean 0 and standard deviation 1, by the statistics of the training data. "
               "Checkpoints contain these."}, &D::standardize, table);
  add({.name = "standardize_target", .type = T::boolean,
       .help = "The same for targets that are numbers. The loss is that of the standardized values; val_mae is not. Default: as "
               "standardize."}, &D::standardize_target, table);
  add({.name = "delimiter", .type = T::choice,
       .help = "What separates cells. auto: the most frequent one in the first line.", .choices = {"auto", ",", ";", "tab", "|"},
       .spellings = {{"\t", "tab"}, {"comma", ","}, {"semicolon", ";"}}}, &D::delimiter, {.needs = {"data.format", {"csv"}}});
  add({.name = "decimal", .type = T::choice, .help = "What begins the fraction of a number in a cell: 2.5 or 2,5.",
       .choices = {".", ","}, .spellings = {{"point", "."}, {"comma", ","}}}, &D::decimal,
      {.quiet = true, .needs = {"data.format", {"csv"}}});
}

std::optional<std::string> two_rising(json& value) {
  const bool fits = value.size() == 2 && value[0].get<double>() > 0 && value[0].get<double>() <= value[1].get<double>();
  return fits ? std::nullopt : std::optional<std::string>("");
}

std::optional<std::string> three(json& value) { return value.size() == 3 ? std::nullopt : std::optional<std::string>(""); }

void add_images(Adder<Recipe::Data>& add) {
  using D = Recipe::Data;
  const Facts images{.needs = {"data.format", {"images"}}};
  add({.name = "augment", .type = T::boolean,
       .help = "Training images are changed at random: crops, mirroring and colours. The changes depend only on seed, epoch and "
               "image. mixup and cutmix do not depend on this key."}, &D::augment, images);
  add({.name = "crop_scale", .type = T::numbers, .help = "A random crop has a share of the image's area between these.",
       .wanted = "two numbers such as [0.08, 1.0]", .fits = two_rising}, &D::crop_scale, images);
  add({.name = "crop_ratio", .type = T::numbers, .help = "A random crop has a ratio of width to height between these.",
       .wanted = "two numbers such as [0.75, 1.3333]", .fits = two_rising}, &D::crop_ratio, images);
  add({.name = "hflip", .type = T::number, .help = "Probability of exchanging left and right.", .minimum = 0, .maximum = 1},
      &D::hflip, images);
  add({.name = "vflip", .type = T::number, .help = "Probability of exchanging top and bottom.", .minimum = 0, .maximum = 1},
      &D::vflip, images);
  add({.name = "color_jitter", .type = T::number,
       .help = "Brightness, contrast and saturation are multiplied by random factors in [1 - this, 1 + this].", .minimum = 0,
       .maximum = 1}, &D::color_jitter, images);
  add({.name = "mixup", .type = T::number,
       .help = "Mixup of training images: each becomes lambda * image + (1 - lambda) * its neighbour in the global batch, and has the "
               "labels of both in these shares. lambda is drawn from Beta(a, a), where a is this number. 0: off.", .minimum = 0},
      &D::mixup, images);
  add({.name = "cutmix", .type = T::number,
       .help = "CutMix of training images: a box of each is replaced by that of its neighbour in the global batch, and the labels of "
               "both count by their areas. The share of the area is 1 - lambda, and lambda is drawn from Beta(a, a), where a is "
               "this number. 0: off.", .minimum = 0}, &D::cutmix, images);
  add({.name = "mixup_prob", .type = T::number, .help = "Probability that a batch is mixed, by mixup or cutmix.", .minimum = 0,
       .maximum = 1}, &D::mixup_prob, images);
  add({.name = "mixup_switch_prob", .type = T::number,
       .help = "If mixup and cutmix are both above 0: the probability that a mixed batch gets cutmix.", .minimum = 0, .maximum = 1},
      &D::mixup_switch_prob, images);
  add({.name = "mixup_mode", .type = T::choice,
       .help = "What lambda and box are drawn for. batch: for each global batch. pair: for each two neighbours. elem: for each image.",
       .choices = {"batch", "pair", "elem"}}, &D::mixup_mode, images);
  add({.name = "mixup_off_epoch", .type = T::integer,
       .help = "From this epoch on, counted from 0, images are not mixed. 0: they always are.", .minimum = 0}, &D::mixup_off_epoch,
      images);
  add({.name = "crop_pct", .type = T::number,
       .help = "Validation resizes the shorter side to image_size / crop_pct and takes the centre.", .minimum = 0, .maximum = 1,
       .above_minimum = true}, &D::crop_pct, images);
  add({.name = "interpolation", .type = T::choice, .help = "How images are resized, with antialiasing, as Pillow does it.",
       .choices = {"bilinear", "bicubic"}}, &D::interpolation, images);
  add({.name = "mean", .type = T::numbers, .help = "Subtracted from red, green and blue in [0, 1]. Default: that of ImageNet.",
       .wanted = "three numbers", .fits = three}, &D::mean, images);
  add({.name = "std", .type = T::numbers, .help = "Then they are divided by this. Default: that of ImageNet.", .minimum = 0,
       .above_minimum = true, .wanted = "three numbers", .fits = three}, &D::std, images);
  add({.name = "skip_corrupt", .type = T::boolean,
       .help = "Damaged images are left out and counted. All images are decoded once to find them. Without it, the run ends at a "
               "damaged image."}, &D::skip_corrupt, images);
}

}  // namespace

void add_row_models(Adder<Recipe::Model>& add) {
  using M = Recipe::Model;
  const Facts mlp{.family = "mlp"};
  add({.name = "hidden_sizes", .type = T::list,
       .help = "mlp: widths of the hidden layers; without them the model is linear. resnet: channels of the stages.", .wanted = "a list of widths such as [64, 64]",
       .fits = widths_problem}, &M::hidden_sizes, {.family = "mlp resnet"});
  add({.name = "num_features", .type = T::integer, .help = "Inputs of a row. Default: those of the data.", .minimum = 1},
      &M::num_features, mlp);
  add({.name = "num_labels", .type = T::integer,
       .help = "Outputs: classes, labels or numbers. Default: those of the data.", .minimum = 1}, &M::num_labels,
      {.family = "gpt decoder encoder mlp vit resnet"});
  add({.name = "labels", .type = T::texts,
       .help = "The names of the outputs, in their order. Default: the labels of the data, sorted; if model.init_from has the same "
               "labels, in its order."}, &M::labels, {.family = "gpt decoder encoder vit resnet"});
  const Facts images{.family = "vit resnet"}, vit{.family = "vit"}, resnet{.family = "resnet"};
  add({.name = "image_size", .type = T::integer, .help = "Width and height of the images that the model gets.", .minimum = 1,
       .maximum = 1 << 14}, &M::image_size, images);
  add({.name = "patch_size", .type = T::integer, .help = "Width and height of a patch. Must divide image_size.", .minimum = 1},
      &M::patch_size, vit);
  add({.name = "depths", .type = T::list, .help = "Layers of each stage.", .maximum = 10000, .wanted = "a list of numbers such as [2, 2, 2, 2]",
       .fits = widths_problem}, &M::depths, resnet);
  add({.name = "embedding_size", .type = T::integer, .help = "Channels of the stem.", .minimum = 1}, &M::embedding_size, resnet);
  add({.name = "layer_type", .type = T::choice,
       .help = "basic: two 3x3 convolutions, as in ResNet-18 and 34. bottleneck: 1x1, 3x3 and 1x1, as in ResNet-50.",
       .choices = {"basic", "bottleneck"}}, &M::layer_type, resnet);
  add({.name = "downsample_in_first_stage", .type = T::boolean, .help = "The first stage has stride 2, too."},
      &M::downsample_in_first_stage, resnet);
  add({.name = "downsample_in_bottleneck", .type = T::boolean,
       .help = "The first 1x1 convolution of a bottleneck has the stride, instead of the 3x3 convolution."},
      &M::downsample_in_bottleneck, resnet);
  add({.name = "sync_batchnorm", .type = T::boolean,
       .help = "BatchNorm uses the mean and variance of the rows of all ranks of a micro-batch, not of each rank's."},
      &M::sync_batchnorm, resnet);
}

void add_row_data(Adder<Recipe::Data>& add) {
  add_tables(add);
  add_images(add);
}

}  // namespace runner::keys
