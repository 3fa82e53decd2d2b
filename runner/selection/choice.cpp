#include "runner/selection/choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "runner/base/text.hpp"
#include "runner/selection/mesh_plan.hpp"
#include "runner/selection/mesh_search.hpp"
#include "runner/selection/strategy_options.hpp"
#include "strategies/program/parallel_plan.hpp"

namespace runner {

namespace {

const char* word_of(DType dtype) {
  return dtype == DType::bfloat16  ? "bf16"
         : dtype == DType::float16 ? "fp16"
         : dtype == DType::float32 ? "fp32"
                                   : "fp64";
}

class Chooser {
 public:
  Chooser(const SelectionRequest& request, const StepClock& clock)
      : request_(request),
        clock_(clock),
        book_(rule_book()),
        part_(part_of_rank(request.recipe, request.model, request.topology.mesh())),
        search_(request.recipe, *part_, request.topology, request.given),
        own_options_(request.given) {
    choice_.limit = search_.limit();
    choice_.part = part_;
    for (const auto& option : common_options()) own_options_.erase(option.name);
  }

  Choice choose() {
    const std::string& policy = request_.recipe.selection.policy;
    situation_ = {request_.model->parameter_count(), request_.topology.data_ranks(), request_.topology.num_nodes,
                  replica_fits()};
    const SelectionRule& rule = book_.match(situation_);
    choice_.rule = rule.rule;
    choice_.source = rule.source;
    choice_.differs = rule.differs;
    for (const auto& name : book_.considered)
      if (makes_sense(name)) consider(book_.form(name), policy == "smallest");
    if (is_large() && policy != "smallest") consider_meshes();
    if (choice_.candidates.empty()) consider_plain(policy == "smallest");
    if (request_.own) consider_own(policy == "smallest");
    if (policy == "smallest")
      take_smallest();
    else if (policy != "offload" || !take_offload())
      take_documented(rule);
    if (choice_.fits() && policy == "fastest") take_fastest();
    if (choice_.fits()) advise();
    return std::move(choice_);
  }

 private:
  bool replica_fits() {
    return request_.topology.data_ranks() == 1 || search_.batches().empty() ||
           search_.at(book_.form(book_.replica), search_.batches().back(), 0).fits;
  }

  /// Whether the form is useful on these devices, and has all options that the recipe sets.
  bool makes_sense(const std::string& name) const {
    const Form& form = book_.form(name);
    const auto& topology = request_.topology;
    const bool several = topology.data_ranks() > 1, distributed = find_strategy(form.strategy)->entry->distributed;
    if (!distributed && several) return false;
    if (form.only == "groups" && (topology.num_nodes == 1 || topology.data_ranks_of_node() == 1)) return false;
    if (form.only == "device_memory" && !topology.on_devices()) return false;  // already in host memory
    return takes_own_options(form) && (several || !distributed || is_offload(name) || !own_options_.empty());
  }

  bool takes_own_options(const Form& form) const {
    const Entry& entry = *find_strategy(form.strategy)->entry;
    const auto& own = own_options_.items();
    return std::all_of(own.begin(), own.end(), [&](const auto& item) {
      return takes(entry, item.key()) &&
             (!form.options.contains(item.key()) || form.options[item.key()] == item.value());
    });
  }

  bool is_offload(const std::string& name) const {
    return std::find(book_.offload.begin(), book_.offload.end(), name) != book_.offload.end();
  }

  /// For options that no form in the rule book has (sharding_strategy = "NO_SHARD"): adds each strategy that has them.
  void consider_plain(bool smallest) {
    for (const auto& entry : catalog()) {
      const auto& options = own_options_.items();
      if (entry.unavailable.empty() &&
          std::all_of(options.begin(), options.end(), [&](const auto& item) { return takes(entry, item.key()); }))
        consider({entry.name, entry.name}, smallest);
    }
  }

  /// Adds the strategy of the recipe, or marks the candidate that is equal to it.
  void consider_own(bool smallest) {
    if (!takes_own_options(*request_.own)) return;
    consider(*request_.own, smallest);
    Candidate& own = choice_.candidates.back();
    own.named = true;
    auto same = std::find_if(choice_.candidates.begin(), choice_.candidates.end() - 1, [&](const Candidate& other) {
      return other.entry == own.entry && other.job.options == own.job.options;
    });
    if (same == choice_.candidates.end() - 1) return;
    same->named = true;
    choice_.candidates.pop_back();
  }

  void consider(const Form& form, bool smallest) {
    if (search_.batches().empty()) {
      choice_.candidates.push_back(search_.refused(
          form,
          fmt::format("train.global_batch_size = {} cannot be divided among {}",
                      *request_.recipe.train.global_batch_size, counted(request_.topology.data_ranks(), "data rank"))));
      return;
    }
    Candidate candidate = smallest ? timed(search_.smallest(form)) : quickest(form);
    if (auto once = reduced_once(form, candidate); once && !smallest) candidate = std::move(*once);
    choice_.candidates.push_back(std::move(candidate));
  }

  /// With more recomputation than is needed, micro-batches are larger, so that weights and gradients move less often: the faster one.
  Candidate quickest(const Form& form) const {
    const Candidate least = timed(search_.best(form));
    if (!least.fits || !least.step_seconds || request_.recipe.activation_checkpointing.mode != "none") return least;
    const auto share = [](int64_t every) { return every == 0 ? 0 : 1 / static_cast<double>(every); };
    std::optional<Candidate> best;
    int64_t micro_batch = least.job.micro_batch_size;
    double limit = pace(least) / (1 + worth_a_change);
    for (const int64_t every : {4, 2, 1}) {
      // No micro-batch reduces the work on tokens. Recomputation adds a quarter of it or more.
      const double work = least.compute_seconds * (4 + share(every)) / (4 + share(least.every)) / least.sequences();
      if (share(every) <= share(least.every) || work >= limit) continue;
      auto found = search_.larger(form, every, micro_batch);
      if (!found) continue;
      micro_batch = found->job.micro_batch_size;
      found->every_needed = least.every;
      found = timed(std::move(*found));
      if (pace(*found) < limit) limit = pace(*found), best = std::move(found);
    }
    return best.value_or(least);
  }

  Candidate timed(Candidate candidate) const {
    if (candidate.refused.empty()) set_time(candidate, clock_);
    return candidate;
  }

  /// A strategy may reduce gradients after each micro-batch, so that they stay sharded. If the unsharded gradients fit too,
  /// and one reduction per step is faster by 2 %, returns that candidate.
  std::optional<Candidate> reduced_once(const Form& form, const Candidate& each) const {
    constexpr double worth_its_memory = 1.02;
    const auto& options = each.entry->reduced_once;
    if (options.is_null() || each.job.accumulation == 1 || !each.fits || !each.step_seconds) return std::nullopt;
    const bool given = std::ranges::any_of(options.items(), [&](const auto& option) {
      return request_.given.contains(option.key()) || form.options.contains(option.key());
    });
    if (given || !each.entry->plan(each.job).reduce_every_micro_batch) return std::nullopt;
    Form changed = form;
    changed.options.update(options);
    Candidate once = quickest(changed);
    once.tuned = options;
    bool comparable = once.fits && once.step_seconds && (once.every_needed == 0 || each.every_needed > 0);
    return comparable && pace(once) * worth_its_memory < pace(each) ? std::optional(once) : std::nullopt;
  }

  /// Whether meshes with a tensor or a pipeline axis are considered for a model of this size.
  bool is_large() const { return situation_.parameters >= book_.mesh.parameters_from; }

  /// Adds the best meshes, once.
  void consider_meshes() {
    if (std::exchange(meshes_considered_, true) || !mesh_is_open(request_.recipe, request_.topology)) return;
    std::vector<Form> forms;
    for (const auto& name : book_.mesh.forms)
      if (takes_own_options(book_.form(name))) forms.push_back(book_.form(name));
    std::ranges::stable_partition(forms, [&](const Form& form) { return form.strategy == preferred(); });
    for (auto& candidate : search_meshes(request_, clock_, forms, /*most=*/3))
      choice_.candidates.push_back(std::move(candidate));
  }

  /// The first of the meshes, which is the best; -1: there is none.
  int best_mesh() const {
    const auto found = std::ranges::find_if(choice_.candidates, [](const auto& one) { return one.mesh.has_value(); });
    return found == choice_.candidates.end() ? -1 : static_cast<int>(found - choice_.candidates.begin());
  }

  /// Takes the best mesh because no form without one fits, unless offload is predicted to be faster by more than the error, or the recipe
  /// sets options with which offload fits.
  bool take_mesh() {
    consider_meshes();
    if (best_mesh() < 0) return false;
    const Candidate& mesh = choice_.candidates[static_cast<size_t>(best_mesh())];
    const bool offload = std::ranges::any_of(choice_.candidates, [&](const Candidate& other) {
      if (!other.fits || !is_offload(other.form)) return false;
      return !own_options_.empty() ||
             (other.step_seconds && mesh.step_seconds && pace(mesh) / pace(other) - 1 > mesh.step_error);
    });
    if (offload) return false;
    choice_.chosen = best_mesh();
    follow(book_.mesh.rule, book_.mesh.source);
    return true;
  }

  /// Takes the best mesh, for a large model, if it is predicted to be faster by more than the error.
  void take_faster_mesh() {
    const int best = best_mesh();
    if (best < 0 || !choice_.fits() || choice_.plan().mesh || !choice_.plan().step_seconds) return;
    const Candidate &now = choice_.plan(), &mesh = choice_.candidates[static_cast<size_t>(best)];
    if (!mesh.step_seconds) return;
    const double gain = pace(now) / pace(mesh) - 1;
    if (gain <= mesh.step_error) return;
    choice_.reason = fmt::format(
        "{} is predicted to be {:.0f} % faster than {}, which is the documented choice ({}); the error of a predicted "
        "time is {:.0f} %{}",
        label(mesh), 100 * gain, label(now), choice_.reason, 100 * mesh.step_error, costs_of_mesh(mesh));
    choice_.chosen = best;
    follow(book_.mesh.rule, book_.mesh.source);
  }

  /// -1: the form is not among the candidates.
  int index(const std::string& form) const {
    for (size_t i = 0; i < choice_.candidates.size(); ++i)
      if (!choice_.candidates[i].mesh && choice_.candidates[i].form == form) return static_cast<int>(i);
    return -1;
  }

  /// Whether selection.prefer decides between this form and its twin.
  bool has_choice(const Form& form) const { return form.strategy == book_.preferences.front(); }

  const std::string& preferred() const { return request_.recipe.selection.prefer; }

  /// The candidate for this form: its twin if the recipe prefers the twin's strategy, or has options that only that has.
  int in_place_of(const std::string& name) const {
    const Form& form = book_.form(name);
    const bool prefers_twin = has_choice(form) && preferred() != form.strategy;
    return prefers_twin || !takes_own_options(form) ? index(form.twin) : index(name);
  }

  /// The other one of a form and its twin, which is equivalent if the first one does not fit; -1: none.
  int twin_of(const std::string& name) const {
    const Form& form = book_.form(name);
    if (!has_choice(form)) return -1;
    int first = in_place_of(name), other = index(name);
    return other != first ? other : index(form.twin);
  }

  /// Chooses the first of `forms`, or else of their twins, that fits. Those that need added checkpointing count only if `recompute`.
  bool take_first(const std::vector<std::string>& forms, bool recompute) {
    std::vector<int> places;
    for (const auto& name : forms) places.push_back(in_place_of(name));
    for (const auto& name : forms) places.push_back(twin_of(name));
    for (int place : places) {
      if (place < 0) continue;
      const Candidate& candidate = choice_.candidates[static_cast<size_t>(place)];
      if (!candidate.fits || (candidate.every_needed > 0 && !recompute)) continue;
      choice_.chosen = place;
      return true;
    }
    return false;
  }

  void take_documented(const SelectionRule& rule) {
    std::vector<std::string> forms = rule.choose;
    if (situation_.devices > 1) {  // continue with the ladder after the last form of the rule
      auto last = std::find(book_.sharding.begin(), book_.sharding.end(), forms.back());
      forms.insert(forms.end(), last == book_.sharding.end() ? book_.sharding.begin() : last + 1, book_.sharding.end());
    }
    std::vector<std::string> strongest(forms.rbegin(), forms.rend());
    if (take_first(forms, false) || take_first(strongest, true) || take_mesh() || take_first(book_.offload, true) ||
        take_any())
      choice_.reason = reason(rule);
    take_faster_mesh();
  }

  /// Chooses any candidate that fits, for candidates that are not in the rule book.
  bool take_any() {
    choice_.chosen = least([](const Candidate&) { return 0.0; });
    return choice_.fits();
  }

  std::string reason(const SelectionRule& rule) const {
    std::string text = rule.sentence(situation_);
    if (request_.topology.data_ranks() < request_.topology.world_size())
      text += ", where ranks that read the same data count as one";
    const Candidate& plan = choice_.plan();
    int first = in_place_of(rule.choose.front());
    const Candidate* usual =
        first >= 0 && first != choice_.chosen ? &choice_.candidates[static_cast<size_t>(first)] : nullptr;
    if (usual && !usual->refused.empty()) {
      text += fmt::format("; {} cannot run: {}", label(*usual), usual->refused);
    } else if (usual) {
      Candidate least = search_.at(book_.form(usual->form), search_.batches().back(), 0);
      text +=
          fmt::format("; {} would need {} a rank at micro-batch {}, including {}, and the limit is {}", label(least),
                      format_bytes(least.bytes), least.job.micro_batch_size, largest_part(least), choice_.limit.reason);
    }
    if (plan.every > 0)
      text += plan.every == 1 ? "; every layer is recomputed in the backward pass"
                              : fmt::format("; every {} layer is recomputed in the backward pass", ordinal(plan.every));
    if (plan.every_for_speed()) text += ", which is predicted to be faster because the micro-batch is larger";
    if (plan.mesh) return text + fmt::format("; {} fits{}", label(plan), costs_of_mesh(plan));
    if (plan.job.micro_batch_size < search_.batches().front().micro_batch_size)
      text += fmt::format("; micro-batch {} is the largest that fits{}", plan.job.micro_batch_size,
                          batch_condition(request_.recipe, plan));
    if (!plan.tuned.empty())
      text += "; one reduction per step is faster than one after each micro-batch, and the unsharded gradients fit";
    if (is_offload(plan.form))
      text += "; nothing fits without offload, of which the rule takes the least that fits, not the fastest";
    if (plan.form == own_form) text += "; nothing else fits";
    if (!no_offload_.empty()) text += "; " + no_offload_;
    if (!takes_own_options(book_.form(rule.choose.front())))
      text += fmt::format("; [strategy] sets {}, so {} is chosen", own_options_text(), plan.entry->name);
    else
      text += other_reduction(plan);
    return text;
  }

  /// Names the dtypes in which gradients are reduced, if the plan is of a strategy that is not preferred and uses another dtype.
  std::string other_reduction(const Candidate& plan) const {
    const auto& first = book_.preferences.front();
    const bool replaces = std::ranges::find(book_.preferences, plan.entry->name) != book_.preferences.end() &&
                          plan.entry->name != first && plan.entry->name != preferred();
    if (!replaces || situation_.devices == 1) return "";
    Job job = plan.job;
    const Entry& usual = *find_strategy(first)->entry;
    job.options = with_defaults(usual.options, nlohmann::json::object());
    const auto here = plan.entry->plan(plan.job).reduce, there = usual.plan(job).reduce;
    return here == there ? ""
                         : fmt::format("; {} reduces gradients in {}, {} in {}", plan.entry->name, word_of(here), first,
                                       word_of(there));
  }

  std::string own_options_text() const {
    std::vector<std::string> parts;
    for (const auto& [name, value] : own_options_.items()) parts.push_back(fmt::format("{} = {}", name, value.dump()));
    return join(parts, ", ");
  }

  /// The first of the candidates that fit with the least measure, below infinity; -1: there is none.
  int least(const auto& measure) const {
    int best = -1;
    double least = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < choice_.candidates.size(); ++i)
      if (const Candidate& one = choice_.candidates[i]; one.fits && measure(one) < least)
        best = static_cast<int>(i), least = measure(one);
    return best;
  }
  int fastest() const { return least(pace); }

  void take_fastest() {
    int best = fastest();
    if (best < 0 || !choice_.plan().step_seconds) throw SpeedNotKnown(clock_.why_unknown(choice_.plan().job));
    const Candidate &now = choice_.plan(), &other = choice_.candidates[static_cast<size_t>(best)];
    const double gain = pace(now) / pace(other) - 1;
    if (best == choice_.chosen || gain <= worth_a_change) return;
    const bool uncertain = gain <= now.step_error;
    choice_.reason = fmt::format(
        "policy \"fastest\": {} is predicted to be {:.0f} % faster than {}, which the documented rule chooses ({}){}",
        label(other), 100 * gain, label(now), choice_.reason,
        uncertain ? fmt::format("; the error of a predicted time is {:.0f} %", 100 * now.step_error) : "");
    choice_.chosen = best;
  }

  /// Replaces the documented rule by another one.
  void follow(const std::string& rule, const std::string& source) {
    choice_.rule = rule;
    choice_.source = source;
    choice_.differs.clear();
  }
  void follow_policy(const std::string& name) { follow(book_.policies.at(name).rule, book_.policies.at(name).source); }

  /// A mesh only if nothing else fits.
  void take_smallest() {
    const auto bytes = [](const Candidate& one) { return static_cast<double>(one.bytes); };
    if (least(bytes) < 0) consider_meshes();
    choice_.chosen = least(bytes);
    if (!choice_.fits()) return;
    const Candidate& plan = choice_.plan();
    follow_policy(is_offload(plan.form) ? "smallest_offload" : "smallest");
    if (plan.mesh) follow(book_.mesh.rule, book_.mesh.source);
    choice_.reason = fmt::format("policy \"smallest\": {} needs the least memory, {} a rank{}", label(plan),
                                 format_bytes(plan.bytes), plan.mesh ? "; nothing fits without a mesh" : "");
  }

  /// Chooses the least offloading that fits. False if there is none.
  bool take_offload() {
    const std::string policy = "policy \"offload\": ";
    if (!take_first(book_.offload, false) && !take_first(book_.offload, true)) {
      no_offload_ = request_.topology.on_devices() ? policy + "no form with offloading fits"
                                                   : policy + "on CPUs the optimizer's state is in host memory already";
      return false;
    }
    follow_policy("offload");
    choice_.reason = fmt::format("{}{} fits, {} a rank at micro-batch {}", policy, label(choice_.plan()),
                                 format_bytes(choice_.plan().bytes), choice_.plan().job.micro_batch_size);
    return true;
  }

  void advise() {
    int best = fastest();
    if (best < 0 || best == choice_.chosen || !choice_.plan().step_seconds) return;
    const Candidate& other = choice_.candidates[static_cast<size_t>(best)];
    double gain = pace(choice_.plan()) / pace(other) - 1;
    if (gain <= other.step_error || request_.recipe.selection.policy == "fastest") return;
    choice_.advice.push_back(fmt::format(
        "{} is predicted to be {:.0f} % faster and needs {}; selection.policy = \"fastest\" would choose it",
        label(other), 100 * gain, memory_needed(other)));
  }

  /// For policy "fastest" and recomputation. Times of plans on the same devices have similar errors, so their difference
  /// is more exact than each of them.
  static constexpr double worth_a_change = 0.05;

  const SelectionRequest& request_;
  const StepClock& clock_;
  const RuleBook& book_;
  std::shared_ptr<const ModelSpec> part_;
  CandidateSearch search_;
  nlohmann::json own_options_;  ///< given options, without the common ones
  std::string no_offload_;      ///< why policy "offload" took the documented rule
  Situation situation_;
  bool meshes_considered_ = false;
  Choice choice_;
};

}  // namespace

SpeedNotKnown::SpeedNotKnown(const std::string& why_unknown)
    : Error(ExitCode::usage,
            "selection.policy = \"fastest\" needs the speed of these devices, which is " + why_unknown) {}

void set_time(Candidate& candidate, const StepClock& clock) {
  const auto time = clock.step_time(candidate);
  if (!time) return;
  candidate.step_seconds = time->total();
  candidate.compute_seconds = time->on_tokens();
  candidate.step_error = clock.error(candidate.job, *time);
  candidate.axes = time->axes;
}

Choice choose(const SelectionRequest& request, const StepClock& clock) { return Chooser(request, clock).choose(); }

}  // namespace runner
