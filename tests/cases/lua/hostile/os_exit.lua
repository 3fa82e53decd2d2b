-- ends by: script os.exit is not available in the sandbox; `trusted = true` in [hooks] allows it
os.exit(0)
