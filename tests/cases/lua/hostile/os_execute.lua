-- ends by: script os.execute is not available in the sandbox; `trusted = true` in [hooks] opens it
os.execute("true")
