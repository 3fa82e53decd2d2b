// How ranks agree on the requests of hooks.
#include "runner/train/hooks/hook_requests.hpp"

#include <catch2/catch_test_macros.hpp>
#include <functional>

using namespace runner;

TEST_CASE("the end of a hook's call is the same after it was sent") {
  const CallEnd sent{.failed = true,
                     .skip = true,
                     .gradients_written = true,
                     .lr = 0.0,
                     .synced = 3,
                     .synced_names = 1.5,
                     .restored = 0,
                     .state_tensors = 2.5,
                     .changes = 4,
                     .changed = 3.5};
  const CallEnd got = CallEnd::unpack(sent.pack());
  CHECK(got.failed);
  CHECK_FALSE(got.stop);
  CHECK_FALSE(got.checkpoint);
  CHECK(got.skip);
  CHECK_FALSE(got.parameters_written);
  CHECK(got.gradients_written);
  CHECK(got.lr == 0.0);
  CHECK(got.synced == 3);
  CHECK(got.synced_names == 1.5);
  CHECK(got.restored == 0);
  CHECK(got.state_tensors == 2.5);
  CHECK(got.changes == 4);
  CHECK(got.changed == 3.5);
  const CallEnd nothing = CallEnd::unpack(CallEnd{}.pack());
  CHECK_FALSE(nothing.lr);
  CHECK_FALSE(nothing.restored);
}

TEST_CASE("requests of ranks that contradict each other are described") {
  const std::vector<std::pair<CallEnd, std::string>> rows = {
      {{.stop = true, .checkpoint = true, .skip = true}, ""},  // a request of one rank is for all
      {{.lr = 0.5}, "set_lr: every rank must set the same rate: rank 0 sets none, rank 1 sets 0.5"},
      {{.synced = 1},
       "log with a sync: every rank must log the same names, in the same order: rank 0 logs 0 values, rank 1 logs 1 value"},
      {{.synced_names = 1},
       "log with a sync: every rank must log the same names with the same sync, in the same order"},
      {{.restored = 7},
       "restore: every rank must restore the same snapshot: rank 0 restores none, rank 1 restores that of step 7"},
      {{.changes = 1},
       "every rank must change the same parameters and gradients: rank 0 makes 0 changes, rank 1 makes 1 change"},
      {{.changed = 1},
       "every rank must change the same parameters and gradients: rank 0 makes 0 changes, rank 1 makes 0 changes"},
      {{.state_tensors = 1}, "the tensors in its state, or their names, differ between ranks"},
  };
  for (const auto& [end, text] : rows) {
    CHECK(contradiction({CallEnd{}, end}) == text);
    CHECK(contradiction({end, end}).empty());
  }
}
