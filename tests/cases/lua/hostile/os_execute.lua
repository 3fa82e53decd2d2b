-- ends by: script os.execute is not available in the sandbox; `trusted = true` in [hooks] allows it
os.execute("true")
