// The process groups of a mesh: along each axis, a rank's group has the ranks that the mesh names.
#include "strategies/executor/bound_mesh.hpp"

#include <catch2/catch_test_macros.hpp>
#include <numeric>

#include "tests/support/rank_check.hpp"
#include "tests/support/thread_world.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

double sum(c10d::ProcessGroup& group, double value) {
  std::vector<at::Tensor> tensors{torch::tensor({value}, torch::kFloat64)};
  group.allreduce(tensors, {c10d::ReduceOp::SUM})->wait();
  return tensors[0].item<double>();
}

}  // namespace

TEST_CASE("a bound mesh has one group for each axis of several ranks", "[mesh]") {
  const std::vector<Mesh> meshes{Mesh(4, {{.axis = Axis::shard, .size = 4}}),
                                 Mesh(4, {{.axis = Axis::replicate, .size = 2}, {.axis = Axis::shard, .size = 2}}),
                                 Mesh(8, {{.axis = Axis::pipeline, .size = 2},
                                          {.axis = Axis::replicate, .size = 2},
                                          {.axis = Axis::tensor, .size = 2}})};
  for (const auto& mesh : meshes) {
    INFO(to_text(mesh));
    run_ranks(mesh.ranks(), [&](World& world) {
      const BoundMesh bound = bind(mesh, world);
      RANK_CHECK(bound.groups.size() == mesh.axes().size());
      for (const auto& [axis, size] : mesh.axes()) {
        const auto ranks = mesh.group(world.rank, axis).ranks();
        RANK_CHECK(bound.group(axis).getSize() == size);
        RANK_CHECK(bound.group(axis).getRank() == bound.coordinate(axis));
        RANK_CHECK(sum(bound.group(axis), world.rank) == std::accumulate(ranks.begin(), ranks.end(), 0.0));
      }
    });
  }
}

TEST_CASE("one rank needs no groups, and a mesh of another number of ranks is a mistake", "[mesh]") {
  run_ranks(1, [&](World& world) {
    RANK_CHECK(bind(Mesh(), world).groups.empty());
    bool refused = false;
    try {
      bind(data_mesh(2), world);
    } catch (const std::logic_error&) {
      refused = true;
    }
    RANK_CHECK(refused);
  });
}
