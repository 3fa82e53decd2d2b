-- ends by: script debug.sethook is not available in the sandbox; `trusted = true` in [hooks] allows it
debug.sethook()
