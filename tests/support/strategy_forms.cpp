#include "tests/support/strategy_forms.hpp"

#include "tests/support/offload_forms.hpp"

namespace runner::testing {

namespace {

using nlohmann::json;

template <typename Change>
Form changed(Form form, const std::string& label, Change&& change) {
  form.label += ", " + label;
  change(form.run);
  return form;
}

Form fsdp_form(const std::string& label, int world_size, const json& options) {
  return {"fsdp " + label, device_run("fsdp", world_size, options), true};
}

Form zero_form(const std::string& label, int world_size, const json& options) {
  return {"zero " + label, device_run("zero", world_size, options), true};
}

}  // namespace

TinyRun device_run(const std::string& strategy, int world_size, json options) {
  TinyRun run;
  run.strategy = strategy;
  run.world_size = world_size;
  if (!options.is_null()) run.options = std::move(options);
  run.steps = 3;
  return run;
}

std::vector<Form> whole_copies() {
  Form single{"single", device_run("single", 1)}, ddp{"ddp", device_run("ddp", 3)};
  return {single,
          changed(single, "llama", [](TinyRun& run) { run.family = "llama"; }),
          changed(single, "dropout", [](TinyRun& run) { run.dropout = 0.1; }),
          changed(single, "bf16-mixed, accumulation",
                  [](TinyRun& run) { run.precision = "bf16-mixed", run.accumulation = 2; }),
          ddp,
          changed(ddp, "accumulation", [](TinyRun& run) { run.accumulation = 2; }),
          changed(ddp, "bf16 on the wire",
                  [](TinyRun& run) {
                    run.options = {{"ddp_comm_hook", "bf16_compress"}};
                  }),
          changed(ddp, "static graph, small buckets", [](TinyRun& run) {
            run.options = {{"static_graph", true}, {"bucket_cap_mb", 0.02}};
          })};
}

std::vector<Form> fsdp_forms() {
  Form full = fsdp_form("FULL_SHARD", 3, {});
  return {full,
          changed(full, "llama", [](TinyRun& run) { run.family = "llama"; }),
          changed(full, "untied", [](TinyRun& run) { run.tied = false; }),
          fsdp_form("SHARD_GRAD_OP", 3, {{"sharding_strategy", "SHARD_GRAD_OP"}}),
          fsdp_form("NO_SHARD", 2, {{"sharding_strategy", "NO_SHARD"}}),
          fsdp_form("HYBRID_SHARD", 4, {{"sharding_strategy", "HYBRID_SHARD"}, {"hybrid_group_size", 2}}),
          fsdp_form("prefetch after", 2, {{"backward_prefetch", "BACKWARD_POST"}}),
          fsdp_form("no prefetch", 2, {{"backward_prefetch", "NONE"}}),
          fsdp_form("one unit", 2, {{"auto_wrap_policy", "none"}}),
          fsdp_form("units by name", 2, {{"auto_wrap_policy", {"blocks.1", "blocks.2"}}})};
}

std::vector<Form> zero_forms() {
  std::vector<Form> forms;
  for (int stage : {1, 2, 3}) {
    std::string label = "stage " + std::to_string(stage);
    forms.push_back(zero_form(label, 3, {{"stage", stage}}));
    forms.push_back(zero_form(label + ", small buckets", 3, {{"stage", stage}, {"reduce_bucket_size", 5000}}));
    forms.push_back(zero_form(label + ", all-reduce and broadcast", 2,
                              {{"stage", stage}, {"reduce_scatter", false}, {"allgather_partitions", false}}));
  }
  json all_sharded{{"stage", 3}, {"stage3_param_persistence_threshold", 0}, {"stage3_max_reuse_distance", 0}};
  forms.push_back(zero_form("stage 3, all sharded", 3, all_sharded));
  json one_ahead = all_sharded, small = all_sharded;
  one_ahead["stage3_prefetch_bucket_size"] = 1;
  forms.push_back(zero_form("stage 3, one unit ahead", 3, one_ahead));
  small.update({{"stage3_param_persistence_threshold", 500}, {"mics_shard_size", 2}});
  forms.push_back(zero_form("stage 3, MiCS", 4, small));
  return forms;
}

std::vector<Form> chunk_forms() {
  std::vector<Form> forms;
  const auto add = [&](const std::string& label, int world_size, const json& options) {
    forms.push_back({"colossalai " + label, device_run("colossalai", world_size, options), true});
  };
  add("one chunk", 3, json::object());
  for (const int64_t size : {3000, 9000}) {
    const std::string label = "chunks of " + std::to_string(size);
    add(label + ", cuda", 3, {{"chunk_size", size}, {"placement_policy", "cuda"}});
    add(label + ", cpu", 2, {{"chunk_size", size}, {"placement_policy", "cpu"}});
  }
  add("half of the chunks sharded", 2,
      {{"chunk_size", 5000}, {"placement_policy", "static"}, {"shard_param_frac", 0.5}});
  add("half of the chunks in host memory", 2,
      {{"chunk_size", 5000}, {"placement_policy", "static"}, {"offload_optim_frac", 1.0}, {"offload_param_frac", 0.5}});
  forms.push_back(changed(forms[1], "llama, untied", [](TinyRun& run) { run.family = "llama", run.tied = false; }));
  for (auto& form : forms)  // the update in host memory is another kernel
    form.equals_ddp =
        form.run.options.value("placement_policy", "") != "cpu" && !form.run.options.contains("offload_optim_frac");
  return forms;
}

std::vector<Form> reducer_forms() {
  std::vector<Form> forms;
  const auto add = [&](const std::string& strategy, int world_size, json options, int local_size = 0) {
    options["bucket_cap_mb"] = 0.02;
    Form form{strategy + " " + options.dump(), device_run(strategy, world_size, options)};
    form.run.local_size = local_size;
    if (options.value("algorithm", "") == "qadam") form.run.optimizer.kind = OptimizerConfig::Kind::adam;
    forms.push_back(form);
  };
  for (const char* hook : {"quantization_pertensor_hook", "quantization_perchannel_hook", "noop_hook"})
    add("ddp", 2, {{"ddp_comm_hook", hook}});
  for (const char* hook : {"powerSGD_hook", "batched_powerSGD_hook"})
    add("ddp", 2, {{"ddp_comm_hook", hook}, {"ddp_comm_hook_options", {{"start_powerSGD_iter", 1}}}});
  add("ddp", 2,
      {{"ddp_comm_hook", "post_localSGD_hook"},
       {"ddp_comm_hook_options", {{"start_localSGD_iter", 1}}},
       {"model_averaging_period", 2}});
  for (const bool hierarchical : {false, true})
    for (const char* algorithm : {"bytegrad", "qadam", "decentralized", "low_precision_decentralized"})
      add("bagua", 4,
          {{"algorithm", algorithm},
           {"hierarchical", hierarchical},
           {"peer_selection_mode", "shift_one"},
           {"warmup_steps", 2}},
          hierarchical ? 2 : 0);
  add("bagua", 2, {{"algorithm", "async"}, {"sync_interval_ms", 0}});
  add("horovod", 4, {{"op", "adasum"}});
  add("horovod", 4, {{"op", "adasum"}, {"hierarchical", true}, {"compression", "fp16"}}, 2);
  add("horovod", 2, {{"op", "sum"}, {"compression", "fp16"}});
  return forms;
}

std::vector<Form> recomputing_forms() {
  std::vector<Form> forms;
  for (Form form : {Form{"single", device_run("single", 1)}, fsdp_form("FULL_SHARD", 3, {}),
                    zero_form("stage 3", 2, {{"stage", 3}, {"stage3_param_persistence_threshold", 0}})}) {
    forms.push_back(changed(form, "recompute", [](TinyRun& run) { run.recompute = true; }));
    forms.push_back(changed(form, "recompute, dropout", [](TinyRun& run) { run.recompute = true, run.dropout = 0.2; }));
    forms.push_back(changed(form, "recompute, inputs in host memory", [](TinyRun& run) {
      run.recompute = true;
      run.checkpointing.cpu_checkpointing = true;
      run.n_layers = 4;
    }));
  }
  return forms;
}

std::vector<Form> forms_reducing_each_micro_batch() {
  std::vector<Form> forms;
  for (Form form : {fsdp_form("FULL_SHARD", 3, {}), fsdp_form("one unit", 2, {{"auto_wrap_policy", "none"}}),
                    fsdp_form("HYBRID_SHARD", 4, {{"sharding_strategy", "HYBRID_SHARD"}, {"hybrid_group_size", 2}}),
                    zero_form("stage 2, one bucket", 2, {{"stage", 2}, {"reduce_bucket_size", 10'000'000}}),
                    zero_form("stage 2, predivided", 2, {{"stage", 2}, {"gradient_predivide_factor", 8.0}}),
                    zero_form("stage 3", 3, {{"stage", 3}, {"stage3_param_persistence_threshold", 0}})}) {
    form.equals_ddp = false;
    forms.push_back(changed(form, "3 micro-batches", [](TinyRun& run) { run.accumulation = 3; }));
    forms.push_back(changed(form, "clipped, bf16-mixed", [](TinyRun& run) {
      run.precision = "bf16-mixed";
      run.clip_norm = 0.5;
    }));
  }
  return forms;
}

json offload_options(const OffloadForm& form, const std::string& folder) {
  json options = options_of(form, folder);
  options["reduce_bucket_size"] = 5000;  // several units in stages 1 and 2
  return options;
}

std::vector<Form> offloading_forms(const std::string& folder) {
  std::vector<Form> forms;
  for (const OffloadForm& offload : {OffloadForm{1, "cpu", ""},
                                     {2, "cpu", ""},
                                     {3, "cpu", ""},
                                     {3, "", "cpu"},
                                     {3, "cpu", "cpu"},
                                     {3, "nvme", "nvme"},
                                     {2, "nvme", ""}})
    for (std::string precision : {"32-true", "bf16-mixed"}) {
      Form form = zero_form("stage " + std::to_string(offload.stage) + ", optimizer " + offload.optimizer +
                                ", parameters " + offload.parameters,
                            offload.stage == 2 ? 3 : 2, offload_options(offload, folder));
      form.equals_ddp = false;
      forms.push_back(changed(form, precision, [&](TinyRun& run) {
        run.precision = precision;
        run.accumulation = precision == "32-true" ? 1 : 2;
        if (precision == "32-true") run.clip_norm = 0.5;
      }));
    }
  Form sharded = fsdp_form("cpu_offload", 3, {{"cpu_offload", true}});
  sharded.equals_ddp = false;
  forms.push_back(sharded);
  // One rank has nothing to gather: it copies its shards from host memory on the side stream.
  forms.push_back(changed(sharded, "one rank", [](TinyRun& run) { run.world_size = 1; }));
  forms.push_back(
      changed(sharded, "bf16-mixed", [](TinyRun& run) { run.precision = "bf16-mixed", run.accumulation = 2; }));
  return forms;
}

std::vector<Form> precision_forms() {
  std::vector<Form> forms;
  for (Form form :
       {Form{"single", device_run("single", 1)}, Form{"ddp", device_run("ddp", 2)}, fsdp_form("FULL_SHARD", 2, {}),
        zero_form("stage 1", 2, {{"stage", 1}}), zero_form("stage 3", 2, {{"stage", 3}})})
    for (std::string precision : {"bf16-mixed", "16-mixed", "bf16-true", "64-true"}) {
      form.equals_ddp = false;
      forms.push_back(changed(form, precision, [&](TinyRun& run) { run.precision = precision; }));
    }
  return forms;
}

std::vector<Form> frozen_forms() {
  std::vector<Form> forms;
  for (Form form : {fsdp_form("cpu_offload", 3, {{"cpu_offload", true}}),
                    zero_form("stage 2, offload", 2, offload_options({2, "cpu", ""}, "")),
                    zero_form("stage 3, offload", 2, offload_options({3, "cpu", "cpu"}, ""))}) {
    form.equals_ddp = false;
    forms.push_back(changed(form, "frozen attention", [](TinyRun& run) { run.frozen = {"*.attention.*"}; }));
    forms.push_back(changed(form, "frozen first layers, recompute, bf16-mixed", [](TinyRun& run) {
      run.frozen = {"embedding.*", "blocks.0.*"};
      run.tied = false;
      run.recompute = true;
      run.precision = "bf16-mixed";
    }));
  }
  return forms;
}

std::vector<Form> packed_forms() {
  std::vector<Form> forms;
  for (Form form : {fsdp_form("FULL_SHARD", 3, json::object()), zero_form("stage 2", 2, {{"stage", 2}})}) {
    form.equals_ddp = false;
    forms.push_back(changed(form, "packed rows, recompute", [](TinyRun& run) {
      run.packed = true;
      run.recompute = true;
    }));
    forms.push_back(changed(form, "packed rows, llama, bf16-mixed", [](TinyRun& run) {
      run.packed = true;
      run.family = "llama";
      run.precision = "bf16-mixed";
    }));
    forms.push_back(changed(form, "packed rows, windows, dropout", [](TinyRun& run) {
      run.packed = true;
      run.family = "mistral";
      run.dropout = 0.1;
    }));
  }
  return forms;
}

std::vector<Form> every_form(const std::string& folder) {
  std::vector<Form> all;
  for (auto& forms :
       {whole_copies(), fsdp_forms(), zero_forms(), chunk_forms(), recomputing_forms(),
        forms_reducing_each_micro_batch(), offloading_forms(folder), precision_forms(), frozen_forms(), packed_forms()})
    all.insert(all.end(), forms.begin(), forms.end());
  return all;
}

}  // namespace runner::testing
