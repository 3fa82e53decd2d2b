---@meta
-- Type definitions of runner's Lua interface, for completion, hover and checks in editors with the Lua language server.
-- `runner init --lua` writes this file and a .luarc.json that refers to it.

---The hook's options by name: values of [hooks.NAME] in the recipe, and defaults. Read-only.
---@alias runner.Options table<string, any>

---A hook's table of plain data (numbers, strings, booleans, lists, tables) and tensors (clones and results of
---arithmetic). Checkpoints contain it.
---@alias runner.State table<string, any>

---A tensor. Methods with a name ending in _ change it and return it; all others return something new.
---
---In hooks, a parameter, a gradient, or what a hook computes from them. Each rank stores a shard or a replica. Statistics
---(norm, mean, sum, min, max, is_finite, histogram) are exact over all ranks and are collective calls: every rank calls
---them in the same order. Changes and arithmetic work on the elements of each rank, so every rank must make them.
---Parameters must not change inside a step. A handle is valid only in the call of the hook that got it; keep a clone(),
---which is valid until the training ends and which checkpoints contain if it is in `state`. Changes of parameters from
---on_validation_start to on_validation_end are undone after the validation. Under a strategy with `replicas_differ`
---(local_sgd, gossip), statistics are those of rank 0's replica.
---
---In `loss`: logits [tokens, vocab], targets and losses [tokens, 1], and results computed from them. Sizes of operands
---must be equal or 1. Differentiable; valid only in the call of `loss` that made it. sum, mean, max and logsumexp reduce
---over one dimension and return a tensor. Tensors of `loss` cannot be changed.
---
---In strategies: a 1-d tensor of this rank, with the statistics of this rank.
---@class runner.Tensor
---@field numel integer
---@field shape integer[]
---@field rows integer # in `loss`
---@field columns integer # in `loss`
---@operator add(runner.Tensor|number): runner.Tensor
---@operator sub(runner.Tensor|number): runner.Tensor
---@operator mul(runner.Tensor|number): runner.Tensor
---@operator div(runner.Tensor|number): runner.Tensor
---@operator pow(runner.Tensor|number): runner.Tensor
---@operator unm: runner.Tensor
local tensor = {}
---@return number # the Euclidean norm
function tensor:norm() end
---@overload fun(self: runner.Tensor, dim?: integer): runner.Tensor # in `loss`: over dim 2, the columns of each row, or dim 1, the rows
---@return number
function tensor:mean() end
---@overload fun(self: runner.Tensor, dim?: integer): runner.Tensor # in `loss`: over dim 2, the columns of each row, or dim 1, the rows
---@return number
function tensor:sum() end
---@overload fun(self: runner.Tensor, dim?: integer): runner.Tensor # in `loss`: over dim 2, the columns of each row, or dim 1, the rows
---@return number
function tensor:max() end
---@return number
function tensor:min() end
---@param dim? integer # 2: over the columns of each row; 1: over the rows
---@return runner.Tensor # in `loss`
function tensor:logsumexp(dim) end
---@return boolean
function tensor:is_finite() end
---@param bins? integer # 10
---@return {min: number, max: number, counts: integer[]}
function tensor:histogram(bins) end
---@return runner.Tensor # in `loss`: over each row
function tensor:softmax() end
---@return runner.Tensor # in `loss`: over each row
function tensor:log_softmax() end
---@param targets runner.Tensor
---@return runner.Tensor # in `loss`, [rows, 1]: for each row the element in the column of its target
function tensor:gather(targets) end
---@return runner.Tensor # in `loss`: the same numbers, without gradient
function tensor:detach() end
---@param exponent runner.Tensor|number
---@return runner.Tensor
function tensor:pow(exponent) end
---@return runner.Tensor
function tensor:exp() end
---@return runner.Tensor
function tensor:log() end
---@return runner.Tensor
function tensor:abs() end
---@return runner.Tensor
function tensor:sqrt() end
---@return runner.Tensor
function tensor:tanh() end
---@return runner.Tensor
function tensor:sigmoid() end
---@return runner.Tensor
function tensor:clone() end
---@param dtype "float32"|"float16"|"bfloat16"|"float64"|"int64" # of a hook: not 16-bit
---@return runner.Tensor # a copy
function tensor:to(dtype) end
---@param offset integer # index of the first element, from 0
---@param count integer
---@return runner.Tensor # in strategies: of the same storage
function tensor:narrow(offset, count) end
---@param count integer
---@return runner.Tensor # in strategies: indices of the elements that are largest in magnitude
function tensor:largest(count) end
---@param indices runner.Tensor
---@return runner.Tensor # in strategies
function tensor:take(indices) end
---@return runner.Tensor
function tensor:zero_() end
---@param factor number
---@return runner.Tensor
function tensor:scale_(factor) end
---@param other runner.Tensor|number
---@param factor? number # of other; 1
---@return runner.Tensor
function tensor:add_(other, factor) end
---@param other runner.Tensor|number
---@return runner.Tensor
function tensor:copy_(other) end
---@param other runner.Tensor
---@param weight number
---@return runner.Tensor # itself + weight * (other - itself)
function tensor:lerp_(other, weight) end
---@param indices runner.Tensor
---@param values runner.Tensor|number
---@return runner.Tensor # in strategies
function tensor:put_(indices, values) end
---@param indices runner.Tensor
---@param values runner.Tensor
---@return runner.Tensor # in strategies
function tensor:index_add_(indices, values) end

---A copy of everything that a step changes: parameters, optimizer state and its step count, loss scale. It does not
---include the position in the data. It is in host memory, with each rank's part, and not in checkpoints.
---@class runner.Snapshot
---@field step integer # the step at which it was taken
local snapshot = {}
---@return runner.Snapshot # itself, taken again in the same memory
function snapshot:take() end
---Call it between steps, on every rank. It takes effect when this call of the hook ends.
---@return runner.Snapshot # itself
function snapshot:restore() end

---A file in the run's folder. Rank 0 writes it; on other ranks write() does nothing.
---@class runner.Artifact
---@field path string
local artifact = {}
---@param ... string|number # appended
---@return runner.Artifact # itself
function artifact:write(...) end

---The ranks of the run. The methods are collective: every rank calls them in the same order.
---@class runner.World
---@field rank integer # from 0
---@field size integer
local world = {}
---@param value number
---@param operation? "sum"|"mean"|"min"|"max" # "sum"
---@return number
function world:all_reduce(value, operation) end
---@overload fun(self: runner.World, rows: runner.Tensor, sync_grads?: boolean): runner.Tensor # in `loss`: [rows, columns] -> the rows of all ranks; with sync_grads = true gradients of the result reach the ranks that the rows are from, and every rank must use the result in its loss
---@param value number
---@return number[] # by rank
function world:all_gather(value) end
---@param value number
---@param root? integer # 0
---@return number
function world:broadcast(value, root) end
function world:barrier() end

---The training.
---@class runner.Context
---@field step integer # finished optimizer steps: 0 in the first on_train_batch_start
---@field epoch integer # from 0
---@field max_steps integer? # nil if only time ends the training
---@field is_last_step boolean # true after the last planned step; a stop by a hook does not count
---@field loss number # of the last global batch; NaN before the first
---@field lr number
---@field metrics table<string, number> # the last value of each metric, including validation
---@field recipe table<string, any> # read-only
---@field is_global_zero boolean # rank 0
---@field world runner.World
---@field exception string? # the error text in on_exception
local context = {}
---Records a metric in the ledger. The trainer's metric names (loss, lr, grad_norm, val_loss ...) are not allowed.
---@param name string
---@param value number
---@param options? {sync: "none"|"sum"|"mean"|"min"|"max"} # the same on all ranks; "none": rank 0's value, on rank 0 only
function context:log(name, value, options) end
---@param name string # a plain file name
---@return runner.Artifact
function context:artifact(name) end
---Ends the training after this step, on all ranks, even if only one rank calls it.
---@param reason string
function context:stop(reason) end
---Requests a checkpoint after this step, on all ranks.
function context:checkpoint() end
---Sets the rate of this step. Call it from on_train_batch_start to on_before_optimizer_step, with the same value on every rank.
---@param lr number # until the schedule sets it at the next step
function context:set_lr(lr) end
---Skips the next update on all ranks. Call it from on_train_batch_start to on_before_optimizer_step.
function context:skip_step() end
---@return string[]
function context:parameter_names() end
---@param name string
---@return runner.Tensor
function context:parameter(name) end
---In on_before_optimizer_step only. Gradients are summed over ranks and not yet clipped. nil for a frozen parameter.
---@param name string
---@return runner.Tensor?
function context:gradient(name) end

---Takes a snapshot of the training state.
---@return runner.Snapshot
function context:snapshot() end
---Continues a prompt with the current parameters. The result is the same on every rank. Collective; between steps.
---Records a `sample` event in the ledger.
---@param wanted {prompt: string|integer[], max_new_tokens?: integer, temperature?: number, top_k?: integer, seed?: integer}
---@return string|integer[] # the prompt followed by the generated text or tokens, in the form of the prompt
function context:generate(wanted) end

---@class runner.Option
---@field type "number"|"integer"|"boolean"|"string"|"list"
---@field default? any # without a default, an option that is not given is nil
---@field min? number
---@field max? number
---@field choices? string[]
---@field help? string

---Returns losses [tokens, 1] for a chunk of tokens with valid targets. The number of calls differs between ranks, so it
---must not use collectives, and it has no `state`. It may only read from ctx. Validation uses cross entropy.
---@alias runner.Loss fun(ctx: runner.Context, logits: runner.Tensor, targets: runner.Tensor, options: runner.Options): runner.Tensor

---@alias runner.Hook fun(ctx: runner.Context, state: runner.State, options: runner.Options)

---Facts about a job for a hook's `memory`.
---@class runner.HookJob
---@field held integer # elements of parameters that a rank stores, with frozen ones
---@field trained integer # those that it has optimizer state for
---@field parameters integer # of the model
---@field world_size integer
---@field micro_batch_size integer
---@field optimizer_states integer # tensors of parameter size in the optimizer state: Adam 2, momentum 1, SGD 0; the most of any group
---@field element_bytes integer # of an element of a hook's tensors: 8 in 64-true, else 4

---The table that a hook file returns.
---@class runner.HookFile
---@field name? string # NAME in [hooks.NAME]; default: the file's name
---@field about? string
---@field options? table<string, runner.Option>
---@field loss? runner.Loss # at most one hook of a recipe may have it
---@field memory? fun(job: runner.HookJob, options: runner.Options): number|{device: number?, host: number?} # bytes of the hook's tensors on a rank, for the planner: on the parameters' device, or in host memory
---@field setup? runner.Hook
---@field on_train_start? runner.Hook
---@field on_train_epoch_start? runner.Hook
---@field on_train_batch_start? runner.Hook
---@field on_before_backward? runner.Hook
---@field on_after_backward? runner.Hook
---@field on_before_optimizer_step? runner.Hook
---@field on_train_batch_end? runner.Hook
---@field on_validation_start? runner.Hook
---@field on_validation_end? runner.Hook
---@field on_train_epoch_end? runner.Hook
---@field on_save_checkpoint? runner.Hook
---@field on_load_checkpoint? runner.Hook
---@field on_exception? runner.Hook
---@field on_train_end? runner.Hook
---@field teardown? runner.Hook

---In a recipe.lua: extends another recipe, and returns its values.
---@param base string # a .toml or .lua file, relative to this one
---@return table<string, any>
function extend(base) end

---The result of a trial of a sweep.
---@class runner.Result
---@field trial integer # its number, from 0
---@field status "finished"|"pruned"|"failed"
---@field value number? # the measured metric; nil if there is none
---@field step integer # step of that value
---@field reason string? # of a failed trial: out_of_memory, nan, user_error, device, timeout, preempted or other
---@field parameters table<string, any>

---An event of a trial. An "end" also has the fields of a result.
---@class runner.SweepEvent: runner.Result
---@field kind "report"|"end"

---A trial of a sweep, in the state known to `run`.
---@class runner.Trial
---@field number integer
---@field parameters table<string, any>
---@field status "running"|"finished"|"pruned"|"failed"
---@field value number?
---@field reason string?
local trial = {}
---@return {step: integer, value: number?}[]
function trial:reports() end
---Ends the trial as pruned at its next report. Needs `reports = true` in the file.
function trial:stop() end

---The argument of `run` in a sweep. Trials begin in the order in which they are started.
---@class runner.Sweep
---@field seed integer
---@field metric string
---@field goal "min"|"max"
---@field running integer # started trials whose end `run` has not received yet
local sweep = {}
---Starts a trial and waits for its end.
---@param parameters table<string, any> # {["optimizer.lr"] = 1e-3}
---@return runner.Result
function sweep:try(parameters) end
---Starts a trial without waiting.
---@param parameters table<string, any>
---@return runner.Trial
function sweep:start(parameters) end
---@param trial? runner.Trial # default: the trial that ends next
---@return runner.Result? # nil: none is running
function sweep:wait(trial) end
---@return runner.SweepEvent? # nil: none is running
function sweep:next_event() end
---@param number integer
---@return runner.Trial
function sweep:trial(number) end
---@return table<string, any> # a random point of the file's `space`
function sweep:sample() end
---@return runner.Result? # of the finished trials
function sweep:best() end

---The table that a sweep in Lua returns: the keys of [sweep], and `run`.
---@class runner.SweepFile
---@field recipe string # relative to this file
---@field run fun(sweep: runner.Sweep)
---@field reports? boolean # `run` receives every value of the metric
---@field metric? string
---@field goal? "min"|"max"
---@field value? "last"|"best"
---@field seed? integer
---@field name? string
---@field parallel? integer
---@field set? table<string, any>
---@field budget? {trials: integer?, time: string?, trial_time: string?}
---@field stop? {target: number?, no_improvement: integer?, failures: integer?}
---@field space? table<string, any>
---@field constraints? string[]

-- ---- strategies (recipes/strategies_lua)

---A collective in progress.
---@class runner.strategy.Work
local work = {}
function work:wait() end

---Collectives over the ranks of the run or of a group: every one of them makes the same calls in the same order. Each except barrier
---also exists as NAME_async, which returns a Work.
---@class runner.strategy.Collectives
---@field rank integer # from 0; in a group the place in it
---@field size integer
local ranks = {}
---@param tensor runner.Tensor
---@param operation? "sum"|"mean"|"product"|"min"|"max" # "sum"
---@return runner.Tensor # itself
function ranks:all_reduce(tensor, operation) end
---@param tensor runner.Tensor
---@param operation? "sum"|"mean"|"product"|"min"|"max" # "sum"
---@return runner.strategy.Work
function ranks:all_reduce_async(tensor, operation) end
---@param out runner.Tensor # size times as many elements, by rank
---@param tensor runner.Tensor
---@return runner.Tensor # out
function ranks:all_gather(out, tensor) end
---@param out runner.Tensor # size times as many elements, by rank
---@param tensor runner.Tensor
---@return runner.strategy.Work
function ranks:all_gather_async(out, tensor) end
---@param out runner.Tensor # this rank's part of the result
---@param tensor runner.Tensor
---@param operation? "sum"|"mean"|"product"|"min"|"max" # "sum"
---@return runner.Tensor # out
function ranks:reduce_scatter(out, tensor, operation) end
---@param out runner.Tensor # this rank's part of the result
---@param tensor runner.Tensor
---@param operation? "sum"|"mean"|"product"|"min"|"max" # "sum"
---@return runner.strategy.Work
function ranks:reduce_scatter_async(out, tensor, operation) end
---@param tensor runner.Tensor
---@param root? integer # 0
---@return runner.Tensor # itself
function ranks:broadcast(tensor, root) end
---@param tensor runner.Tensor
---@param root? integer # 0
---@return runner.strategy.Work
function ranks:broadcast_async(tensor, root) end
---@param out runner.Tensor # received from rank (rank - by) % size
---@param tensor runner.Tensor # sent to rank (rank + by) % size
---@param by integer
---@return runner.Tensor # out
function ranks:shift(out, tensor, by) end
---@param out runner.Tensor # received from rank (rank - by) % size
---@param tensor runner.Tensor # sent to rank (rank + by) % size
---@param by integer
---@return runner.strategy.Work
function ranks:shift_async(out, tensor, by) end
---If ranks wait in barriers of different names, each gets an error with all names.
---@param name? string
function ranks:barrier(name) end

---All ranks of the run.
---@class runner.strategy.World: runner.strategy.Collectives
local strategy_world = {}
---With ranks, in `setup` on every rank: makes a group, or several without common ranks ("node" needs no ranks: they are
---those of each node). Without: the group of this rank that was made. nil if this rank is in none.
---@param name string
---@param ranks? integer[]|integer[][]
---@return runner.strategy.Group?
function strategy_world:group(name, ranks) end

---Some ranks of the run.
---@class runner.strategy.Group: runner.strategy.Collectives
---@field name string
---@field ranks integer[] # of the world

---The parameters, in setup, setup_module and after_update. Every rank makes the same calls.
---@class runner.strategy.Model
local strategy_model = {}
---@return string[]
function strategy_model:parameter_names() end
---Valid during the call. Its statistics are over all ranks.
---@param name string
---@return runner.Tensor
function strategy_model:parameter(name) end

---Parameters whose gradients are reduced together.
---@class runner.strategy.Bucket
---@field index integer # from 1, in the order in which they are reduced
---@field numel integer
---@field gradients? runner.Tensor # scaled for the mean over the global batch, times ctx.loss_scale; with `reduce` only
---@field parameters? runner.Tensor # change them in setup and after_update only; not in a comm hook; nil if ranks have only shards between steps
---@field sharded boolean # false on one rank
---@field shard? runner.Tensor # if sharded: output for this rank's part of the sum

---@class runner.strategy.Context
---@field step integer # updates done
---@field loss_scale number
---@field world runner.strategy.World
---@field model runner.strategy.Model
---@field buckets runner.strategy.Bucket[]
local strategy_context = {}
---A tensor that checkpoints contain, with different values on each rank, initially zero. `setup` or `setup_module` creates it.
---@param name string
---@param numel? integer
---@return runner.Tensor
function strategy_context:kept(name, numel) end
---@param numel integer
---@param dtype? "float32"|"float16"|"bfloat16"|"float64"|"int64" # "float32"
---@return runner.Tensor
function strategy_context:zeros(numel, dtype) end

---Facts about a job for a strategy's `memory` and `traffic`.
---@class runner.strategy.Job
---@field parameters integer # of the model
---@field world_size integer
---@field local_size integer # ranks on a node
---@field num_nodes integer
---@field micro_batch_size integer
---@field accumulation integer # micro-batches of a rank in one step
---@field element_bytes integer # of an element of the parameters
---@field optimizer_states integer # tensors of parameter size in the optimizer state: Adam 2, momentum 1, SGD 0; the most of any group
---@field buckets {numel: integer, sharded: boolean}[]
---@field options runner.Options

---@class runner.strategy.Block
---@field name string
---@field layer string # of two blocks in a transformer layer
---@field parameters {name: string, shape: integer[], numel: integer, trainable: boolean}[]

---A group of the optimizer. The last one has no `params`: it is for all other parameters.
---@class runner.strategy.ParameterGroup
---@field params? string[] # globs over names of parameters
---@field lr? number
---@field lr_factor? number # of the rate of other parameters, instead of lr
---@field weight_decay? number
---@field name? string # of an optimizer of the group's own; only a recipe sets name, momentum and ns_steps
---@field betas? number[] # this and the following: options of the group's optimizer, as in [optimizer]
---@field eps? number
---@field momentum? number
---@field nesterov? boolean
---@field ns_steps? integer
---@field adjust_lr? "match_rms_adamw"|"original"
---@field decay_rate? number
---@field clip_threshold? number
---@field scale_parameter? boolean

---@class runner.Strategy
---@field name? string
---@field about? string
---@field base? string # the built-in strategy that it extends
---@field options? table<string, runner.Option|any> # with `base` also values for its options
---@field replicas_differ? boolean # parameters differ between ranks after a step
---@field setup? fun(ctx: runner.strategy.Context, state: runner.State, options: runner.Options)
---@field setup_module? fun(model: runner.strategy.Model, ctx: runner.strategy.Context, state: runner.State, options: runner.Options)
---@field setup_optimizer? fun(groups: runner.strategy.ParameterGroup[], options: runner.Options): runner.strategy.ParameterGroup[]?
---@field units? fun(blocks: runner.strategy.Block[], options: runner.Options): string[][] # with `base` only
---@field shard? fun(parameter: {name: string, shape: integer[], numel: integer, trainable: boolean}, options: runner.Options): boolean
---@field reduce? fun(bucket: runner.strategy.Bucket, ctx: runner.strategy.Context, state: runner.State, options: runner.Options): runner.strategy.Work|function|nil
---@field after_update? fun(ctx: runner.strategy.Context, state: runner.State, options: runner.Options)
---@field memory? fun(job: runner.strategy.Job): number # bytes on a rank in addition to parameters, gradients and optimizer state
---@field traffic? fun(job: runner.strategy.Job): {collective: string, calls: integer, bytes: integer}[] # of one step
