-- ends by: script dofile is not available in the sandbox; `trusted = true` in [hooks] opens it
dofile("x.lua")
