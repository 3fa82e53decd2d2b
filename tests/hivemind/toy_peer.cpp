// A peer as a process of its own, for the tests: it learns 2000 numbers from noisy gradients.
//
// toy_peer KEY=VALUE ...: port, join (host:port), announce (host:port), batch, target, epochs, step_ms, seconds, seed, compression. It
// prints "port N" when it listens, "epoch N" after each update, "loaded N" when it has loaded a state, and at the end "loss X".
#include <cmath>
#include <cstdio>
#include <map>
#include <random>

#include "strategies/hivemind/collector.hpp"

namespace {

using namespace runner::swarm;

class ToyPeer {
 public:
  explicit ToyPeer(std::map<std::string, std::string> given)
      : given_(std::move(given)),
        swarm_(options()),
        collector_(swarm_, wanted_.size(),
                   {.gradients = compression_of(text("compression", "none")),
                    .state = compression_of(text("compression", "none"))}),
        random_(static_cast<uint64_t>(number("seed", 1))) {
    for (size_t i = 0; i < wanted_.size(); ++i) wanted_[i] = std::sin(static_cast<float>(i));
    std::normal_distribution<float> normal;
    for (float& value : values_) value = normal(random_);
  }

  int run() {
    say("port", swarm_.port());
    swarm_.serve_state_with([this] { return state(); });
    swarm_.enter();
    load(true);
    swarm_.participate();
    const auto limit = Clock::now() + std::chrono::seconds(number("seconds", 30));
    while (collector_.epoch() < number("epochs", 20)) {
      if (Clock::now() > limit) return 3;
      step();
    }
    std::printf("loss %g\n", loss());
    return 0;
  }

 private:
  std::string text(const std::string& key, const std::string& otherwise) const {
    const auto found = given_.find(key);
    return found == given_.end() ? otherwise : found->second;
  }
  int64_t number(const std::string& key, int64_t otherwise) const {
    return std::stoll(text(key, std::to_string(otherwise)));
  }
  static void say(const char* what, int64_t value) {
    std::printf("%s %lld\n", what, static_cast<long long>(value));
    std::fflush(stdout);
  }

  SwarmOptions options() const {
    SwarmOptions options{.secret = "a secret of the toy",
                         .port = static_cast<uint16_t>(number("port", 0)),
                         .schema = 5,
                         .target_samples = number("target", 64),
                         .matchmaking_time = Milliseconds(1000),
                         .averaging_timeout = Milliseconds(4000),
                         .request_timeout = Milliseconds(600),
                         .sender_timeout = Milliseconds(600),
                         .load_state_timeout = Milliseconds(5000),
                         .gossip_interval = Milliseconds(200),
                         .record_lifetime = Milliseconds(2000)};
    if (const auto join = parse_endpoint(text("join", ""))) options.initial_peers = {*join};
    if (const auto announced = parse_endpoint(text("announce", ""))) options.announced = *announced;
    return options;
  }

  State state() const {
    const auto* first = reinterpret_cast<const uint8_t*>(values_.data());
    return {.epoch = collector_.epoch(),
            .tensors = {{.name = "values", .bytes = {first, first + values_.size() * sizeof(float)}}}};
  }

  void load(bool first) {
    std::string why;
    const std::vector<TensorSize> like = {{.name = "values", .bytes = values_.size() * sizeof(float)}};
    const auto state =
        first ? swarm_.load_first_state(collector_.epoch(), like) : swarm_.load_state(collector_.epoch(), like, why);
    if (!state) return;
    std::memcpy(values_.data(), state->tensors[0].bytes.data(), state->tensors[0].bytes.size());
    collector_.loaded(state->epoch);
    say("loaded", state->epoch);
  }

  void step() {
    if (collector_.needs_state()) load(false);
    swarm_.serve_state();
    const auto begun = Clock::now();
    std::this_thread::sleep_for(Milliseconds(number("step_ms", 10)));
    std::normal_distribution<float> noise(0, 1 / std::sqrt(static_cast<float>(number("batch", 8))));
    std::vector<float> gradients(values_.size());
    for (size_t i = 0; i < values_.size(); ++i) gradients[i] = values_[i] - wanted_[i] + noise(random_);
    const auto batch = number("batch", 8);
    const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
    if (!collector_.add(gradients, static_cast<double>(batch), batch, seconds)) return;
    for (size_t i = 0; i < values_.size(); ++i) values_[i] -= 0.3f * collector_.gradients()[i];
    collector_.updated();
    if (collector_.state_due()) collector_.average_state(values_);
    say("epoch", collector_.epoch());
  }

  double loss() const {
    double sum = 0;
    for (size_t i = 0; i < values_.size(); ++i) sum += std::pow(values_[i] - wanted_[i], 2);
    return sum / static_cast<double>(values_.size());
  }

  std::map<std::string, std::string> given_;
  std::vector<float> wanted_ = std::vector<float>(2000), values_ = wanted_;
  Swarm swarm_;
  Collector collector_;
  std::mt19937_64 random_;
};

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> given;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    given[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  }
  try {
    return ToyPeer(given).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
