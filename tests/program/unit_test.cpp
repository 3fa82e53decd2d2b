// How the parameters of a model are divided into units.
#include "strategies/program/unit.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace runner;

namespace {

BlockSpec block(std::string name, BlockKind kind, std::vector<ParameterSpec> parameters) {
  BlockSpec spec;
  spec.name = std::move(name);
  spec.kind = kind;
  spec.parameters = std::move(parameters);
  return spec;
}

ModelSpec model(bool tied) {
  ModelSpec spec;
  spec.blocks.push_back(block("embedding", BlockKind::embedding, {{"tokens", {10, 7}, {}, {}}}));
  for (int i = 0; i < 3; ++i)
    spec.blocks.push_back(block("blocks." + std::to_string(i), BlockKind::transformer,
                                {{"w" + std::to_string(i), {33}, {}, {}}, {"b" + std::to_string(i), {1}, {}, {}}}));
  spec.blocks.push_back(block("head", BlockKind::head, {{"norm", {7}, {}, {}}}));
  if (tied) spec.blocks.back().shared = {"tokens"};
  return spec;
}

std::vector<std::vector<size_t>> blocks_of(const std::vector<Unit>& units) {
  std::vector<std::vector<size_t>> list;
  for (const auto& unit : units) list.push_back(unit.blocks);
  return list;
}

using Blocks = std::vector<std::vector<size_t>>;

}  // namespace

TEST_CASE("units are formed per block, with tied blocks together, by size and by name") {
  CHECK(blocks_of(make_units(model(false), "block", 0, {})) == Blocks{{0}, {1}, {2}, {3}, {4}});
  CHECK(blocks_of(make_units(model(true), "block", 0, {})) == Blocks{{0, 4}, {1}, {2}, {3}});
  CHECK(blocks_of(make_units(model(false), "none", 0, {})) == Blocks{{0, 1, 2, 3, 4}});
  CHECK(blocks_of(make_units(model(false), "size", 68, {})) == Blocks{{0}, {1, 2}, {3, 4}});
  CHECK(blocks_of(make_units(model(false), "names", 0, {"blocks.[12]"})) == Blocks{{0, 1, 4}, {2}, {3}});
  CHECK_THROWS_AS(make_units(model(false), "blocks", 0, {}), std::logic_error);
}

TEST_CASE("the blocks of a layer are one unit unless a name selects one of them") {
  auto spec = model(false);
  for (size_t b : {1, 2}) spec.blocks[b].layer = "layer";  // and block 3 is a layer by itself
  CHECK(blocks_of(make_units(spec, "block", 0, {})) == Blocks{{0}, {1, 2}, {3}, {4}});
  CHECK(blocks_of(make_units(spec, "size", 34, {})) == Blocks{{0}, {1, 2}, {3}, {4}});
  CHECK(blocks_of(make_units(spec, "names", 0, {"layer"})) == Blocks{{0, 3, 4}, {1, 2}});
  CHECK(blocks_of(make_units(spec, "names", 0, {"blocks.1"})) == Blocks{{0, 1, 3, 4}, {2}});
  CHECK(blocks_of(make_units(spec, "names", 0, {"*"})) == Blocks{{0}, {1, 2}, {3}, {4}});
}

TEST_CASE("an embedding's backward reads no parameters") {
  auto units = make_units(model(false), "block", 0, {});
  CHECK(units[0].first_needed_in_backward == 5);
  CHECK(units[1].first_needed_in_backward == 1);
  CHECK(make_units(model(true), "block", 0, {})[0].first_needed_in_backward == 4);
}
