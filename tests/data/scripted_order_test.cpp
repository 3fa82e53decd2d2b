// The order of samples as a Lua file decides it.

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/config/diagnostics.hpp"
#include "runner/data/order.hpp"
#include "tests/data/support.hpp"

using namespace runner;
using namespace runner::test;
using Catch::Matchers::ContainsSubstring;

namespace {

struct TenSamples final : Dataset {
  int64_t size() const override { return 10; }
  std::vector<BatchField> fields() const override { return {}; }
  int64_t weight(int64_t) const override { return 1; }
  void read(int64_t, HostBatch&, int64_t) const override {}
};

/// The samples of an epoch in the order of a file with this text.
std::vector<int64_t> ordered(const std::string& lua, int64_t epoch) {
  DataFolder folder;
  Recipe recipe;
  recipe.data.order = folder.write("order.lua", lua);
  const auto data = with_scripted_order(std::make_unique<TenSamples>(), recipe);
  std::vector<int64_t> samples;
  for (int64_t position = 0; position < data->size(); ++position)
    samples.push_back(data->sample_at(epoch, position, {.shuffle = true, .seed = 7}));
  return samples;
}

/// The message of a mistake in the file.
std::string mistake_in(const std::string& lua) {
  try {
    return error_of([&] { ordered(lua, 0); });
  } catch (const RecipeError& error) {
    return error.diagnostics().front().message;
  }
}

}  // namespace

TEST_CASE("a Lua file decides the order of samples, and knows the usual one") {
  CHECK(ordered("return {sample = function(position, epoch, size) return size + 1 - position end}", 0) ==
        std::vector<int64_t>{9, 8, 7, 6, 5, 4, 3, 2, 1, 0});
  const std::string curriculum =
      "return {sample = function(position, epoch, size, usual) return epoch == 1 and position or usual end}";
  CHECK(ordered(curriculum, 0) == std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  const SampleOrder usual(10, true, 7, 1);
  const auto second = ordered(curriculum, 1);
  for (int64_t position = 0; position < 10; ++position) CHECK(second[static_cast<size_t>(position)] == usual[position]);
}

TEST_CASE("mistakes in a file that decides the order are errors with its name") {
  CHECK_THAT(mistake_in("return {sample = function() return 11 end}"),
             ContainsSubstring("order.lua: sample(1, 1, 10, ") &&
                 ContainsSubstring("must return a sample from 1 to 10, not 11"));
  CHECK_THAT(mistake_in("return {sample = function() end}"), ContainsSubstring("from 1 to 10, not nil"));
  CHECK_THAT(mistake_in("return {sample = function(p) return p.x end}"),
             ContainsSubstring("order.lua:1: attempt to index"));
  CHECK_THAT(mistake_in("return {order = function() end}"), ContainsSubstring("`order` is not part of a sample order"));
  CHECK_THAT(mistake_in("return {}"), ContainsSubstring("has no function `sample`"));
}
