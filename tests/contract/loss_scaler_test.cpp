// The rules of the loss scale, as in GradScaler and in DeepSpeed.
#include "strategies/contract/loss_scaler.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace runner;

TEST_CASE("by default the scale is halved at each overflow and doubled after 2000 good steps", "[loss scale]") {
  LossScaler scaler(true);
  CHECK(scaler.scale() == 65536);
  scaler.update(false);
  scaler.update(false);
  CHECK(scaler.scale() == 16384);
  for (int i = 0; i < 1999; ++i) scaler.update(true);
  CHECK(scaler.scale() == 16384);
  scaler.update(true);
  CHECK(scaler.scale() == 32768);
  CHECK_FALSE(scaler.at_floor());
}

TEST_CASE("hysteresis tolerates overflows until the scale has grown again", "[loss scale]") {
  LossScalePolicy policy;
  policy.window = 3;
  policy.hysteresis = 2;
  policy.minimum = 16384;
  LossScaler scaler(true, policy);
  scaler.update(false);
  CHECK(scaler.scale() == 65536);
  scaler.update(true);
  scaler.update(false);
  CHECK(scaler.scale() == 32768);
  scaler.update(false);
  CHECK(scaler.scale() == 16384);
  CHECK(scaler.at_floor());
  for (int i = 0; i < 3; ++i) scaler.update(true);
  CHECK(scaler.scale() == 32768);
  scaler.update(false);  // tolerated again
  CHECK(scaler.scale() == 32768);
}

TEST_CASE("with consecutive hysteresis a good step resets the count of overflows", "[loss scale]") {
  LossScalePolicy policy;
  policy.hysteresis = 2;
  policy.consecutive_hysteresis = true;
  LossScaler scaler(true, policy);
  for (int i = 0; i < 5; ++i) {
    scaler.update(false);
    scaler.update(true);
  }
  CHECK(scaler.scale() == 65536);
  scaler.update(false);
  scaler.update(false);
  CHECK(scaler.scale() == 32768);
}

TEST_CASE("a fixed scale does not change, and a loaded state continues", "[loss scale]") {
  LossScalePolicy fixed;
  fixed.dynamic = false;
  fixed.initial = 128;
  LossScaler constant(true, fixed);
  constant.update(false);
  CHECK(constant.scale() == 128);
  CHECK_FALSE(constant.at_floor());

  LossScalePolicy policy;
  policy.window = 3;
  policy.hysteresis = 2;
  LossScaler first(true, policy), second(true, policy);
  for (bool finite : {true, false, true, true}) first.update(finite);
  second.load(first.state());
  for (bool finite : {true, false, false, true, true, true}) {
    first.update(finite);
    second.update(finite);
    CHECK(first.state() == second.state());
  }
  second.load({{"scale", 4.0}, {"good_steps", 1}});  // a state that does not contain "patience"
  CHECK(second.scale() == 4.0);
}

TEST_CASE("the scale grows and shrinks by the factors of its policy, up to its maximum", "[loss scale]") {
  LossScaler scaler(true, {.initial = 1000, .window = 2, .maximum = 8000, .growth = 4, .backoff = 0.1});
  for (int i = 0; i < 2; ++i) scaler.update(true);
  CHECK(scaler.scale() == 4000);
  for (int i = 0; i < 2; ++i) scaler.update(true);
  CHECK(scaler.scale() == 8000);
  scaler.update(false);
  CHECK(scaler.scale() == 800);
}
