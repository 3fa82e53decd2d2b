---@meta
-- What runner's Lua files see, for editors with the Lua language server: completion, hover and checks.
-- `runner init --lua` writes this file and a .luarc.json that names it.

---A number for each option, a list or a word: what [hooks.NAME] in the recipe says over the defaults. Read-only.
---@alias runner.Options table<string, any>

---A hook's own table: plain data (numbers, strings, booleans, lists, tables), kept in checkpoints.
---@alias runner.State table<string, any>

---A parameter or a gradient, whole: each rank holds a part or a copy. What it says (norm, mean, sum, min, max,
---histogram) is exact over all ranks, so every rank must ask, in the same order; what changes it (scale_, add_, copy_)
---and arithmetic work on what a rank holds, so every rank must do the same. Parameters do not change inside a step.
---A handle ends with the call of the hook that got it; keep a clone(), which stays until the training ends.
---@class runner.Tensor
---@field numel integer
---@field shape integer[]
---@operator add(runner.Tensor|number): runner.Tensor
---@operator sub(runner.Tensor|number): runner.Tensor
---@operator mul(runner.Tensor|number): runner.Tensor
---@operator div(runner.Tensor|number): runner.Tensor
local tensor = {}
---@return number # the Euclidean norm
function tensor:norm() end
---@return number
function tensor:mean() end
---@return number
function tensor:sum() end
---@return number
function tensor:min() end
---@return number
function tensor:max() end
---@param bins? integer # 10
---@return {min: number, max: number, counts: integer[]}
function tensor:histogram(bins) end
---@return runner.Tensor
function tensor:clone() end
---@param factor number
---@return runner.Tensor # itself, changed in place
function tensor:scale_(factor) end
---@param other runner.Tensor|number
---@return runner.Tensor # itself, changed in place
function tensor:add_(other) end
---@param other runner.Tensor|number
---@return runner.Tensor # itself, changed in place
function tensor:copy_(other) end

---The ranks of the run. Collectives: every rank calls them, in the same order.
---@class runner.World
---@field rank integer # from 0
---@field size integer
local world = {}
---@param value number
---@param operation? "sum"|"mean"|"min"|"max" # "sum"
---@return number
function world:all_reduce(value, operation) end
---@param value number
---@return number[] # by rank
function world:all_gather(value) end
---@param value number
---@param root? integer # 0
---@return number
function world:broadcast(value, root) end
function world:barrier() end

---The training, as a hook sees it.
---@class runner.Context
---@field step integer # optimizer steps done
---@field epoch integer # from 0
---@field loss number # of the last global batch; NaN before the first
---@field lr number
---@field metrics table<string, number> # the last value of each, validation's too
---@field recipe table<string, any> # read-only
---@field is_global_zero boolean # rank 0
---@field world runner.World
---@field exception string? # in on_exception: what happened
local context = {}
---@param name string
---@param value number
---Into the ledger, as a metric; not under a name of the trainer's own (loss, lr, grad_norm, val_loss ...).
---@param options? {sync: "none"|"sum"|"mean"|"min"|"max"} # over the ranks, alike on all; "none": rank 0's, kept there
function context:log(name, value, options) end
---@param name string # a plain file name
---@return string path # in the run folder; write it on rank 0 only
function context:artifact(name) end
---@param reason string # ends training after this step, on all ranks, whichever of them asks
function context:stop(reason) end
function context:checkpoint() end
---From on_train_batch_start to on_before_optimizer_step, the same on every rank.
---@param lr number # until the schedule sets it at the next step
function context:set_lr(lr) end
---Leaves the coming update out, on all ranks; from on_train_batch_start to on_before_optimizer_step.
function context:skip_step() end
---@return string[]
function context:parameter_names() end
---@param name string
---@return runner.Tensor
function context:parameter(name) end
---In on_before_optimizer_step only: summed over ranks, before clipping.
---@param name string
---@return runner.Tensor
function context:gradient(name) end

---@class runner.Option
---@field type "number"|"integer"|"boolean"|"string"|"list"
---@field default? any # without one it is nil unless given
---@field min? number
---@field max? number
---@field choices? string[]
---@field help? string

---@alias runner.Hook fun(ctx: runner.Context, state: runner.State, options: runner.Options)

---What a hook file returns.
---@class runner.HookFile
---@field name? string # what [hooks.NAME] says; default the file's name
---@field about? string
---@field options? table<string, runner.Option>
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

---In a recipe.lua: builds the recipe on another, and returns what that one says.
---@param base string # a .toml or .lua file, relative to this one
---@return table<string, any>
function extend(base) end

---How a trial of a sweep ended.
---@class runner.Result
---@field trial integer # its number, from 0
---@field status "finished"|"pruned"|"failed"
---@field value number? # the metric, as measured; nil where there is none
---@field step integer # that the value was measured at
---@field reason string? # of failed: out_of_memory, nan, user_error, device, timeout, preempted or other
---@field parameters table<string, any>

---What happens to trials; an end has the fields of a result, too.
---@class runner.SweepEvent: runner.Result
---@field kind "report"|"end"

---A trial of a sweep, as far as `run` was told of it.
---@class runner.Trial
---@field number integer
---@field parameters table<string, any>
---@field status "running"|"finished"|"pruned"|"failed"
---@field value number?
---@field reason string?
local trial = {}
---@return {step: integer, value: number?}[]
function trial:reports() end
---Ends it as pruned at its next report; with `reports = true` in the file.
function trial:stop() end

---What `run` of a sweep gets. Trials begin in the order in which they are started.
---@class runner.Sweep
---@field seed integer
---@field metric string
---@field goal "min"|"max"
---@field running integer # trials that were started and whose end was not told yet
local sweep = {}
---Starts a trial and waits for its end.
---@param parameters table<string, any> # {["optimizer.lr"] = 1e-3}
---@return runner.Result
function sweep:try(parameters) end
---Starts a trial without waiting.
---@param parameters table<string, any>
---@return runner.Trial
function sweep:start(parameters) end
---@param trial? runner.Trial # without one: whichever ends next
---@return runner.Result? # nil: none is running
function sweep:wait(trial) end
---@return runner.SweepEvent? # nil: none is running
function sweep:next_event() end
---@param number integer
---@return runner.Trial
function sweep:trial(number) end
---@return table<string, any> # a random point of the file's `space`
function sweep:sample() end
---@return runner.Result? # of those that finished
function sweep:best() end

---What a sweep in Lua returns: the keys of [sweep], and `run`.
---@class runner.SweepFile
---@field recipe string # relative to this file
---@field run fun(sweep: runner.Sweep)
---@field reports? boolean # `run` is told every point of the metric
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
