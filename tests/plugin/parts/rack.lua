-- A cluster environment for a scheduler that starts one process on each machine of a job and sets RACK_NODE, RACK_NODES, RACK_HEAD and
-- RACK_JOB.
return {
  name = "rack",
  options = {
    prefix = { type = "string", default = "RACK_", help = "How the names of the variables begin" },
    port = { type = "integer", min = 1, max = 65535, help = "Where the processes meet; default: follows from the job" },
  },
  ranks = function(env, options)
    local function variable(name)
      return env(options.prefix .. name)
        or error(options.prefix .. name .. " is not set: is this process started by the scheduler?")
    end
    local function number(name)
      return math.tointeger(tonumber(variable(name))) or error(options.prefix .. name .. " is not a number")
    end
    return {
      node_rank = number("NODE"),
      num_nodes = number("NODES"),
      main_address = variable("HEAD"),
      main_port = options.port,
      job_id = variable("JOB"),
    }
  end,
}
