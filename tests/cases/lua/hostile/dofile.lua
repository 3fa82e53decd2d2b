-- ends by: script dofile is not available in the sandbox; `trusted = true` in [hooks] allows it
dofile("x.lua")
